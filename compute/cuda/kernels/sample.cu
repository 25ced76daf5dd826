// Tokens drawn from rows of logits. They are part of kernels.cu.
//
// A token's weight is e^((x − largest)·by), in double by the steps of the host's packages probs and sample. Sums are theirs, too: of bins of
// 128 tokens in 8 lanes, and of bins one by one. So a row's token is the one that the host would draw from it, bit for bit.

struct Draw {
  double by; // 1/temperature; 0 asks for no token
  double u;  // quantile
};

struct DrawArgs {
  i32 *tokens;       // [rows]: -1 where none is asked for
  const float *x;    // [rows][width]
  const Draw *draws; // [rows]
  double *bins;      // [rows][pieces][bins of a piece]: sums of weights
  float *tops;       // [rows][pieces]: largest elements
  const i64 *live;
  i64 width, pieces;
};

enum { draw_bin = 128, draw_bins_each = 32, draw_piece = draw_bins_each * draw_bin, draw_stage = 2048 };

DEVICE double shfl_xor(double v, int m) {
  u64 u = as_bits(v);
  u64 lo = (u32)shfl_xor((i32)(u32)u, m), hi = (u32)shfl_xor((i32)(u32)(u >> 32), m);
  return as_double(hi << 32 | lo);
}

// soft_exponential returns e^x for x <= 0, and 0 far below and for NaN: probs.exp.
DEVICE double soft_exponential(double x) {
  const double magic = 6755399441055744.0; // adding it leaves a rounded integer in the low bits
  double t = madd(x, 1.4426950408889634, magic), n = t - magic;
  double r = madd(-n, 0x1.62e42fefa39efp-1, x);
  r = madd(-n, 0x1.abc9e3b39803fp-56, r);
  double q = madd(2.0914679376583935e-09, r, 2.510520637395701e-08);
  q = madd(q, r, 2.7557273661348637e-07);
  q = madd(q, r, 2.7557255425746435e-06);
  q = madd(q, r, 2.4801587325533363e-05);
  q = madd(q, r, 0.00019841269874800493);
  q = madd(q, r, 0.0013888888888883752);
  q = madd(q, r, 0.008333333333326141);
  q = madd(q, r, 0.04166666666666667);
  q = madd(q, r, 0.1666666666666667);
  q = madd(q, r, 0.5);
  q = madd(q, r, 1);
  q = madd(q, r, 1);
  q = as_double(as_bits(q) + (as_bits(t) << 52)); // the shift leaves n in the exponent's place
  return x >= -707 ? q : 0;
}

// draw_weight is the weight of element i of a row. An infinite largest element shares the mass with its equals; a row without any has it at
// its first.
DEVICE double draw_weight(float x, i64 i, float top, double by) {
  if (top - top != 0) return x == top || (i == 0 && top < 0) ? 1 : 0;
  return soft_exponential(((double)x - (double)top) * by);
}

// draw_top returns the largest element of a row, -inf if there is none.
DEVICE float draw_top(const float *tops, i64 pieces) {
  float m = as_float(0xff800000u);
  for (i64 p = tid() & 31; p < pieces; p += 32) m = tops[p] > m ? tops[p] : m;
  return warp_max(m);
}

// Grid: pieces, rows.
KERNEL BOUNDS(256) void draw_tops(const DrawArgs a) {
  SHARED float part[8];
  i64 r = block_y();
  if (beyond(a.live, r) || !(a.draws[r].by > 0)) return;
  i64 base = (i64)block_x() * draw_piece;
  int count = a.width - base < draw_piece ? (int)(a.width - base) : draw_piece;
  const float *x = a.x + r * a.width + base;
  float m = as_float(0xff800000u);
#pragma unroll
  for (int j = 0; j < draw_piece / 256; j++) {
    bool ok = tid() + 256 * j < count;
    float v = load_if(x + tid() + 256 * j, ok);
    m = ok && v > m ? v : m;
  }
  m = warp_max(m);
  if ((tid() & 31) == 0) part[tid() >> 5] = m;
  barrier(); // of the largest
  if (tid()) return;
  for (int i = 0; i < 8; i++) m = part[i] > m ? part[i] : m;
  a.tops[r * a.pieces + block_x()] = m;
}

// Eight threads have a bin, each a lane of it. Grid: pieces, rows.
KERNEL BOUNDS(256) void draw_bins(const DrawArgs a) {
  i64 r = block_y();
  if (beyond(a.live, r)) return;
  double by = a.draws[r].by;
  if (!(by > 0)) return;
  i64 bin = (i64)block_x() * draw_bins_each + tid() / 8, first = bin * draw_bin + tid() % 8;
  const float *x = a.x + r * a.width;
  float v[draw_bin / 8];
#pragma unroll
  for (int j = 0; j < draw_bin / 8; j++) v[j] = load_if(x + first + 8 * j, first + 8 * j < a.width);
  float top = draw_top(a.tops + r * a.pieces, a.pieces);
  double s = 0;
#pragma unroll
  for (int j = 0; j < draw_bin / 8; j++) s += first + 8 * j < a.width ? draw_weight(v[j], first + 8 * j, top, by) : 0;
  for (int m = 4; m; m >>= 1) s += shfl_xor(s, m);
  if (tid() % 8 == 0) a.bins[r * a.pieces * draw_bins_each + bin] = s;
}

// One thread adds and subtracts, since the order is the host's; the others load and compare. Grid: rows.
KERNEL BOUNDS(256) void draw_find(const DrawArgs a) {
  enum { none = 0x7fffffff };
  SHARED double stage[draw_stage];
  SHARED double lefts[draw_stage]; // of the quantile, before each bin
  SHARED i32 places[8][2];
  i64 r = block_x();
  if (beyond(a.live, r)) return;
  Draw d = a.draws[r];
  if (!(d.by > 0)) {
    if (tid() == 0) a.tokens[r] = -1;
    return;
  }
  int bins = (int)((a.width + draw_bin - 1) / draw_bin);
  const double *all = a.bins + r * a.pieces * draw_bins_each;
  auto load = [&](int c, int n) __attribute__((always_inline)) {
    barrier(); // the bins before were read
    for (int i = tid(); i < n; i += 256) stage[i] = all[c + i];
    barrier(); // bins are there
  };
  double sum = 0;
  for (int c = 0; c < bins; c += draw_stage) {
    int n = bins - c < draw_stage ? bins - c : draw_stage;
    load(c, n);
    if (tid()) continue;
#pragma unroll 8
    for (int i = 0; i < n; i++) sum += stage[i];
  }
  double u = d.u * sum, left = u; // of thread 0
  int at = 0; // the bin that has the quantile, or the last one with weight
  for (int c = 0; c < bins; c += draw_stage) {
    int n = bins - c < draw_stage ? bins - c : draw_stage;
    if (bins > draw_stage) load(c, n);
    if (tid() == 0) {
#pragma unroll 8
      for (int i = 0; i < n; i++) {
        lefts[i] = u;
        u -= stage[i];
      }
    }
    barrier(); // lefts are there
    int hit = none, last = -1;
    for (int i = tid(); i < n; i += 256) {
      double w = stage[i];
      if (!(w > 0)) continue;
      last = i;
      if (lefts[i] < w && i < hit) hit = i;
    }
    for (int m = 16; m; m >>= 1) {
      int h = shfl_xor(hit, m), l = shfl_xor(last, m);
      hit = h < hit ? h : hit, last = l > last ? l : last;
    }
    if ((tid() & 31) == 0) places[tid() >> 5][0] = hit, places[tid() >> 5][1] = last;
    barrier(); // of the places
    for (int i = 0; i < 8; i++) {
      hit = places[i][0] < hit ? places[i][0] : hit;
      last = places[i][1] > last ? places[i][1] : last;
    }
    int here = hit < none ? hit : last;
    if (here >= 0) at = c + here, left = lefts[here];
    if (hit < none) break;
  }
  i64 first = (i64)at * draw_bin;
  int n = a.width - first < draw_bin ? (int)(a.width - first) : draw_bin;
  float top = draw_top(a.tops + r * a.pieces, a.pieces);
  barrier(); // the last bins were read
  if (tid() < n) stage[tid()] = draw_weight(a.x[r * a.width + first + tid()], first + tid(), top, d.by);
  barrier(); // weights are there
  if (tid()) return;
  i64 last = first;
  for (int i = 0; i < n; i++) {
    double p = stage[i];
    if (!(p > 0)) continue;
    last = first + i;
    left -= p;
    if (left < 0) break;
  }
  a.tokens[r] = (i32)last;
}
