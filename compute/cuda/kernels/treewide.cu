// Tree attention of training for heads of more than 128 and up to 256 elements. It is part of train.cu, whose kernels of narrower heads
// it follows. A tile has 16 keys, since a block has room for no more beside lines, and half a warp has one product each of all of
// them: of two lines with keys, or of one line with keys and of its gradient with values.

enum { wide_tile = 16, wide_ld = widest_dim + 4, wide_parts = widest_dim / most_dim };

// wide_load copies keys and values [from, from+16) of level 0, zeros behind to.
DEVICE void wide_load(const TreeArgs &a, float *keys, float *values, int from, int to, int head) {
  const float *k = (const float *)a.keys[0], *v = (const float *)a.values[0];
  int lane = tid() & 31, pad = ((int)a.dim + 3) / 4 * 4;
  for (int r = tid() >> 5; r < wide_tile; r += warps) {
    i64 at = ((i64)(from + r) * a.kv_heads + head) * a.dim;
    for (int d = lane; d < pad; d += 32) {
      bool ok = from + r < to && d < a.dim;
      keys[r * wide_ld + d] = ok ? k[at + d] : 0;
      values[r * wide_ld + d] = ok ? v[at + d] : 0;
    }
  }
}

// half_max and half_sum are of half a warp.
DEVICE float half_max(float v) {
  for (int m = 8; m; m >>= 1) {
    float o = shfl_xor(v, m);
    v = o > v ? o : v;
  }
  return v;
}
DEVICE float half_sum(float v) {
  for (int m = 8; m; m >>= 1) v += shfl_xor(v, m);
  return v;
}

// A WideHead is a lane's elements of a head: four of every 128, zeros behind its end.
struct WideHead {
  F4 part[wide_parts];
  DEVICE_MEMBER static WideHead of(const float *p, int lane, int dim) {
    WideHead h;
#pragma unroll
    for (int i = 0; i < wide_parts; i++) h.part[i] = head_of(p + i * most_dim, lane, dim - i * most_dim);
    return h;
  }
  DEVICE_MEMBER static WideHead none() {
    WideHead h;
#pragma unroll
    for (int i = 0; i < wide_parts; i++) h.part[i] = F4{0, 0, 0, 0};
    return h;
  }
  DEVICE_MEMBER float dot(const WideHead &o) const {
    float s = 0;
#pragma unroll
    for (int i = 0; i < wide_parts; i++) s = dot4(part[i], o.part[i], s);
    return warp_sum(s);
  }
  DEVICE_MEMBER void scale(float f) {
#pragma unroll
    for (int i = 0; i < wide_parts; i++) part[i] = F4{part[i].x * f, part[i].y * f, part[i].z * f, part[i].w * f};
  }
  DEVICE_MEMBER void add(float e, const WideHead &o) {
#pragma unroll
    for (int i = 0; i < wide_parts; i++)
      part[i] = F4{madd(e, o.part[i].x, part[i].x), madd(e, o.part[i].y, part[i].y), madd(e, o.part[i].z, part[i].z), madd(e, o.part[i].w, part[i].w)};
  }
  // add_shared adds e times a row of a tile, which has zeros up to a multiple of 4 behind a head and anything behind that.
  DEVICE_MEMBER void add_shared(float e, const float *row, int lane, int pad) {
#pragma unroll
    for (int i = 0; i < wide_parts; i++)
      if (i * most_dim + lane * 4 < pad) {
        F4 v = four(row + i * most_dim + lane * 4);
        part[i] = F4{madd(e, v.x, part[i].x), madd(e, v.y, part[i].y), madd(e, v.z, part[i].z), madd(e, v.w, part[i].w)};
      }
  }
  // put sets the elements of a head, or adds to them.
  DEVICE_MEMBER void put(float *p, int lane, int dim, float f, bool add) const {
#pragma unroll
    for (int i = 0; i < wide_parts; i++) {
      float v[4] = {part[i].x, part[i].y, part[i].z, part[i].w};
#pragma unroll
      for (int e = 0; e < 4; e++) {
        int d = i * most_dim + lane * 4 + e;
        if (d < dim) p[d] = add ? p[d] + v[e] * f : v[e] * f;
      }
    }
  }
};

// tree_attend_wide has 8 lines a block, two a warp. Grid: eights of lines, heads of keys.
KERNEL BOUNDS(128) void tree_attend_wide(const TreeArgs a) {
  enum { own = 2 };
  SHARED float keys[wide_tile * wide_ld];
  SHARED float values[wide_tile * wide_ld];
  SHARED float queries[warps * own][widest_dim];
  SHARED float weights[warps * own][wide_tile];
  int lane = tid() & 31, warp = tid() >> 5, dim = (int)a.dim, pad = (dim + 3) / 4 * 4;
  int heads = (int)a.heads, head = block_y(), group = heads / (int)a.kv_heads, base = block_x() * warps * own, lines = (int)a.rows * group;
  int lo = 0x7fffffff, hi = 0; // keys that any line sees
  for (int l = base; l < base + warps * own && l < lines; l++) {
    int f = a.first[l / group], e = a.last[l / group] + 1;
    lo = f < lo ? f : lo;
    hi = e > hi ? e : hi;
  }
  float scale = quotient(1.0f, root((float)a.dim)), most[own], sum[own];
  int row[own], index[own];
  i32 begin[own], end[own];
  WideHead o[own];
#pragma unroll
  for (int i = 0; i < own; i++) {
    int l = base + warp * own + i;
    bool live = l < lines;
    row[i] = live ? l / group : 0;
    index[i] = row[i] * heads + head * group + (live ? l % group : 0);
    begin[i] = live ? a.first[row[i]] : 0;
    end[i] = live ? a.last[row[i]] + 1 : 0;
    most[i] = as_float(0xff800000u);
    sum[i] = 0;
    o[i] = WideHead::none();
    for (int d = lane; d < pad; d += 32) queries[warp * own + i][d] = d < dim ? a.q[(i64)index[i] * dim + d] * scale : 0;
  }
  int mine = lane / wide_tile, key = lane % wide_tile; // of the warp's lines, and of a tile
  for (int t = lo; t < hi; t += wide_tile) {
    barrier();
    wide_load(a, keys, values, t, hi, head);
    barrier(); // a tile is there
    float s = 0;
    for (int d = 0; d < pad; d += 4) s = dot4(four(&queries[warp * own + mine][d]), four(keys + key * wide_ld + d), s);
    bool seen = t + key >= (mine ? begin[1] : begin[0]) && t + key < (mine ? end[1] : end[0]);
    float before = mine ? most[1] : most[0], top = half_max(seen ? s : as_float(0xff800000u));
    top = before > top ? before : top;
    float e = seen ? exponential(s - top) : 0, all = half_sum(e);
    weights[warp * own + mine][key] = e;
    // Both halves know both lines.
    float other = shfl_xor(top, wide_tile), rest = shfl_xor(all, wide_tile);
#pragma unroll
    for (int i = 0; i < own; i++) {
      float m = i == mine ? top : other;
      // Before a row's first key there is nothing to scale.
      float f = sum[i] > 0 ? exponential(most[i] - m) : 1.0f;
      most[i] = m;
      sum[i] = sum[i] * f + (i == mine ? all : rest);
      o[i].scale(f);
    }
    barrier(); // weights of a wide tile are there
    for (int j = 0; j < wide_tile; j++)
#pragma unroll
      for (int i = 0; i < own; i++) o[i].add_shared(weights[warp * own + i][j], values + j * wide_ld, lane, pad);
  }
  barrier(); // queries, where there is no key
#pragma unroll
  for (int i = 0; i < own; i++) {
    if (base + warp * own + i >= lines) continue;
    WideHead q = WideHead::of(queries[warp * own + i], lane, dim);
    for (int l = 1; l < (int)a.levels; l++) {
      i64 at = ((i64)a.anc[(l - 1) * a.rows + row[i]] * a.kv_heads + head) * dim;
      float s = q.dot(WideHead::of((const float *)a.keys[l] + at, lane, dim));
      float m = s > most[i] ? s : most[i], f = exponential(most[i] - m), e = exponential(s - m);
      most[i] = m;
      sum[i] = sum[i] * f + e;
      o[i].scale(f);
      o[i].add(e, WideHead::of((const float *)a.values[l] + at, lane, dim));
    }
    o[i].put(a.o + (i64)index[i] * dim, lane, dim, quotient(1.0f, sum[i]), false);
    if (lane == 0) a.lse[index[i]] = (float)((double)most[i] + logarithm((double)sum[i]));
  }
}

// tree_delta_wide has one line a warp. Grid: eights of rows' heads.
KERNEL BOUNDS(256) void tree_delta_wide(const TreeArgs a) {
  int lane = tid() & 31, dim = (int)a.dim;
  i64 h = (i64)block_x() * 8 + (tid() >> 5);
  if (h >= a.rows * a.heads) return;
  float s = WideHead::of(a.d_o + h * dim, lane, dim).dot(WideHead::of(a.o + h * dim, lane, dim));
  if (lane == 0) a.delta[h] = s;
}

// tree_queries_wide gives dq: 4 lines a block, one a warp. Grid: fours of lines, heads of keys.
KERNEL BOUNDS(128) void tree_queries_wide(const TreeArgs a) {
  SHARED float keys[wide_tile * wide_ld];
  SHARED float values[wide_tile * wide_ld];
  SHARED float factors[warps][2][widest_dim]; // queries and gradients
  SHARED float weights[warps][wide_tile];
  int lane = tid() & 31, warp = tid() >> 5, dim = (int)a.dim, pad = (dim + 3) / 4 * 4;
  int heads = (int)a.heads, head = block_y(), group = heads / (int)a.kv_heads, base = block_x() * warps, lines = (int)a.rows * group;
  int lo = 0x7fffffff, hi = 0;
  for (int l = base; l < base + warps && l < lines; l++) {
    int f = a.first[l / group], e = a.last[l / group] + 1;
    lo = f < lo ? f : lo;
    hi = e > hi ? e : hi;
  }
  float scale = quotient(1.0f, root((float)a.dim));
  int l = base + warp, live = l < lines, row = live ? l / group : 0, index = row * heads + head * group + (live ? l % group : 0);
  i32 begin = live ? a.first[row] : 0, end = live ? a.last[row] + 1 : 0;
  float lse = a.lse[index], delta = a.delta[index];
  for (int d = lane; d < pad; d += 32) {
    factors[warp][0][d] = d < dim ? a.q[(i64)index * dim + d] * scale : 0;
    factors[warp][1][d] = d < dim ? a.d_o[(i64)index * dim + d] : 0;
  }
  WideHead dq = WideHead::none();
  int which = lane / wide_tile, key = lane % wide_tile;
  const float *side = (which ? values : keys) + key * wide_ld;
  for (int t = lo; t < hi; t += wide_tile) {
    barrier();
    wide_load(a, keys, values, t, hi, head);
    barrier(); // a tile of the gradient is there
    float s = 0;
    for (int d = 0; d < pad; d += 4) s = dot4(four(&factors[warp][which][d]), four(side + d), s);
    float w = shfl_xor(s, wide_tile);
    bool seen = t + key >= begin && t + key < end;
    if (!which) weights[warp][key] = seen ? exponential(s - lse) * (w - delta) : 0;
    barrier(); // weights of a wide tile of the gradient are there
    for (int j = 0; j < wide_tile; j++) dq.add_shared(weights[warp][j], keys + j * wide_ld, lane, pad);
  }
  barrier();
  if (!live) return;
  WideHead q = WideHead::of(factors[warp][0], lane, dim), g = WideHead::of(factors[warp][1], lane, dim);
  for (int l = 1; l < (int)a.levels; l++) {
    i64 at = ((i64)a.anc[(l - 1) * a.rows + row] * a.kv_heads + head) * dim;
    WideHead k = WideHead::of((const float *)a.keys[l] + at, lane, dim);
    float s = q.dot(k), w = g.dot(WideHead::of((const float *)a.values[l] + at, lane, dim));
    dq.add(exponential(s - lse) * (w - delta), k);
  }
  dq.put(a.dq + (i64)index * dim, lane, dim, scale, false);
}

// tree_keys_wide adds to dk and dv of level 0: 16 keys a block, whose lines pass by, four at a time in ascending order. Grid: tiles
// of keys, heads of keys.
KERNEL BOUNDS(128) void tree_keys_wide(const TreeArgs a) {
  enum { eighths = widest_dim / 32 };
  SHARED float keys[wide_tile * wide_ld];
  SHARED float values[wide_tile * wide_ld];
  SHARED float factors[2][warps * wide_ld]; // queries and gradients
  SHARED float probs[warps][wide_tile];
  SHARED float weights[warps][wide_tile];
  int lane = tid() & 31, warp = tid() >> 5, dim = (int)a.dim, pad = (dim + 3) / 4 * 4;
  KeyTile at = a.tiles[block_x()];
  int heads = (int)a.heads, head = block_y(), group = heads / (int)a.kv_heads, to = at.to * group, count = (int)a.count;
  float scale = quotient(1.0f, root((float)a.dim));
  wide_load(a, keys, values, at.key, at.key + wide_tile < count ? at.key + wide_tile : count, head);
  int own = tid() / 8, part = tid() % 8 * 4; // a key, and four elements of every 32
  int which = lane / wide_tile, key = lane % wide_tile;
  const float *side = (which ? values : keys) + key * wide_ld, *factor = factors[which] + warp * wide_ld;
  float dk[eighths][4], dv[eighths][4];
#pragma unroll
  for (int i = 0; i < eighths; i++)
#pragma unroll
    for (int e = 0; e < 4; e++) dk[i][e] = dv[i][e] = 0;
#pragma unroll 1
  for (int l0 = at.from * group; l0 < to; l0 += warps) {
    bool any = false; // of these lines sees the tile
    for (int l = l0; l < l0 + warps && l < to; l++) any = any || (a.first[l / group] < at.key + wide_tile && a.last[l / group] >= at.key);
    if (!any) continue;
    int l = l0 + warp;
    bool live = l < to;
    int row = live ? l / group : 0, index = row * heads + head * group + (live ? l % group : 0);
    barrier(); // the lines before are done
    for (int d = lane; d < pad; d += 32) {
      factors[0][warp * wide_ld + d] = d < dim ? a.q[(i64)index * dim + d] * scale : 0;
      factors[1][warp * wide_ld + d] = d < dim ? a.d_o[(i64)index * dim + d] : 0;
    }
    barrier(); // wide lines are there
    float s = 0;
    for (int d = 0; d < pad; d += 4) s = dot4(four(factor + d), four(side + d), s);
    float w = shfl_xor(s, wide_tile);
    bool seen = live && at.key + key >= a.first[row] && at.key + key <= a.last[row];
    if (!which) {
      float p = seen ? exponential(s - a.lse[index]) : 0;
      probs[warp][key] = p;
      weights[warp][key] = seen ? p * (w - a.delta[index]) : 0;
    }
    barrier(); // weights of wide lines are there
#pragma unroll
    for (int i = 0; i < eighths; i++)
      if (part + 32 * i < pad)
#pragma unroll
        for (int j = 0; j < warps; j++) {
          F4 q = four(factors[0] + j * wide_ld + part + 32 * i), g = four(factors[1] + j * wide_ld + part + 32 * i);
          float e = weights[j][own], f = probs[j][own];
          dk[i][0] = madd(e, q.x, dk[i][0]);
          dk[i][1] = madd(e, q.y, dk[i][1]);
          dk[i][2] = madd(e, q.z, dk[i][2]);
          dk[i][3] = madd(e, q.w, dk[i][3]);
          dv[i][0] = madd(f, g.x, dv[i][0]);
          dv[i][1] = madd(f, g.y, dv[i][1]);
          dv[i][2] = madd(f, g.z, dv[i][2]);
          dv[i][3] = madd(f, g.w, dv[i][3]);
        }
  }
  if (at.key + own >= count) return;
  i64 dst = ((i64)(at.key + own) * a.kv_heads + head) * dim;
#pragma unroll
  for (int i = 0; i < eighths; i++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int d = part + 32 * i + e;
      if (d < dim) {
        ((float *)a.dk[0])[dst + d] += dk[i][e];
        ((float *)a.dv[0])[dst + d] += dv[i][e];
      }
    }
}

// tree_nodes_wide adds to dk and dv of the levels below: one of their rows a warp. Grid: fours of nodes, heads of keys.
KERNEL BOUNDS(128) void tree_nodes_wide(const TreeArgs a) {
  int lane = tid() & 31, dim = (int)a.dim;
  i64 n = (i64)block_x() * 4 + (tid() >> 5), head = block_y(), group = a.heads / a.kv_heads;
  if (n >= a.count) return;
  Node node = a.nodes[n];
  i64 at = ((i64)node.row * a.kv_heads + head) * dim;
  float scale = quotient(1.0f, root((float)dim));
  WideHead k = WideHead::of((const float *)a.keys[node.level] + at, lane, dim), v = WideHead::of((const float *)a.values[node.level] + at, lane, dim);
  WideHead dk = WideHead::none(), dv = WideHead::none();
  for (i64 i = node.from; i < node.to; i++)
    for (i64 j = 0; j < group; j++) {
      i64 index = (i64)a.list[i] * a.heads + head * group + j;
      WideHead q = WideHead::of(a.q + index * dim, lane, dim), g = WideHead::of(a.d_o + index * dim, lane, dim);
      float p = exponential(q.dot(k) * scale - a.lse[index]);
      dk.add(p * (g.dot(v) - a.delta[index]) * scale, q);
      dv.add(p, g);
    }
  dk.put((float *)a.dk[node.level] + at, lane, dim, 1, true);
  dv.put((float *)a.dv[node.level] + at, lane, dim, 1, true);
}
