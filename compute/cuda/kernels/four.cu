// Products of weights that keep the 4-bit and 6-bit integers of a file. They are part of kernels.cu.
//
// A unit of a group of 32 outputs is 64 bytes of scales and then the integers, as fragments. Before every eight units of q4k and q6k
// are the scales that these share:
//
//   [groups][units/8]{shared [8]{2 tiles}[8 or 4 bytes], [8]unit}, or for q4 [groups][units]unit
//   unit: [8]{2 tiles}[4 bytes], [32 lanes]{2 tiles}[8 bytes], for 6 bits [32 lanes]{2 tiles}[4 bytes]
//
//   q4   d·(q−8): float16 d of outputs g and g+8 of a tile
//   q4k  d·sc·q − dm·mn: bytes sc of g and g+8, mn of g and g+8; shared, float16 d and dm of g and then of g+8
//   q6k  d·sc·(q−32): bytes sc+128 of g and g+8 for the unit's first sixteen inputs, then for the others; shared, float16 d of g
//        and g+8
//
// Integers are exact in bfloat16, products of scales in float32. So a block's sum is that of the file's integers, and
// products of q4 have the bits of those of q8 with the same integers.

// less returns two bfloat16, plus another two that are negative: 128+q is a bfloat16 whose last bits are q, for q from 0 to 127.
DEVICE u32 less(u32 v, u32 minus) { return madd2(v, 0x3f803f80u, minus); }

enum : u32 { magic = 0x43004300u, minus128 = 0xc300c300u, minus136 = 0xc308c308u, minus160 = 0xc320c320u };

// nibbles returns a fragment of integers of 4 bits: those of register e are bits 4e to 4e+3 of the halves.
DEVICE U4 nibbles(u32 v, u32 minus) {
  const u32 m = 0x000f000fu;
  return U4{less(and_or(v, m, magic), minus), less(and_or(v >> 4, m, magic), minus), less(and_or(v >> 8, m, magic), minus), less(and_or(v >> 12, m, magic), minus)};
}

// whole returns byte i of v as a float; minus is 2²³, or more if the byte is that much too large.
template <int i>
DEVICE float whole(u32 v, float minus) {
  return as_float(byte_of<i>(v)) - minus;
}

// A tile's part of a unit: 16 outputs.
struct FourTile {
  u32 q[3], s, d[2];
};

// A kind of integers unpacks a tile's part of a unit, in as many parts as have scales of their own, and multiplies it by a row
// tile's fragments, which are split into two planes: those of both halves of the unit, or of the part's.
struct Four {
  enum { bytes = 576, shared = 0, six = false, minima = false, parts = 1 };
  U4 q[2];
  float f[2];
  DEVICE_MEMBER void unpack(const FourTile &t, int) {
    q[0] = nibbles(t.q[0], minus136), q[1] = nibbles(t.q[1], minus136);
    f[0] = from_half((u16)t.s), f[1] = from_half((u16)(t.s >> 16));
  }
  DEVICE_MEMBER void add(float c[4], const U4 b[2], F2) const {
    float e[4] = {0, 0, 0, 0};
    mma(e, q[0], b[0].x, b[0].y);
    mma(e, q[1], b[1].x, b[1].y);
    mma(e, q[0], b[0].z, b[0].w);
    mma(e, q[1], b[1].z, b[1].w);
#pragma unroll
    for (int i = 0; i < 4; i++) c[i] = madd(e[i], f[i / 2], c[i]);
  }
  // at returns one element: q is its integer.
  DEVICE_MEMBER static float at(u32 s, const u16 *, int row, int, int q) { return from_half((u16)(s >> 16 * row)) * (float)(q - 8); }
};

struct FourMinima {
  enum { bytes = 576, shared = 128, six = false, minima = true, parts = 1 };
  U4 q[2];
  float f[2], m[2];
  DEVICE_MEMBER void unpack(const FourTile &t, int) {
    q[0] = nibbles(t.q[0], minus128), q[1] = nibbles(t.q[1], minus128);
    f[0] = from_half((u16)t.d[0]) * whole<0>(t.s, 8388608.0f), f[1] = from_half((u16)t.d[1]) * whole<1>(t.s, 8388608.0f);
    m[0] = -from_half((u16)(t.d[0] >> 16)) * whole<2>(t.s, 8388608.0f), m[1] = -from_half((u16)(t.d[1] >> 16)) * whole<3>(t.s, 8388608.0f);
  }
  // add takes the sums of the unit's inputs, too.
  DEVICE_MEMBER void add(float c[4], const U4 b[2], F2 sums) const {
#pragma unroll
    for (int i = 0; i < 4; i++) c[i] = madd(m[i / 2], i & 1 ? sums.y : sums.x, c[i]);
    float e[4] = {0, 0, 0, 0};
    mma(e, q[0], b[0].x, b[0].y);
    mma(e, q[1], b[1].x, b[1].y);
    mma(e, q[0], b[0].z, b[0].w);
    mma(e, q[1], b[1].z, b[1].w);
#pragma unroll
    for (int i = 0; i < 4; i++) c[i] = madd(e[i], f[i / 2], c[i]);
  }
  DEVICE_MEMBER static float at(u32 s, const u16 *d, int row, int, int q) {
    return from_half(d[2 * row]) * (float)(s >> 8 * row & 0xff) * (float)q - from_half(d[2 * row + 1]) * (float)(s >> (16 + 8 * row) & 0xff);
  }
};

struct Six {
  enum { bytes = 832, shared = 64, six = true, minima = false, parts = 2 };
  U4 q;
  float f[2];
  // Registers 2i and 2i+1 are bits 0 to 5 and 6 to 11 of word i. Of the last two, four bits are the first two words' last ones, and two of
  // the third's.
  DEVICE_MEMBER void unpack(const FourTile &t, int half) {
    const u32 m = 0x003f003fu, low = 0x000f000fu, high = 0x00300030u;
    u32 a = t.q[0], b = t.q[1], c = t.q[2];
    float d0 = from_half((u16)t.d[0]), d1 = from_half((u16)(t.d[0] >> 16));
    if (half == 0) {
      q = U4{less(and_or(a, m, magic), minus160), less(and_or(a >> 6, m, magic), minus160), less(and_or(b, m, magic), minus160), less(and_or(b >> 6, m, magic), minus160)};
      f[0] = d0 * whole<0>(t.s, 8388736.0f), f[1] = d1 * whole<1>(t.s, 8388736.0f);
    } else {
      q = U4{less(and_or(c, m, magic), minus160), less(and_or(c >> 6, m, magic), minus160),
             less(and_or(c >> 8, high, and_or(a >> 12, low, magic)), minus160), less(and_or(c >> 10, high, and_or(b >> 12, low, magic)), minus160)};
      f[0] = d0 * whole<2>(t.s, 8388736.0f), f[1] = d1 * whole<3>(t.s, 8388736.0f);
    }
  }
  DEVICE_MEMBER void add(float c[4], const U4 b[2], F2) const {
    float e[4] = {0, 0, 0, 0};
    mma(e, q, b[0].x, b[0].y);
    mma(e, q, b[0].z, b[0].w);
#pragma unroll
    for (int i = 0; i < 4; i++) c[i] = madd(e[i], f[i / 2], c[i]);
  }
  DEVICE_MEMBER static float at(u32 s, const u16 *d, int row, int half, int q) {
    return from_half(d[row]) * (float)((int)(s >> (16 * half + 8 * row) & 0xff) - 128) * (float)(q - 32);
  }
};

// Where a group begins, and in it unit k, and the scales that this shares.
template <class K>
DEVICE const u8 *group_at(const u8 *w, Shape s, i64 group) {
  i64 units = s.units();
  return w + group * (units * K::bytes + units / 8 * K::shared);
}
template <class K>
DEVICE u32 unit_at(u32 k) { return k * K::bytes + (k / 8 + 1) * K::shared; }
template <class K>
DEVICE u32 shared_at(u32 k) { return k / 8 * (8 * K::bytes + K::shared); }

// ---- embed

template <class K>
struct WeightFour {
  DEVICE_MEMBER static float at(const u8 *w, Shape s, i64 o, i64 k) {
    i64 f = fragment(o, k), lane = f / 8, tile = o % 32 / 16;
    int reg = (int)(f % 8 / 2), half = (int)(k % 32 / 16), side = (int)(f % 2) * 16, row = (int)(o % 16 / 8), q;
    const u8 *group = group_at<K>(w, s, o / 32), *unit = group + unit_at<K>((u32)k / 32);
    const u32 *v = (const u32 *)(unit + 64 + lane * 16 + tile * 8);
    if (K::six) {
      u32 last = *(const u32 *)(unit + 64 + 512 + lane * 8 + tile * 4);
      int i = half * 4 + reg; // of eight registers
      if (i < 6)
        q = (i < 4 ? v[i / 2] : last) >> (side + i % 2 * 6) & 63;
      else
        q = (v[i - 6] >> (side + 12) & 15) | (last >> (side + 2 * i) & 3) << 4;
    } else {
      q = v[half] >> (side + 4 * reg) & 15;
    }
    const u16 *d = (const u16 *)(group + shared_at<K>((u32)k / 32) + (o % 8 * 2 + tile) * (K::shared / 16));
    return K::at(*(const u32 *)(unit + o % 8 * 8 + tile * 4), d, row, half, q);
  }
};
KERNEL BOUNDS(128) void embed_q4(const EmbedArgs a) { embed<WeightFour<Four>>(a); }
KERNEL BOUNDS(128) void embed_q4k(const EmbedArgs a) { embed<WeightFour<FourMinima>>(a); }
KERNEL BOUNDS(128) void embed_q6k(const EmbedArgs a) { embed<WeightFour<Six>>(a); }

// ---- rows, and the sums of their units behind the fragments: [units][⌈rows/8⌉·8]

// sums_of returns where the sums of a product's rows are.
DEVICE const float *sums_of(const void *x, Shape s, i64 tiles) { return (const float *)((const U4 *)x + s.units() * 2 * tiles * 32); }

// split_sums is split_rows for weights with minima, whose inputs are multiples of 256: warps are whole. The sums are of the inputs as
// they are split.
KERNEL BOUNDS(256) void split_sums(const NormArgs a) {
  follow();
  SHARED float part[8];
  i64 r = block_x(), tiles = (blocks_x() + 7) / 8;
  if (beyond(a.live, r)) return;
  Normal n = normal(a, r, part);
  u32 *dst = (u32 *)a.dst + r / 8 * 128;
  float *sums = (float *)sums_of(a.dst, Shape{0, a.width}, tiles) + r;
  for (i64 p = tid(); p < a.width / 2; p += 256) {
    i64 k = 2 * p;
    U2 v = split2(n.at(k), n.at(k + 1));
    i64 at = (k / 16 * tiles * 32 + r % 8 * 4 + k % 8 / 2) * 4 + k % 16 / 8;
    dst[at] = v.x;
    dst[at + 2] = v.y;
    float s = (low2(v.x) + low2(v.y)) + (high2(v.x) + high2(v.y));
    for (int m = 8; m; m >>= 1) s += shfl_xor(s, m);
    if (p % 16 == 0) sums[p / 16 * tiles * 8] = s;
  }
}

// ---- products of few rows

template <class K, int M>
struct FourSums {
  float c[2][M][4];
  // What a lane has of a unit of both tiles.
  struct Lane {
    U4 q, d;
    U2 last, s;
    DEVICE_MEMBER void load(const u8 *group, u32 k, int lane) {
      const u8 *unit = group + unit_at<K>(k), *scales = group + shared_at<K>(k);
      q = stream(unit + 64 + lane * 16);
      s = fetch8(unit + lane / 4 * 8);
      if (K::six) last = fetch8(unit + 64 + 512 + lane * 8);
      if (K::shared == 128) d = fetch(scales + lane / 4 * 16);
      if (K::shared == 64) {
        U2 v = fetch8(scales + lane / 4 * 8);
        d = U4{v.x, 0, v.y, 0};
      }
    }
    DEVICE_MEMBER FourTile tile(int r) const {
      return r ? FourTile{{q.z, q.w, last.y}, s.y, {d.z, d.w}} : FourTile{{q.x, q.y, last.x}, s.x, {d.x, d.y}};
    }
  };
  DEVICE_MEMBER void run(const u8 *w, const LinearArgs &a, i64 group, i64 row0, i64 from, i64 to) {
    enum { ahead = M < 2 ? 4 : 2 };
    int lane = tid() & 31;
    for (int r = 0; r < 2; r++)
      for (int j = 0; j < M; j++)
        for (int e = 0; e < 4; e++) c[r][j][e] = 0;
    Shape s{a.out, a.in};
    int n = (int)(to - from);
    const u8 *p = group_at<K>(w, s, group);
    int tiles = ((int)a.rows + 7) / 8, next = tiles * 32;
    const U4 *x = (const U4 *)a.x + from * 2 * next + row0 * 4 + lane;
    bool mine = lane / 4 < a.rows;
    const float *sums = sums_of(a.x, s, tiles) + from * tiles * 8 + row0 + lane % 4 * 2;
    Lane f[ahead];
#pragma unroll
    for (int d = 0; d < ahead; d++)
      if (d < n) f[d].load(p, (u32)from + d, lane);
    wait_prerequisites();
    for (int k = 0; k < n; k += ahead)
#pragma unroll
      for (int d = 0; d < ahead; d++)
        if (k + d < n) {
#pragma unroll
          for (int h = 0; h < K::parts; h++) {
            K q[2];
            q[0].unpack(f[d].tile(0), h);
            q[1].unpack(f[d].tile(1), h);
            if (h == K::parts - 1 && k + d + ahead < n) f[d].load(p, (u32)from + k + d + ahead, lane);
#pragma unroll
            for (int j = 0; j < M; j++) {
              U4 b[2];
              b[0] = fetch_rows<M>(x + h * next + j * 32, mine);
              if (K::parts == 1) b[1] = fetch_rows<M>(x + next + j * 32, mine);
              F2 sum{0, 0};
              if (K::minima) {
                U2 v = fetch8(sums + j * 8);
                sum = F2{as_float(v.x), as_float(v.y)};
              }
#pragma unroll
              for (int r = 0; r < 2; r++) q[r].add(c[r][j], b, sum);
            }
          }
          x += 2 * next;
          sums += tiles * 8;
        }
  }
  DEVICE_MEMBER void put(float *red, int j, int cols) const { put_fragments<M>(red, c, j, cols); }
};

KERNEL BOUNDS(256, 2) void linear_q4_8(const LinearArgs a) { linear<FourSums<Four, 1>, 1>(a); }
KERNEL BOUNDS(256, 2) void linear_q4_16(const LinearArgs a) { linear<FourSums<Four, 2>, 2>(a); }
KERNEL BOUNDS(256, 2) void linear_q4_32(const LinearArgs a) { linear<FourSums<Four, 4>, 4>(a); }
KERNEL BOUNDS(256, 1) void linear_q4_64(const LinearArgs a) { linear<FourSums<Four, 8>, 8>(a); }
KERNEL BOUNDS(256, 2) void linear_q4k_8(const LinearArgs a) { linear<FourSums<FourMinima, 1>, 1>(a); }
KERNEL BOUNDS(256, 2) void linear_q4k_16(const LinearArgs a) { linear<FourSums<FourMinima, 2>, 2>(a); }
KERNEL BOUNDS(256, 2) void linear_q4k_32(const LinearArgs a) { linear<FourSums<FourMinima, 4>, 4>(a); }
KERNEL BOUNDS(256) void linear_q4k_64(const LinearArgs a) { linear<FourSums<FourMinima, 8>, 8>(a); }
KERNEL BOUNDS(256, 2) void linear_q6k_8(const LinearArgs a) { linear<FourSums<Six, 1>, 1>(a); }
KERNEL BOUNDS(256, 2) void linear_q6k_16(const LinearArgs a) { linear<FourSums<Six, 2>, 2>(a); }
KERNEL BOUNDS(256, 1) void linear_q6k_32(const LinearArgs a) { linear<FourSums<Six, 4>, 4>(a); }
KERNEL BOUNDS(256) void linear_q6k_64(const LinearArgs a) { linear<FourSums<Six, 8>, 8>(a); }
