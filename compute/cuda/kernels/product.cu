// Products of training whose factors lie in memory as bfloat16: c = op(a)·op(b) + beta·c, as in
// train.cu. They are part of train.cu.
//
// An element of c is one chain over ascending k in steps of 16, as gemm_bf16's is, so both have the
// same bits. A factor lies along k, [outer][k], or turned, [k][outer]: the outer side is the rows of
// a, or the columns of b. Rows of factors begin 16 bytes apart or multiples of that, and their length
// is a multiple of 8.

struct HalfArgs {
  float *c;
  const u16 *a, *b;
  i64 m, n, k;
  i64 ldc, lda, ldb;
  i64 beta;
};

enum { half_deep = 32, half_ring = 3, half_pieces = side * half_deep / 8, half_threads = 128 };

// A HalfTile is a factor's part of a block: 128 of its outer side, and 32 k a step. Pieces of 16 bytes are
// permuted, so that eight threads that store, and the eight rows of a matrix that ldmatrix loads, meet
// all banks: along k four pieces of a row by bits 1 and 2 of the row, turned sixteen of a k by the lower bits of k.
template <bool turned>
struct HalfTile {
  enum { each = half_pieces / half_threads };
  const u16 *p; // of the thread's first piece of the step that comes next
  int next;     // elements from one of its pieces to the next
  i64 step;     // elements from step to step
  int outer, k, outers, at;
  DEVICE_MEMBER void start(const u16 *m, i64 from, i64 most, i64 ld) {
    int t = tid();
    outer = turned ? t % 16 * 8 : t / 4;
    k = turned ? t / 16 : t % 4 * 8;
    at = turned ? t ^ (k & 7) : t ^ (outer >> 1 & 3);
    outers = most - from < side ? (int)(most - from) : side;
    p = turned ? m + k * ld + from + outer : m + (from + outer) * ld + k;
    next = (int)(turned ? 8 * ld : 32 * ld);
    step = turned ? half_deep * ld : half_deep;
  }
  // copy starts to copy the next step, of whose k so many are left, to a place of the ring.
  DEVICE_MEMBER void copy(U4 *to, int left) {
#pragma unroll
    for (int i = 0; i < each; i++) {
      bool ok = turned ? outer < outers && k + 8 * i < left : outer + 32 * i < outers && k < left;
      copy16(to + at + i * half_threads, p + (i64)i * next, ok);
    }
    p += step;
  }
  // matrices loads four matrices [8][8] of 16 k, from the first on, and of 16 of the outer side. Lane l has a row of
  // matrix l/8, whose place along the outer side is `along`, and along k `deep`.
  DEVICE_MEMBER static U4 matrices(const U4 *from, int first, int along, int deep) {
    int r = tid() & 7;
    if (turned) return ldmatrix_turned(from + (first * 16 + deep * 8 + r) * 16 + (along ^ r));
    return ldmatrix(from + (along * 8 + r) * 4 + ((first * 2 + deep) ^ (r >> 1)));
  }
};

// Grid: tiles of 128 rows and 128 columns, columns of eight tiles one after the other, so that
// blocks that run together share what they read.
template <bool a_turned, bool b_turned>
DEVICE void product(const HalfArgs &a) {
  SHARED U4 ring[half_ring][2 * half_pieces];
  int lane = tid() & 31, warp = tid() >> 5, row = warp / 2 * 64, col = warp % 2 * 64;
  i64 i0, j0;
  {
    u32 rows = (u32)((a.m + side - 1) / side), cols = (u32)((a.n + side - 1) / side), id = block_x();
    u32 first = id / (8 * cols) * 8, within = id - first * cols, high = rows - first < 8 ? rows - first : 8;
    i0 = (i64)(first + within % high) * side;
    j0 = (i64)(within / high) * side;
  }
  bool busy = i0 + row < a.m && j0 + col < a.n; // all of a warp or none
  HalfTile<a_turned> ta;
  HalfTile<b_turned> tb;
  ta.start(a.a, i0, a.m, a.lda);
  tb.start(a.b, j0, a.n, a.ldb);
  int left = (int)a.k; // behind what is copied or on its way
  auto load = [&](int place) __attribute__((always_inline)) {
    if (left > 0) {
      ta.copy(ring[place], left);
      tb.copy(ring[place] + half_pieces, left);
    }
    left -= half_deep;
    commit_copies();
  };
  float c[4][8][4];
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) c[i][j][e] = 0;
#pragma unroll
  for (int s = 0; s < half_ring - 1; s++) load(s);
  int place = 0, steps = ((int)a.k + half_deep - 1) / half_deep;
#pragma unroll 1
  for (int s = 0; s < steps; s++) {
    wait_copies<half_ring - 2>();
    barrier(); // a step of halves is there, and the one before was read
    load(place ? place - 1 : half_ring - 1);
    if (busy) {
      const U4 *pa = ring[place], *pb = pa + half_pieces;
#pragma unroll
      for (int h = 0; h < 2; h++) {
        U4 x[4], y[4];
#pragma unroll
        for (int i = 0; i < 4; i++) x[i] = ta.matrices(pa, h, row / 8 + i * 2 + (lane >> 3 & 1), lane >> 4);
#pragma unroll
        for (int j = 0; j < 4; j++) y[j] = tb.matrices(pb, h, col / 8 + j * 2 + (lane >> 4), lane >> 3 & 1);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
          for (int j = 0; j < 4; j++) {
            mma(c[i][2 * j], x[i], y[j].x, y[j].y);
            mma(c[i][2 * j + 1], x[i], y[j].z, y[j].w);
          }
      }
    }
    place = place < half_ring - 1 ? place + 1 : 0;
  }
  bool pairs = !((a.n | a.ldc | (i64)a.c >> 2) & 1); // columns 2q and 2q+1 are stored together
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        i64 r = i0 + row + i * 16 + (lane >> 2) + h * 8, k = j0 + col + j * 8 + (lane & 3) * 2;
        float *p = a.c + r * a.ldc + k, u = c[i][j][2 * h], v = c[i][j][2 * h + 1];
        if (r >= a.m || k >= a.n) continue;
        if (pairs) {
          F2 f{u, v};
          if (a.beta) f = F2{((F2 *)p)->x + u, ((F2 *)p)->y + v};
          *(F2 *)p = f;
          continue;
        }
        p[0] = a.beta ? p[0] + u : u;
        if (k + 1 < a.n) p[1] = a.beta ? p[1] + v : v;
      }
}
// By how a and b lie: x·wᵀ, dy·w and dyᵀ·x.
KERNEL BOUNDS(128, 2) void product_nt(const HalfArgs a) { product<false, false>(a); }
KERNEL BOUNDS(128, 2) void product_nn(const HalfArgs a) { product<false, true>(a); }
KERNEL BOUNDS(128, 2) void product_tn(const HalfArgs a) { product<true, true>(a); }

// halve rounds n elements, eight a thread: both begin at multiples of 16 bytes.
KERNEL BOUNDS(256) void halve(const RoundArgs a) {
  for (i64 i = 8 * first_of(); i < a.n; i += 8 * stride_of()) {
    if (i + 8 <= a.n) {
      F4 u = four(a.src + i), v = four(a.src + i + 4);
      *(U4 *)(a.dst + i) = U4{pack2(u.x, u.y), pack2(u.z, u.w), pack2(v.x, v.y), pack2(v.z, v.w)};
      continue;
    }
    for (i64 e = i; e < a.n; e++) a.dst[e] = (u16)pack2(a.src[e], 0);
  }
}

// widen turns n bfloat16 into floats, eight a thread: both begin at multiples of 16 bytes.
struct WidenArgs {
  float *dst;
  const u16 *src;
  i64 n;
};
KERNEL BOUNDS(256) void widen(const WidenArgs a) {
  for (i64 i = 8 * first_of(); i < a.n; i += 8 * stride_of()) {
    if (i + 8 <= a.n) {
      U4 v = stream(a.src + i);
      *(F4 *)(a.dst + i) = F4{low2(v.x), high2(v.x), low2(v.y), high2(v.y)};
      *(F4 *)(a.dst + i + 4) = F4{low2(v.z), high2(v.z), low2(v.w), high2(v.w)};
      continue;
    }
    for (i64 e = i; e < a.n; e++) a.dst[e] = low2(a.src[e]);
  }
}

// halve_packed rounds a packed weight in f32 to rows [out][ld], ld a multiple of 4. Grid: eighths of units, groups.
KERNEL BOUNDS(256) void halve_packed(const UnpackArgs a) {
  int lane = tid() & 31;
  i64 units = Shape{a.out, a.in}.units(), unit = (i64)block_x() * 8 + (tid() >> 5), o = (i64)block_y() * 32 + lane;
  if (unit >= units || o >= a.out) return;
  const U4 *w = (const U4 *)a.w + (block_y() * units + unit) * 8 * 32 + lane;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    i64 k = unit * 32 + i * 4;
    U4 v = stream(w + i * 32);
    if (k < a.ld) *(U2 *)((u16 *)a.dst + o * a.ld + k) = U2{pack2(as_float(v.x), as_float(v.y)), pack2(as_float(v.z), as_float(v.w))};
  }
}
