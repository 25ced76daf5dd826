// Products of bf16 weights with activations in one bfloat16 plane: half the products of split_rows' two.
//
// An output is one chain over all inputs, in order, whatever the number of rows, so that the bits of a row do not depend
// on others. Nothing is kept beside the chain, which leaves registers for blocks of 256 rows and 192 outputs: each row is read once
// for 192 outputs, each output's weights once for 256 rows.

// round_rows normalises rows and rounds them to bfloat16, as fragments [units·2][⌈rows/16⌉][32 lanes]{b0, b1 of the first eight
// rows, b0, b1 of the others}. Fragments of rows that are not there hold anything: a product keeps rows apart.
KERNEL BOUNDS(256) void round_rows(const NormArgs a) {
  SHARED float part[8];
  follow();
  i64 r = block_x(), steps = (a.width + 31) / 32 * 2, tiles = (blocks_x() + 15) / 16;
  if (beyond(a.live, r)) return;
  Normal n = normal(a, r, part);
  u32 *dst = (u32 *)a.dst + r / 16 * 128 + r % 16 / 8 * 2;
  for (i64 p = tid(); p < steps * 8; p += 256) {
    i64 k = 2 * p;
    float x0 = k < a.width ? n.at(k) : 0, x1 = k + 1 < a.width ? n.at(k + 1) : 0;
    dst[(k / 16 * tiles * 32 + r % 8 * 4 + k % 8 / 2) * 4 + k % 16 / 8] = pack2(x0, x1);
  }
}

// Grid: blocks of 8·M·down rows, which share what they read of the weight, blocks of 32·T outputs, or of half as many of
// each of two weights. A warp has 16·T of a block's outputs, or half as many of each weight, and 8·M of its rows.
template <int M, int T, int down>
DEVICE void single(const LinearArgs &a) {
  enum {
    across = 2,
    threads = across * down * 32,
    weights = T * across * 32, // pieces of 16 bytes of a step
    rows = M / 2 * down * 32,
    stage = weights + rows,
    most = 49152 / 16 / stage,
    depth = most < 16 ? most : 16,
  };
  static_assert(T % 2 == 0 && M % 2 == 0, "halves and pairs");
  SHARED U4 ring[depth * stage];
  int warp = tid() >> 5, lane = tid() & 31;
  i64 row0 = (i64)block_x() * 8 * M * down;
  launch_dependents();
  if (beyond(a.live, row0)) {
    wait_prerequisites();
    return;
  }
  Shape s{a.out, a.in};
  int n = (int)s.units() * 2; // steps
  int last_tile = (int)s.tiles() - 1, each = a.up ? T / 2 : T; // tiles of a warp and weight
  int next = ((int)a.rows + 15) / 16 * 32;                       // pieces of a step
  int here = next - (int)row0 * 2;                               // of these, from row0 on
  const U4 *x = (const U4 *)a.x + row0 * 2;
  // Where this thread's pieces of the weights begin: outputs that are not there repeat the last.
  enum { shares = (weights + threads - 1) / threads };
  const U4 *from[shares];
#pragma unroll
  for (int i = 0; i < shares; i++) {
    int at = i * (threads / 32) + warp, second = at >= T, t = at - second * T; // of a block's two columns of warps
    int tile = (block_y() * across + second) * each + (t < each ? t : t - each);
    from[i] = (const U4 *)(t < each ? a.w : a.up) + (i64)(tile < last_tile ? tile : last_tile) * n * 32 + lane;
  }

  // load starts to copy a step to a place of the ring. Rows that are not there are zero.
  auto load = [&](int k, int place) __attribute__((always_inline)) {
    U4 *to = ring + place * stage + tid();
    if (k < n) {
#pragma unroll
      for (int i = 0; i < shares; i++)
        if (weights % threads == 0 || i * threads + tid() < weights) copy16(to + i * threads, from[i] + k * 32, true);
#pragma unroll
      for (int i = 0; i < rows; i += threads) {
        int p = i + tid();
        if (rows % threads == 0 || p < rows) copy16(to + weights + i, x + (i64)k * next + p, p < here);
      }
    }
    commit_copies();
  };

  float c[T][M][4];
#pragma unroll
  for (int t = 0; t < T; t++)
#pragma unroll
    for (int j = 0; j < M; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) c[t][j][e] = 0;
  // The weights that the ring takes first: a thread's pieces of each step are neighbours of those of seven others.
  if (lane % 8 == 0)
    for (int d = 0; d < depth - 1; d++)
#pragma unroll
      for (int i = 0; i < shares; i++)
        if (d < n && (weights % threads == 0 || i * threads + tid() < weights)) prefetch(from[i] + d * 32);
  wait_prerequisites();
#pragma unroll
  for (int d = 0; d < depth - 1; d++) load(d, d);
#pragma unroll 1
  for (int k = 0, place = 0; k < n; k++) {
    wait_copies<depth - 2>();
    barrier(); // step k is there, and what lay where the next is copied to has been read
    load(k + depth - 1, place ? place - 1 : depth - 1);
    const U4 *w = ring + place * stage + warp % across * T * 32 + lane, *b = ring + place * stage + weights + warp / across * M / 2 * 32 + lane;
    U4 f[T];
#pragma unroll
    for (int t = 0; t < T; t++) f[t] = w[t * 32];
#pragma unroll
    for (int j = 0; j < M; j += 2) {
      U4 v = b[j / 2 * 32];
#pragma unroll
      for (int t = 0; t < T; t++) mma(c[t][j], f[t], v.x, v.y);
#pragma unroll
      for (int t = 0; t < T; t++) mma(c[t][j + 1], f[t], v.z, v.w);
    }
    place = place < depth - 1 ? place + 1 : 0;
  }
  wait_copies<0>();
  // A warp's sums pass through shared memory, sixteen outputs and up to 32 rows at a time, so that what is fused to the product
  // is there once and stores are of neighbours.
  enum { few = M < 4 ? M : 4, pitch = 20, pair = 8 * few * pitch }; // the pitch keeps lanes apart
  float *red = (float *)ring + warp * 2 * pair;
  i64 live = at_most(a.live, a.rows), r0 = row0 + warp / across * 8 * M;
  i64 o0 = ((i64)block_y() * across + warp % across) * each * 16;
#pragma unroll
  for (int t = 0; t < T; t++)
#pragma unroll
    for (int j = 0; j < M; j += few) {
      if (t >= each) continue;
      barrier(); // what was there has been read
#pragma unroll
      for (int i = 0; i < few; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          float *to = red + (i * 8 + (lane & 3) * 2 + (e & 1)) * pitch + (lane >> 2) + (e >> 1) * 8;
          to[0] = c[t][j + i][e];
          if (t < T / 2) to[pair] = c[t + T / 2 < T ? t + T / 2 : t][j + i][e]; // of the second weight, if there are two
        }
      barrier();
#pragma unroll 1
      for (int i = lane; i < 16 * 8 * few; i += 32) {
        i64 row = r0 + j * 8 + i / 16, o = o0 + t * 16 + i % 16;
        const float *v = red + i / 16 * pitch + i % 16;
        if (row < live && o < a.out) finish(a, row, o, v[0], a.up ? v[pair] : 0);
      }
    }
}

KERNEL BOUNDS(64) void single_bf16_16(const LinearArgs a) { single<2, 2, 1>(a); }
KERNEL BOUNDS(128, 3) void single_bf16_64(const LinearArgs a) { single<4, 4, 2>(a); }
KERNEL BOUNDS(128, 2) void single_bf16_128(const LinearArgs a) { single<8, 4, 2>(a); }
KERNEL BOUNDS(256) void single_bf16_256(const LinearArgs a) { single<8, 6, 4>(a); }
