// All that the kernels need of a device, without a header of CUDA's. Compiled
// for a device by clang -x cuda; with EMULATE defined, emulate.h offers the same
// on the host, where every kernel is tested.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

struct alignas(16) U4 {
  u32 x, y, z, w;
};
struct alignas(16) F4 {
  float x, y, z, w;
};
struct alignas(8) U2 {
  u32 x, y;
};
struct alignas(8) F2 {
  float x, y;
};

#ifdef EMULATE
#include "emulate.h"
#else

#define KERNEL extern "C" __attribute__((global))
#define DEVICE static __attribute__((device)) inline __attribute__((always_inline))
#define DEVICE_MEMBER __attribute__((device)) inline __attribute__((always_inline))
#define SHARED __attribute__((shared, aligned(16)))
#define BOUNDS(...) __attribute__((launch_bounds(__VA_ARGS__)))

DEVICE int tid() { return __nvvm_read_ptx_sreg_tid_x(); }
DEVICE int block_x() { return __nvvm_read_ptx_sreg_ctaid_x(); }
DEVICE int block_y() { return __nvvm_read_ptx_sreg_ctaid_y(); }
DEVICE int block_z() { return __nvvm_read_ptx_sreg_ctaid_z(); }
DEVICE int blocks_x() { return __nvvm_read_ptx_sreg_nctaid_x(); }

// barrier holds the threads of a block until all are there.
DEVICE void barrier() { __syncthreads(); }
DEVICE float shfl_xor(float v, int m) { return __nvvm_shfl_sync_bfly_f32(0xffffffffu, v, m, 31); }
DEVICE i32 shfl_xor(i32 v, int m) { return __nvvm_shfl_sync_bfly_i32(0xffffffffu, v, m, 31); }

DEVICE float as_float(u32 v) { return __builtin_bit_cast(float, v); }
DEVICE u32 as_bits(float v) { return __builtin_bit_cast(u32, v); }
DEVICE double as_double(u64 v) { return __builtin_bit_cast(double, v); }
DEVICE u64 as_bits(double v) { return __builtin_bit_cast(u64, v); }
// madd returns a·b+c, rounded once.
DEVICE float madd(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE double madd(double a, double b, double c) { return __builtin_fma(a, b, c); }
DEVICE float root(float x) {
  float r;
  asm("sqrt.rn.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
DEVICE float quotient(float a, float b) {
  float r;
  asm("div.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
DEVICE int popcount(u64 v) { return __builtin_popcountll(v); }
DEVICE int trailing_zeros(u64 v) { return __builtin_ctzll(v); }

// pack2 rounds to two bfloat16, lo in the lower half.
DEVICE u32 pack2(float lo, float hi) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
// madd2 returns a·b+c of two bfloat16 each, rounded once.
DEVICE u32 madd2(u32 a, u32 b, u32 c) {
  u32 r;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
// and_or returns v & mask | bits, and_xor v & mask ^ bits. Two constants are too many for one instruction of most devices, so
// compilers take two unless they are told.
DEVICE u32 and_or(u32 v, u32 mask, u32 bits) {
  u32 r;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(v), "r"(mask), "r"(bits));
  return r;
}
DEVICE u32 and_xor(u32 v, u32 mask, u32 bits) {
  u32 r;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(r) : "r"(v), "r"(mask), "r"(bits));
  return r;
}
// byte_of returns the bits of the float32 2²³ + byte i of v, whose last bits are the byte.
template <int i>
DEVICE u32 byte_of(u32 v) {
  u32 r;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(v), "r"(0x4b000000u), "n"(0x7440 + i));
  return r;
}
// from_half returns the value of a float16.
DEVICE float from_half(u16 v) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v));
  return r;
}

// A kernel of a pass may begin before the ones in front of it have ended (programmatic dependent launch, from sm_90 on).
// launch_dependents lets the one behind begin, too, once every block has called it. wait_prerequisites holds a thread until all in front have
// ended and what they stored is visible. Before it a thread stores nothing to global memory and loads only what no kernel of a pass
// stores to: weights, and numbers of rows. Every thread calls it, whatever it has to do, so that a kernel ends after those in front of it.
// Elsewhere a kernel begins when the one in front has ended, and both do nothing.
#if __CUDA_ARCH__ >= 900
DEVICE void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;"); }
DEVICE void wait_prerequisites() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// prefetch brings the line of 128 bytes around p to L2.
DEVICE void prefetch(const void *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
// What a kernel in front may store while this one is there is not read-only to it, as ld.global.nc requires.
#define LOAD_SHARED "ld.global"
#else
DEVICE void launch_dependents() {}
DEVICE void wait_prerequisites() {}
DEVICE void prefetch(const void *) {}
#define LOAD_SHARED "ld.global.nc"
#endif

// stream loads 16 bytes of a weight, which are read once; fetch, of what kernels store and several threads read, and fetch8 8 of them.
DEVICE U4 stream(const void *p) {
  U4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
DEVICE U4 fetch(const void *p) {
  U4 v;
  asm volatile(LOAD_SHARED ".v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
// fetch_if is fetch, or zeros unless ok: lanes that load nothing take no bandwidth.
DEVICE U4 fetch_if(const void *p, bool ok) {
  U4 v;
  asm volatile(
      "{ .reg .pred q; setp.ne.s32 q, %5, 0; mov.u32 %0, 0; mov.u32 %1, 0; mov.u32 %2, 0; mov.u32 %3, 0;\n"
      "@q " LOAD_SHARED ".v4.u32 {%0,%1,%2,%3}, [%4]; }"
      : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
      : "l"(p), "r"((int)ok));
  return v;
}
DEVICE U2 fetch8(const void *p) {
  U2 v;
  asm volatile(LOAD_SHARED ".v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}
// afresh returns v, so that what is computed from it in a loop is computed each time: the compiler
// would keep it in registers, which are short.
DEVICE int afresh(int v) {
  asm volatile("" : "+r"(v));
  return v;
}
// load_if loads a float, 0 unless ok, without a branch: loads of a thread stay in flight together.
DEVICE float load_if(const float *p, bool ok) {
  float v;
  asm volatile("{ .reg .pred q; setp.ne.s32 q, %2, 0; mov.f32 %0, 0f00000000; @q ld.global.f32 %0, [%1]; }" : "=f"(v) : "l"(p), "r"((int)ok) : "memory");
  return v;
}
// load_global reads what other blocks of the same launch wrote: past L1.
DEVICE float load_global(const float *p) {
  float v;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(p) : "memory");
  return v;
}

// copy16 starts to copy 16 bytes to shared memory, zeros unless ok. They are
// there after commit_copies, wait_copies and a barrier.
DEVICE void copy16(void *shared, const void *global, bool ok) {
  u32 to = (u32)(u64)(__attribute__((address_space(3))) const void *)shared;
  int n = ok ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(n) : "memory");
}
DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// wait_copies waits until at most n committed groups are on their way.
template <int n>
DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
}

// mma adds a [16][16] · b [16][8], bfloat16 in fragments, to c [16][8].
DEVICE void mma(float c[4], const U4 &a, u32 b0, u32 b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// ldmatrix loads four matrices [8][8] of 16 bits from shared memory: lane l says where row l%8 of matrix l/8 is, and gets
// elements 2·(l%4) and 2·(l%4)+1 of row l/4 of each. ldmatrix_turned gives the rows that a lane names to
// columns: it gets element l/4 of rows 2·(l%4) and 2·(l%4)+1.
DEVICE U4 ldmatrix(const void *shared) {
  u32 from = (u32)(u64)(__attribute__((address_space(3))) const void *)shared;
  U4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
  return v;
}
DEVICE U4 ldmatrix_turned(const void *shared) {
  u32 from = (u32)(u64)(__attribute__((address_space(3))) const void *)shared;
  U4 v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
  return v;
}

DEVICE void fence() { asm volatile("membar.gl;" ::: "memory"); }
DEVICE u32 add_ticket(u32 *p) {
  u32 r;
  asm volatile("atom.global.add.u32 %0, [%1], 1;" : "=r"(r) : "l"(p) : "memory");
  return r;
}
#endif

// follow begins a kernel whose every access waits.
DEVICE void follow() {
  launch_dependents();
  wait_prerequisites();
}

DEVICE float low2(u32 v) { return as_float(v << 16); }
DEVICE float high2(u32 v) { return as_float(v & 0xffff0000u); }
DEVICE float warp_sum(float v) {
  for (int m = 16; m; m >>= 1) v += shfl_xor(v, m);
  return v;
}
DEVICE float warp_max(float v) {
  for (int m = 16; m; m >>= 1) {
    float o = shfl_xor(v, m);
    v = o > v ? o : v;
  }
  return v;
}
