// Tree attention of training on tensor cores, for --math bf16: queries, keys and values of level 0 and gradients of outputs
// lie in memory as bfloat16, heads of up to 128 elements, a multiple of 8. Weights and their gradients are rounded for the
// products that follow them; scores, sums and what a row sees of the levels below are in f32. It is part of train.cu.
//
// A block has 64 lines, or 64 keys: 16 a warp, whose tiles of 32 keys or lines pass by in ascending order (Dao, FlashAttention-2,
// 2023, §3.1). A lane has rows lane/4 and lane/4 + 8 of its warp's 16, and of every eight columns 2·(lane%4) and the next.

struct TreeHalfArgs {
  float *o, *lse;
  const u16 *q, *k, *v, *d_o;
  const u64 *keys, *values; // [levels] addresses
  const i32 *first, *last, *anc;
  i64 rows, heads, kv_heads, dim, levels;
  const Line *lines;
  float *dq, *dk, *dv; // dk and dv of level 0
  const KeyTile *tiles;
  i64 count; // of keys of level 0
};

enum { half_lines = 64, half_tile = 32, head_pieces = most_dim / 8, head_steps = most_dim / 16 };

// head_piece is the place of 16 bytes of a row of a tile [rows][128]: eight rows' meet all banks.
DEVICE int head_piece(int row, int piece) { return row * head_pieces + (piece ^ (row & 7)); }

// copy_heads starts to copy a tile's rows, at(row), zeros where that is null or a head has ended.
template <int rows, class At>
DEVICE void copy_heads(U4 *to, int dim, At at) {
#pragma unroll
  for (int i = 0; i < rows * head_pieces; i += 128) {
    int row = (i + tid()) / head_pieces, piece = tid() % head_pieces;
    const u16 *from = at(row);
    copy16(to + head_piece(row, piece), from + piece * 8, from && piece * 8 < dim);
  }
}

// Of a tile, rows_of gives 16 rows and 16 elements, from step on, as a; cols_of 16 rows as columns of b: x and y of eight, z and w of
// the others; and turned_of 16 rows, over which is summed, and 16 elements as columns of b.
DEVICE U4 rows_of(const U4 *tile, int row, int step) {
  int l = tid() & 31;
  return ldmatrix(tile + head_piece(row + (l >> 3 & 1) * 8 + (l & 7), step * 2 + (l >> 4)));
}
DEVICE U4 cols_of(const U4 *tile, int row, int step) {
  int l = tid() & 31;
  return ldmatrix(tile + head_piece(row + (l >> 4) * 8 + (l & 7), step * 2 + (l >> 3 & 1)));
}
DEVICE U4 turned_of(const U4 *tile, int row, int step) {
  int l = tid() & 31;
  return ldmatrix_turned(tile + head_piece(row + (l >> 3 & 1) * 8 + (l & 7), step * 2 + (l >> 4)));
}

// scores adds the products of 16 rows, as a, with 16 rows of a tile.
DEVICE void scores(float s[2][4], const U4 a[head_steps], const U4 *tile, int row, int dim) {
#pragma unroll
  for (int i = 0; i < head_steps; i++) {
    if (i * 16 >= dim) continue;
    U4 b = cols_of(tile, row, i);
    mma(s[0], a[i], b.x, b.y);
    mma(s[1], a[i], b.z, b.w);
  }
}

// weighted adds 16 rows of a tile, weighted by p [16][16].
DEVICE void weighted(float o[2 * head_steps][4], const float p[2][4], const U4 *tile, int row, int dim) {
  U4 a{pack2(p[0][0], p[0][1]), pack2(p[0][2], p[0][3]), pack2(p[1][0], p[1][1]), pack2(p[1][2], p[1][3])};
#pragma unroll
  for (int i = 0; i < head_steps; i++) {
    if (i * 16 >= dim) continue;
    U4 b = turned_of(tile, row, i);
    mma(o[2 * i], a, b.x, b.y);
    mma(o[2 * i + 1], a, b.z, b.w);
  }
}

// head_dot returns the product of a line, row h of a fragment's two, with a head in f32: each lane of a line has a quarter of it.
DEVICE float head_dot(const U4 a[head_steps], int h, const float *p, int dim) {
  float s = 0;
  p += (tid() & 3) * 2;
#pragma unroll
  for (int i = 0; i < head_steps; i++) {
    u32 lo = h ? a[i].y : a[i].x, hi = h ? a[i].w : a[i].z;
    if (i * 16 < dim) {
      F2 x = *(const F2 *)(p + i * 16);
      s = madd(high2(lo), x.y, madd(low2(lo), x.x, s));
    }
    if (i * 16 + 8 < dim) {
      F2 x = *(const F2 *)(p + i * 16 + 8);
      s = madd(high2(hi), x.y, madd(low2(hi), x.x, s));
    }
  }
  s += shfl_xor(s, 1);
  return s + shfl_xor(s, 2);
}

// head_add adds e times a head in f32 to a line's sums.
DEVICE void head_add(float o[2 * head_steps][4], int h, float e, const float *p, int dim) {
  p += (tid() & 3) * 2;
#pragma unroll
  for (int i = 0; i < 2 * head_steps; i++)
    if (i * 8 < dim) {
      F2 x = *(const F2 *)(p + i * 8);
      o[i][2 * h] = madd(e, x.x, o[i][2 * h]);
      o[i][2 * h + 1] = madd(e, x.y, o[i][2 * h + 1]);
    }
}

// A LineTile is the lines of a block.
struct LineTile {
  int dim, heads, head, group, base, lines, lo, hi; // lo and hi: the keys that any line sees
  int row[2], index[2];                           // of the lane's lines: index among all rows' heads
  bool live[2];
  DEVICE_MEMBER explicit LineTile(const TreeHalfArgs &a) {
    dim = (int)a.dim, heads = (int)a.heads, head = block_y(), group = heads / (int)a.kv_heads, base = block_x() * half_lines, lines = (int)a.rows * group;
    int end = base + half_lines < lines ? base + half_lines : lines;
    lo = 0x7fffffff, hi = 0;
    for (int r = base / group + (tid() & 31); r <= (end - 1) / group; r += 32) {
      i32 f = a.first[r], e = a.last[r] + 1;
      lo = f < lo ? f : lo;
      hi = e > hi ? e : hi;
    }
    for (int m = 16; m; m >>= 1) {
      i32 f = shfl_xor(lo, m), e = shfl_xor(hi, m);
      lo = f < lo ? f : lo;
      hi = e > hi ? e : hi;
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int l = line(h);
      live[h] = l < lines;
      row[h] = live[h] ? l / group : 0;
      index[h] = row[h] * heads + head * group + (live[h] ? l % group : 0);
    }
  }
  DEVICE_MEMBER int line(int h) const { return base + (tid() >> 5) * 16 + h * 8 + (tid() >> 2 & 7); }
  // copy starts to copy the lines' heads of x.
  DEVICE_MEMBER void copy(U4 *to, const u16 *x) const {
    copy_heads<half_lines>(to, dim, [&](int r) __attribute__((always_inline)) -> const u16 * {
      int l = base + r;
      return l < lines ? x + ((i64)(l / group) * heads + head * group + l % group) * dim : nullptr;
    });
  }
};

// key_heads starts to copy 32 keys, or values, of level 0.
DEVICE void key_heads(const TreeHalfArgs &a, U4 *to, const u16 *x, int from, int behind) {
  copy_heads<half_tile>(to, (int)a.dim, [&](int r) __attribute__((always_inline)) -> const u16 * {
    return from + r < behind ? x + ((i64)(from + r) * a.kv_heads + block_y()) * a.dim : nullptr;
  });
}

// Grid: sixty-fours of lines, heads of keys.
KERNEL BOUNDS(128, 2) void tree_attend_half(const TreeHalfArgs a) {
  SHARED U4 ring[2][2][half_tile * head_pieces]; // keys and values
  LineTile at(a);
  int warp = tid() >> 5, quad = tid() & 3, dim = at.dim;
  float scale = quotient(1.0f, root((float)dim));
  i32 begin[2], end[2];
  float most[2], sum[2], o[2 * head_steps][4];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    begin[h] = at.live[h] ? a.first[at.row[h]] : 0;
    end[h] = at.live[h] ? a.last[at.row[h]] + 1 : 0;
    most[h] = as_float(0xff800000u);
    sum[h] = 0;
  }
#pragma unroll
  for (int i = 0; i < 2 * head_steps; i++)
#pragma unroll
    for (int e = 0; e < 4; e++) o[i][e] = 0;
  at.copy(ring[1][0], a.q);
  commit_copies();
  auto load = [&](int n, int t) __attribute__((always_inline)) {
    if (t < at.hi) {
      key_heads(a, ring[n][0], a.k, t, at.hi);
      key_heads(a, ring[n][1], a.v, t, at.hi);
    }
    commit_copies();
  };
  load(0, at.lo);
  wait_copies<1>();
  barrier(); // queries are there
  U4 q[head_steps];
#pragma unroll
  for (int i = 0; i < head_steps; i++) q[i] = rows_of(ring[1][0], warp * 16, i);
  int n = 0;
#pragma unroll 1
  for (int t = at.lo; t < at.hi; t += half_tile, n ^= 1) {
    wait_copies<0>();
    barrier(); // a tile of keys is there, and the other one was read
    load(n ^ 1, t + half_tile);
    float s[4][4], f[2];
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) s[j][e] = 0;
#pragma unroll
    for (int m = 0; m < 2; m++) scores(s + 2 * m, q, ring[n][0], m * 16, dim);
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float top = as_float(0xff800000u), all = 0;
#pragma unroll
      for (int j = 0; j < 4; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          int key = t + j * 8 + quad * 2 + e;
          float &x = s[j][2 * h + e];
          x = key >= begin[h] && key < end[h] ? x * scale : as_float(0xff800000u);
          top = x > top ? x : top;
        }
#pragma unroll
      for (int m = 1; m < 4; m *= 2) {
        float x = shfl_xor(top, m);
        top = x > top ? x : top;
      }
      top = top > most[h] ? top : most[h];
      // Before a line's first key there is nothing to scale.
      f[h] = sum[h] > 0 ? exponential(most[h] - top) : 1.0f;
#pragma unroll
      for (int j = 0; j < 4; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float &x = s[j][2 * h + e];
          x = x == as_float(0xff800000u) ? 0 : exponential(x - top);
          all += x;
        }
      all += shfl_xor(all, 1);
      all += shfl_xor(all, 2);
      sum[h] = sum[h] * f[h] + all;
      most[h] = top;
    }
#pragma unroll
    for (int i = 0; i < 2 * head_steps; i++)
#pragma unroll
      for (int e = 0; e < 4; e++) o[i][e] *= f[e / 2];
#pragma unroll
    for (int m = 0; m < 2; m++) weighted(o, s + 2 * m, ring[n][1], m * 16, dim);
  }
#pragma unroll
  for (int h = 0; h < 2; h++) {
#pragma unroll 1
    for (int l = 1; l < (int)a.levels; l++) {
      i64 from = ((i64)a.anc[(l - 1) * a.rows + at.row[h]] * a.kv_heads + at.head) * dim;
      float s = head_dot(q, h, (const float *)a.keys[l] + from, dim) * scale;
      float top = s > most[h] ? s : most[h], f = exponential(most[h] - top), e = exponential(s - top);
      most[h] = top;
      sum[h] = sum[h] * f + e;
#pragma unroll
      for (int i = 0; i < 2 * head_steps; i++) o[i][2 * h] *= f, o[i][2 * h + 1] *= f;
      head_add(o, h, e, (const float *)a.values[l] + from, dim);
    }
    if (!at.live[h]) continue;
    float inv = quotient(1.0f, sum[h]);
#pragma unroll
    for (int i = 0; i < 2 * head_steps; i++)
      if (i * 8 < dim) *(F2 *)(a.o + (i64)at.index[h] * dim + i * 8 + quad * 2) = F2{o[i][2 * h] * inv, o[i][2 * h + 1] * inv};
    if (quad == 0) a.lse[at.index[h]] = (float)((double)most[h] + logarithm((double)sum[h]));
  }
}

// tree_queries_half gives dq. Grid: sixty-fours of lines, heads of keys.
KERNEL BOUNDS(128, 2) void tree_queries_half(const TreeHalfArgs a) {
  SHARED U4 ring[2][2][half_tile * head_pieces];
  LineTile at(a);
  int warp = tid() >> 5, quad = tid() & 3, dim = at.dim;
  float scale = quotient(1.0f, root((float)dim)), dq[2 * head_steps][4];
  Line own[2];
#pragma unroll
  for (int h = 0; h < 2; h++) own[h] = at.live[h] ? a.lines[at.head * at.lines + at.line(h)] : Line{0, -1, 0, 0};
#pragma unroll
  for (int i = 0; i < 2 * head_steps; i++)
#pragma unroll
    for (int e = 0; e < 4; e++) dq[i][e] = 0;
  at.copy(ring[0][0], a.q);
  at.copy(ring[1][0], a.d_o);
  commit_copies();
  wait_copies<0>();
  barrier(); // queries and gradients are there
  U4 q[head_steps], g[head_steps];
#pragma unroll
  for (int i = 0; i < head_steps; i++) q[i] = rows_of(ring[0][0], warp * 16, i), g[i] = rows_of(ring[1][0], warp * 16, i);
  barrier(); // they were read
  auto load = [&](int n, int t) __attribute__((always_inline)) {
    if (t < at.hi) {
      key_heads(a, ring[n][0], a.k, t, at.hi);
      key_heads(a, ring[n][1], a.v, t, at.hi);
    }
    commit_copies();
  };
  load(0, at.lo);
  int n = 0;
#pragma unroll 1
  for (int t = at.lo; t < at.hi; t += half_tile, n ^= 1) {
    wait_copies<0>();
    barrier(); // a tile of keys for dq is there, and the other one was read
    load(n ^ 1, t + half_tile);
    float s[4][4], w[4][4];
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) s[j][e] = w[j][e] = 0;
#pragma unroll
    for (int m = 0; m < 2; m++) scores(s + 2 * m, q, ring[n][0], m * 16, dim), scores(w + 2 * m, g, ring[n][1], m * 16, dim);
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const Line &l = own[e / 2];
        int key = t + j * 8 + quad * 2 + e % 2;
        s[j][e] = key >= l.first && key <= l.last ? exponential(s[j][e] * scale - l.lse) * (w[j][e] - l.delta) : 0;
      }
#pragma unroll
    for (int m = 0; m < 2; m++) weighted(dq, s + 2 * m, ring[n][0], m * 16, dim);
  }
#pragma unroll
  for (int h = 0; h < 2; h++) {
#pragma unroll 1
    for (int l = 1; l < (int)a.levels; l++) {
      i64 from = ((i64)a.anc[(l - 1) * a.rows + at.row[h]] * a.kv_heads + at.head) * dim;
      const float *k = (const float *)a.keys[l] + from;
      float s = head_dot(q, h, k, dim) * scale, w = head_dot(g, h, (const float *)a.values[l] + from, dim);
      head_add(dq, h, exponential(s - own[h].lse) * (w - own[h].delta), k, dim);
    }
    if (!at.live[h]) continue;
#pragma unroll
    for (int i = 0; i < 2 * head_steps; i++)
      if (i * 8 < dim) *(F2 *)(a.dq + (i64)at.index[h] * dim + i * 8 + quad * 2) = F2{dq[i][2 * h] * scale, dq[i][2 * h + 1] * scale};
  }
}

// tree_keys_half adds to dk and dv of level 0: 64 keys a block, of which KeyTile names the first. Grid: tiles of keys, heads of keys.
KERNEL BOUNDS(128, 2) void tree_keys_half(const TreeHalfArgs a) {
  SHARED U4 values[half_lines * head_pieces];
  SHARED U4 ring[2][2][half_tile * head_pieces]; // queries and gradients of outputs
  KeyTile at = a.tiles[block_x()];
  int dim = (int)a.dim, heads = (int)a.heads, head = block_y(), group = heads / (int)a.kv_heads, lines = (int)a.rows * group;
  int warp = tid() >> 5, quad = tid() & 3, own = at.key + warp * 16 + (tid() >> 2 & 7), from = at.from * group, to = at.to * group;
  float scale = quotient(1.0f, root((float)dim)), dk[2 * head_steps][4], dv[2 * head_steps][4];
#pragma unroll
  for (int i = 0; i < 2 * head_steps; i++)
#pragma unroll
    for (int e = 0; e < 4; e++) dk[i][e] = dv[i][e] = 0;
  auto line_heads = [&](U4 *to_tile, const u16 *x, int l0) __attribute__((always_inline)) {
    copy_heads<half_tile>(to_tile, dim, [&](int r) __attribute__((always_inline)) -> const u16 * {
      int l = l0 + r;
      return l < to ? x + ((i64)(l / group) * heads + head * group + l % group) * dim : nullptr;
    });
  };
  auto load = [&](int n, int l0) __attribute__((always_inline)) {
    if (l0 < to) {
      line_heads(ring[n][0], a.q, l0);
      line_heads(ring[n][1], a.d_o, l0);
    }
    commit_copies();
  };
#pragma unroll
  for (int h = 0; h < 2; h++) {
    key_heads(a, ring[1][h], a.k, at.key + h * half_tile, (int)a.count);
    key_heads(a, values + h * half_tile * head_pieces, a.v, at.key + h * half_tile, (int)a.count);
  }
  commit_copies();
  load(0, from);
  wait_copies<1>();
  barrier(); // keys and values are there
  U4 k[head_steps];
#pragma unroll
  for (int i = 0; i < head_steps; i++) k[i] = rows_of(ring[1][0], warp * 16, i);
  int n = 0;
#pragma unroll 1
  for (int l0 = from; l0 < to; l0 += half_tile, n ^= 1) {
    wait_copies<0>();
    barrier(); // a tile of lines is there, and the other one was read
    load(n ^ 1, l0 + half_tile);
#pragma unroll 1
    for (int m = 0; m < half_tile; m += 16) { // registers are short
      float p[2][4], w[2][4];
#pragma unroll
      for (int j = 0; j < 2; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) p[j][e] = w[j][e] = 0;
      scores(p, k, ring[n][0], m, dim);
#pragma unroll
      for (int i = 0; i < head_steps; i++) {
        if (i * 16 >= dim) continue;
        U4 v = rows_of(values, warp * 16, i), b = cols_of(ring[n][1], m, i);
        mma(w[0], v, b.x, b.y);
        mma(w[1], v, b.z, b.w);
      }
#pragma unroll
      for (int j = 0; j < 2; j++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          int l = l0 + m + j * 8 + quad * 2 + e;
          Line line = a.lines[head * lines + (l < to ? l : from)];
#pragma unroll
          for (int h = 0; h < 2; h++) {
            int key = own + h * 8;
            float &x = p[j][2 * h + e], &y = w[j][2 * h + e];
            x = l < to && key >= line.first && key <= line.last ? exponential(x * scale - line.lse) : 0;
            y = x == 0 ? 0 : x * (y - line.delta);
          }
        }
      weighted(dv, p, ring[n][1], m, dim);
      weighted(dk, w, ring[n][0], m, dim);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; h++) {
    int key = own + h * 8;
    if (key >= (int)a.count) continue;
    i64 dst = ((i64)key * a.kv_heads + head) * dim + quad * 2;
#pragma unroll
    for (int i = 0; i < 2 * head_steps; i++)
      if (i * 8 < dim) {
        F2 *x = (F2 *)(a.dk + dst + i * 8), *y = (F2 *)(a.dv + dst + i * 8);
        *x = F2{x->x + dk[i][2 * h] * scale, x->y + dk[i][2 * h + 1] * scale};
        *y = F2{y->x + dv[i][2 * h], y->y + dv[i][2 * h + 1]};
      }
  }
}
