// The device of device.h on the host: every thread of a block is a fiber, and
// the fibers of a block take turns in an order that changes all the time, so a
// missing barrier shows. A copy to shared memory arrives when it is waited for. A block of a kernel that may begin before those in
// front have ended begins at any time, and goes on from its wait when they have ended.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>
#ifndef __x86_64__
#include <ucontext.h>
#endif
#ifdef RACES
#include "fake/races.h"
#endif

#define KERNEL extern "C"
#define DEVICE static inline
#define DEVICE_MEMBER inline
#define SHARED static __attribute__((aligned(16)))
#define BOUNDS(...)

namespace emulate {

#ifdef __x86_64__
extern "C" void emulate_switch(void **save, void *to);
asm(R"(
.text
.type emulate_switch,@function
emulate_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
)");
#endif

struct Copy {
  void *to;
  const void *from;
  bool ok;
};

struct Lane {
#ifdef __x86_64__
  void *sp;
#else
  ucontext_t context;
#endif
  std::vector<char> stack;
  bool done;
  bool waited;      // for the kernels in front
  const int *waits; // a turn that it waits for the end of, or null
  int turn;
  unsigned ops;
  std::vector<std::vector<Copy>> groups; // the last is not committed
};

// An Exchange is one operation of a whole warp.
struct Exchange {
  u64 in[32][6];
  float out[32][4];
};

enum { most_threads = 1024, stack_size = 64 << 10 };
static std::vector<Lane> lanes;
static int threads, current, live;
static int block[3], grid[3];
static int warp_count[32], warp_turn[32], block_count, block_turn;
static Exchange exchanges[32][2];
static u32 seed = 1;
static const std::function<void()> *body;

// An Early is one block of a launch that began before its turn, and stands where it waits for the kernels in front.
struct Early {
  bool behind = false; // whether the launch may begin before those in front have ended
  bool begun = false;
  i64 at = 0; // number of the block
  std::vector<Lane> lanes;
};
static std::vector<std::vector<Lane>> spare; // whose stacks are used again
static bool early;                           // the block that runs is before its turn
static const int prerequisites = 0;          // what its threads wait for the end of
static bool behind, careless;                // of the launch: see Early; a thread has ended without having waited
static std::function<void()> between;        // called between blocks, may let others begin

static u32 random(u32 n) {
  seed = seed * 1664525u + 1013904223u;
  return (seed >> 8) % n;
}

#ifdef __x86_64__
static void *scheduler;
static void yield() { emulate_switch(&lanes[current].sp, scheduler); }
static void resume(Lane &l) { emulate_switch(&scheduler, l.sp); }
#else
static ucontext_t scheduler;
static void yield() { swapcontext(&lanes[current].context, &scheduler); }
static void resume(Lane &l) { swapcontext(&scheduler, &l.context); }
#endif

// An Emulator is in scope while a thread runs the emulator's own code: none of it is the kernel's.
struct Emulator {
#ifdef RACES
  Emulator() { races_emulator(); }
  ~Emulator() { leave(); }
  static void leave() { races_kernel(current, block_turn, lanes[current].stack.data(), stack_size); }
#else
  Emulator() {}
  static void leave() {}
#endif
};

static void entry() {
  Emulator::leave();
  (*body)();
#ifdef RACES
  races_emulator();
#endif
  lanes[current].done = true;
  if (!lanes[current].waited) careless = true;
  live--;
  for (;;) yield();
}

static void prepare(Lane &l) {
  l.stack.resize(stack_size);
#ifdef __x86_64__
  u64 top = ((u64)l.stack.data() + stack_size) & ~15ull;
  void **sp = (void **)top;
  *--sp = nullptr; // entry's frame is aligned as if it had been called
  *--sp = (void *)entry;
  for (int i = 0; i < 6; i++) *--sp = nullptr;
  l.sp = sp;
#else
  getcontext(&l.context);
  l.context.uc_stack.ss_sp = l.stack.data();
  l.context.uc_stack.ss_size = stack_size;
  l.context.uc_link = nullptr;
  makecontext(&l.context, entry, 0);
#endif
  l.done = l.waited = false;
  l.waits = nullptr;
  l.ops = 0;
  l.groups.resize(1);
  l.groups[0].clear();
}

// turns lets the threads of a block run until none can.
static void turns(const std::vector<int> &order) {
  for (int n = threads, ran = 1; live && ran;) {
    // Another order every time: any start, any odd step.
    seed = seed * 1664525u + 1013904223u;
    int start = seed >> 8, step = seed >> 16 | 1;
    ran = 0;
    for (int i = 0; i < n; i++) {
      int k = order[(unsigned)(start + i * step) % n];
      Lane &l = lanes[k];
      if (l.done || (l.waits && *l.waits == l.turn)) continue;
      l.waits = nullptr;
      current = k;
      resume(l);
      ran++;
    }
  }
}

static std::vector<int> shuffled(int n) {
  std::vector<int> order(n);
  for (int i = 0; i < n; i++) {
    order[i] = i;
    std::swap(order[i], order[random(i + 1)]);
  }
  return order;
}

static void place(i64 at, const int g[3]) {
  for (int i = 0; i < 3; i++) grid[i] = g[i];
  block[0] = (int)(at % g[0]);
  block[1] = (int)(at / g[0] % g[1]);
  block[2] = (int)(at / g[0] / g[1]);
  memset(warp_count, 0, sizeof warp_count);
  block_count = 0;
}

// begin runs a block of a launch until all its threads wait for the kernels in front. It is called between blocks of
// other launches, and reports false if some threads do not get there.
static bool begin(const char *name, const int g[3], int n, const std::function<void()> &f, Early &e) {
  int was_threads = threads, was_grid[3] = {grid[0], grid[1], grid[2]};
  bool was_careless = careless;
  careless = false;
  const std::function<void()> *was_body = body;
  if (spare.empty()) spare.emplace_back();
  std::swap(lanes, spare.back());
  e.begun = early = true;
  e.at = random((u32)(g[0] * g[1] * g[2]));
  threads = live = n;
  body = &f;
  if (lanes.size() < (size_t)n) lanes.resize(n);
  for (int i = 0; i < n; i++) prepare(lanes[i]);
  place(e.at, g);
  turns(shuffled(n));
  bool ok = !careless;
  for (int i = 0; i < n; i++) ok = ok && (lanes[i].done || lanes[i].waits == &prerequisites);
  if (!ok) fprintf(stderr, "emulated device: %s: threads that are early do not wait for the kernels in front\n", name);
  std::swap(lanes, spare.back());
  e.lanes = std::move(spare.back());
  spare.pop_back();
  early = false;
  threads = was_threads;
  careless = was_careless;
  body = was_body;
  for (int i = 0; i < 3; i++) grid[i] = was_grid[i];
  return ok;
}

// launch runs f, a kernel of this name, for every thread of a grid, block after block. It reports
// whether all threads of every block met the same barriers, and waited for the kernels in front if they had to.
static bool launch(const char *name, const int g[3], int n, const std::function<void()> &f, Early *e = nullptr) {
  if (n < 1 || n > most_threads || n % 32) return false;
  behind = e && e->behind;
#ifdef RACES
  races_launch(name, n, behind);
#endif
  std::vector<int> order = shuffled(n);
  // Blocks begin anywhere and run up or down: any may be the last.
  i64 blocks = (i64)g[0] * g[1] * g[2];
  seed = seed * 1664525u + 1013904223u;
  i64 first = seed >> 9;
  bool up = seed & 0x100;
  for (i64 b = 0; b < blocks; b++) {
    if (between) between();
    i64 at = ((up ? b : blocks - 1 - b) + first) % blocks;
    bool begun = e && e->begun && e->at == at;
    if (begun) std::swap(lanes, e->lanes);
    threads = n;
    body = &f;
    careless = false;
    place(at, g);
#ifdef RACES
    races_block(block[0], block[1], block[2]);
#endif
    if (!begun && lanes.size() < (size_t)n) lanes.resize(n);
    live = n;
    for (int i = 0; i < n; i++) {
      if (!begun) prepare(lanes[i]);
      else if (lanes[i].done) live--;
      lanes[i].waits = nullptr;
    }
    turns(order);
    if (begun) {
      std::swap(lanes, e->lanes);
      spare.push_back(std::move(e->lanes));
    }
    if (live || block_count) return false;
    if (behind && careless) {
      fprintf(stderr, "emulated device: %s: threads do not wait for the kernels in front\n", name);
      return false;
    }
  }
  return true;
}

// wait lets others run until a turn is over.
static void wait(const int *turns, int turn) {
  lanes[current].waits = turns;
  lanes[current].turn = turn;
  yield();
}

static void warp_arrive(void (*f)(Exchange &), Exchange &x) {
  int w = current >> 5, turn = warp_turn[w];
  if (++warp_count[w] == 32) {
    if (f) f(x);
    warp_count[w] = 0;
    warp_turn[w]++;
    return;
  }
  wait(&warp_turn[w], turn);
}

static Exchange &exchange() { return exchanges[current >> 5][lanes[current].ops++ & 1]; }

static void unaligned(const char *what, int multiple = 16) {
  fprintf(stderr, "emulated device: %s at an address that is no multiple of %d\n", what, multiple);
  abort();
}

} // namespace emulate

DEVICE int tid() { return emulate::current; }
DEVICE int block_x() { return emulate::block[0]; }
DEVICE int block_y() { return emulate::block[1]; }
DEVICE int block_z() { return emulate::block[2]; }
DEVICE int blocks_x() { return emulate::grid[0]; }

// A block that is early has no shared memory yet: it is others'.
DEVICE void not_early(const char *what) {
  if (!emulate::early) return;
  fprintf(stderr, "emulated device: %s before the wait for the kernels in front\n", what);
  abort();
}
DEVICE void barrier() {
  using namespace emulate;
  Emulator own;
  not_early("a barrier");
  int turn = block_turn;
  if (++block_count == threads) {
    block_count = 0;
    block_turn++;
    return;
  }
  wait(&block_turn, turn);
}

DEVICE float as_float(u32 v) {
  float f;
  memcpy(&f, &v, 4);
  return f;
}
DEVICE u32 as_bits(float f) {
  u32 v;
  memcpy(&v, &f, 4);
  return v;
}
DEVICE double as_double(u64 v) {
  double f;
  memcpy(&f, &v, 8);
  return f;
}
DEVICE u64 as_bits(double f) {
  u64 v;
  memcpy(&v, &f, 8);
  return v;
}
DEVICE float shfl_xor(float v, int m) {
  emulate::Emulator own;
  emulate::Exchange &x = emulate::exchange();
  int l = emulate::current & 31;
  x.in[l][0] = as_bits(v);
  emulate::warp_arrive(nullptr, x);
  return as_float((u32)x.in[l ^ m][0]);
}
DEVICE i32 shfl_xor(i32 v, int m) { return (i32)as_bits(shfl_xor(as_float((u32)v), m)); }
DEVICE float madd(float a, float b, float c) { return fmaf(a, b, c); }
DEVICE double madd(double a, double b, double c) { return std::fma(a, b, c); }
DEVICE float root(float x) { return sqrtf(x); }
DEVICE float quotient(float a, float b) { return a / b; }
DEVICE int popcount(u64 v) { return __builtin_popcountll(v); }
DEVICE int trailing_zeros(u64 v) { return __builtin_ctzll(v); }

DEVICE u32 to_bfloat(float f) {
  u32 v = as_bits(f);
  if (f != f) return 0x7fff;
  return (v + 0x7fff + ((v >> 16) & 1)) >> 16;
}
DEVICE u32 pack2(float lo, float hi) { return to_bfloat(lo) | to_bfloat(hi) << 16; }
// With factors and sums of a few bits, as kernels have them, the first of the two roundings changes nothing.
DEVICE u32 madd2(u32 a, u32 b, u32 c) {
  auto half = [&](int i) { return to_bfloat(fmaf(as_float(a >> i << 16), as_float(b >> i << 16), as_float(c >> i << 16))); };
  return half(0) | half(16) << 16;
}
DEVICE u32 and_or(u32 v, u32 mask, u32 bits) { return (v & mask) | bits; }
DEVICE u32 and_xor(u32 v, u32 mask, u32 bits) { return (v & mask) ^ bits; }
template <int i>
DEVICE u32 byte_of(u32 v) { return 0x4b000000u | (v >> (8 * i) & 0xff); }
DEVICE float from_half(u16 h) {
  u32 e = h >> 10 & 31, f = h & 0x3ff, s = (u32)(h & 0x8000) << 16;
  if (e == 31) return as_float(s | 0x7f800000u | f << 13);
  if (e == 0) return (s ? -1.0f : 1.0f) * (float)f * 0x1p-24f;
  return as_float(s | (e + 112) << 23 | f << 13);
}

DEVICE void launch_dependents() {} // it makes no difference when
DEVICE void wait_prerequisites() {
  using namespace emulate;
  Emulator own;
  lanes[current].waited = true;
#ifdef RACES
  races_wait();
#endif
  if (early) wait(&prerequisites, prerequisites);
}
DEVICE void prefetch(const void *) {}

DEVICE U4 fetch(const void *p) {
  if ((u64)p & 15) emulate::unaligned("load of 16 bytes");
  return *(const U4 *)p;
}
DEVICE U4 fetch_if(const void *p, bool ok) { return ok ? fetch(p) : U4{0, 0, 0, 0}; }
DEVICE U2 fetch8(const void *p) {
  if ((u64)p & 7) emulate::unaligned("load of 8 bytes", 8);
  return *(const U2 *)p;
}
DEVICE U4 stream(const void *p) { return fetch(p); }
DEVICE int afresh(int v) { return v; }
DEVICE float load_if(const float *p, bool ok) { return ok ? *p : 0; }
DEVICE float load_global(const float *p) { return *p; }

DEVICE void copy16(void *to, const void *from, bool ok) {
  if (((u64)to | (u64)from) & 15) emulate::unaligned("copy to shared memory");
  emulate::Emulator own;
  not_early("a copy to shared memory");
  emulate::lanes[emulate::current].groups.back().push_back({to, from, ok});
}
DEVICE void commit_copies() {
  emulate::Emulator own;
  emulate::lanes[emulate::current].groups.emplace_back();
}
template <int n>
DEVICE void wait_copies() {
  emulate::Emulator own;
  auto &q = emulate::lanes[emulate::current].groups;
  while ((int)q.size() - 1 > n) {
    for (auto &c : q.front()) {
#ifdef RACES
      races_copy(c.to, c.from, c.ok);
#endif
      if (c.ok)
        memcpy(c.to, c.from, 16);
      else
        memset(c.to, 0, 16);
    }
    q.erase(q.begin());
  }
}

// The fragments of mma.m16n8k16: lane 4g+t holds rows g and g+8 of a at columns
// 2t, 2t+1, 2t+8 and 2t+9, and column g of b at those rows.
DEVICE void mma(float c[4], const U4 &a, u32 b0, u32 b1) {
  using namespace emulate;
  Emulator own;
  Exchange &x = exchange();
  int l = current & 31;
  u64 *in = x.in[l];
  in[0] = a.x | (u64)a.y << 32;
  in[1] = a.z | (u64)a.w << 32;
  in[2] = b0 | (u64)b1 << 32;
  in[3] = as_bits(c[0]) | (u64)as_bits(c[1]) << 32;
  in[4] = as_bits(c[2]) | (u64)as_bits(c[3]) << 32;
  auto product = [](Exchange &x) {
    double A[16][16], B[16][8];
    auto bf = [](u64 v, int i) { return (double)as_float((u32)(v >> (16 * i)) << 16); };
    for (int l = 0; l < 32; l++) {
      int g = l >> 2, t = l & 3;
      for (int i = 0; i < 2; i++) {
        A[g][2 * t + i] = bf(x.in[l][0], i);
        A[g + 8][2 * t + i] = bf(x.in[l][0], 2 + i);
        A[g][2 * t + 8 + i] = bf(x.in[l][1], i);
        A[g + 8][2 * t + 8 + i] = bf(x.in[l][1], 2 + i);
        B[2 * t + i][g] = bf(x.in[l][2], i);
        B[2 * t + 8 + i][g] = bf(x.in[l][2], 2 + i);
      }
    }
    for (int r = 0; r < 16; r++) {
      double s[8] = {};
      for (int k = 0; k < 16; k++)
        for (int n = 0; n < 8; n++) s[n] += A[r][k] * B[k][n];
      for (int n = 0; n < 8; n++) {
        int l = (r & 7) * 4 + n / 2, e = (r >> 3) * 2 + (n & 1);
        x.out[l][e] = (float)((double)as_float((u32)(x.in[l][3 + e / 2] >> (32 * (e & 1)))) + s[n]);
      }
    }
  };
  warp_arrive(product, x);
  for (int e = 0; e < 4; e++) c[e] = x.out[l][e];
}

// A lane reads the row that it names itself, and exchanges it.
DEVICE U4 ldmatrix(const void *shared, bool turned = false) {
  if ((u64)shared & 15) emulate::unaligned("load of a matrix");
  const u64 *p = (const u64 *)shared;
  u64 row[2] = {p[0], p[1]};
  emulate::Emulator own;
  emulate::Exchange &x = emulate::exchange();
  int l = emulate::current & 31, g = l >> 2, t = l & 3;
  x.in[l][0] = row[0], x.in[l][1] = row[1];
  emulate::warp_arrive(nullptr, x);
  u32 v[4];
  for (int i = 0; i < 4; i++) {
    auto at = [&](int r, int c) { return (u32)(x.in[8 * i + r][c / 4] >> (16 * (c % 4)) & 0xffff); };
    v[i] = turned ? at(2 * t, g) | at(2 * t + 1, g) << 16 : at(g, 2 * t) | at(g, 2 * t + 1) << 16;
  }
  return U4{v[0], v[1], v[2], v[3]};
}
DEVICE U4 ldmatrix_turned(const void *shared) { return ldmatrix(shared, true); }

DEVICE void fence() {
  emulate::Emulator own;
#ifdef RACES
  races_fence();
#endif
}
DEVICE u32 add_ticket(u32 *p) {
  emulate::Emulator own;
#ifdef RACES
  races_ticket(p);
#endif
  return (*p)++;
}
