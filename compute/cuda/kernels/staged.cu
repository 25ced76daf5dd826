// Products of nine or more rows.
//
// A block has 128 outputs, 8·M rows and one split of the inputs. Its warps own 16·T outputs each. They walk the split's
// eight slices in order and add each one's chain to a total, which gives the bits of linear above. A ring in shared
// memory brings units of the weight and of the rows: the rows are read once for 128 outputs, not for 32, and every
// output keeps its place whatever the number of rows.

// A BF16Unit is a unit of 16 outputs: two steps.
struct BF16Unit {
  enum { pieces = 64 }; // of 16 bytes
  DEVICE_MEMBER static const U4 *at(const u8 *w, Shape s, i64 tile, i64 k) { return (const U4 *)w + (tile * s.units() + k) * 64; }
  // add multiplies by the rows' fragments x [2][M][32 lanes].
  template <int M, int T>
  DEVICE_MEMBER static void add(float c[T][M][4], const U4 *w, const u32 *, const U4 *x) {
    int lane = tid() & 31;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      U4 f[T];
#pragma unroll
      for (int t = 0; t < T; t++) f[t] = w[t * 64 + h * 32 + lane];
#pragma unroll
      for (int j = 0; j < M; j++) {
        U4 b = x[(h * M + j) * 32 + lane];
#pragma unroll
        for (int t = 0; t < T; t++) mma(c[t][j], f[t], b.x, b.y);
#pragma unroll
        for (int t = 0; t < T; t++) mma(c[t][j], f[t], b.z, b.w);
      }
    }
  }
};

// A Q8Unit is a unit of 16 outputs: a block of integers each.
struct Q8Unit {
  enum { pieces = 32 };
  DEVICE_MEMBER static const U4 *at(const u8 *w, Shape s, i64 tile, i64 k) { return (const U4 *)w + (tile * s.units() + k) * 32; }
  template <int M, int T>
  DEVICE_MEMBER static void add(float c[T][M][4], const U4 *w, const u32 *scales, const U4 *x) {
    int lane = tid() & 31;
    U4 q[T][2];
    float lo[T], hi[T];
#pragma unroll
    for (int t = 0; t < T; t++) {
      U4 v = w[t * 32 + lane];
      q[t][0] = U4{widen<0>(v.x), widen<1>(v.x), widen<0>(v.y), widen<1>(v.y)};
      q[t][1] = U4{widen<0>(v.z), widen<1>(v.z), widen<0>(v.w), widen<1>(v.w)};
      u32 h = scales[t * 8 + lane / 4];
      lo[t] = from_half((u16)h);
      hi[t] = from_half((u16)(h >> 16));
    }
#pragma unroll
    for (int j = 0; j < M; j++) {
      U4 b0 = x[j * 32 + lane], b1 = x[(M + j) * 32 + lane];
#pragma unroll
      for (int t = 0; t < T; t++) {
        float e[4] = {0, 0, 0, 0};
        mma(e, q[t][0], b0.x, b0.y);
        mma(e, q[t][1], b1.x, b1.y);
        mma(e, q[t][0], b0.z, b0.w);
        mma(e, q[t][1], b1.z, b1.w);
        c[t][j][0] = madd(e[0], lo[t], c[t][j][0]);
        c[t][j][1] = madd(e[1], lo[t], c[t][j][1]);
        c[t][j][2] = madd(e[2], hi[t], c[t][j][2]);
        c[t][j][3] = madd(e[3], hi[t], c[t][j][3]);
      }
    }
  }
};

// Grid: blocks of 8·M rows, which share what they read of the weight, 128 outputs, splits times weights.
template <class Unit, int M, int T, bool q8>
DEVICE void staged(const LinearArgs &a) {
  enum {
    tiles = 8, // of 16 outputs
    threads = tiles / T * 32,
    weights = tiles * Unit::pieces,
    rows_at = weights,
    scales_at = rows_at + 64 * M,
    stage = scales_at + (q8 ? tiles * 2 : 0), // pieces of 16 bytes
    most = 49152 / 16 / stage,
    depth = most < 8 ? most : 8,
    pitch = 16 * T + 4, // keeps lanes apart
  };
  SHARED U4 ring[depth * stage];
  int warp = tid() >> 5, lane = tid() & 31;
  u32 splits = (u32)a.splits, which = (u32)block_z() >= splits, split = block_z() - which * splits;
  i64 row0 = (i64)block_x() * 8 * M;
  if (beyond(a.live, row0)) return;
  Shape s{a.out, a.in};
  u32 units = (u32)s.units(), slices = splits * 8;
  int from = (int)(units * (split * 8) / slices), n = (int)(units * (split * 8 + 8) / slices) - from;
  const u8 *w = which ? a.up : a.w;
  int last_tile = (int)s.tiles() - 1, first_tile = block_y() * tiles;
  int next = ((int)a.rows + 7) / 8 * 32; // pieces of a step
  const U4 *x = (const U4 *)a.x + (i64)from * 2 * next + row0 * 4;
  int here = next - (int)row0 * 4; // pieces of a step from row0 on

  // load starts to copy unit k to a place of the ring. Outputs that are not there repeat the last, and rows that are not there are zero.
  auto load = [&](int k, int place) __attribute__((always_inline)) {
    U4 *to = ring + place * stage;
    if (k < n) {
#pragma unroll
      for (int i = 0; i < weights; i += threads) {
        int p = i + tid(), tile = first_tile + p / Unit::pieces;
        copy16(to + p, Unit::at(w, s, tile < last_tile ? tile : last_tile, from + k) + p % Unit::pieces, true);
      }
#pragma unroll
      for (int i = 0; i < 64 * M; i += threads) {
        int p = i + tid(), at = p % (32 * M);
        if (64 * M % threads == 0 || p < 64 * M) copy16(to + rows_at + p, x + (2 * k + p / (32 * M)) * next + at, at < here);
      }
      if (q8 && tid() < tiles * 2) {
        int tile = first_tile + tid() / 2;
        const U4 *scales = (const U4 *)(w + s.tiles() * units * 512);
        copy16(to + scales_at + tid(), scales + ((i64)(tile < last_tile ? tile : last_tile) * units + from + k) * 2 + tid() % 2, true);
      }
    }
    commit_copies();
  };

  float c[T][M][4], sum[T][M][4];
#pragma unroll
  for (int t = 0; t < T; t++)
#pragma unroll
    for (int j = 0; j < M; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) sum[t][j][e] = -0.0f; // to which the first chain is added as it is
#pragma unroll
  for (int d = 0; d < depth - 1; d++) load(d, d);
  int k = 0, place = 0; // of unit k
  for (u32 slice = split * 8; slice < split * 8 + 8; slice++) {
    int to = (int)(units * (slice + 1) / slices) - from;
#pragma unroll
    for (int t = 0; t < T; t++)
#pragma unroll
      for (int j = 0; j < M; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) c[t][j][e] = 0;
#pragma unroll 1
    for (; k < to; k++) {
      wait_copies<depth - 2>();
      barrier(); // unit k is there, and what lay where the next is copied to has been read
      load(k + depth - 1, place ? place - 1 : depth - 1);
      const U4 *at = ring + place * stage;
      Unit::template add<M, T>(c, at + warp * T * Unit::pieces, (const u32 *)(at + scales_at) + warp * T * 8, at + rows_at);
      place = place < depth - 1 ? place + 1 : 0;
    }
#pragma unroll
    for (int t = 0; t < T; t++)
#pragma unroll
      for (int j = 0; j < M; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) sum[t][j][e] += c[t][j][e];
  }
  wait_copies<0>();
  barrier(); // the ring is free
  float *red = (float *)ring + warp * 8 * M * pitch;
  {
    int g = lane >> 2, t2 = (lane & 3) * 2;
#pragma unroll
    for (int t = 0; t < T; t++)
#pragma unroll
      for (int j = 0; j < M; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) red[(j * 8 + t2 + (e & 1)) * pitch + t * 16 + g + (e >> 1) * 8] = sum[t][j][e];
  }
  barrier();
  bool direct = splits == 1 && !a.up;
  i64 rows = at_most(a.live, a.rows), o0 = (i64)block_y() * 128;
  for (int i = lane; i < 16 * T * 8 * M; i += 32) {
    i64 row = row0 + i / (16 * T), o = o0 + warp * 16 * T + i % (16 * T);
    float v = red[i / (16 * T) * pitch + i % (16 * T)];
    if (row >= rows || o >= a.out) continue;
    if (direct)
      finish(a, row, o, v, 0);
    else
      a.part[((which * a.splits + split) * a.rows + row) * a.out + o] = v;
  }
  if (!direct) last_sums<threads>(a, (u32 *)ring, row0, rows, 8 * M, o0, 128);
}

KERNEL BOUNDS(256, 2) void staged_bf16_16(const LinearArgs a) { staged<BF16Unit, 2, 1, false>(a); }
KERNEL BOUNDS(256, 2) void staged_bf16_32(const LinearArgs a) { staged<BF16Unit, 4, 1, false>(a); }
KERNEL BOUNDS(128, 2) void staged_bf16_64(const LinearArgs a) { staged<BF16Unit, 8, 2, false>(a); }
KERNEL BOUNDS(256, 2) void staged_q8_16(const LinearArgs a) { staged<Q8Unit, 2, 1, true>(a); }
KERNEL BOUNDS(256, 2) void staged_q8_32(const LinearArgs a) { staged<Q8Unit, 4, 1, true>(a); }
KERNEL BOUNDS(128, 2) void staged_q8_64(const LinearArgs a) { staged<Q8Unit, 8, 2, true>(a); }
