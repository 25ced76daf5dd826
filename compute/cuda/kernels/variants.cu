// Operations of models whose layers do more than Llama's. They are part of kernels.cu.

// add_scaled adds scaled and normalised rows to those of norm.dst: one row a block.
struct AddScaledArgs {
  NormArgs norm;
  u64 scale;
};
KERNEL BOUNDS(256) void add_scaled(const AddScaledArgs a) {
  SHARED float part[8];
  i64 r = block_x();
  if (beyond(a.norm.live, r)) return;
  Normal n = normal(a.norm, r, part);
  float *dst = (float *)a.norm.dst + r * a.norm.width, scale = as_float((u32)a.scale);
  for (i64 i = tid(); i < a.norm.width; i += 256) dst[i] = madd(scale, n.at(i), dst[i]);
}

// norm_columns normalises columns of rows of ld elements, from norm.x on, in place: one row a block. A thread reads and writes its
// own elements alone.
struct NormColumnsArgs {
  NormArgs norm;
  i64 ld;
};
KERNEL BOUNDS(256) void norm_columns(const NormColumnsArgs a) {
  SHARED float part[8];
  i64 r = block_x();
  if (beyond(a.norm.live, r)) return;
  NormArgs columns = a.norm;
  columns.x += r * (a.ld - a.norm.width);
  Normal n = normal(columns, r, part);
  for (i64 i = tid(); i < a.norm.width; i += 256) ((float *)a.norm.dst)[r * a.ld + i] = n.at(i);
}

// scale_cap scales rows, caps them unless limit is 0, and notes the largest of every 32 elements of a row unless peaks is null. A
// warp has 32 elements at a time.
struct ScaleCapArgs {
  float *x, *peaks;
  const i64 *live;
  i64 n, width;
  u64 scale, limit;
};
KERNEL BOUNDS(256) void scale_cap(const ScaleCapArgs a) {
  int lane = tid() & 31;
  float scale = as_float((u32)a.scale), limit = as_float((u32)a.limit);
  i64 per = (a.width + 31) / 32, all = at_most(a.live, a.n) * per;
  for (i64 g = (i64)block_x() * 8 + (tid() >> 5); g < all; g += (i64)blocks_x() * 8) {
    i64 r = g / per, c = g % per * 32 + lane;
    float v = as_float(0xff800000u);
    if (c < a.width) {
      float *x = a.x + r * a.width + c;
      v = *x * scale;
      if (limit != 0) v = capped(v, limit);
      *x = v;
    }
    if (!a.peaks) continue;
    v = warp_max(v);
    if (lane == 0) a.peaks[g] = v;
  }
}

// scatter_scaled adds weighted rows to others, which differ: one row a block.
struct ScatterScaledArgs {
  float *dst;
  const float *src, *weights;
  const i32 *rows;
  const i64 *live;
  i64 width;
};
KERNEL BOUNDS(128) void scatter_scaled(const ScatterScaledArgs a) {
  i64 r = block_x();
  if (beyond(a.live, r)) return;
  const float *src = a.src + r * a.width;
  float *dst = a.dst + (i64)a.rows[r] * a.width, w = a.weights[r];
  for (i64 i = tid(); i < a.width; i += 128) dst[i] = madd(w, src[i], dst[i]);
}
