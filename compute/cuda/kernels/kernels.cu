// The kernels of package cuda. Every one takes one structure, passed by value,
// whose fields are 8 bytes wide; args.go has the same.
//
// Products and sums are fused only where madd says so, and every reduction runs
// in an order that a row's length and the weight's shape decide: a row has the
// same bits in any company.
#include "device.h"

// beyond reports whether row r is one of those that a launch has more than there
// are rows: where live is not null, only the device knows how many there are, so
// that one launch serves any number up to its own.
DEVICE bool beyond(const i64 *live, i64 r) { return live && r >= *live; }
DEVICE i64 at_most(const i64 *live, i64 n) { return live && *live < n ? *live : n; }

// ---- functions of one element

// exponential returns e^x to within about one unit in the last place.
DEVICE float exponential(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  float n = x * 1.44269504f + 12582912.0f; // rounds to an integer
  n -= 12582912.0f;
  float r = madd(n, -0.693145752f, x); // ln 2 in two parts
  r = madd(n, -1.42860677e-6f, r);
  float p = 1.38888890e-3f;
  p = madd(p, r, 8.33333377e-3f);
  p = madd(p, r, 4.16666679e-2f);
  p = madd(p, r, 1.66666672e-1f);
  p = madd(p, r, 0.5f);
  p = madd(p, r, 1.0f);
  p = madd(p, r, 1.0f);
  // Two factors, because 2^n alone may be no normal number.
  int i = (int)n, h = i / 2;
  return p * as_float((u32)(h + 127) << 23) * as_float((u32)(i - h + 127) << 23);
}

// logarithm returns ln x of a positive normal x: with x = m·2^e, m in [√½, √2)
// and s = (m−1)/(m+1), ln m = 2·atanh(s).
DEVICE double logarithm(double x) {
  u64 u = as_bits(x);
  int e = (int)(u >> 52) - 1023;
  double m = as_double((u & 0xfffffffffffffull) | 0x3ff0000000000000ull);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    e++;
  }
  double s = (m - 1) / (m + 1), z = s * s, p = 0;
  for (int i = 12; i >= 0; i--) p = madd(p, z, 1.0 / (2 * i + 1));
  return madd((double)e, 6.93147180369123816490e-01, madd((double)e, 1.90821492927058770002e-10, 2 * s * p));
}

DEVICE float silu(float x) { return quotient(x, 1.0f + exponential(-x)); }

// gelu returns x·Φ(x), Φ from the complementary error function of Press et al.,
// Numerical Recipes, section 6.2: a fractional error below 1.2e-7.
DEVICE float gelu(float x) {
  float z = (x < 0 ? -x : x) * 0.707106781f;
  float t = quotient(1.0f, madd(0.5f, z, 1.0f));
  float p = 0.17087277f;
  p = madd(p, t, -0.82215223f);
  p = madd(p, t, 1.48851587f);
  p = madd(p, t, -1.13520398f);
  p = madd(p, t, 0.27886807f);
  p = madd(p, t, -0.18628806f);
  p = madd(p, t, 0.09678418f);
  p = madd(p, t, 0.37409196f);
  p = madd(p, t, 1.00002368f);
  p = madd(p, t, -1.26551223f);
  float tail = t * exponential(madd(-z, z, p)); // erfc(z)
  return 0.5f * x * (x < 0 ? tail : 2.0f - tail);
}

// hyperbolic returns tanh x: its series near 0, where (1 − e^−2|x|)/(1 + e^−2|x|) would lose digits.
DEVICE float hyperbolic(float x) {
  float y = x < 0 ? -x : x, z = x * x, p = 2.18694885e-2f, e = exponential(-2.0f * y);
  p = madd(p, z, -5.39682540e-2f);
  p = madd(p, z, 1.33333333e-1f);
  p = madd(p, z, -3.33333333e-1f);
  float far = quotient(1.0f - e, 1.0f + e);
  return y < 0.25f ? madd(x * z, p, x) : x < 0 ? -far : far;
}
// capped returns a soft cap of x: limit·tanh(x/limit).
DEVICE float capped(float x, float limit) { return limit * hyperbolic(quotient(x, limit)); }

// act_clamped_up is what act_clamped does to its second product.
enum { act_identity, act_silu, act_gelu, act_gelu_tanh, act_clamped, act_clamped_up };
DEVICE float clamped_up(float x, float limit) { return (x > limit ? limit : x < -limit ? -limit : x) + 1.0f; }

// activate applies an activation. But for GELU they are x·σ(z): GELU's approximation x/2·(1 + tanh(z/2)), too.
DEVICE float activate(float x, i64 act, float limit) {
  if (act == act_identity) return x;
  if (act == act_gelu) return gelu(x);
  if (act == act_clamped_up) return clamped_up(x, limit);
  float z = x;
  if (act == act_gelu_tanh) z = 1.59576912f * madd(0.044715f * x * x, x, x); // 2√(2/π)
  if (act == act_clamped) {
    x = x > limit ? limit : x;
    z = 1.702f * x;
  }
  return quotient(x, 1.0f + exponential(-z));
}

// ---- types that keys and values are kept as

DEVICE void put_element(float *p, float v) { *p = v; }
DEVICE void put_element(u16 *p, float v) { *p = (u16)pack2(v, 0); }
DEVICE F4 four(const float *p) { return *(const F4 *)p; }
DEVICE F4 four(const u16 *p) {
  U2 v = *(const U2 *)p;
  return F4{low2(v.x), high2(v.x), low2(v.y), high2(v.y)};
}

// ---- packed weights, in groups of 32 outputs and units of 32 inputs, padded
// with zeros
//
//   f32   [groups][units][8][32 outputs][4 inputs]
//   bf16  [groups][2 tiles of 16 outputs][units][2][32 lanes][16 bytes]: a lane's
//         fragment of an m16n8k16 product
//   q8    [groups][2 tiles][units][32 lanes][16 bytes]: integers plus 128, as
//         two fragments, whose words have the elements 0, 2, 1 and 3 of four, then
//         float16 scales [groups][2 tiles][units][8][2], of outputs g and g+8

struct Shape {
  i64 out, in;
  DEVICE_MEMBER i64 units() const { return (in + 31) / 32; }
  DEVICE_MEMBER i64 tiles() const { return (out + 31) / 32 * 2; }
};

struct WeightF32 {
  DEVICE_MEMBER static float at(const u8 *w, Shape s, i64 o, i64 k) {
    return ((const float *)w)[((o / 32 * s.units() * 8 + k / 4) * 32 + o % 32) * 4 + k % 4];
  }
};

// lane_of returns the lane that holds (o,k) of a fragment, and half the index of
// its element among the lane's eight.
DEVICE i64 fragment(i64 o, i64 k) {
  i64 lane = o % 8 * 4 + k % 8 / 2, reg = k % 16 / 8 * 2 + o % 16 / 8;
  return lane * 8 + reg * 2 + k % 2;
}

struct WeightBF16 {
  DEVICE_MEMBER static float at(const u8 *w, Shape s, i64 o, i64 k) {
    return low2(((const u16 *)w)[(o / 16 * s.units() * 2 + k / 16) * 256 + fragment(o, k)]);
  }
};

struct WeightQ8 {
  DEVICE_MEMBER static float at(const u8 *w, Shape s, i64 o, i64 k) {
    i64 block = o / 16 * s.units() + k / 32, f = fragment(o, k);
    int q = w[block * 512 + f / 8 * 16 + k % 32 / 16 * 8 + f % 8 / 4 * 4 + f % 2 * 2 + f % 4 / 2];
    const u16 *scales = (const u16 *)(w + s.tiles() * s.units() * 512);
    return from_half(scales[block * 16 + o % 8 * 2 + o % 16 / 8]) * (float)(q - 128);
  }
};

// ---- embed, gather: one row a block

struct EmbedArgs {
  float *dst;
  const u8 *w;
  const i32 *ids;
  const i64 *live;
  i64 out, in, ld, col;
  i64 first; // id of the first row of w: others stay as they are
};
template <class W>
DEVICE void embed(const EmbedArgs &a) {
  follow();
  i64 r = block_x();
  if (beyond(a.live, r)) return;
  i64 id = a.ids[r] - a.first;
  if (id < 0 || id >= a.out) return;
  float *dst = a.dst + r * a.ld + a.col;
  for (i64 k = tid(); k < a.in; k += 128) dst[k] = W::at(a.w, Shape{a.out, a.in}, id, k);
}
KERNEL BOUNDS(128) void embed_f32(const EmbedArgs a) { embed<WeightF32>(a); }
KERNEL BOUNDS(128) void embed_bf16(const EmbedArgs a) { embed<WeightBF16>(a); }
KERNEL BOUNDS(128) void embed_q8(const EmbedArgs a) { embed<WeightQ8>(a); }

struct GatherArgs {
  float *dst;
  const float *src;
  const i32 *rows;
  const i64 *live;
  i64 ld, width;
};
KERNEL BOUNDS(128) void gather(const GatherArgs a) {
  follow();
  i64 r = block_x();
  if (beyond(a.live, r)) return;
  const float *src = a.src + (i64)a.rows[r] * a.width;
  for (i64 i = tid(); i < a.width; i += 128) a.dst[r * a.ld + i] = src[i];
}

// ---- norms: one row a block of 256

// block_sum sums over a block of 256 threads: within warps, then over warps.
DEVICE float block_sum(float v, float *part) {
  v = warp_sum(v);
  if ((tid() & 31) == 0) part[tid() >> 5] = v;
  barrier();
  float s = part[0];
  for (int i = 1; i < 8; i++) s += part[i];
  barrier();
  return s;
}

struct NormArgs {
  void *dst;
  const float *x, *weight, *bias;
  const i64 *live;
  i64 width, center;
  u64 eps;
};

// A Normal gives the elements of a normalised row.
struct Normal {
  const float *x, *weight, *bias;
  float mean, inv;
  DEVICE_MEMBER float at(i64 i) const {
    if (!weight) return x[i];
    float v = (x[i] - mean) * inv * weight[i];
    return bias ? v + bias[i] : v;
  }
};

DEVICE Normal normal(const NormArgs &a, i64 row, float *part) {
  Normal n{a.x + row * a.width, a.weight, a.bias, 0, 0};
  if (!a.weight) return n;
  if (a.center) {
    float s = 0;
    for (i64 i = tid(); i < a.width; i += 256) s += n.x[i];
    n.mean = quotient(block_sum(s, part), (float)a.width);
  }
  float s = 0;
  for (i64 i = tid(); i < a.width; i += 256) {
    float v = n.x[i] - n.mean;
    s = madd(v, v, s);
  }
  s = block_sum(s, part);
  n.inv = quotient(1.0f, root(quotient(s, (float)a.width) + as_float((u32)a.eps)));
  return n;
}

// norm may write over x: a thread reads and writes its own elements alone.
KERNEL BOUNDS(256) void norm(const NormArgs a) {
  SHARED float part[8];
  follow();
  i64 r = block_x();
  if (beyond(a.live, r)) return;
  Normal n = normal(a, r, part);
  for (i64 i = tid(); i < a.width; i += 256) ((float *)a.dst)[r * a.width + i] = n.at(i);
}

// fours_rows normalises rows to [units·8][rows][4 inputs], zeros behind: what f32
// weights are multiplied by.
KERNEL BOUNDS(256) void fours_rows(const NormArgs a) {
  SHARED float part[8];
  follow();
  i64 r = block_x(), padded = (a.width + 31) / 32 * 32;
  if (beyond(a.live, r)) return;
  Normal n = normal(a, r, part);
  for (i64 i = tid(); i < padded; i += 256) ((float *)a.dst)[(i / 4 * blocks_x() + r) * 4 + i % 4] = i < a.width ? n.at(i) : 0;
}

// split2 splits two numbers into bfloat16 planes: the high ones, then the low ones.
DEVICE U2 split2(float x0, float x1) {
  u32 hi = pack2(x0, x1);
  return U2{hi, pack2(x0 - low2(hi), x1 - high2(hi))};
}

// split_rows normalises rows and splits them into two bfloat16 planes, x ≈ hi +
// lo, as fragments [units·2][⌈rows/8⌉][32 lanes]{hi b0, hi b1, lo b0, lo b1}: what
// the other weights are multiplied by. Fragments of rows that are not there hold
// anything: a product keeps rows apart.
KERNEL BOUNDS(256) void split_rows(const NormArgs a) {
  SHARED float part[8];
  follow();
  i64 r = block_x(), steps = (a.width + 31) / 32 * 2, tiles = (blocks_x() + 7) / 8;
  if (beyond(a.live, r)) return;
  Normal n = normal(a, r, part);
  u32 *dst = (u32 *)a.dst + r / 8 * 128;
  for (i64 p = tid(); p < steps * 8; p += 256) {
    i64 k = 2 * p;
    float x0 = k < a.width ? n.at(k) : 0, x1 = k + 1 < a.width ? n.at(k + 1) : 0;
    U2 v = split2(x0, x1);
    i64 at = (k / 16 * tiles * 32 + r % 8 * 4 + k % 8 / 2) * 4 + k % 16 / 8;
    dst[at] = v.x;
    dst[at + 2] = v.y;
  }
}

// ---- products of few rows
//
// A block has 32 outputs and 8·M rows; its 8 warps, and the splits of the grid,
// share the units of the inputs. The total is the sum over splits of the sum over
// warps of chains over ascending units, whatever the number of rows.

struct LinearArgs {
  float *dst;
  const u8 *w, *up;
  const void *x; // of fours_rows or split_rows, room for 64 rows behind
  const float *bias, *up_bias;
  float *part; // [1 or 2 weights][splits][rows][out]
  u32 *tickets;
  const i64 *live;
  i64 rows, out, in, splits, act;
  i64 add; // 1: the results are added to dst, 2: multiplied by it
  i64 ld;  // of dst
  u64 limit; // a float: of act_clamped
};

// F32Sums are the sums of output `lane` and 8·M rows.
template <int M>
struct F32Sums {
  float c[8 * M];
  // run waits for the kernels in front once its first weights are on their way.
  DEVICE_MEMBER void run(const u8 *w, const LinearArgs &a, i64 group, i64 row0, i64 from, i64 to) {
    int lane = tid() & 31;
    for (int i = 0; i < 8 * M; i++) c[i] = 0;
    Shape s{a.out, a.in};
    const u8 *p = w + ((group * s.units() + from) * 8 * 32 + lane) * 16;
    const U4 *x = (const U4 *)a.x + from * 8 * a.rows + row0;
    if (from < to) prefetch(p + lane * (128 - 16)); // a unit
    wait_prerequisites();
    for (i64 k = from; k < to; k++) {
      U4 b[8];
#pragma unroll
      for (int i = 0; i < 8; i++) b[i] = stream(p + i * 512);
      p += 8 * 512;
#pragma unroll
      for (int i = 0; i < 8; i++) {
#pragma unroll
        for (int r = 0; r < 8 * M; r++) {
          U4 v = fetch(x + i * a.rows + r);
          c[r] = madd(as_float(v.x), as_float(b[i].x), c[r]);
          c[r] = madd(as_float(v.y), as_float(b[i].y), c[r]);
          c[r] = madd(as_float(v.z), as_float(b[i].z), c[r]);
          c[r] = madd(as_float(v.w), as_float(b[i].w), c[r]);
        }
      }
      x += 8 * a.rows;
    }
  }
  // put writes the sums of rows [8·j, 8·j+cols).
  DEVICE_MEMBER void put(float *red, int j, int cols) const {
#pragma unroll
    for (int r = 0; r < 8 * M; r++)
      if (r >= 8 * j && r < 8 * j + cols) red[(tid() & 31) * 33 + r - 8 * j] = c[r];
  }
};

// put_fragments writes the sums of 8-row tiles [j, j+cols/8) of two tiles of 16
// outputs.
template <int M>
DEVICE void put_fragments(float *red, const float c[2][M][4], int j, int cols) {
  int lane = tid() & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int r = 0; r < 2; r++)
#pragma unroll
    for (int i = 0; i < M; i++)
      if (i >= j && i < j + cols / 8)
#pragma unroll
        for (int e = 0; e < 4; e++) red[(r * 16 + g + (e >> 1) * 8) * 33 + (i - j) * 8 + t * 2 + (e & 1)] = c[r][i][e];
}

template <int M>
struct BF16Sums {
  float c[2][M][4];
  DEVICE_MEMBER void run(const u8 *w, const LinearArgs &a, i64 group, i64 row0, i64 from, i64 to) {
    enum { ahead = M < 8 ? 4 : 2 }; // loads of a tile on their way
    int lane = tid() & 31;
    for (int r = 0; r < 2; r++)
      for (int j = 0; j < M; j++)
        for (int e = 0; e < 4; e++) c[r][j][e] = 0;
    i64 steps = Shape{a.out, a.in}.units() * 2;
    int n = (int)(to - from) * 2;
    const U4 *w0 = (const U4 *)w + (group * 2 * steps + from * 2) * 32 + lane, *w1 = w0 + steps * 32;
    int next = ((int)a.rows + 7) / 8 * 32; // fragments of a step
    const U4 *x = (const U4 *)a.x + from * 2 * next + row0 * 4 + lane;
    U4 f[ahead][2];
#pragma unroll
    for (int d = 0; d < ahead; d++)
      if (d < n) {
        f[d][0] = stream(w0 + d * 32);
        f[d][1] = stream(w1 + d * 32);
      }
    wait_prerequisites();
    for (int k = 0; k < n; k += ahead)
#pragma unroll
      for (int d = 0; d < ahead; d++)
        if (k + d < n) {
#pragma unroll
          for (int j = 0; j < M; j++) {
            U4 b = fetch(x + j * 32);
            mma(c[0][j], f[d][0], b.x, b.y);
            mma(c[1][j], f[d][1], b.x, b.y);
            mma(c[0][j], f[d][0], b.z, b.w);
            mma(c[1][j], f[d][1], b.z, b.w);
          }
          x += next;
          if (k + d + ahead < n) {
            f[d][0] = stream(w0 + (k + d + ahead) * 32);
            f[d][1] = stream(w1 + (k + d + ahead) * 32);
          }
        }
  }
  DEVICE_MEMBER void put(float *red, int j, int cols) const { put_fragments<M>(red, c, j, cols); }
};

// fetch_rows loads a lane's part of a fragment of rows. Of eight rows, only those that are there are loaded: of a single one, an
// eighth of what otherwise would be more than the weights in 4 bits that it meets.
template <int M>
DEVICE U4 fetch_rows(const U4 *p, bool there) {
  return M == 1 ? fetch_if(p, there) : fetch(p);
}

// widen returns two of four integers plus 128 as two bfloat16, bytes i and i+2: 128+u is a bfloat16 whose last bits are u, for the
// byte's lower seven bits, and 128 or 256, by its highest, is what that has too much.
template <int i>
DEVICE u32 widen(u32 v) {
  v >>= 8 * i;
  return madd2(and_xor(v, 0x00800080u, 0x43804380u), 0xbf80bf80u, and_or(v, 0x007f007fu, 0x43004300u));
}

template <int M>
struct Q8Sums {
  float c[2][M][4];
  DEVICE_MEMBER void run(const u8 *w, const LinearArgs &a, i64 group, i64 row0, i64 from, i64 to) {
    enum { ahead = M < 2 ? 4 : 2 };
    int lane = tid() & 31;
    for (int r = 0; r < 2; r++)
      for (int j = 0; j < M; j++)
        for (int e = 0; e < 4; e++) c[r][j][e] = 0;
    Shape s{a.out, a.in};
    i64 units = s.units();
    int n = (int)(to - from);
    const U4 *w0 = (const U4 *)w + (group * 2 * units + from) * 32 + lane, *w1 = w0 + units * 32;
    const u32 *s0 = (const u32 *)(w + s.tiles() * units * 512) + (group * 2 * units + from) * 8 + lane / 4, *s1 = s0 + units * 8;
    int next = ((int)a.rows + 7) / 8 * 32;
    const U4 *x = (const U4 *)a.x + from * 2 * next + row0 * 4 + lane;
    bool mine = lane / 4 < a.rows;
    U4 f[ahead][2];
    u32 h[ahead][2];
#pragma unroll
    for (int d = 0; d < ahead; d++)
      if (d < n) {
        f[d][0] = stream(w0 + d * 32);
        f[d][1] = stream(w1 + d * 32);
        h[d][0] = s0[d * 8];
        h[d][1] = s1[d * 8];
      }
    wait_prerequisites();
    for (int k = 0; k < n; k += ahead)
#pragma unroll
      for (int d = 0; d < ahead; d++)
        if (k + d < n) {
          U4 q[2][2]; // [tile][half of the unit]
          float lo[2], hi[2];
#pragma unroll
          for (int r = 0; r < 2; r++) {
            U4 v = f[d][r];
            q[r][0] = U4{widen<0>(v.x), widen<1>(v.x), widen<0>(v.y), widen<1>(v.y)};
            q[r][1] = U4{widen<0>(v.z), widen<1>(v.z), widen<0>(v.w), widen<1>(v.w)};
            lo[r] = from_half((u16)h[d][r]);
            hi[r] = from_half((u16)(h[d][r] >> 16));
          }
          if (k + d + ahead < n) {
            f[d][0] = stream(w0 + (k + d + ahead) * 32);
            f[d][1] = stream(w1 + (k + d + ahead) * 32);
            h[d][0] = s0[(k + d + ahead) * 8];
            h[d][1] = s1[(k + d + ahead) * 8];
          }
#pragma unroll
          for (int j = 0; j < M; j++) {
            U4 b0 = fetch_rows<M>(x + j * 32, mine), b1 = fetch_rows<M>(x + next + j * 32, mine);
#pragma unroll
            for (int r = 0; r < 2; r++) {
              float e[4] = {0, 0, 0, 0};
              mma(e, q[r][0], b0.x, b0.y);
              mma(e, q[r][1], b1.x, b1.y);
              mma(e, q[r][0], b0.z, b0.w);
              mma(e, q[r][1], b1.z, b1.w);
              c[r][j][0] = madd(e[0], lo[r], c[r][j][0]);
              c[r][j][1] = madd(e[1], lo[r], c[r][j][1]);
              c[r][j][2] = madd(e[2], hi[r], c[r][j][2]);
              c[r][j][3] = madd(e[3], hi[r], c[r][j][3]);
            }
          }
          x += 2 * next;
        }
  }
  DEVICE_MEMBER void put(float *red, int j, int cols) const { put_fragments<M>(red, c, j, cols); }
};

// finish stores one element from its sums.
DEVICE void finish(const LinearArgs &a, i64 row, i64 o, float gate, float up) {
  if (a.bias) gate += a.bias[o];
  float limit = as_float((u32)a.limit), v = activate(gate, a.act, limit);
  if (a.up) {
    if (a.up_bias) up += a.up_bias[o];
    if (a.act == act_clamped) up = clamped_up(up, limit);
    v *= up;
  }
  float *dst = a.dst + row * a.ld + o;
  *dst = a.add == 1 ? *dst + v : a.add ? *dst * v : v;
}

DEVICE float sum_splits(const float *p, i64 splits, i64 next) {
  float s = load_global(p);
  for (i64 k = 1; k < splits; k++) s += load_global(p + k * next);
  return s;
}

// last_sums lets the last block that comes here sum the splits of n rows and `width` outputs. last is shared, and free
// when all threads are here.
template <int threads>
DEVICE void last_sums(const LinearArgs &a, u32 *last, i64 row0, i64 rows, int n, i64 o0, int width) {
  // The barriers make one thread's fences hold for the block: the order of memory is transitive.
  barrier();
  u32 *ticket = a.tickets + (i64)block_y() * blocks_x() + block_x();
  if (tid() == 0) {
    fence();
    *last = add_ticket(ticket) + 1 == (u32)a.splits * (a.up ? 2 : 1);
    fence();
  }
  barrier();
  if (!*last) return;
  for (int i = tid(); i < n * width; i += threads) {
    i64 row = row0 + i / width, o = o0 + i % width;
    if (row >= rows || o >= a.out) continue;
    i64 next = a.rows * a.out;
    const float *p = a.part + row * a.out + o;
    float gate = sum_splits(p, a.splits, next);
    finish(a, row, o, gate, a.up ? sum_splits(p + a.splits * next, a.splits, next) : 0);
  }
  if (tid() == 0) *ticket = 0;
}

// Grid: blocks of 8·M rows, which share what they read of the weight, groups of
// 32 outputs, splits times weights.
template <class Sums, int M>
DEVICE void linear(const LinearArgs &a) {
  enum { cols = M < 4 ? 8 * M : 32, pitch = 33 };
  SHARED float red[8][32 * pitch];
  SHARED u32 last;
  int warp = tid() >> 5;
  u32 splits = (u32)a.splits, which = (u32)block_z() >= splits, split = block_z() - which * splits; // which: of the weights
  i64 group = block_y(), row0 = (i64)block_x() * 8 * M;
  u32 units = (u32)Shape{a.out, a.in}.units(), slices = splits * 8, slice = split * 8 + warp;
  launch_dependents();
  if (beyond(a.live, row0)) {
    wait_prerequisites();
    return;
  }
  Sums sums;
  sums.run(which ? a.up : a.w, a, group, row0, units * slice / slices, units * (slice + 1) / slices);
  bool direct = a.splits == 1 && !a.up;
  i64 rows = at_most(a.live, a.rows); // not before: registers are short there
  for (int j = 0; j < M; j += 4) {
    sums.put(red[warp], j, cols);
    barrier();
    for (int i = tid(); i < 32 * cols; i += 256) {
      i64 row = row0 + 8 * j + i / 32, o = group * 32 + i % 32;
      const float *p = &red[0][i % 32 * pitch + i / 32];
      float s = p[0];
      for (int w = 1; w < 8; w++) s += p[w * 32 * pitch];
      if (row < rows && o < a.out) {
        if (direct)
          finish(a, row, o, s, 0);
        else
          a.part[((which * a.splits + split) * a.rows + row) * a.out + o] = s;
      }
    }
    barrier();
  }
  if (!direct) last_sums<256>(a, &last, row0, rows, 8 * M, group * 32, 32);
}

KERNEL BOUNDS(256) void linear_f32_8(const LinearArgs a) { linear<F32Sums<1>, 1>(a); }
KERNEL BOUNDS(256) void linear_f32_16(const LinearArgs a) { linear<F32Sums<2>, 2>(a); }
KERNEL BOUNDS(256, 2) void linear_bf16_8(const LinearArgs a) { linear<BF16Sums<1>, 1>(a); }
KERNEL BOUNDS(256, 2) void linear_bf16_16(const LinearArgs a) { linear<BF16Sums<2>, 2>(a); }
KERNEL BOUNDS(256, 2) void linear_bf16_32(const LinearArgs a) { linear<BF16Sums<4>, 4>(a); }
KERNEL BOUNDS(256, 2) void linear_bf16_64(const LinearArgs a) { linear<BF16Sums<8>, 8>(a); }
KERNEL BOUNDS(256, 2) void linear_q8_8(const LinearArgs a) { linear<Q8Sums<1>, 1>(a); }
KERNEL BOUNDS(256, 2) void linear_q8_16(const LinearArgs a) { linear<Q8Sums<2>, 2>(a); }
KERNEL BOUNDS(256, 2) void linear_q8_32(const LinearArgs a) { linear<Q8Sums<4>, 4>(a); }
KERNEL BOUNDS(256) void linear_q8_64(const LinearArgs a) { linear<Q8Sums<8>, 8>(a); }

// ---- swiglu

struct SwigluArgs {
  float *dst;
  const float *gu;
  const i64 *live;
  i64 n, width;
};
KERNEL BOUNDS(256) void swiglu(const SwigluArgs a) {
  follow();
  i64 n = at_most(a.live, a.n);
  for (i64 i = (i64)block_x() * 256 + tid(); i < n * a.width; i += (i64)blocks_x() * 256) {
    const float *p = a.gu + i / a.width * 2 * a.width + i % a.width;
    a.dst[i] = silu(p[0]) * p[a.width];
  }
}

// ---- the k largest and their log-probabilities
//
// A row is cut into pieces of 2048, whatever the number of rows, so that a row has the same
// bits in any company. A block finds the k largest of a piece, and another those of the
// pieces' of a row.

struct Best {
  float v;
  i32 id;
};
struct PieceSum {
  float top, sum; // of a piece: the largest, and Σ exp(x − top)
};

struct TopArgs {
  i32 *ids;
  float *logp;
  const float *x;
  Best *best;     // [rows of the launch][pieces][kept], in order
  PieceSum *sums; // [rows of the launch][pieces]
  const i64 *live;
  i64 width, k, pieces, kept;
  i64 row0; // of the launch
};

enum { piece = 2048, most_pieces = 1024 };

DEVICE Best no_best() { return Best{as_float(0xff800000u), 0x7fffffff}; }
DEVICE bool better(Best a, Best b) { return a.v > b.v || (a.v == b.v && a.id < b.id); }

DEVICE Best block_best(Best b, Best *part) {
  for (int m = 16; m; m >>= 1) {
    Best o{shfl_xor(b.v, m), shfl_xor(b.id, m)};
    if (better(o, b)) b = o;
  }
  if ((tid() & 31) == 0) part[tid() >> 5] = b;
  barrier();
  b = part[0];
  for (int i = 1; i < 8; i++)
    if (better(part[i], b)) b = part[i];
  barrier();
  return b;
}

// Elements of a piece: thread t has t, t+256, … NaN counts as the least. Grid: pieces, rows.
KERNEL BOUNDS(256) void topk_pieces(const TopArgs a) {
  enum { each = piece / 256 };
  SHARED Best part[8];
  SHARED float sums[8];
  follow();
  i64 r = a.row0 + block_y();
  if (beyond(a.live, r)) return;
  int base = block_x() * piece, count = (int)a.width - base < piece ? (int)a.width - base : piece;
  const float *x = a.x + r * a.width + base;
  float v[each];
  u32 left = 0; // which of the thread's elements are there and not among the best
#pragma unroll
  for (int j = 0; j < each; j++) {
    bool ok = tid() + 256 * j < count;
    v[j] = load_if(x + tid() + 256 * j, ok);
    left |= (u32)ok << j;
  }
  auto best = [&]() __attribute__((always_inline)) {
    Best b = no_best();
#pragma unroll
    for (int j = 0; j < each; j++) {
      Best e{v[j] == v[j] ? v[j] : as_float(0xff800000u), base + tid() + 256 * j};
      if ((left >> j & 1) && better(e, b)) b = e;
    }
    return b;
  };
  Best mine = best(), top = block_best(mine, part);
  float s = 0;
#pragma unroll
  for (int j = 0; j < each; j++)
    // If the piece has nothing but −∞, the difference is not a number.
    if (left >> j & 1) s += v[j] == as_float(0xff800000u) ? 0 : exponential(v[j] - top.v);
  s = block_sum(s, sums);
  i64 at = (i64)block_y() * a.pieces + block_x();
  double lse = 0;
  if (a.pieces == 1)
    lse = (double)top.v + logarithm((double)s);
  else if (tid() == 0)
    a.sums[at] = PieceSum{top.v, s};
  int kept = (int)a.kept < count ? (int)a.kept : count;
  for (int i = 0; i < kept; i++) {
    if (tid() == 0) {
      if (a.pieces == 1) {
        a.ids[r * a.k + i] = top.id;
        a.logp[r * a.k + i] = (float)((double)top.v - lse);
      } else {
        a.best[at * a.kept + i] = top;
      }
    }
    if (i + 1 == kept) break;
    if (mine.id == top.id) {
      left &= ~(1u << (top.id - base) / 256);
      mine = best();
    }
    top = block_best(mine, part);
  }
}

// A thread has pieces t, t+256, … Grid: rows.
KERNEL BOUNDS(256, 4) void topk_merge(const TopArgs a) {
  SHARED Best part[8];
  SHARED float sums[8];
  SHARED i32 used[most_pieces]; // of a piece's best
  follow();
  i64 r = a.row0 + block_x();
  if (beyond(a.live, r)) return;
  int pieces = (int)a.pieces, kept = (int)a.kept;
  const Best *all = a.best + (i64)block_x() * pieces * kept;
  const PieceSum *ps = a.sums + (i64)block_x() * pieces;
  for (int p = tid(); p < pieces; p += 256) used[p] = 0; // a thread's own alone
  auto best = [&]() __attribute__((always_inline)) {
    Best b = no_best();
    for (int p = tid(); p < pieces; p += 256) {
      int count = p + 1 < pieces ? piece : (int)a.width - p * piece, i = used[p];
      if (i >= kept || i >= count) continue;
      Best e = all[p * kept + i];
      if (better(e, b)) b = e;
    }
    return b;
  };
  Best mine = best(), top = block_best(mine, part);
  float s = 0;
  for (int p = tid(); p < pieces; p += 256) s = madd(ps[p].sum, exponential(ps[p].top - top.v), s);
  double lse = (double)top.v + logarithm((double)block_sum(s, sums));
  i32 *ids = a.ids + r * a.k;
  float *logp = a.logp + r * a.k;
  for (int i = 0, k = (int)a.k;; i++) {
    if (tid() == 0) {
      ids[i] = top.id;
      logp[i] = (float)((double)top.v - lse);
    }
    if (i + 1 == k) break;
    if (mine.id == top.id) {
      used[top.id / piece]++;
      mine = best();
    }
    top = block_best(mine, part);
  }
}

// ---- the nodes of a level of a draft tree, from the scores of the level above
//
// A candidate is one of the k likeliest tokens after one of n rows. Its score is its parent's plus its
// log-probability, in double as on the host; those at -inf and NaN are none. The best m are taken, those that came first
// among equals.

struct ChooseArgs {
  const i32 *ids; // [n][k]
  const float *logp;
  const double *score; // of the rows
  const u64 *above;    // [n][words]: ancestors of the rows
  i32 *tokens;         // [m]
  i32 *rows;           // [m]: row of the parent among all
  double *scores;      // [m]
  u64 *anc;            // [m][words]
  i64 n, k, m, words;
  i64 row0; // of the first of n
  i64 node; // number of the first that is chosen
};

enum { most_candidates = 1024 };

// One block. A candidate's place is the number of those before it.
KERNEL BOUNDS(256) void choose(const ChooseArgs a) {
  SHARED double score[most_candidates];
  follow();
  int n = (int)(a.n * a.k), k = (int)a.k, words = (int)a.words;
  const double none = as_double(0xfff0000000000000ull);
  for (int c = tid(); c < n; c += 256) {
    float p = a.logp[c];
    score[c] = p > as_float(0xff800000u) ? a.score[c / k] + (double)(p < 0 ? p : 0) : none;
  }
  barrier();
  for (int c = tid(); c < n; c += 256) {
    double s = score[c];
    int place = 0;
    for (int o = 0; o < n; o++) place += score[o] > s || (score[o] == s && o < c);
    if (place >= a.m) continue;
    int r = c / k, own = (int)a.node + place;
    a.tokens[place] = a.ids[c];
    a.rows[place] = (int)a.row0 + r;
    a.scores[place] = s;
    for (int w = 0; w < words; w++)
      a.anc[place * words + w] = a.above[r * words + w] | (w == own / 64 ? 1ull << own % 64 : 0);
  }
}

// ---- keys and values
//
// A store has chunks of per blocks of 32 positions. For each (block, layer, head)
// there are keys [32][pitch] and then values [32][pitch], pitch being the head's
// elements rounded up to 8; what is behind them is zero.

struct Store {
  u8 *const *chunks;
  i64 per, layers, heads, dim;
  DEVICE_MEMBER i64 pitch() const { return (dim + 7) / 8 * 8; }
};

template <class T>
DEVICE T *key_at(const Store &s, i64 layer, i64 head, i64 slot) {
  i64 b = slot / 32;
  T *p = (T *)s.chunks[b / s.per];
  return p + (((b % s.per * s.layers + layer) * s.heads + head) * 64 + slot % 32) * s.pitch();
}

// A Row is one row of an attention step.
struct Row {
  i32 pos, slot;
  i32 prefix, len; // positions seen, without a window, of which in blocks
  i32 first;       // where its window begins
  i32 blocks;      // index of its first block
  i32 own;         // index of its tree's first slot
  i32 words;       // of a row of ancestors
  i64 anc;         // index of its ancestors' first word
};

struct PrepareArgs {
  float *qkv;
  const float *rope;
  const Row *rows;
  const float *q_weight, *q_bias, *k_weight, *k_bias;
  const i64 *live;
  u64 q_eps, k_eps;
  i64 q_center, k_center;
  i64 rot, q_heads, layer;
  Store kv;
};

// A head has at most widest_dim elements.
enum { widest_dim = 256 };

// prepare normalises and rotates queries and keys and stores keys and values: a
// warp has one head of one row, an element of every 32 a lane.
template <class T>
DEVICE void prepare(const PrepareArgs &a) {
  SHARED float turned[4][widest_dim];
  follow();
  int lane = tid() & 31, warp = tid() >> 5;
  i64 r = block_x(), h = (i64)block_y() * 4 + warp, heads = a.q_heads + 2 * a.kv.heads, dim = a.kv.dim;
  if (beyond(a.live, r)) return;
  bool live = h < heads, value = h >= a.q_heads + a.kv.heads, key = !value && h >= a.q_heads;
  Row row = a.rows[r];
  float *x = a.qkv + (r * heads + (live ? h : 0)) * dim, *y = turned[warp];
  for (int i = lane; i < dim; i += 32) y[i] = live ? x[i] : 0; // another block's warp writes head 0
  const float *w = key ? a.k_weight : a.q_weight, *b = key ? a.k_bias : a.q_bias;
  if (!value && w) { // a lane's own elements alone
    float mean = 0, s = 0;
    if (key ? a.k_center : a.q_center) {
      for (int i = lane; i < dim; i += 32) s += y[i];
      mean = quotient(warp_sum(s), (float)dim);
    }
    s = 0;
    for (int i = lane; i < dim; i += 32) {
      float v = y[i] - mean;
      s = madd(v, v, s);
    }
    s = warp_sum(s);
    float inv = quotient(1.0f, root(quotient(s, (float)dim) + as_float((u32)(key ? a.k_eps : a.q_eps))));
    for (int i = lane; i < dim; i += 32) {
      float v = (y[i] - mean) * inv * w[i];
      y[i] = b ? v + b[i] : v;
    }
  }
  barrier();
  if (!live) return;
  const float *angle = a.rope + (i64)row.pos * a.rot;
  int half = (int)a.rot / 2;
  for (int i = lane; i < dim; i += 32) {
    float v = y[i];
    if (!value && i < half)
      v = y[i] * angle[i] - y[i + half] * angle[half + i];
    else if (!value && i < 2 * half)
      v = y[i] * angle[i - half] + y[i - half] * angle[i];
    x[i] = v;
    if (key || value) {
      T *k = key_at<T>(a.kv, a.layer, value ? h - a.q_heads - a.kv.heads : h - a.q_heads, row.slot);
      put_element((value ? k + 32 * a.kv.pitch() : k) + i, v);
    }
  }
  if (key || value) {
    T *k = key_at<T>(a.kv, a.layer, value ? h - a.q_heads - a.kv.heads : h - a.q_heads, row.slot);
    for (i64 i = dim + lane; i < a.kv.pitch(); i += 32) put_element((value ? k + 32 * a.kv.pitch() : k) + i, 0);
  }
}
KERNEL BOUNDS(128) void prepare_f32(const PrepareArgs a) { prepare<float>(a); }
KERNEL BOUNDS(128) void prepare_bf16(const PrepareArgs a) { prepare<u16>(a); }

// paths lists the slots of every row's own ancestors: one row a block.
struct PathsArgs {
  i32 *paths; // [rows][ld]
  const Row *rows;
  const i32 *own;
  const u64 *anc;
  const i64 *live;
  i64 ld;
};
KERNEL BOUNDS(32) void paths(const PathsArgs a) {
  follow();
  i64 r = block_x();
  if (beyond(a.live, r)) return;
  Row row = a.rows[r];
  const u64 *anc = a.anc + row.anc;
  for (i64 w = tid(); w < row.words; w += 32) {
    i64 n = 0;
    for (i64 i = 0; i < w; i++) n += popcount(anc[i]);
    for (u64 b = anc[w]; b; b &= b - 1, n++)
      if (n < row.len - row.prefix) a.paths[r * a.ld + n] = a.own[row.own + w * 64 + trailing_zeros(b)];
  }
}

// ---- attention
//
// A row's positions are cut into chunks of 128, and these into tiles of 32,
// whatever other rows there are. An item is one chunk of rows each of which has what
// the one before it has of it.

enum { tile = 32, chunk = 128, most_dim = 128, warps = 4, per_warp = 4 };

struct Item {
  i32 row, rows, chunk, unused;
};

struct AttendArgs {
  float *part; // [rows][heads][chunks]{values [dim], maximum, sum}
  const float *qkv;
  const Row *rows;
  const Item *items;
  const i32 *blocks, *paths;
  const i64 *live; // items
  i64 q_heads, layer, ld, chunks;
  u64 scale, cap; // floats: of scores; cap is 0, or the kernel has more than one part
  Store kv;
};

// attend_plain multiplies without tensor cores. parts are the parts of 128 elements that a head may have. With more than one, shared
// memory has room for a tile of keys or of values, not of both, and scores may be capped. Grid: items, heads of
// keys, 4·per_warp of an item's rows times the group's heads.
template <int parts, int per_warp>
DEVICE void attend_plain(const AttendArgs &a) {
  enum { pad = 4, widest = parts * most_dim }; // pad keeps lanes that read rows of keys apart
  SHARED float keys[tile * (widest + pad)];
  SHARED float second[parts > 1 ? 4 : tile * (widest + pad)];
  float *values = parts > 1 ? keys : second;
  SHARED float queries[warps * per_warp][widest];
  SHARED float weights[warps * per_warp][tile];
  SHARED i32 begin[warps * per_warp], end[warps * per_warp]; // what a query's row sees
  SHARED const float *where[chunk];                          // as many as threads
  follow();
  if (beyond(a.live, block_x())) return;
  int lane = tid() & 31, warp = tid() >> 5;
  Item item = a.items[block_x()];
  i64 head = block_y(), dim = a.kv.dim, pitch = a.kv.pitch(), ld = pitch + pad;
  int group = (int)(a.q_heads / a.kv.heads), base = block_z() * warps * per_warp;
  if (base >= item.rows * group) return;
  // The last row has all that the others have.
  int longest = item.row + item.rows - 1;
  Row last = a.rows[longest];
  const i32 *blocks = a.blocks + last.blocks, *path = a.paths + longest * a.ld;
  i64 from = (i64)item.chunk * chunk, to = from + chunk;
  if (last.len < to) to = last.len;

  // A warp without queries helps to copy, and nothing else.
  bool busy = base + warp * per_warp < item.rows * group;
  float scale = as_float((u32)a.scale);
  int at[per_warp]; // rows of this warp's queries
  float most[per_warp], sum[per_warp], o[per_warp][parts][4];
#pragma unroll
  for (int i = 0; i < per_warp; i++) {
    int q = base + warp * per_warp + i;
    bool live = q < item.rows * group;
    at[i] = item.row + (live ? q / group : 0);
    if (lane == 0) {
      begin[warp * per_warp + i] = live ? a.rows[at[i]].first : 0x7fffffff;
      end[warp * per_warp + i] = a.rows[at[i]].len;
    }
    most[i] = as_float(0xff800000u);
    sum[i] = 0;
#pragma unroll
    for (int e = 0; e < 4 * parts; e++) o[i][e / 4][e % 4] = 0;
    i64 h = head * group + (live ? q % group : 0);
    const float *src = a.qkv + ((i64)at[i] * (a.q_heads + 2 * a.kv.heads) + h) * dim;
    for (int d = lane; d < pitch; d += 32) queries[warp * per_warp + i][d] = live && d < dim ? src[d] * scale : 0;
  }

  // Where each of the chunk's keys is: found once, not for every 16 bytes that are copied.
  {
    i64 p = from + tid();
    i64 slot = p >= to ? last.slot : p < last.prefix ? (i64)blocks[p / 32] * 32 + p % 32 : path[p - last.prefix];
    where[tid()] = key_at<float>(a.kv, a.layer, head, slot);
  }
  barrier();

  // load starts to copy a tile of keys or values: eight threads a position.
  enum { piece = 4 };
  auto load = [&](float *to_shared, i64 t, i64 behind) {
    for (int r = tid() / 8; r < tile; r += warps * 4) {
      const float *src = where[t - from + r] + behind * 32 * pitch;
      bool ok = t + r < to;
      for (int i = tid() % 8 * piece; i < pitch; i += 8 * piece) copy16(to_shared + r * ld + i, src + i, ok);
    }
    commit_copies();
  };

  load(keys, from, 0);
  for (i64 t = from; t < to; t += tile) {
    if (parts == 1) load(values, t, 1);
    wait_copies<parts == 1>(); // keys
    barrier();
    if (busy) {
      float s[per_warp];
#pragma unroll
      for (int i = 0; i < per_warp; i++) s[i] = 0;
      for (int d = 0; d < pitch; d += 4) {
        F4 k = four(keys + lane * ld + d);
#pragma unroll
        for (int i = 0; i < per_warp; i++) {
          F4 q = four(&queries[warp * per_warp + i][d]);
          s[i] = madd(q.x, k.x, s[i]);
          s[i] = madd(q.y, k.y, s[i]);
          s[i] = madd(q.z, k.z, s[i]);
          s[i] = madd(q.w, k.w, s[i]);
        }
      }
      i64 p = t + lane;
#pragma unroll
      for (int i = 0; i < per_warp; i++) {
        bool seen = p >= begin[warp * per_warp + i] && p < end[warp * per_warp + i];
        if (parts > 1 && a.cap) s[i] = capped(s[i], as_float((u32)a.cap));
        float v = seen ? s[i] : as_float(0xff800000u), m = warp_max(v), e = 0;
        m = m > most[i] ? m : most[i];
        if (seen) e = exponential(v - m);
        // Before a row's window begins there is nothing to scale, and behind the row nothing changes.
        float f = sum[i] > 0 ? exponential(most[i] - m) : 1.0f;
        most[i] = m;
        sum[i] = sum[i] * f + warp_sum(e);
#pragma unroll
        for (int c = 0; c < 4 * parts; c++) o[i][c / 4][c % 4] *= f;
        weights[warp * per_warp + i][lane] = e;
      }
    }
    barrier();
    if (parts > 1) {
      load(values, t, 1); // where keys were
      wait_copies<0>();   // their values
    } else if (t + tile < to) {
      load(keys, t + tile, 0);
      wait_copies<1>(); // values
    } else {
      wait_copies<0>();
    }
    barrier();
#pragma unroll
    for (int p = 0; p < parts; p++)
      if (busy && p * most_dim + lane * 4 < pitch)
        for (int j = 0; j < tile; j++) {
          F4 v = four(values + j * ld + p * most_dim + lane * 4);
#pragma unroll
          for (int i = 0; i < per_warp; i++) {
            float e = weights[warp * per_warp + i][j];
            o[i][p][0] = madd(e, v.x, o[i][p][0]);
            o[i][p][1] = madd(e, v.y, o[i][p][1]);
            o[i][p][2] = madd(e, v.z, o[i][p][2]);
            o[i][p][3] = madd(e, v.w, o[i][p][3]);
          }
        }
    barrier();
    if (parts > 1 && t + tile < to) load(keys, t + tile, 0);
  }
#pragma unroll
  for (int i = 0; i < per_warp; i++) {
    int q = base + warp * per_warp + i;
    if (q >= item.rows * group) continue;
    float *dst = a.part + (((i64)at[i] * a.q_heads + head * group + q % group) * a.chunks + item.chunk) * (dim + 2);
#pragma unroll
    for (int p = 0; p < parts; p++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        if (p * most_dim + lane * 4 + e < dim) dst[p * most_dim + lane * 4 + e] = o[i][p][e];
    if (lane == 0) {
      dst[dim] = most[i];
      dst[dim + 1] = sum[i];
    }
  }
}
KERNEL BOUNDS(128, 3) void attend_f32(const AttendArgs a) { attend_plain<1, per_warp>(a); }
KERNEL BOUNDS(128, 3) void attend_wide_f32(const AttendArgs a) { attend_plain<2, 2>(a); }

// attend_sum adds a row's chunks in their order. Grid: rows, heads.
struct AttendSumArgs {
  float *dst;
  const float *part;
  const Row *rows;
  const i64 *live;
  const float *sinks; // [heads] or null
  i64 q_heads, dim, chunks;
};
KERNEL BOUNDS(128) void attend_sum(const AttendSumArgs a) {
  follow();
  i64 r = block_x(), h = block_y();
  if (beyond(a.live, r)) return;
  Row row = a.rows[r];
  i64 from = row.first / chunk, to = (row.len + chunk - 1) / chunk, ld = a.dim + 2;
  const float *p = a.part + (r * a.q_heads + h) * a.chunks * ld;
  float most = p[from * ld + a.dim];
  for (i64 c = from + 1; c < to; c++) {
    float m = p[c * ld + a.dim];
    most = m > most ? m : most;
  }
  float sum = 0;
  if (a.sinks) { // a score without a value
    float m = a.sinks[h];
    most = m > most ? m : most;
    sum = exponential(m - most);
  }
  for (i64 c = from; c < to; c++) sum = madd(p[c * ld + a.dim + 1], exponential(p[c * ld + a.dim] - most), sum);
  float inv = quotient(1.0f, sum);
  for (i64 d = tid(); d < a.dim; d += 128) {
    float o = 0;
    for (i64 c = from; c < to; c++) o = madd(p[c * ld + d], exponential(p[c * ld + a.dim] - most), o);
    a.dst[(r * a.q_heads + h) * a.dim + d] = o * inv;
  }
}

// move copies slots in order: a thread has the same bytes of every slot. Grid:
// layers, heads.
struct MoveArgs {
  const i32 *dst, *src;
  i64 n, size; // of an element
  Store kv;
};
KERNEL BOUNDS(128) void move_slots(const MoveArgs a) {
  follow();
  i64 layer = block_x(), head = block_y(), pitch = a.kv.pitch() * a.size / 8;
  for (i64 i = 0; i < a.n; i++) {
    // Eight bytes a step: keys and values are multiples of 16.
    i64 to = a.dst[i], from = a.src[i];
    u64 *d = (u64 *)a.kv.chunks[to / 32 / a.kv.per], *s = (u64 *)a.kv.chunks[from / 32 / a.kv.per];
    d += (((to / 32 % a.kv.per * a.kv.layers + layer) * a.kv.heads + head) * 64 + to % 32) * pitch;
    s += (((from / 32 % a.kv.per * a.kv.layers + layer) * a.kv.heads + head) * 64 + from % 32) * pitch;
    for (i64 e = tid(); e < pitch; e += 128) {
      d[e] = s[e];
      d[32 * pitch + e] = s[32 * pitch + e];
    }
  }
}

#include "attend.cu"
#include "variants.cu"
#include "four.cu"
#include "staged.cu"
#include "single.cu"
#include "label.cu"
#include "sample.cu"
#include "train.cu"
