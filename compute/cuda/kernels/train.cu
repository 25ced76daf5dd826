// The kernels of training: kernels.cu includes this file. A sum over rows or
// inputs runs in an order that the shapes decide, and nothing is added by atomic
// operations: equal batches give equal bits.

// ---- products: c = op(a)·op(b) + beta·c
//
// Element (i,k) of op(a) is a[i·a_row + k·a_col], of op(b) b[k·b_row + j·b_col],
// so every transposition is one kernel. A packed b is a weight in f32 of which
// op(b) is the transpose (turned) or not. An element of c is one chain over
// ascending k.

struct GemmArgs {
  float *c;
  const float *a, *b;
  i64 m, n, k;
  i64 ldc, a_row, a_col, b_row, b_col;
  i64 beta;
  i64 out, in, turned; // of a packed b
};

// A Reader reads elements of an operand, [outer][k], where an operand's outer side
// is the rows of a and the columns of b. A thread has one element of every so many;
// those behind the end are zero.
struct Reader {
  const float *p; // of the thread's first element of the step that comes next
  // Elements from one to the next, from step to step, and from k to k + 1. A tile of rows of up to
  // 2²⁴ elements has fewer than 2³¹, and registers are short.
  int next, step, deep;
  int outer, k;   // of the first element in its tile
  int outer_next, k_next;
  int outers; // that there are
  DEVICE_MEMBER void start(const float *m, i64 at, i64 most, i64 by_outer, i64 by_k, int width, int depth) {
    int t = tid();
    // Neighbours read what lies side by side: along k, or along the other side.
    bool along = by_k == 1;
    int w = depth / width; // wide elements
    k = (along ? t % w : t / 128) * width;
    outer = along ? t / w : t % 128;
    k_next = along ? 0 : 2 * width;
    outer_next = along ? 256 / w : 0;
    outers = most - at < 128 ? (int)(most - at) : 128;
    p = m + (at + outer) * by_outer + k * by_k;
    next = (int)(outer_next * by_outer + k_next * by_k);
    step = (int)(depth * by_k);
    deep = (int)by_k;
  }
  DEVICE_MEMBER void advance() { p += step; }
  DEVICE_MEMBER bool has(int e, int left) const { return outer + e * outer_next < outers && k + e * k_next < left; }
  DEVICE_MEMBER float at(int e, int left) const { return has(e, left) ? p[e * next] : 0; }
  // pairs reads n times two elements of k.
  template <int n>
  DEVICE_MEMBER void pairs(float v[n][2], int left) const {
    const float *q = p;
    int by = afresh(next), one = afresh(deep), o = afresh(outer), i = afresh(k);
#pragma unroll
    for (int e = 0; e < n; e++, q += by, o += outer_next, i += k_next) {
      v[e][0] = load_if(q, o < outers && i < left);
      v[e][1] = load_if(q + one, o < outers && i + 1 < left);
    }
  }
};

// A WeightReader reads a packed weight, whose fours of inputs lie side by side.
struct WeightReader {
  const float *w;
  int units, turned, from, k0; // the tile's first element of the outer side, and of the step
  int outer, k, outer_next, k_next, outers;
  DEVICE_MEMBER void start(const GemmArgs &a, i64 at, i64 most, int width, int depth) {
    int t = tid(), d = depth / width;
    w = a.b;
    units = (int)Shape{a.out, a.in}.units();
    turned = (int)a.turned;
    from = (int)at;
    k0 = 0;
    k = t % d * width;
    outer = t / d;
    k_next = 0;
    outer_next = 256 / d;
    outers = most - at < 128 ? (int)(most - at) : 128;
  }
  DEVICE_MEMBER void advance(int depth) { k0 += depth; }
  DEVICE_MEMBER const float *element(int o, int i) const {
    int out = turned ? o : i, in = turned ? i : o;
    return w + ((i64)(out / 32) * units * 8 + in / 4) * 128 + out % 32 * 4 + in % 4;
  }
  DEVICE_MEMBER float at(int e, int left) const {
    return outer + e * outer_next < outers && k < left ? *element(from + outer + e * outer_next, k0 + k) : 0;
  }
  template <int n>
  DEVICE_MEMBER void pairs(float v[n][2], int left) const {
#pragma unroll
    for (int e = 0; e < n; e++) {
      int at = afresh(outer) + e * outer_next, o = from + at, i = k0 + k;
      bool ok = at < outers && k < left;
      v[e][0] = load_if(element(o, i), ok);
      v[e][1] = load_if(element(o, i + 1), ok && k + 1 < left);
    }
  }
};

// A Side is b as the kernel takes it.
struct Plain {
  Reader r;
  DEVICE_MEMBER void start(const GemmArgs &a, i64 at, int width, int depth) { r.start(a.b, at, a.n, a.b_col, a.b_row, width, depth); }
  DEVICE_MEMBER void advance(int) { r.advance(); }
};
struct Packed {
  WeightReader r;
  DEVICE_MEMBER void start(const GemmArgs &a, i64 at, int width, int depth) { r.start(a, at, a.n, width, depth); }
  DEVICE_MEMBER void advance(int depth) { r.advance(depth); }
};

enum { side = 128 }; // rows and columns of c that a block has

// In f32 a block takes 16 k a step, a thread has four by four rows and columns of
// each quarter of the tile. The next step's elements are on their way while this
// one's are multiplied. Grid: columns, rows.
template <class B>
DEVICE void gemm_plain(const GemmArgs &a) {
  enum { depth = 16, pitch = side + 4, each = side * depth / 256 };
  SHARED float as[2][depth * pitch];
  SHARED float bs[2][depth * pitch];
  int t = tid(), row = t / 16 * 4, col = t % 16 * 4;
  i64 i0 = (i64)block_y() * side, j0 = (i64)block_x() * side;
  float c[8][8];
#pragma unroll
  for (int i = 0; i < 8; i++)
#pragma unroll
    for (int j = 0; j < 8; j++) c[i][j] = 0;
  bool busy = i0 + row < a.m && j0 + col < a.n;

  Reader ra;
  B b;
  ra.start(a.a, i0, a.m, a.a_row, a.a_col, 1, depth);
  b.start(a, j0, 1, depth);
  float fa[each], fb[each];
  int left = (int)a.k;
  auto load = [&]() __attribute__((always_inline)) {
#pragma unroll
    for (int e = 0; e < each; e++) fa[e] = ra.at(e, left);
#pragma unroll
    for (int e = 0; e < each; e++) fb[e] = b.r.at(e, left);
    ra.advance();
    b.advance(depth);
    left -= depth;
  };
  load();
  int at = 0;
  for (i64 k0 = 0; k0 < a.k; k0 += depth) {
#pragma unroll
    for (int e = 0; e < each; e++) {
      as[at][(ra.k + e * ra.k_next) * pitch + ra.outer + e * ra.outer_next] = fa[e];
      bs[at][(b.r.k + e * b.r.k_next) * pitch + b.r.outer + e * b.r.outer_next] = fb[e];
    }
    barrier(); // of a step: the one before reads the other half
    if (left > 0) load();
    if (busy) {
      const float *pa = as[at] + row, *pb = bs[at] + col;
#pragma unroll
      for (int k = 0; k < depth; k++) {
        float x[8], y[8];
#pragma unroll
        for (int h = 0; h < 2; h++) {
          F4 u = four(pa + k * pitch + h * 64), v = four(pb + k * pitch + h * 64);
          x[4 * h] = u.x, x[4 * h + 1] = u.y, x[4 * h + 2] = u.z, x[4 * h + 3] = u.w;
          y[4 * h] = v.x, y[4 * h + 1] = v.y, y[4 * h + 2] = v.z, y[4 * h + 3] = v.w;
        }
#pragma unroll
        for (int i = 0; i < 8; i++)
#pragma unroll
          for (int j = 0; j < 8; j++) c[i][j] = madd(x[i], y[j], c[i][j]);
      }
    }
    at ^= 1;
  }
#pragma unroll
  for (int i = 0; i < 8; i++)
#pragma unroll
    for (int j = 0; j < 8; j++) {
      i64 r = i0 + row + i % 4 + i / 4 * 64, k = j0 + col + j % 4 + j / 4 * 64;
      if (r < a.m && k < a.n) {
        float *p = a.c + r * a.ldc + k;
        *p = a.beta ? *p + c[i][j] : c[i][j];
      }
    }
}
KERNEL BOUNDS(256) void gemm_f32(const GemmArgs a) { gemm_plain<Plain>(a); }
KERNEL BOUNDS(256) void gemm_f32_packed(const GemmArgs a) { gemm_plain<Packed>(a); }

// In bfloat16, elements are rounded on their way to shared memory, a warp has 64
// rows and 32 columns on tensor cores, and sums are in f32. The next step's elements
// of a are on their way during the first half of this one's products, those of b during
// the second.
template <class B>
DEVICE void gemm_tensor(const GemmArgs &a) {
  enum { depth = 32, pairs = depth / 2, pitch = pairs + 4, each = side * pairs / 256 };
  SHARED u32 as[2][side * pitch]; // [row][k], two k a word
  SHARED u32 bs[2][side * pitch]; // [column][k]
  int t = tid(), lane = t & 31, warp = t >> 5, g = lane >> 2, q = lane & 3, row = warp / 4 * 64, col = warp % 4 * 32;
  i64 i0 = (i64)block_y() * side, j0 = (i64)block_x() * side;
  float c[4][4][4];
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) c[i][j][e] = 0;
  bool busy = i0 + row < a.m && j0 + col < a.n; // all of a warp or none

  Reader ra;
  B b;
  ra.start(a.a, i0, a.m, a.a_row, a.a_col, 2, depth);
  b.start(a, j0, 2, depth);
  float f[each][2]; // on its way, of one side at a time: registers are short
  int left = (int)a.k, at = 0;
  auto load_a = [&]() __attribute__((always_inline)) {
    ra.template pairs<each>(f, left);
    ra.advance();
  };
  auto load_b = [&]() __attribute__((always_inline)) {
    b.r.template pairs<each>(f, left);
    b.advance(depth);
  };
  auto store = [&](u32 *to, const auto &r) __attribute__((always_inline)) {
    to += r.outer * pitch + r.k / 2;
    int next = afresh(r.outer_next) * pitch + r.k_next / 2;
#pragma unroll
    for (int e = 0; e < each; e++) to[e * next] = pack2(f[e][0], f[e][1]);
  };
  auto multiply = [&](int k) __attribute__((always_inline)) {
    u32 y[4][2];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const u32 *p = bs[at] + (col + j * 8 + g) * pitch + k + q;
      y[j][0] = p[0], y[j][1] = p[4];
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const u32 *p = as[at] + (row + i * 16 + g) * pitch + k + q;
      U4 x{p[0], p[8 * pitch], p[4], p[8 * pitch + 4]};
#pragma unroll
      for (int j = 0; j < 4; j++) mma(c[i][j], x, y[j][0], y[j][1]);
    }
  };
  load_a();
  store(as[0], ra);
  load_b();
  store(bs[0], b.r);
  for (left -= depth;; left -= depth) {
    barrier(); // of a tensor step: this half is there, and the other one read
    bool more = left > 0;
    if (more) load_a();
    if (busy) multiply(0);
    if (more) {
      store(as[at ^ 1], ra);
      load_b();
    }
    if (busy) multiply(8);
    if (!more) break;
    store(bs[at ^ 1], b.r);
    at ^= 1;
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) {
        i64 r = i0 + row + i * 16 + g + e / 2 * 8, k = j0 + col + j * 8 + q * 2 + e % 2;
        if (r < a.m && k < a.n) {
          float *p = a.c + r * a.ldc + k;
          *p = a.beta ? *p + c[i][j][e] : c[i][j][e];
        }
      }
}
KERNEL BOUNDS(256, 2) void gemm_bf16(const GemmArgs a) { gemm_tensor<Plain>(a); }
KERNEL BOUNDS(256, 2) void gemm_bf16_packed(const GemmArgs a) { gemm_tensor<Packed>(a); }

// ---- element by element: a grid of any size

DEVICE i64 first_of() { return (i64)block_x() * 256 + tid(); }
DEVICE i64 stride_of() { return (i64)blocks_x() * 256; }

struct AddArgs {
  float *dst;
  const float *a, *b; // b repeats after width elements; without b, dst is a
  i64 n, width;
};
KERNEL BOUNDS(256) void add(const AddArgs a) {
  for (i64 i = first_of(); i < a.n; i += stride_of()) a.dst[i] = a.a[i] + a.b[a.width ? i % a.width : i];
}

KERNEL BOUNDS(256) void clear(const AddArgs a) {
  for (i64 i = first_of(); i < a.n; i += stride_of()) a.dst[i] = 0;
}

struct TurnArgs {
  float *x;
  const float *rope;
  const i32 *pos;
  i64 n, ld, heads, dim, inverse;
};
// turn rotates pairs of elements of heads by halves.
KERNEL BOUNDS(256) void turn(const TurnArgs a) {
  i64 half = a.dim / 2, pairs = a.heads * half;
  for (i64 i = first_of(); i < a.n * pairs; i += stride_of()) {
    i64 r = i / pairs, p = i % pairs, d = p % half;
    const float *angle = a.rope + (i64)a.pos[r] * a.dim;
    float c = angle[d], s = a.inverse ? -angle[half + d] : angle[half + d];
    float *x = a.x + r * a.ld + p / half * a.dim + d;
    float u = x[0], v = x[half];
    x[0] = u * c - v * s;
    x[half] = v * c + u * s;
  }
}

struct SwigluGradArgs {
  float *dgu;
  const float *dy, *gu;
  i64 n, width;
};
// With s = σ(g): ∂/∂g = dy·u·s·(1 + g·(1−s)), ∂/∂u = dy·g·s.
KERNEL BOUNDS(256) void swiglu_grad(const SwigluGradArgs a) {
  for (i64 i = first_of(); i < a.n * a.width; i += stride_of()) {
    i64 at = i / a.width * 2 * a.width + i % a.width;
    float g = a.gu[at], u = a.gu[at + a.width], d = a.dy[i];
    float s = quotient(1.0f, 1.0f + exponential(-g));
    a.dgu[at] = d * u * (s * (1.0f + g * (1.0f - s)));
    a.dgu[at + a.width] = d * (g * s);
  }
}

struct AdamArgs {
  float *p;
  const float *g;
  float *m, *v;
  i64 n;
  u64 lr, beta1, beta2, eps, decay, scale, c1, c2; // decay times lr; c1, c2: 1/(1−βᵗ)
  u16 *half;                                        // p rounded, or null
};
KERNEL BOUNDS(256) void adamw(const AdamArgs a) {
  float lr = as_float((u32)a.lr), b1 = as_float((u32)a.beta1), b2 = as_float((u32)a.beta2), eps = as_float((u32)a.eps);
  float keep = 1.0f - as_float((u32)a.decay), scale = as_float((u32)a.scale), c1 = as_float((u32)a.c1), c2 = as_float((u32)a.c2);
  for (i64 i = first_of(); i < a.n; i += stride_of()) {
    float g = a.g[i] * scale;
    float m = b1 * a.m[i] + (1.0f - b1) * g, v = b2 * a.v[i] + (1.0f - b2) * (g * g);
    a.m[i] = m;
    a.v[i] = v;
    float p = a.p[i] * keep - lr * quotient(m * c1, root(v * c2) + eps);
    a.p[i] = p;
    if (a.half) a.half[i] = (u16)pack2(p, 0);
  }
}

#include "product.cu"

// ---- sums

struct ColumnArgs {
  float *dst;
  const float *x, *y, *scale; // y and scale: Σ x·y·scale[row]
  i64 n, width;
};
// column_sums has 32 columns a block: eight warps have every eighth row.
KERNEL BOUNDS(256) void column_sums(const ColumnArgs a) {
  SHARED float part[8][32];
  int lane = tid() & 31, warp = tid() >> 5;
  i64 c = (i64)block_x() * 32 + lane;
  float s = 0;
  if (c < a.width)
    for (i64 r = warp; r < a.n; r += 8) {
      float v = a.x[r * a.width + c];
      s = a.y ? madd(v * a.y[r * a.width + c], a.scale[r], s) : s + v;
    }
  part[warp][lane] = s;
  barrier(); // of column sums
  if (warp == 0 && c < a.width) {
    for (int w = 1; w < 8; w++) s += part[w][lane];
    a.dst[c] = s;
  }
}

struct NormGradArgs {
  float *dx, *inv;
  const float *dy, *x, *weight;
  i64 width;
  u64 eps;
};
// norm_scales writes 1/RMS of every row.
KERNEL BOUNDS(256) void norm_scales(const NormGradArgs a) {
  SHARED float part[8];
  i64 r = block_x();
  float s = 0;
  for (i64 i = tid(); i < a.width; i += 256) {
    float v = a.x[r * a.width + i];
    s = madd(v, v, s);
  }
  s = block_sum(s, part);
  if (tid() == 0) a.inv[r] = quotient(1.0f, root(quotient(s, (float)a.width) + as_float((u32)a.eps)));
}
// With s = 1/RMS(x) and g = weight·dy: dx = s·g − x·s³/width·Σ(g·x).
KERNEL BOUNDS(256) void norm_grad(const NormGradArgs a) {
  SHARED float part[8];
  i64 at = (i64)block_x() * a.width;
  float s = a.inv[block_x()], c = 0;
  for (i64 i = tid(); i < a.width; i += 256) c = madd(a.dy[at + i] * a.weight[i], a.x[at + i], c);
  c = quotient(block_sum(c, part) * (s * (s * s)), (float)a.width);
  for (i64 i = tid(); i < a.width; i += 256) a.dx[at + i] = a.dy[at + i] * a.weight[i] * s - c * a.x[at + i];
}

struct SquaresArgs {
  float *part;
  const float *x;
  double *sum;
  i64 n;
};
// squares has 8192 elements a block.
KERNEL BOUNDS(256) void squares(const SquaresArgs a) {
  SHARED float part[8];
  i64 at = (i64)block_x() * 8192;
  float s = 0;
  for (i64 i = at + tid(); i < at + 8192 && i < a.n; i += 256) s = madd(a.x[i], a.x[i], s);
  s = block_sum(s, part);
  if (tid() == 0) a.part[block_x()] = s;
}
// total adds up n parts: one block.
KERNEL BOUNDS(256) void total(const SquaresArgs a) {
  SHARED double part[256];
  double s = 0;
  for (i64 i = tid(); i < a.n; i += 256) s += (double)a.part[i];
  part[tid()] = s;
  barrier(); // of the total
  if (tid() == 0) {
    for (int i = 1; i < 256; i++) s += part[i];
    *a.sum = s;
  }
}

struct ScatterArgs {
  float *dst;
  const float *src;
  const i32 *ids, *starts, *rows; // rows[starts[i]:starts[i+1]] go to row ids[i]
  i64 width, ld;
};
// scatter_add has one row of dst a block.
KERNEL BOUNDS(128) void scatter_add(const ScatterArgs a) {
  i64 from = a.starts[block_x()], to = a.starts[block_x() + 1];
  float *dst = a.dst + (i64)a.ids[block_x()] * a.width;
  for (i64 c = tid(); c < a.width; c += 128) {
    float s = dst[c];
    for (i64 i = from; i < to; i++) s += a.src[(i64)a.rows[i] * a.ld + c];
    dst[c] = s;
  }
}

// ---- losses: one row a block

struct SmoothArgs {
  float *loss, *dy;
  const float *y, *t, *scale;
  i64 width, l1;
};
KERNEL BOUNDS(256) void smooth_l1(const SmoothArgs a) {
  SHARED float part[8];
  i64 r = block_x(), at = r * a.width;
  float g = quotient(a.scale[r], (float)a.width), s = 0;
  for (i64 i = tid(); i < a.width; i += 256) {
    float d = a.y[at + i] - a.t[at + i], v = d < 0 ? -d : d;
    if (v < 1 && !a.l1) {
      s += 0.5f * (d * d);
      a.dy[at + i] = g * d;
    } else {
      s += a.l1 ? v : v - 0.5f;
      a.dy[at + i] = d > 0 ? g : d < 0 ? -g : 0 * d; // 0, or NaN for a NaN
    }
  }
  s = block_sum(s, part);
  if (tid() == 0) a.loss[r] = quotient(s, (float)a.width);
}

DEVICE float block_max(float v, float *part) {
  v = warp_max(v);
  if ((tid() & 31) == 0) part[tid() >> 5] = v;
  barrier();
  float m = part[0];
  for (int i = 1; i < 8; i++) m = part[i] > m ? part[i] : m;
  barrier();
  return m;
}

struct CrossArgs {
  float *z, *loss; // z: logits, then their gradients
  const float *scale;
  const i32 *ids;
  const float *prob, *tail; // [rows][k], [rows] or null
  float *labels;            // [rows][k], room
  const float *full;        // [rows][width] or null
  i64 width, k;
  u16 *half; // [rows][width]: the gradients, rounded, in place of z; or null
};
// soft_ce: with q the softmax, S = Σ q and P = Σ p over the k labels and t the
// mass of the tail,
//
//   loss      = −Σ p·log q − t·log(1−S)
//   ∂loss/∂z  = q·(P+t) − p           on the labels
//             = q·(P − t·S/(1−S))     elsewhere
//
// 1−S is summed from the other tokens, never subtracted: it may be tiny. Below
// 2^-100 next to the largest it is taken for that, and has no gradient.
KERNEL BOUNDS(256) void soft_ce(const CrossArgs a) {
  SHARED float part[8];
  const double smallest = 0x1p-100;
  i64 r = block_x();
  float *z = a.z + r * a.width, scale = a.scale[r];
  auto gradient = [&](i64 i, float v) __attribute__((always_inline)) {
    if (a.half)
      a.half[r * a.width + i] = (u16)pack2(v, 0);
    else
      z[i] = v;
  };
  float top = as_float(0xff800000u), mass = 0, cross = 0, sum = 0;
  for (i64 i = tid(); i < a.width; i += 256) top = z[i] > top ? z[i] : top;
  top = block_max(top, part);
  if (a.full) {
    const float *p = a.full + r * a.width;
    for (i64 i = tid(); i < a.width; i += 256) {
      float v = z[i] - top;
      sum += exponential(v);
      if (p[i] != 0) {
        mass += p[i];
        cross = madd(p[i], v, cross);
      }
    }
    mass = block_sum(mass, part);
    cross = block_sum(cross, part);
    sum = block_sum(sum, part);
    if (tid() == 0) a.loss[r] = (float)((double)mass * logarithm((double)sum) - (double)cross);
    float coef = quotient(mass, sum) * scale;
    for (i64 i = tid(); i < a.width; i += 256) gradient(i, scale == 0 ? 0 : coef * exponential(z[i] - top) - scale * p[i]);
    return;
  }
  const i32 *ids = a.ids + r * a.k;
  const float *p = a.prob + r * a.k;
  float *e = a.labels + r * a.k, known = 0;
  for (i64 i = tid(); i < a.k; i += 256) {
    if (ids[i] < 0) continue;
    float v = z[ids[i]] - top;
    z[ids[i]] = as_float(0xff800000u);
    if (p[i] != 0) {
      mass += p[i];
      cross = madd(p[i], v, cross);
    }
    e[i] = exponential(v);
    known += e[i];
  }
  barrier(); // labels are taken out
  float rest = 0;
  for (i64 i = tid(); i < a.width; i += 256) rest += exponential(z[i] - top);
  mass = block_sum(mass, part);
  cross = block_sum(cross, part);
  known = block_sum(known, part);
  rest = block_sum(rest, part);
  sum = known + rest;
  double all = logarithm((double)sum), loss = (double)mass * all - (double)cross;
  float tail = a.tail ? a.tail[r] : 0, coef = quotient(mass, sum);
  if (tail != 0) {
    loss += (double)tail * (all - logarithm((double)rest < smallest ? smallest : (double)rest));
    if ((double)rest >= smallest) coef -= quotient(quotient(tail * known, sum), rest);
  }
  if (tid() == 0) a.loss[r] = (float)loss;
  coef *= scale;
  for (i64 i = tid(); i < a.width; i += 256) gradient(i, scale == 0 ? 0 : coef * exponential(z[i] - top));
  barrier(); // labels come back
  for (i64 i = tid(); i < a.k; i += 256)
    if (ids[i] >= 0) gradient(ids[i], scale == 0 ? 0 : (quotient(e[i], sum) * (mass + tail) - p[i]) * scale);
}

// ---- tree attention
//
// A line is one head of queries of one row; lines of a head of keys are numbered
// row by row. A row sees rows [first, last] of level 0, and then one of each level
// below.

struct KeyTile {
  i32 key, from, to, unused; // 32 keys of level 0, and the rows that may see them
};
struct Node {
  i32 level, row, from, to; // rows[from:to] see a row of a level below
};
// A Line is what the gradient needs to know of a line.
struct alignas(16) Line {
  i32 first, last;
  float lse, delta;
};

struct TreeArgs {
  float *o, *lse;
  const float *q;
  const u64 *keys, *values;      // [levels] addresses
  const i32 *first, *last, *anc; // [rows], [rows], [levels−1][rows]
  i64 rows, heads, kv_heads, dim, levels;
  const float *d_o;
  float *delta, *dq;
  const u64 *dk, *dv; // [levels] addresses
  const KeyTile *tiles;
  const Node *nodes;
  const i32 *list; // of rows that see nodes
  i64 count;       // of nodes
  Line *lines;     // [heads of keys][lines], or null
};

enum { tree_ld = most_dim + 4 }; // keeps lanes that read rows of keys apart

// load_tile copies keys and values [from, from+32) of level 0, zeros behind to.
DEVICE void load_tile(const TreeArgs &a, float *keys, float *values, int from, int to, int head, int threads) {
  const float *k = (const float *)a.keys[0], *v = (const float *)a.values[0];
  int lane = tid() & 31, pad = ((int)a.dim + 3) / 4 * 4;
  for (int r = tid() >> 5; r < tile; r += threads / 32) {
    i64 at = ((i64)(from + r) * a.kv_heads + head) * a.dim;
    for (int d = lane; d < pad; d += 32) {
      bool ok = from + r < to && d < a.dim;
      keys[r * tree_ld + d] = ok ? k[at + d] : 0;
      values[r * tree_ld + d] = ok ? v[at + d] : 0;
    }
  }
}

DEVICE float dot4(F4 a, F4 b, float s) {
  s = madd(a.x, b.x, s);
  s = madd(a.y, b.y, s);
  s = madd(a.z, b.z, s);
  return madd(a.w, b.w, s);
}

// head_of returns a lane's four elements of a head, zeros behind its end.
DEVICE F4 head_of(const float *p, int lane, i64 dim) {
  int d = lane * 4;
  return F4{d < dim ? p[d] : 0, d + 1 < dim ? p[d + 1] : 0, d + 2 < dim ? p[d + 2] : 0, d + 3 < dim ? p[d + 3] : 0};
}

// tree_attend has 16 lines a block, four a warp. Grid: sixteens of lines, heads of
// keys.
KERNEL BOUNDS(128, 3) void tree_attend(const TreeArgs a) {
  SHARED float keys[tile * tree_ld];
  SHARED float values[tile * tree_ld];
  SHARED float queries[warps * per_warp][most_dim];
  SHARED float weights[warps * per_warp][tile];
  int lane = tid() & 31, warp = tid() >> 5, dim = (int)a.dim, pad = (dim + 3) / 4 * 4;
  int heads = (int)a.heads, head = block_y(), group = heads / (int)a.kv_heads, base = block_x() * warps * per_warp, lines = (int)a.rows * group;
  int lo = 0x7fffffff, hi = 0; // keys that any line sees
  for (int l = base; l < base + warps * per_warp && l < lines; l++) {
    int f = a.first[l / group], e = a.last[l / group] + 1;
    lo = f < lo ? f : lo;
    hi = e > hi ? e : hi;
  }
  float scale = quotient(1.0f, root((float)a.dim));
  int row[per_warp], index[per_warp]; // of the line's head among all rows' heads
  i32 begin[per_warp], end[per_warp];
  float most[per_warp], sum[per_warp], o[per_warp][4];
#pragma unroll
  for (int i = 0; i < per_warp; i++) {
    int l = base + warp * per_warp + i;
    bool live = l < lines;
    row[i] = live ? l / group : 0;
    index[i] = row[i] * heads + head * group + (live ? l % group : 0);
    begin[i] = live ? a.first[row[i]] : 0;
    end[i] = live ? a.last[row[i]] + 1 : 0;
    most[i] = as_float(0xff800000u);
    sum[i] = 0;
#pragma unroll
    for (int e = 0; e < 4; e++) o[i][e] = 0;
    for (int d = lane; d < pad; d += 32) queries[warp * per_warp + i][d] = d < dim ? a.q[(i64)index[i] * dim + d] * scale : 0;
  }
  bool busy = base + warp * per_warp < lines;
  for (int t = lo; t < hi; t += tile) {
    barrier();
    load_tile(a, keys, values, t, hi, head, 128);
    barrier(); // a tile is there
    if (busy) {
      float s[per_warp];
#pragma unroll
      for (int i = 0; i < per_warp; i++) s[i] = 0;
      for (int d = 0; d < pad; d += 4) {
        F4 k = four(keys + lane * tree_ld + d);
#pragma unroll
        for (int i = 0; i < per_warp; i++) s[i] = dot4(four(&queries[warp * per_warp + i][d]), k, s[i]);
      }
      int p = t + lane;
#pragma unroll
      for (int i = 0; i < per_warp; i++) {
        bool seen = p >= begin[i] && p < end[i];
        float v = seen ? s[i] : as_float(0xff800000u), m = warp_max(v), e = 0;
        m = m > most[i] ? m : most[i];
        if (seen) e = exponential(v - m);
        // Before a row's first key there is nothing to scale.
        float f = sum[i] > 0 ? exponential(most[i] - m) : 1.0f;
        most[i] = m;
        sum[i] = sum[i] * f + warp_sum(e);
#pragma unroll
        for (int c = 0; c < 4; c++) o[i][c] *= f;
        weights[warp * per_warp + i][lane] = e;
      }
    }
    barrier();
    if (busy && lane * 4 < pad)
      for (int j = 0; j < tile; j++) {
        F4 v = four(values + j * tree_ld + lane * 4);
#pragma unroll
        for (int i = 0; i < per_warp; i++) {
          float e = weights[warp * per_warp + i][j];
          o[i][0] = madd(e, v.x, o[i][0]);
          o[i][1] = madd(e, v.y, o[i][1]);
          o[i][2] = madd(e, v.z, o[i][2]);
          o[i][3] = madd(e, v.w, o[i][3]);
        }
      }
  }
  barrier(); // queries, where there is no key
#pragma unroll
  for (int i = 0; i < per_warp; i++) {
    if (base + warp * per_warp + i >= lines) continue;
    F4 q = head_of(queries[warp * per_warp + i], lane, dim);
    for (int l = 1; l < (int)a.levels; l++) {
      i64 at = ((i64)a.anc[(l - 1) * a.rows + row[i]] * a.kv_heads + head) * dim;
      float s = warp_sum(dot4(q, head_of((const float *)a.keys[l] + at, lane, dim), 0));
      F4 v = head_of((const float *)a.values[l] + at, lane, dim);
      float m = s > most[i] ? s : most[i], f = exponential(most[i] - m), e = exponential(s - m);
      most[i] = m;
      sum[i] = sum[i] * f + e;
      o[i][0] = madd(e, v.x, o[i][0] * f);
      o[i][1] = madd(e, v.y, o[i][1] * f);
      o[i][2] = madd(e, v.z, o[i][2] * f);
      o[i][3] = madd(e, v.w, o[i][3] * f);
    }
    float inv = quotient(1.0f, sum[i]);
#pragma unroll
    for (int e = 0; e < 4; e++)
      if (lane * 4 + e < dim) a.o[(i64)index[i] * dim + lane * 4 + e] = o[i][e] * inv;
    if (lane == 0) a.lse[index[i]] = (float)((double)most[i] + logarithm((double)sum[i]));
  }
}

// The gradient recomputes the weights P from lse. With delta = Σ do·o and
// e = P∘(do·vᵀ − delta): dq = e·k·scale, dk = eᵀ·q·scale, dv = Pᵀ·do (Dao,
// FlashAttention-2, 2023, §3.1.2).

// tree_delta has one line a warp. Grid: eights of rows' heads.
KERNEL BOUNDS(256) void tree_delta(const TreeArgs a) {
  int lane = tid() & 31;
  i64 h = (i64)block_x() * 8 + (tid() >> 5);
  if (h >= a.rows * a.heads) return;
  float s = warp_sum(dot4(head_of(a.d_o + h * a.dim, lane, a.dim), head_of(a.o + h * a.dim, lane, a.dim), 0));
  if (lane) return;
  a.delta[h] = s;
  if (!a.lines) return;
  int row = (int)(h / a.heads), head = (int)(h % a.heads), group = (int)(a.heads / a.kv_heads);
  a.lines[(head / group * a.rows + row) * group + head % group] = Line{a.first[row], a.last[row], a.lse[h], s};
}

enum { grad_lines = 2 }; // a warp

// tree_queries gives dq: 8 lines a block. Grid: eights of lines, heads of keys.
KERNEL BOUNDS(128, 3) void tree_queries(const TreeArgs a) {
  SHARED float keys[tile * tree_ld];
  SHARED float values[tile * tree_ld];
  SHARED float queries[warps * grad_lines][most_dim];
  SHARED float grads[warps * grad_lines][most_dim];
  SHARED float weights[warps * grad_lines][tile];
  int lane = tid() & 31, warp = tid() >> 5, dim = (int)a.dim, pad = (dim + 3) / 4 * 4;
  i64 head = block_y(), group = a.heads / a.kv_heads, base = (i64)block_x() * warps * grad_lines, lines = a.rows * group;
  i64 lo = 0x7fffffff, hi = 0;
  for (i64 l = base; l < base + warps * grad_lines && l < lines; l++) {
    i64 f = a.first[l / group], e = a.last[l / group] + 1;
    lo = f < lo ? f : lo;
    hi = e > hi ? e : hi;
  }
  float scale = quotient(1.0f, root((float)a.dim));
  i64 row[grad_lines], index[grad_lines];
  i32 begin[grad_lines], end[grad_lines];
  float lse[grad_lines], delta[grad_lines], dq[grad_lines][4];
#pragma unroll
  for (int i = 0; i < grad_lines; i++) {
    i64 l = base + warp * grad_lines + i;
    bool live = l < lines;
    row[i] = live ? l / group : 0;
    index[i] = row[i] * a.heads + head * group + (live ? l % group : 0);
    begin[i] = live ? a.first[row[i]] : 0;
    end[i] = live ? a.last[row[i]] + 1 : 0;
    lse[i] = a.lse[index[i]];
    delta[i] = a.delta[index[i]];
#pragma unroll
    for (int e = 0; e < 4; e++) dq[i][e] = 0;
    for (int d = lane; d < pad; d += 32) {
      queries[warp * grad_lines + i][d] = d < dim ? a.q[index[i] * dim + d] * scale : 0;
      grads[warp * grad_lines + i][d] = d < dim ? a.d_o[index[i] * dim + d] : 0;
    }
  }
  bool busy = base + warp * grad_lines < lines;
  for (i64 t = lo; t < hi; t += tile) {
    barrier();
    load_tile(a, keys, values, t, hi, head, 128);
    barrier(); // a tile of the gradient is there
    if (busy) {
      float s[grad_lines], w[grad_lines];
#pragma unroll
      for (int i = 0; i < grad_lines; i++) s[i] = w[i] = 0;
      for (int d = 0; d < pad; d += 4) {
        F4 k = four(keys + lane * tree_ld + d), v = four(values + lane * tree_ld + d);
#pragma unroll
        for (int i = 0; i < grad_lines; i++) {
          s[i] = dot4(four(&queries[warp * grad_lines + i][d]), k, s[i]);
          w[i] = dot4(four(&grads[warp * grad_lines + i][d]), v, w[i]);
        }
      }
      i64 p = t + lane;
#pragma unroll
      for (int i = 0; i < grad_lines; i++)
        weights[warp * grad_lines + i][lane] = p >= begin[i] && p < end[i] ? exponential(s[i] - lse[i]) * (w[i] - delta[i]) : 0;
    }
    barrier();
    if (busy && lane * 4 < pad)
      for (int j = 0; j < tile; j++) {
        F4 k = four(keys + j * tree_ld + lane * 4);
#pragma unroll
        for (int i = 0; i < grad_lines; i++) {
          float e = weights[warp * grad_lines + i][j];
          dq[i][0] = madd(e, k.x, dq[i][0]);
          dq[i][1] = madd(e, k.y, dq[i][1]);
          dq[i][2] = madd(e, k.z, dq[i][2]);
          dq[i][3] = madd(e, k.w, dq[i][3]);
        }
      }
  }
  barrier();
#pragma unroll
  for (int i = 0; i < grad_lines; i++) {
    if (base + warp * grad_lines + i >= lines) continue;
    F4 q = head_of(queries[warp * grad_lines + i], lane, dim), g = head_of(grads[warp * grad_lines + i], lane, dim);
    for (i64 l = 1; l < a.levels; l++) {
      i64 at = ((i64)a.anc[(l - 1) * a.rows + row[i]] * a.kv_heads + head) * dim;
      F4 k = head_of((const float *)a.keys[l] + at, lane, dim);
      float s = warp_sum(dot4(q, k, 0));
      float w = warp_sum(dot4(g, head_of((const float *)a.values[l] + at, lane, dim), 0));
      float e = exponential(s - lse[i]) * (w - delta[i]);
      dq[i][0] = madd(e, k.x, dq[i][0]);
      dq[i][1] = madd(e, k.y, dq[i][1]);
      dq[i][2] = madd(e, k.z, dq[i][2]);
      dq[i][3] = madd(e, k.w, dq[i][3]);
    }
#pragma unroll
    for (int e = 0; e < 4; e++)
      if (lane * 4 + e < dim) a.dq[index[i] * dim + lane * 4 + e] = dq[i][e] * scale;
  }
}

// tree_keys adds to dk and dv of level 0: 32 keys a block, whose lines pass by,
// eight at a time in ascending order. Grid: tiles of keys, heads of keys.
KERNEL BOUNDS(256, 2) void tree_keys(const TreeArgs a) {
  enum { step = 8 };
  SHARED float keys[tile * tree_ld];
  SHARED float values[tile * tree_ld];
  SHARED float queries[step * tree_ld];
  SHARED float grads[step * tree_ld];
  SHARED float probs[step][tile];
  SHARED float weights[step][tile];
  int lane = tid() & 31, warp = tid() >> 5, dim = (int)a.dim, pad = (dim + 3) / 4 * 4;
  KeyTile at = a.tiles[block_x()];
  int heads = (int)a.heads, head = block_y(), group = heads / (int)a.kv_heads, to = at.to * group, count = (int)a.count;
  float scale = quotient(1.0f, root((float)a.dim));
  load_tile(a, keys, values, at.key, at.key + tile < count ? at.key + tile : count, head, 256);
  int own = tid() / 8, part = tid() % 8 * 4; // a key, and four elements of every 32
  float dk[4][4], dv[4][4];
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int e = 0; e < 4; e++) dk[i][e] = dv[i][e] = 0;
  for (int l0 = at.from * group; l0 < to; l0 += step) {
    bool any = false; // of these lines sees the tile
    for (int l = l0; l < l0 + step && l < to; l++) any = any || (a.first[l / group] < at.key + tile && a.last[l / group] >= at.key);
    if (!any) continue;
    int l = l0 + warp;
    bool live = l < to;
    int row = live ? l / group : 0, index = row * heads + head * group + (live ? l % group : 0);
    barrier(); // the lines before are done
    for (int d = lane; d < pad; d += 32) {
      queries[warp * tree_ld + d] = d < dim ? a.q[(i64)index * dim + d] * scale : 0;
      grads[warp * tree_ld + d] = d < dim ? a.d_o[(i64)index * dim + d] : 0;
    }
    barrier(); // lines are there
    float s = 0, w = 0;
    for (int d = 0; d < pad; d += 4) {
      s = dot4(four(queries + warp * tree_ld + d), four(keys + lane * tree_ld + d), s);
      w = dot4(four(grads + warp * tree_ld + d), four(values + lane * tree_ld + d), w);
    }
    int key = at.key + lane;
    bool seen = live && key >= a.first[row] && key <= a.last[row];
    float p = seen ? exponential(s - a.lse[index]) : 0;
    probs[warp][lane] = p;
    weights[warp][lane] = seen ? p * (w - a.delta[index]) : 0;
    barrier(); // weights of lines are there
#pragma unroll
    for (int i = 0; i < 4; i++)
      if (part + 32 * i < pad)
#pragma unroll
        for (int j = 0; j < step; j++) {
          F4 q = four(queries + j * tree_ld + part + 32 * i), g = four(grads + j * tree_ld + part + 32 * i);
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
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int e = 0; e < 4; e++) {
      int d = part + 32 * i + e;
      if (d < dim) {
        ((float *)a.dk[0])[dst + d] += dk[i][e];
        ((float *)a.dv[0])[dst + d] += dv[i][e];
      }
    }
}

// tree_nodes adds to dk and dv of the levels below: one of their rows a warp.
// Grid: fours of nodes, heads of keys.
KERNEL BOUNDS(128) void tree_nodes(const TreeArgs a) {
  int lane = tid() & 31;
  i64 n = (i64)block_x() * 4 + (tid() >> 5), head = block_y(), group = a.heads / a.kv_heads, dim = a.dim;
  if (n >= a.count) return;
  Node node = a.nodes[n];
  i64 at = ((i64)node.row * a.kv_heads + head) * dim;
  float scale = quotient(1.0f, root((float)dim));
  F4 k = head_of((const float *)a.keys[node.level] + at, lane, dim), v = head_of((const float *)a.values[node.level] + at, lane, dim);
  F4 dk{0, 0, 0, 0}, dv{0, 0, 0, 0};
  for (i64 i = node.from; i < node.to; i++)
    for (i64 j = 0; j < group; j++) {
      i64 index = (i64)a.list[i] * a.heads + head * group + j;
      F4 q = head_of(a.q + index * dim, lane, dim), g = head_of(a.d_o + index * dim, lane, dim);
      float p = exponential(warp_sum(dot4(q, k, 0)) * scale - a.lse[index]);
      float e = p * (warp_sum(dot4(g, v, 0)) - a.delta[index]) * scale;
      dk = F4{madd(e, q.x, dk.x), madd(e, q.y, dk.y), madd(e, q.z, dk.z), madd(e, q.w, dk.w)};
      dv = F4{madd(p, g.x, dv.x), madd(p, g.y, dv.y), madd(p, g.z, dv.z), madd(p, g.w, dv.w)};
    }
  float *tk = (float *)a.dk[node.level] + at, *tv = (float *)a.dv[node.level] + at;
  float ek[4] = {dk.x, dk.y, dk.z, dk.w}, ev[4] = {dv.x, dv.y, dv.z, dv.w};
#pragma unroll
  for (int e = 0; e < 4; e++)
    if (lane * 4 + e < dim) {
      tk[lane * 4 + e] += ek[e];
      tv[lane * 4 + e] += ev[e];
    }
}

#include "treehalf.cu"
#include "treewide.cu"
