// Attention over keys and values in bfloat16, on tensor cores.
//
// A block has a chunk of positions and up to 16·tiles queries: the group's heads of an item's rows. First each warp multiplies
// all queries by a quarter of the keys, then all weights by a quarter of the values' elements, so every key and value goes from
// memory to the registers of one warp, once, and no warp adds what another one has. A score is one chain over the elements, the
// output of a chunk one chain over the positions, hi before lo at every step: the same for one row and for many.
// Queries and weights are split into two planes, x ≈ hi + lo.
//
// What a row does not see, because it is behind the row or before its window, has weight 0 and adds zeros.

enum { keys_of_warp = chunk / warps, dims_of_warp = most_dim / warps, dim_steps = most_dim / 16, key_steps = chunk / 16 };

// Grid: items, heads of keys, 16·tiles of an item's rows times the group's heads.
//
// A head has up to 128·parts elements. Queries of one part are in shared memory at a time, and values of one part in registers; an
// output and a score are the same chains as if all were.
template <int tiles, int parts>
DEVICE void attend_tensor(const AttendArgs &a) {
  SHARED U4 planes[tiles][dim_steps][2][32]; // fragments of queries, and later of weights
  SHARED const u16 *where[chunk];            // as many as threads
  SHARED float most[warps][16 * tiles], sums[warps][16 * tiles];
  SHARED i32 begin[16 * tiles], end[16 * tiles];
  follow();
  if (beyond(a.live, block_x())) return;
  Item item = a.items[block_x()];
  int lane = tid() & 31, warp = tid() >> 5, g = lane >> 2, t = lane & 3;
  int head = block_y(), dim = (int)a.kv.dim, pitch = (int)a.kv.pitch(), group = (int)a.q_heads / (int)a.kv.heads;
  int base = block_z() * 16 * tiles, left = item.rows * group - base; // queries
  if (left <= 0) return;
  int used = (left + 15) / 16 < tiles ? (left + 15) / 16 : tiles;

  // Each row's positions begin the next one's, so the last row has all keys.
  int longest = item.row + item.rows - 1, from = item.chunk * chunk;
  Row last = a.rows[longest];
  int count = last.len - from < chunk ? last.len - from : chunk;
  {
    int p = from + tid();
    i64 slot = tid() >= count ? last.slot
        : p < last.prefix ? (i64)a.blocks[last.blocks + p / 32] * 32 + p % 32
                          : a.paths[longest * a.ld + p - last.prefix];
    where[tid()] = key_at<u16>(a.kv, a.layer, head, slot);
  }
  if (tid() < 16 * used) {
    bool live = tid() < left;
    const Row &row = a.rows[item.row + (live ? (base + tid()) / group : 0)];
    begin[tid()] = live ? row.first : 0x7fffffff;
    end[tid()] = row.len;
  }
  U4 k[tiles == 1 ? parts : 1][keys_of_warp / 8][most_dim / 32];
  auto load_keys = [&](U4 (&k)[keys_of_warp / 8][most_dim / 32], int part) __attribute__((always_inline)) {
#pragma unroll
    for (int n = 0; n < keys_of_warp / 8; n++) {
      const u16 *key = where[warp * keys_of_warp + n * 8 + g];
#pragma unroll
      for (int d = 0; d < most_dim / 32; d++) {
        int at = part * most_dim + d * 32 + t * 8;
        k[n][d] = fetch(key + (at < pitch ? at : 0));
      }
    }
  };
  U2 v[key_steps][4];
  auto load_values = [&](int half, int part) __attribute__((always_inline)) {
    int d = part * most_dim + warp * dims_of_warp + g * 4;
    if (d >= pitch) d = 0;
#pragma unroll
    for (int s = half * key_steps / 2; s < (half + 1) * key_steps / 2; s++)
      if (s * 16 < count)
#pragma unroll
        for (int i = 0; i < 4; i++) v[s][i] = fetch8(where[s * 16 + i / 2 * 8 + t * 2 + i % 2] + 32 * pitch + d);
  };
  float s[tiles][keys_of_warp / 8][4];
#pragma unroll
  for (int m = 0; m < tiles; m++)
#pragma unroll
    for (int n = 0; n < keys_of_warp / 8; n++)
#pragma unroll
      for (int e = 0; e < 4; e++) s[m][n][e] = 0;
  float scale = as_float((u32)a.scale);
#pragma unroll
  for (int part = 0; part < parts; part++) {
    if (part > 0) {
      if (part * most_dim >= dim) break;
      barrier(); // queries of the part before were read
    }
    // Of 32 elements, those that lane t has in 16 bytes of a key are both of its pairs in two steps.
    for (int i = tid(); i < used * dim_steps * 32; i += 32 * warps) {
      int tile = i / (dim_steps * 32), step = i / 32 % dim_steps, d = step / 2 * 32 + i % 4 * 8 + step % 2 * 4 + part * most_dim;
      u32 hi[4], lo[4];
#pragma unroll
      for (int h = 0; h < 2; h++) {
        int q = tile * 16 + h * 8 + i / 4 % 8, live = q < left;
        q = base + (live ? q : 0);
        const float *src = a.qkv + ((item.row + q / group) * (a.q_heads + 2 * a.kv.heads) + head * group + q % group) * dim;
        float x[4];
#pragma unroll
        for (int e = 0; e < 4; e++) x[e] = load_if(src + d + e, live && d + e < dim) * scale;
#pragma unroll
        for (int p = 0; p < 2; p++) {
          hi[2 * p + h] = pack2(x[2 * p], x[2 * p + 1]);
          lo[2 * p + h] = pack2(x[2 * p] - low2(hi[2 * p + h]), x[2 * p + 1] - high2(hi[2 * p + h]));
        }
      }
      planes[tile][step][0][i % 32] = U4{hi[0], hi[1], hi[2], hi[3]};
      planes[tile][step][1][i % 32] = U4{lo[0], lo[1], lo[2], lo[3]};
    }
    barrier(); // addresses and queries are there

    // Behind a head's last element queries are zeros, and outputs are not stored: any finite numbers will do.
    if (tiles > 1) {
      load_keys(k[0], part);
    } else if (part == 0) { // there are registers for all
#pragma unroll
      for (int p = 0; p < parts; p++) load_keys(k[p], p);
      load_values(0, 0);
      load_values(1, 0);
    }
#pragma unroll
    for (int step = 0; step < dim_steps; step++) {
      if (part * most_dim + step * 16 >= (pitch + 31) / 32 * 32) continue;
#pragma unroll
      for (int m = 0; m < tiles; m++) {
        if (m >= used) continue;
#pragma unroll
        for (int plane = 0; plane < 2; plane++) {
          U4 q = planes[m][step][plane][lane];
#pragma unroll
          for (int n = 0; n < keys_of_warp / 8; n++) {
            const U4 &b = k[tiles == 1 ? part : 0][n][step / 2];
            mma(s[m][n], q, step % 2 ? b.z : b.x, step % 2 ? b.w : b.y);
          }
        }
      }
    }
  }

  // A lane has rows g and g+8 of a tile, and of every eight keys 2t and 2t+1.
  const float none = as_float(0xff800000u);
#pragma unroll
  for (int m = 0; m < tiles; m++) {
    if (m >= used) continue;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int q = m * 16 + h * 8 + g, first = begin[q], behind = end[q];
      float top = none;
#pragma unroll
      for (int n = 0; n < keys_of_warp / 8; n++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
          int p = from + warp * keys_of_warp + n * 8 + t * 2 + e;
          float &x = s[m][n][2 * h + e];
          if (parts > 1 && a.cap) x = capped(x, as_float((u32)a.cap));
          if (p < first || p >= behind) x = none;
          top = x > top ? x : top;
        }
#pragma unroll
      for (int l = 1; l < 4; l *= 2) {
        float o = shfl_xor(top, l);
        top = o > top ? o : top;
      }
      if (t == 0) most[warp][q] = top;
    }
  }
  if (tiles > 1) load_values(0, 0);
  barrier(); // queries have been read, and every warp's largest scores are there
#pragma unroll
  for (int m = 0; m < tiles; m++) {
    if (m >= used) continue;
    u32 hi[2][4], lo[2][4]; // of 16 keys each
#pragma unroll
    for (int h = 0; h < 2; h++) {
      int q = m * 16 + h * 8 + g;
      float top = most[0][q], sum = 0;
#pragma unroll
      for (int w = 1; w < warps; w++) top = most[w][q] > top ? most[w][q] : top;
#pragma unroll
      for (int n = 0; n < keys_of_warp / 8; n++) {
        float e[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
          float x = s[m][n][2 * h + i];
          e[i] = x == none ? 0 : exponential(x - top);
          sum += e[i];
        }
        u32 &high = hi[n / 2][n % 2 * 2 + h];
        high = pack2(e[0], e[1]);
        lo[n / 2][n % 2 * 2 + h] = pack2(e[0] - low2(high), e[1] - high2(high));
      }
      sum += shfl_xor(sum, 1);
      sum += shfl_xor(sum, 2);
      if (t == 0) sums[warp][q] = sum;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
      planes[m][warp * 2 + i][0][lane] = U4{hi[i][0], hi[i][1], hi[i][2], hi[i][3]};
      planes[m][warp * 2 + i][1][lane] = U4{lo[i][0], lo[i][1], lo[i][2], lo[i][3]};
    }
  }
  if (tiles > 1) load_values(1, 0);
  barrier(); // weights are there

  float *part = a.part + ((i64)item.row * a.q_heads * a.chunks + item.chunk) * (dim + 2);
  auto output = [&](int q) __attribute__((always_inline)) {
    q += base;
    return part + ((i64)(q / group) * a.q_heads + head * group + q % group) * a.chunks * (dim + 2);
  };
  if (tid() < 16 * used && tid() < left) {
    float *dst = output(tid()), top = most[0][tid()], sum = sums[0][tid()];
#pragma unroll
    for (int w = 1; w < warps; w++) {
      top = most[w][tid()] > top ? most[w][tid()] : top;
      sum += sums[w][tid()];
    }
    dst[dim] = top;
    dst[dim + 1] = sum;
  }
#pragma unroll
  for (int part = 0; part < parts; part++) {
    if (part * most_dim + warp * dims_of_warp >= dim) return;
    if (part > 0) {
      load_values(0, part);
      load_values(1, part);
    }
    float o[tiles][4][4];
#pragma unroll
    for (int m = 0; m < tiles; m++)
#pragma unroll
      for (int j = 0; j < 4; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) o[m][j][e] = 0;
#pragma unroll
    for (int step = 0; step < key_steps; step++) {
      if (step * 16 >= count) continue;
      u32 b[4][2]; // of every fourth element
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const U2 &even = v[step][2 * i], &odd = v[step][2 * i + 1];
        b[0][i] = (even.x & 0xffff) | odd.x << 16;
        b[1][i] = even.x >> 16 | (odd.x & 0xffff0000u);
        b[2][i] = (even.y & 0xffff) | odd.y << 16;
        b[3][i] = even.y >> 16 | (odd.y & 0xffff0000u);
      }
#pragma unroll
      for (int m = 0; m < tiles; m++) {
        if (m >= used) continue;
#pragma unroll
        for (int plane = 0; plane < 2; plane++) {
          U4 p = planes[m][step][plane][lane];
#pragma unroll
          for (int j = 0; j < 4; j++) mma(o[m][j], p, b[j][0], b[j][1]);
        }
      }
    }
#pragma unroll
    for (int m = 0; m < tiles; m++) {
      if (m >= used) continue;
#pragma unroll
      for (int h = 0; h < 2; h++) {
        int q = m * 16 + h * 8 + g;
        if (q >= left) continue;
        float *dst = output(q);
#pragma unroll
        for (int e = 0; e < 2; e++)
#pragma unroll
          for (int j = 0; j < 4; j++) {
            int d = part * most_dim + warp * dims_of_warp + (2 * t + e) * 4 + j;
            if (d < dim) dst[d] = o[m][j][2 * h + e];
          }
      }
    }
  }
}
KERNEL BOUNDS(128, 3) void attend_bf16_16(const AttendArgs a) { attend_tensor<1, 1>(a); }
KERNEL BOUNDS(128, 3) void attend_bf16_64(const AttendArgs a) { attend_tensor<4, 1>(a); }
KERNEL BOUNDS(128, 2) void attend_wide_bf16_16(const AttendArgs a) { attend_tensor<1, 2>(a); }
KERNEL BOUNDS(128, 3) void attend_wide_bf16_64(const AttendArgs a) { attend_tensor<4, 2>(a); }
