// What finds races between the threads of the emulated device. The kernels are compiled with
// -fsanitize=thread, so that every load and store calls a function here in place of the
// sanitizer's own library: that one knows threads of the host, and these are fibers of one.
//
// Every two bytes have their last writer and readers. Two accesses of different threads, one of
// them a store, are in order if a barrier of their block lies between them, or, for different
// blocks, if the first one's block passed a fence and then took a ticket, and the second one's
// took the same ticket later and then passed a fence.
//
// A thread that has not waited yet for the kernels in front stores nothing to the device's memory, and reads nothing that a
// kernel has stored since the last one that began when all in front of it had ended.
#include "races.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <vector>

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#pragma GCC visibility push(hidden)
extern "C" char __bss_start, _end;
#pragma GCC visibility pop

namespace {

struct Access {
  u32 block, turn; // numbers that grow: of the block, and of barriers
  int lane;
};
enum : u8 { several_lanes = 1, several_blocks = 2 };
struct Cell {
  Access writer, reader;
  u8 readers;
};
enum { page = 4096, cells = page / 2, ways = 1 << 14 };
std::unordered_map<u64, std::unique_ptr<Cell[]>> pages;
struct {
  u64 page;
  Cell *cells;
} recent[ways];

// A Ticket is a block's release of its stores, or its acquisition of others'.
struct Ticket {
  Access by;  // who passed the fence
  u32 taken;  // by whom it was acquired: the turn, and the lane
  int taker;
};
std::unordered_map<const void *, std::vector<Access>> released; // by the address of the ticket
std::vector<Ticket> acquired;                                   // of the block that runs

const char *kernel;
int at[3];
u32 block, first = 1; // the block that runs, and the first of its launch
u32 chain = 1;        // the first of the last launch that began when all in front had ended
bool behind;
bool watching;
Access now;
u64 stack, stack_size;
struct Lane {
  bool fenced, waited;
  const void *ticket;
};
std::vector<Lane> lanes;

// Shared memory is the kernels' static arrays, which blocks use one after the other.
bool is_shared(u64 p) { return p >= (u64)&__bss_start && p < (u64)&_end; }

bool ordered(const Access &a, u64 p) {
  if (a.block < first) return true;
  if (a.block == block) return a.lane == now.lane || a.turn < now.turn;
  if (is_shared(p)) return true;
  for (auto &t : acquired)
    if (t.by.block == a.block && (a.turn < t.by.turn || a.lane == t.by.lane) && (t.taken < now.turn || t.taker == now.lane)) return true;
  return false;
}

bool is_early(u64 p) { return behind && !lanes[now.lane].waited && !is_shared(p); }
[[noreturn]] void early(const char *does) {
  fprintf(stderr, "emulated device: %s: thread %d of block (%d,%d,%d) %s before it waits\n", kernel, now.lane, at[0], at[1], at[2], does);
  abort();
}

[[noreturn]] void race(const char *does, const char *did, const Access &a) {
  fprintf(stderr, "emulated device: %s: thread %d of block (%d,%d,%d) %s what thread %d of %s %s, in no order\n", kernel, now.lane, at[0], at[1], at[2], does,
          a.lane, a.block == block ? "its block" : "another block", did);
  abort();
}

Cell *cell(u64 p) {
  u64 n = p / page;
  auto &r = recent[n % ways];
  if (r.page != n || !r.cells) {
    auto &c = pages[n];
    if (!c) {
      c.reset(new Cell[cells]);
      memset((void *)c.get(), 0, cells * sizeof(Cell));
    }
    r.page = n;
    r.cells = c.get();
  }
  return r.cells + p % page / 2;
}

void read(u64 p, u64 n) {
  if (!watching || p - stack < stack_size) return;
  for (u64 q = p & ~1ull; q < p + n; q += 2) {
    Cell &c = *cell(q);
    if (c.writer.block >= chain && is_early(q)) early("reads what a kernel in front wrote,");
    if (!ordered(c.writer, q)) race("reads", "wrote", c.writer);
    if (c.reader.block < (is_shared(q) ? block : first))
      c.readers = 0;
    else if (c.reader.block != block)
      c.readers |= several_blocks;
    else if (c.reader.turn != now.turn)
      c.readers &= ~several_lanes;
    else if (c.reader.lane != now.lane)
      c.readers |= several_lanes;
    c.reader = now;
  }
}

void write(u64 p, u64 n) {
  if (!watching || p - stack < stack_size) return;
  for (u64 q = p & ~1ull; q < p + n; q += 2) {
    if (is_early(q)) early("writes");
    Cell &c = *cell(q);
    if (!ordered(c.writer, q)) race("writes", "wrote", c.writer);
    if (c.reader.block >= (is_shared(q) ? block : first) && (!ordered(c.reader, q) || (c.readers & several_blocks) || ((c.readers & several_lanes) && c.reader.turn == now.turn)))
      race("writes", "read", c.reader);
    c.writer = now;
    c.reader.block = 0;
    c.readers = 0;
  }
}

} // namespace

void races_launch(const char *name, int threads, bool is_behind) {
  kernel = name;
  first = block + 1;
  behind = is_behind;
  if (!behind) chain = first;
  released.clear();
  lanes.assign(threads, Lane());
}
void races_block(int x, int y, int z) {
  block++;
  at[0] = x, at[1] = y, at[2] = z;
  acquired.clear();
  for (auto &l : lanes) l = Lane();
}
void races_emulator() { watching = false; }
void races_kernel(int lane, int turn, const void *s, unsigned long size) {
  now = Access{block, (u32)turn, lane};
  stack = (u64)s;
  stack_size = size;
  watching = true;
}
void races_copy(void *to, const void *from, bool ok) {
  watching = true;
  if (ok) read((u64)from, 16);
  write((u64)to, 16);
  watching = false;
}
void races_fence() {
  Lane &l = lanes[now.lane];
  l.fenced = true;
  if (!l.ticket) return;
  for (auto &a : released[l.ticket])
    if (a.block != block) acquired.push_back(Ticket{a, now.turn, now.lane});
  l.ticket = nullptr;
}
void races_ticket(const void *p) {
  Lane &l = lanes[now.lane];
  if (l.fenced) released[p].push_back(now);
  l.ticket = p;
}
void races_wait() { lanes[now.lane].waited = true; }

// What the compiler calls.
#define CALL extern "C" __attribute__((visibility("hidden"))) void
#define ACCESS(n)                                            \
  CALL __tsan_read##n(void *p) { read((u64)p, n); }          \
  CALL __tsan_write##n(void *p) { write((u64)p, n); }        \
  CALL __tsan_unaligned_read##n(void *p) { read((u64)p, n); } \
  CALL __tsan_unaligned_write##n(void *p) { write((u64)p, n); }
ACCESS(1) ACCESS(2) ACCESS(4) ACCESS(8) ACCESS(16)
CALL __tsan_read_range(void *p, unsigned long n) { read((u64)p, n); }
CALL __tsan_write_range(void *p, unsigned long n) { write((u64)p, n); }
CALL __tsan_vptr_update(void **, void *) {}
CALL __tsan_vptr_read(void **) {}
CALL __tsan_func_entry(void *) {}
CALL __tsan_func_exit() {}
CALL __tsan_init() {}
extern "C" __attribute__((visibility("hidden"))) int __tsan_atomic32_fetch_add(volatile int *p, int v, int) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); } // of the driver
