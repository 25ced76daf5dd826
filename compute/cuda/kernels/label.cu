// Kernels around products that a library computes, and of labelling. They are part
// of kernels.cu.
//
// The library takes rows whose starts are 16 bytes apart: what is behind a row's end
// it does not read.

// ---- packed weights to rows [16 or 32 · blocks_y][ld], from output first on, a
// multiple of 32. Grid: eighths of units, tiles or groups.

struct UnpackArgs {
  void *dst;
  const u8 *w;
  i64 out, in, first, ld;
};

KERNEL BOUNDS(256) void unpack_bf16(const UnpackArgs a) {
  int lane = tid() & 31;
  i64 units = Shape{a.out, a.in}.units(), unit = (i64)block_x() * 8 + (tid() >> 5);
  if (unit >= units) return;
  const U4 *w = (const U4 *)a.w + ((a.first / 16 + block_y()) * units + unit) * 2 * 32 + lane;
#pragma unroll
  for (int s = 0; s < 2; s++) {
    U4 v = stream(w + s * 32);
    u32 pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int e = 0; e < 4; e++) {
      i64 o = (i64)block_y() * 16 + lane / 4 + (e & 1) * 8, k = unit * 32 + s * 16 + (e >> 1) * 8 + lane % 4 * 2;
      if (k < a.ld && a.first + o < a.out) *(u32 *)((u16 *)a.dst + o * a.ld + k) = pairs[e];
    }
  }
}

KERNEL BOUNDS(256) void unpack_f32(const UnpackArgs a) {
  int lane = tid() & 31;
  i64 units = Shape{a.out, a.in}.units(), unit = (i64)block_x() * 8 + (tid() >> 5), o = (i64)block_y() * 32 + lane;
  if (unit >= units || a.first + o >= a.out) return;
  const U4 *w = (const U4 *)a.w + ((a.first / 32 + block_y()) * units + unit) * 8 * 32 + lane;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    i64 k = unit * 32 + i * 4;
    if (k < a.ld) *(U4 *)((float *)a.dst + o * a.ld + k) = stream(w + i * 32);
  }
}

// ---- rows, normalised, as two bfloat16 planes [rows][ld], x ≈ hi + lo, or without lo as one: one
// row a block

struct PlaneArgs {
  NormArgs norm; // dst is the plane hi
  u16 *lo;       // or null
  i64 ld;
};
KERNEL BOUNDS(256) void planes(const PlaneArgs a) {
  SHARED float part[8];
  i64 r = block_x(), width = a.norm.width;
  Normal n = normal(a.norm, r, part);
  for (i64 k = 2 * tid(); k < a.ld; k += 512) {
    float x0 = k < width ? n.at(k) : 0, x1 = k + 1 < width ? n.at(k + 1) : 0;
    u32 hi = pack2(x0, x1);
    *(u32 *)((u16 *)a.norm.dst + r * a.ld + k) = hi;
    if (a.lo) *(u32 *)(a.lo + r * a.ld + k) = pack2(x0 - low2(hi), x1 - high2(hi));
  }
}

// finish_rows does what is fused to a product, from its sums part [1 or 2][rows][out].
KERNEL BOUNDS(256) void finish_rows(const LinearArgs a) {
  i64 all = a.rows * a.out, live = at_most(a.live, a.rows) * a.out;
  for (i64 i = (i64)block_x() * 256 + tid(); i < live; i += (i64)blocks_x() * 256)
    finish(a, i / a.out, i % a.out, a.part[i], a.up ? a.part[all + i] : 0);
}

// round_bf16 rounds n elements.
struct RoundArgs {
  u16 *dst;
  const float *src;
  i64 n;
};
KERNEL BOUNDS(256) void round_bf16(const RoundArgs a) {
  for (i64 i = (i64)block_x() * 256 + tid(); i < a.n; i += (i64)blocks_x() * 256) a.dst[i] = (u16)pack2(a.src[i], 0);
}
