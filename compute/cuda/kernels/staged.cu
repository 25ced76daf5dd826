// Products of nine or more rows.
//
// A block has 128 outputs, 8·M rows and one split of the inputs. Its warps own 16·T outputs each. They walk the split's
// eight slices in order and add each one's chain to a total, which gives the bits of linear above. A ring in shared
// memory brings units of the weight and of the rows: the rows are read once for 128 outputs, not for 32, and every
// output keeps its place whatever the number of rows.

// copy_tiles starts to copy `pieces` of 16 bytes of each of eight tiles, `next` apart, from the first on; behind the last it
// is copied again.
template <int pieces, int threads>
DEVICE void copy_tiles(U4 *to, const U4 *w, i64 next, int first, int last, int me) {
#pragma unroll
  for (int i = 0; i < 8 * pieces; i += threads) {
    int p = i + me, tile = first + p / pieces;
    copy16(to + p, w + (tile < last ? tile : last) * next + p % pieces, true);
  }
}

// A BF16Unit is a unit of 128 outputs, two steps for each tile of 16.
struct BF16Unit {
  enum { pieces = 8 * 64, sums = false }; // of 16 bytes
  // copy starts to copy unit k from a tile on. Outputs that are not there repeat the last.
  template <int threads>
  DEVICE_MEMBER static void copy(U4 *to, const u8 *w, Shape s, int first, i64 k, int me) {
    copy_tiles<64, threads>(to, (const U4 *)w + k * 64, s.units() * 64, first, (int)s.tiles() - 1, me);
  }
  // add multiplies this warp's tiles by the rows' fragments x [2][M][32 lanes].
  template <int M, int T>
  DEVICE_MEMBER static void add(float c[T][M][4], const U4 *unit, const U4 *x, const float *) {
    int lane = tid() & 31;
    const U4 *w = unit + (tid() >> 5) * T * 64;
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

// A Q8Unit is a unit of 128 outputs: for each tile of 16 a block of integers, behind all of them the scales.
struct Q8Unit {
  enum { pieces = 8 * 34, sums = false };
  template <int threads>
  DEVICE_MEMBER static void copy(U4 *to, const u8 *w, Shape s, int first, i64 k, int me) {
    int last = (int)s.tiles() - 1;
    copy_tiles<32, threads>(to, (const U4 *)w + k * 32, s.units() * 32, first, last, me);
    if (me < 16) {
      int tile = first + me / 2;
      const U4 *scales = (const U4 *)(w + s.tiles() * s.units() * 512);
      copy16(to + 8 * 32 + me, scales + ((tile < last ? tile : last) * s.units() + k) * 2 + me % 2, true);
    }
  }
  template <int M, int T>
  DEVICE_MEMBER static void add(float c[T][M][4], const U4 *unit, const U4 *x, const float *) {
    int lane = tid() & 31, warp = tid() >> 5;
    const U4 *w = unit + warp * T * 32;
    const u32 *scales = (const u32 *)(unit + 8 * 32) + warp * T * 8;
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

// A FourUnit is a unit of 128 outputs in four.cu's formats: four groups of 32 with all their scales.
template <class K>
struct FourUnit {
  enum { own = K::bytes / 16, piece = own + K::shared / 16, pieces = 4 * piece, sums = K::minima };
  template <int threads>
  DEVICE_MEMBER static void copy(U4 *to, const u8 *w, Shape s, int first, i64 k, int me) {
    enum { each = threads / 4 }; // threads of a group
    int mine = me / each, last = (int)s.tiles() / 2 - 1, group = first / 2 + mine;
    group = group < last ? group : last;
    const u8 *from = group_at<K>(w, s, afresh(group)); // registers are short
#pragma unroll
    for (int i = 0; i < piece; i += each) {
      int at = i + me % each;
      u32 place = at < own ? unit_at<K>((u32)k) + at * 16 : shared_at<K>((u32)k) + (at - own) * 16;
      if (piece % each == 0 || at < piece) copy16(to + mine * piece + at, from + place, true);
    }
  }
  template <int M, int T>
  DEVICE_MEMBER static void add(float c[T][M][4], const U4 *unit, const U4 *x, const float *sums) {
    int warp = tid() >> 5;
#pragma unroll
    for (int h = 0; h < K::parts; h++) {
      int lane = tid() & 31;
      K q[T];
#pragma unroll
      for (int t = 0; t < T; t++) {
        int tile = warp * T + t, r = tile % 2;
        const u8 *u = (const u8 *)(unit + tile / 2 * piece), *d = u + K::bytes + (lane / 4 * 2 + r) * (K::shared / 16);
        U2 v = *(const U2 *)(u + 64 + lane * 16 + r * 8);
        FourTile f{{v.x, v.y, 0}, *(const u32 *)(u + lane / 4 * 8 + r * 4), {0, 0}};
        if (K::six) f.q[2] = *(const u32 *)(u + 64 + 512 + lane * 8 + r * 4);
        if (K::shared != 0) f.d[0] = *(const u32 *)d;
        if (K::minima) f.d[1] = *(const u32 *)(d + 4);
        q[t].unpack(f, h);
      }
#pragma unroll
      for (int j = 0; j < M; j++) {
        U4 b[2];
        b[0] = x[(h * M + j) * 32 + lane];
        if (K::parts == 1) b[1] = x[(M + j) * 32 + lane];
        F2 sum{0, 0};
        if (K::minima) sum = *(const F2 *)(sums + j * 8 + lane % 4 * 2);
#pragma unroll
        for (int t = 0; t < T; t++) q[t].add(c[t][j], b, sum);
      }
    }
  }
};

// Grid: blocks of 8·M rows, which share what they read of the weight, 128 outputs, splits times weights.
template <class Unit, int M, int T>
DEVICE void staged(const LinearArgs &a) {
  enum {
    tiles = 8, // of 16 outputs
    threads = tiles / T * 32,
    rows_at = Unit::pieces,
    sums_at = rows_at + 64 * M,
    stage = sums_at + (Unit::sums ? 2 * M : 0), // pieces of 16 bytes
    most = 49152 / 16 / stage,
    depth = most < 8 ? most : 8,
    pitch = 16 * T + 4, // keeps lanes apart
  };
  SHARED U4 ring[depth * stage];
  int warp = tid() >> 5, lane = tid() & 31;
  u32 splits = (u32)a.splits, which = (u32)block_z() >= splits, split = block_z() - which * splits;
  i64 row0 = (i64)block_x() * 8 * M;
  launch_dependents();
  if (beyond(a.live, row0)) {
    wait_prerequisites();
    return;
  }
  Shape s{a.out, a.in};
  u32 units = (u32)s.units(), slices = splits * 8;
  int from = (int)(units * (split * 8) / slices), n = (int)(units * (split * 8 + 8) / slices) - from;
  const u8 *w = which ? a.up : a.w;
  int next = ((int)a.rows + 7) / 8 * 32; // pieces of a step
  const U4 *x = (const U4 *)a.x + (i64)from * 2 * next + row0 * 4;
  int here = next - (int)row0 * 4; // pieces of a step from row0 on

  // load starts to copy unit k to a place of the ring. Rows that are not there are zero.
  auto load = [&](int k, int place) __attribute__((always_inline)) {
    U4 *to = ring + place * stage;
    int me = tid();
    if (k < n) {
      Unit::template copy<threads>(to, w, s, block_y() * tiles, from + k, me);
#pragma unroll
      for (int i = 0; i < 64 * M; i += threads) {
        int p = i + me, at = p % (32 * M);
        if (64 * M % threads == 0 || p < 64 * M) copy16(to + rows_at + p, x + (2 * k + p / (32 * M)) * next + at, at < here);
      }
      if (Unit::sums && me < 2 * M) {
        const float *sums = sums_of(a.x, s, afresh(next) / 32) + row0;
        copy16(to + sums_at + me, sums + (i64)(from + k) * (next / 4) + me * 4, me * 16 < here);
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
  wait_prerequisites();
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
      Unit::template add<M, T>(c, at, at + rows_at, (const float *)(at + sums_at));
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

KERNEL BOUNDS(256, 2) void staged_bf16_16(const LinearArgs a) { staged<BF16Unit, 2, 1>(a); }
KERNEL BOUNDS(256, 2) void staged_bf16_32(const LinearArgs a) { staged<BF16Unit, 4, 1>(a); }
KERNEL BOUNDS(128, 2) void staged_bf16_64(const LinearArgs a) { staged<BF16Unit, 8, 2>(a); }
KERNEL BOUNDS(256, 2) void staged_q8_16(const LinearArgs a) { staged<Q8Unit, 2, 1>(a); }
KERNEL BOUNDS(256, 2) void staged_q8_32(const LinearArgs a) { staged<Q8Unit, 4, 1>(a); }
KERNEL BOUNDS(128, 2) void staged_q8_64(const LinearArgs a) { staged<Q8Unit, 8, 2>(a); }
KERNEL BOUNDS(256, 2) void staged_q4_16(const LinearArgs a) { staged<FourUnit<Four>, 2, 1>(a); }
KERNEL BOUNDS(256, 2) void staged_q4_32(const LinearArgs a) { staged<FourUnit<Four>, 4, 1>(a); }
KERNEL BOUNDS(128, 2) void staged_q4_64(const LinearArgs a) { staged<FourUnit<Four>, 8, 2>(a); }
KERNEL BOUNDS(256, 2) void staged_q4k_16(const LinearArgs a) { staged<FourUnit<FourMinima>, 2, 1>(a); }
KERNEL BOUNDS(256, 2) void staged_q4k_32(const LinearArgs a) { staged<FourUnit<FourMinima>, 4, 1>(a); }
// With 32 outputs a warp, as the others have, these two would spill.
KERNEL BOUNDS(256) void staged_q4k_64(const LinearArgs a) { staged<FourUnit<FourMinima>, 8, 1>(a); }
KERNEL BOUNDS(256, 2) void staged_q6k_16(const LinearArgs a) { staged<FourUnit<Six>, 2, 1>(a); }
KERNEL BOUNDS(256, 2) void staged_q6k_32(const LinearArgs a) { staged<FourUnit<Six>, 4, 1>(a); }
KERNEL BOUNDS(256) void staged_q6k_64(const LinearArgs a) { staged<FourUnit<Six>, 8, 1>(a); }
