// A libcuda.so.1 for machines without a GPU: memory of the host is the device's,
// and kernels run on the emulated device. Work on a stream waits until somebody
// waits for it, so nothing may lean on its having run.
//
// The environment plants what a device may do to a program:
//   TALF_FAKE_DEVICES=n   devices (1)
//   TALF_FAKE_MEMORY=n    bytes of memory (1 GiB)
//   TALF_FAKE_BUSY=n,n…   bytes of each device that other programs hold (0)
//   TALF_FAKE_LOST=n,n…   the n-th launch of each device and all that follows fail there (0: none does)
//   TALF_FAKE_UNREAD=n,n… 1: the device is lost when it is next read (0)
//   TALF_FAKE_COMPUTE=n   compute capability times 10 (90)
//   TALF_FAKE_SMS=n       multiprocessors (4)
//   TALF_FAKE_IMAGE=n     what loading a module returns (0)
//   TALF_FAKE_INIT=n      what cuInit returns (0)
//   TALF_FAKE_CAPTURE=n   what ending a capture returns (0)
//   TALF_FAKE_CAPTURE_DEPENDENT=n  what capturing a launch that may begin before its turn returns (0)
//   TALF_FAKE_NULL=1      nothing runs but a stand-in for likely tokens and the choice of nodes: every call is brief, so
//                         that what remains is the host's own time. Tokens are made up
// TALF_FAKE_TRACE=file appends a line for every call that costs time: its name and
// its bytes, of a copy, or kernels, of a graph.
// Compiled with OLD_DRIVER defined, it lacks an entry point; with NO_LAUNCH_ATTRIBUTES, one that can be done without.
//
// talf_fake_route hands launches to somebody else, who is told of everything that
// happens to memory.
#define EMULATE
#include "../kernels.cu"
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <sys/mman.h>

typedef std::function<bool()> Work;
// What a kernel is called with, which must last until it has run. If begin is set, it begins before its turn.
struct Call {
  const void *args;
  int grid[3], threads;
  emulate::Early *early; // or null
  bool begin;
};
struct Kernel {
  std::string name;
  size_t size;
  bool (*call)(const Call &);
};
#define ROW(name, Args)                                                                               \
  {                                                                                                   \
    #name, {                                                                                          \
      #name, sizeof(Args), [](const Call &c) {                                                        \
        const Args &a = *(const Args *)c.args;                                                        \
        std::function<void()> f = [&a] { name(a); };                                                  \
        return c.begin ? emulate::begin(#name, c.grid, c.threads, f, *c.early) : emulate::launch(#name, c.grid, c.threads, f, c.early); \
      }                                                                                               \
    }                                                                                                 \
  }
static std::map<std::string, Kernel> kernels = {
    ROW(embed_f32, EmbedArgs),       ROW(embed_bf16, EmbedArgs),      ROW(embed_q8, EmbedArgs),
    ROW(gather, GatherArgs),         ROW(norm, NormArgs),             ROW(fours_rows, NormArgs),
    ROW(split_rows, NormArgs),       ROW(linear_f32_8, LinearArgs),   ROW(linear_f32_16, LinearArgs),
    ROW(linear_bf16_8, LinearArgs),  ROW(linear_bf16_16, LinearArgs), ROW(linear_bf16_32, LinearArgs),
    ROW(linear_bf16_64, LinearArgs), ROW(linear_q8_8, LinearArgs),    ROW(linear_q8_16, LinearArgs),
    ROW(linear_q8_32, LinearArgs),   ROW(linear_q8_64, LinearArgs),   ROW(swiglu, SwigluArgs),
    ROW(staged_bf16_16, LinearArgs), ROW(staged_bf16_32, LinearArgs), ROW(staged_bf16_64, LinearArgs),
    ROW(staged_q8_16, LinearArgs),   ROW(staged_q8_32, LinearArgs),   ROW(staged_q8_64, LinearArgs),
    ROW(embed_q4, EmbedArgs),        ROW(embed_q4k, EmbedArgs),       ROW(embed_q6k, EmbedArgs),       ROW(split_sums, NormArgs),
    ROW(linear_q4_8, LinearArgs),    ROW(linear_q4_16, LinearArgs),   ROW(linear_q4_32, LinearArgs),   ROW(linear_q4_64, LinearArgs),
    ROW(linear_q4k_8, LinearArgs),   ROW(linear_q4k_16, LinearArgs),  ROW(linear_q4k_32, LinearArgs),  ROW(linear_q4k_64, LinearArgs),
    ROW(linear_q6k_8, LinearArgs),   ROW(linear_q6k_16, LinearArgs),  ROW(linear_q6k_32, LinearArgs),  ROW(linear_q6k_64, LinearArgs),
    ROW(staged_q4_16, LinearArgs),   ROW(staged_q4_32, LinearArgs),   ROW(staged_q4_64, LinearArgs),
    ROW(staged_q4k_16, LinearArgs),  ROW(staged_q4k_32, LinearArgs),  ROW(staged_q4k_64, LinearArgs),
    ROW(staged_q6k_16, LinearArgs),  ROW(staged_q6k_32, LinearArgs),  ROW(staged_q6k_64, LinearArgs),
    ROW(round_rows, NormArgs),       ROW(single_bf16_16, LinearArgs), ROW(single_bf16_64, LinearArgs),
    ROW(single_bf16_128, LinearArgs), ROW(single_bf16_256, LinearArgs),
    ROW(topk_pieces, TopArgs),       ROW(topk_merge, TopArgs),        ROW(choose, ChooseArgs),       ROW(prepare_f32, PrepareArgs),   ROW(prepare_bf16, PrepareArgs),
    ROW(paths, PathsArgs),           ROW(attend_f32, AttendArgs),     ROW(attend_bf16_16, AttendArgs),
    ROW(attend_bf16_64, AttendArgs),  ROW(attend_wide_f32, AttendArgs), ROW(attend_wide_bf16_16, AttendArgs), ROW(attend_wide_bf16_64, AttendArgs),
    ROW(attend_sum, AttendSumArgs),  ROW(move_slots, MoveArgs),
    ROW(unpack_bf16, UnpackArgs),    ROW(unpack_f32, UnpackArgs),     ROW(planes, PlaneArgs),
    ROW(add_scaled, AddScaledArgs),  ROW(norm_columns, NormColumnsArgs), ROW(scale_cap, ScaleCapArgs), ROW(scatter_scaled, ScatterScaledArgs),
    ROW(finish_rows, LinearArgs),    ROW(round_bf16, RoundArgs),
    ROW(draw_tops, DrawArgs),        ROW(draw_bins, DrawArgs),        ROW(draw_find, DrawArgs),
    // train.cu
    ROW(gemm_f32, GemmArgs),         ROW(gemm_f32_packed, GemmArgs),  ROW(gemm_bf16, GemmArgs),
    ROW(gemm_bf16_packed, GemmArgs), ROW(add, AddArgs),               ROW(clear, AddArgs),
    ROW(product_nt, HalfArgs),       ROW(product_nn, HalfArgs),       ROW(product_tn, HalfArgs),
    ROW(widen, WidenArgs),           ROW(halve, RoundArgs),           ROW(halve_packed, UnpackArgs),
    ROW(turn, TurnArgs),             ROW(swiglu_grad, SwigluGradArgs), ROW(adamw, AdamArgs),
    ROW(column_sums, ColumnArgs),    ROW(norm_scales, NormGradArgs),  ROW(norm_grad, NormGradArgs),
    ROW(squares, SquaresArgs),       ROW(total, SquaresArgs),         ROW(scatter_add, ScatterArgs),
    ROW(smooth_l1, SmoothArgs),      ROW(soft_ce, CrossArgs),         ROW(tree_attend, TreeArgs),
    ROW(tree_delta, TreeArgs),       ROW(tree_queries, TreeArgs),     ROW(tree_keys, TreeArgs),
    ROW(tree_nodes, TreeArgs),
    ROW(tree_attend_half, TreeHalfArgs), ROW(tree_queries_half, TreeHalfArgs), ROW(tree_keys_half, TreeHalfArgs),
    ROW(tree_attend_wide, TreeArgs), ROW(tree_delta_wide, TreeArgs),  ROW(tree_queries_wide, TreeArgs), ROW(tree_keys_wide, TreeArgs), ROW(tree_nodes_wide, TreeArgs),
};

enum { success = 0, invalid_value = 1, out_of_memory = 2, no_device = 100, invalid_device = 101, invalid_context = 201, not_found = 500, illegal_address = 700, launch_failed = 719 };

static std::recursive_mutex mutex;
struct Waiting {
  Work work;
  size_t device; // context
  Work begin;    // of a kernel that may begin before those in front have ended, or empty
};
// A Launch is of a kernel.
struct Launch {
  const Kernel *kernel;
  std::vector<u8> args;
  int grid[3], threads;
  bool behind; // it may begin before those in front have ended
};
static std::deque<Waiting> waiting;
static std::map<u64, size_t> allocations;
static std::map<u64, size_t> owners; // of allocations: their contexts
static size_t used;

// A device's context is there while somebody holds it, and a thread's current one
// is that of device context - 1.
enum { most_devices = 64 };
static int held[most_devices];
static thread_local size_t context;
static bool in_context() { return context > 0 && held[context - 1] > 0; }
static int launches[most_devices + 1], failures[most_devices + 1]; // by context
#define failure failures[context]

// What talf_fake_route takes. Every function returns 0 if all is well.
struct Route {
  int (*event)(int kind, u64 at, u64 from, u64 n);
  int (*image)(const char *ptx);
  // native runs the kernel here.
  int (*launch)(const char *name, const void *args, u64 size, const int *grid, int threads, int behind, void *native);
};
enum { event_alloc, event_free, event_write, event_copy, event_read };
static Route route;
static bool tell(int kind, u64 at, u64 from, u64 n) { return !route.event || route.event(kind, at, from, n) == 0; }

static long setting(const char *name, long otherwise) {
  const char *v = getenv(name);
  return v ? atol(v) : otherwise;
}

static const bool null_driver = setting("TALF_FAKE_NULL", 0) != 0;

// begin_some lets kernels begin that may, behind the one that runs.
static void begin_some() {
  enum { most = 3 }; // which keeps few stacks
  int ahead = 0;
  for (auto &w : waiting) {
    if (!w.begin || ahead++ == most) return;
    if (!failures[w.device] && emulate::random(4) == 0 && !w.begin()) failures[w.device] = launch_failed;
  }
}

static int finish_all() {
  while (!waiting.empty()) {
    Waiting w = waiting.front();
    waiting.pop_front();
    emulate::between = begin_some;
    if (!failures[w.device] && !w.work()) failures[w.device] = launch_failed;
    emulate::between = nullptr;
  }
  return failure;
}

// A Graph is launches that were captured. Of the null driver, what it runs.
struct Graph {
  std::vector<Launch> launches;
  std::vector<Work> brief;
};
static thread_local Graph *capturing; // only a device's own thread captures

static int later(Work w, Work begin = {}) {
  if (failure) return failure;
  if (capturing) return 900; // only kernels are captured
  waiting.push_back({std::move(w), context, std::move(begin)});
  if (waiting.size() > 1000) return finish_all(); // a device does not wait for ever
  return success;
}

// of_device returns the thread's device's number in a list, 0 if there is none.
static u64 of_device(const char *name) {
  const char *v = getenv(name);
  for (size_t i = 1; v && i < context; i++) {
    v = strchr(v, ',');
    if (v) v++;
  }
  return v ? strtoull(v, nullptr, 10) : 0;
}

static int launched(const Launch &launch) {
  if ((u64)++launches[context] == of_device("TALF_FAKE_LOST")) return failure = illegal_address;
  auto l = std::make_shared<Launch>(launch);
  auto early = std::make_shared<emulate::Early>();
  early->behind = l->behind;
  auto call = [=](bool begin) {
    return l->kernel->call({l->args.data(), {l->grid[0], l->grid[1], l->grid[2]}, l->threads, early.get(), begin});
  };
  if (route.launch) {
    return later([=] {
      Work native = [=] { return call(false); };
      return route.launch(l->kernel->name.c_str(), l->args.data(), l->args.size(), l->grid, l->threads, l->behind, &native) == 0;
    });
  }
#ifndef RACES // which finds such races whenever a kernel begins
  if (l->behind) return later([=] { return call(false); }, [=] { return early->begun || call(true); });
#endif
  return later([=] { return call(false); });
}

static void trace(const char *name, size_t n) {
  const char *file = getenv("TALF_FAKE_TRACE");
  if (!file || !*file) return;
  FILE *f = fopen(file, "a");
  if (!f) return;
  fprintf(f, "%s %zu\n", name, n);
  fclose(f);
}

// IDLE ends a call of the null driver.
#define IDLE if (null_driver) return success
#define API(name) extern "C" __attribute__((visibility("default"))) int name
#define LOCK std::lock_guard<std::recursive_mutex> lock(mutex)

API(talf_fake_route)(const Route *r) { LOCK; route = *r; return 0; }
API(talf_fake_native)(Work *w) { LOCK; return (*w)() ? 0 : 1; }
// talf_fake_wrote is called by other libraries that write to the device's memory.
API(talf_fake_wrote)(u64 at, u64 n) { LOCK; return !tell(event_write, at, 0, n); }

API(cuInit)(unsigned) { return (int)setting("TALF_FAKE_INIT", 0); }
API(cuDriverGetVersion)(int *v) { *v = 12080; return 0; }
API(cuDeviceGetCount)(int *n) { *n = (int)setting("TALF_FAKE_DEVICES", 1); return 0; }
API(cuDeviceGet)(int *d, int i) { *d = i; return i < setting("TALF_FAKE_DEVICES", 1) ? success : invalid_device; }
API(cuDeviceGetName)(char *s, int n, int) { snprintf(s, n, "emulated device"); return 0; }
API(cuDeviceGetAttribute)(int *v, int a, int) {
  long c = setting("TALF_FAKE_COMPUTE", 90);
  *v = a == 75 ? (int)c / 10 : a == 76 ? (int)c % 10 : a == 16 ? (int)setting("TALF_FAKE_SMS", 4) : 0;
  return 0;
}
API(cuDeviceTotalMem_v2)(size_t *n, int) { *n = setting("TALF_FAKE_MEMORY", 1 << 30); return 0; }
API(cuDevicePrimaryCtxRetain)(void **c, int d) {
  LOCK;
  if (d < 0 || d >= most_devices) return invalid_device;
  if (failures[d + 1]) return failures[d + 1];
  held[d]++;
  *c = (void *)(size_t)(d + 1);
  return success;
}
API(cuDevicePrimaryCtxRelease_v2)(int d) {
  LOCK;
  if (held[d] == 0) return invalid_context;
  held[d]--;
  return success;
}
API(cuCtxSetCurrent)(void *c) { context = (size_t)c; return 0; }
API(cuCtxGetCurrent)(void **c) { *c = (void *)context; return 0; }

API(cuMemGetInfo_v2)(size_t *f, size_t *t) {
  LOCK;
  if (!in_context()) return invalid_context;
  *t = setting("TALF_FAKE_MEMORY", 1 << 30);
  *f = *t - used - of_device("TALF_FAKE_BUSY"); // others hold some
  return failure;
}

// Behind an allocation lies a mark that freeing it looks for.
#ifdef __SANITIZE_ADDRESS__ // which sees every access beyond the last byte
enum { mark_size = 0, mark = 0, grain = 1 };
#else
enum { mark_size = 64, mark = 0xa5, grain = 256 };
#endif
static size_t padded(size_t n) { return (n + mark_size + grain - 1) / grain * grain; }
API(cuMemAlloc_v2)(u64 *p, size_t n) {
  LOCK;
  if (failure) return failure;
  if (!in_context()) return invalid_context;
  if (n == 0) return invalid_value;
  if (capturing) return 900;
  trace("alloc", n);
  if (used + n > (size_t)setting("TALF_FAKE_MEMORY", 1 << 30)) return out_of_memory;
  size_t size = padded(n);
  if (null_driver) { // memory that nobody touches takes none
    void *m = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED) return out_of_memory;
    *p = (u64)m;
    allocations[*p] = n, owners[*p] = context;
    used += n;
    return success;
  }
  u8 *q;
  if (posix_memalign((void **)&q, 256, size)) return out_of_memory;
  memset(q, 0xff, n); // NaN
  memset(q + n, mark, mark_size);
  *p = (u64)q;
  allocations[*p] = n, owners[*p] = context;
  used += n;
  return tell(event_alloc, *p, 0, n) ? success : launch_failed;
}
API(cuMemFree_v2)(u64 p) {
  LOCK;
  finish_all();
  auto it = allocations.find(p);
  if (it == allocations.end()) return invalid_value;
  if (null_driver) {
    munmap((void *)p, padded(it->second));
    used -= it->second;
    allocations.erase(it), owners.erase(p);
    return success;
  }
  for (int i = 0; i < mark_size; i++)
    if (((u8 *)p)[it->second + i] != mark) {
      fprintf(stderr, "emulated device: something wrote behind an allocation of %zu bytes\n", it->second);
      abort();
    }
  used -= it->second;
  tell(event_free, p, 0, it->second);
  allocations.erase(it), owners.erase(p);
  free((void *)p);
  return failure;
}
#ifndef OLD_DRIVER
API(cuMemHostAlloc)(void **p, size_t n, unsigned) { *p = malloc(n); return failure; }
#endif
API(cuMemFreeHost)(void *p) { LOCK; finish_all(); free(p); return 0; }

// inside reports whether [p, p+n) is one allocation's.
static bool inside(u64 p, size_t n) {
  auto it = allocations.upper_bound(p);
  if (it == allocations.begin()) return false;
  --it;
  return p + n <= it->first + it->second;
}

// Other libraries ask whose memory, and whose stream, they are given: contexts, 0 for none's.
static void *const streams = (void *)0x5000; // that of a context is as many bytes behind it
API(talf_fake_owner)(u64 p, u64 n) {
  LOCK;
  auto it = owners.upper_bound(p);
  return n && inside(p, n) && it != owners.begin() ? (int)(--it)->second : 0;
}
API(talf_fake_stream)(void *s) { return s > streams && s <= (char *)streams + most_devices ? (int)((char *)s - (char *)streams) : 0; }

// A collective that never ends keeps all streams busy until it is aborted, and may lose a device, a context.
static bool busy;
API(talf_fake_hold)(int on) { LOCK; busy = on; return 0; }
API(talf_fake_lose)(int device) { LOCK; failures[device] = launch_failed; return 0; }
static void stuck() {
  if (!busy || failure) return;
  fprintf(stderr, "emulated device: something waits for a collective that never ends\n");
  abort();
}

API(cuMemcpyHtoDAsync_v2)(u64 d, const void *s, size_t n, void *) {
  if (null_driver) {
    if (n <= 1 << 17) memcpy((void *)d, s, n); // arguments; weights are never read
    return success;
  }
  LOCK;
  if (!inside(d, n)) return invalid_value;
  trace("htod", n);
  return later([=] { memcpy((void *)d, s, n); return tell(event_write, d, 0, n); });
}
API(cuMemcpyDtoHAsync_v2)(void *d, u64 s, size_t n, void *) {
  if (null_driver) {
    memcpy(d, (void *)s, n);
    return success;
  }
  LOCK;
  if (!inside(s, n)) return invalid_value;
  trace("dtoh", n);
  if (of_device("TALF_FAKE_UNREAD")) return failure = illegal_address;
  return later([=] { memcpy(d, (void *)s, n); return tell(event_read, s, 0, n); });
}
API(cuMemcpyDtoDAsync_v2)(u64 d, u64 s, size_t n, void *) {
  IDLE;
  LOCK;
  if (!inside(d, n) || !inside(s, n)) return invalid_value;
  trace("dtod", n);
  return later([=] { memmove((void *)d, (void *)s, n); return tell(event_copy, d, s, n); });
}
API(cuMemsetD8Async)(u64 d, unsigned char v, size_t n, void *) {
  IDLE;
  LOCK;
  if (!inside(d, n)) return invalid_value;
  trace("memset", n);
  return later([=] { memset((void *)d, v, n); return tell(event_write, d, 0, n); });
}
API(cuModuleLoadData)(void **m, const void *image) {
  *m = (void *)1;
  if (long r = setting("TALF_FAKE_IMAGE", 0)) return (int)r;
  LOCK;
  if (route.image && route.image((const char *)image)) return 218;
  return strstr((const char *)image, ".version") ? success : 200;
}
API(cuModuleUnload)(void *) { return 0; }
API(cuModuleGetFunction)(void **f, void *, const char *name) {
  auto it = kernels.find(name);
  if (it == kernels.end()) return not_found;
  *f = &it->second;
  return success;
}
API(cuStreamCreate)(void **s, unsigned) { *s = (char *)streams + context; return failure; }
API(cuStreamSynchronize)(void *) { IDLE; LOCK; trace("synchronize", 0); stuck(); return finish_all(); }
API(cuStreamQuery)(void *) { IDLE; LOCK; int r = finish_all(); return r || !busy ? r : 600; }
API(cuStreamDestroy_v2)(void *) { LOCK; finish_all(); return 0; }
API(cuEventCreate)(void **e, unsigned) { *e = (void *)3; return 0; }
API(cuEventRecord)(void *, void *) { return 0; }
API(cuEventSynchronize)(void *) { IDLE; LOCK; return finish_all(); }
API(cuEventElapsedTime)(float *ms, void *, void *) { *ms = 1; return 0; }
API(cuEventDestroy_v2)(void *) { return 0; }
// likely is all that the null driver runs of a kernel: made-up likely and drawn tokens, and the choice from them. It
// is empty for other kernels.
static Work likely(const Kernel *k, const void *args, const int *grid) {
  bool merge = k->name == "topk_merge";
  if (merge || k->name == "topk_pieces") {
    TopArgs a = *(const TopArgs *)args;
    i64 n = a.k * grid[merge ? 0 : 1];
    if (merge != (a.pieces > 1)) return {};
    return [=] {
      for (i64 i = 0; i < n; i++) {
        a.ids[a.row0 * a.k + i] = (i32)(i % 16);
        a.logp[a.row0 * a.k + i] = -1 - 0.5f * (float)(i % 16);
      }
      return true;
    };
  }
  if (k->name == "draw_find") {
    DrawArgs a = *(const DrawArgs *)args;
    int n = grid[0];
    return [=] {
      for (int i = 0; i < n; i++) a.tokens[i] = i % 16;
      return true;
    };
  }
  if (k->name == "choose") {
    ChooseArgs a = *(const ChooseArgs *)args;
    return [=] {
      int n = (int)(a.n * a.k), words = (int)a.words;
      static double score[most_candidates];
      static int order[most_candidates];
      for (int c = 0; c < n; c++) order[c] = c, score[c] = a.score[c / a.k] + (double)a.logp[c];
      std::stable_sort(order, order + n, [](int x, int y) { return score[x] > score[y]; });
      for (int i = 0; i < a.m; i++) {
        int c = order[i], r = (int)(c / a.k), own = (int)a.node + i;
        a.tokens[i] = a.ids[c], a.rows[i] = (int)a.row0 + r, a.scores[i] = score[c];
        for (int w = 0; w < words; w++) a.anc[i * words + w] = a.above[r * words + w] | (w == own / 64 ? 1ull << own % 64 : 0);
      }
      return true;
    };
  }
  return {};
}

static int launch(const Kernel *k, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, void **params, bool behind) {
  if (null_driver) {
    int grid[3] = {(int)gx, (int)gy, (int)gz};
    if (Work w = likely(k, params[0], grid); w && capturing)
      capturing->brief.push_back(w);
    else if (w)
      w();
    return success;
  }
  LOCK;
  if (failure) return failure;
  if (!in_context()) return invalid_context;
  if (by != 1 || bz != 1 || !gx || !gy || !gz || gy > 65535 || gz > 65535) return invalid_value;
  Launch l{k, {(u8 *)params[0], (u8 *)params[0] + k->size}, {(int)gx, (int)gy, (int)gz}, (int)bx, behind};
  if (capturing) {
    capturing->launches.push_back(std::move(l));
    return success;
  }
  trace("launch", 1);
  return launched(l);
}
API(cuLaunchKernel)(Kernel *k, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned, void *, void **params, void **) {
  return launch(k, gx, gy, gz, bx, by, bz, params, false);
}
#ifndef NO_LAUNCH_ATTRIBUTES
struct Attribute {
  int id, pad, value[16];
};
struct Config {
  unsigned gx, gy, gz, bx, by, bz, shared;
  void *stream;
  const Attribute *attributes;
  unsigned n;
};
API(cuLaunchKernelEx)(const Config *c, Kernel *k, void **params, void **) {
  bool behind = false;
  for (unsigned i = 0; i < c->n; i++) {
    if (c->attributes[i].id != 6) return invalid_value; // programmatic stream serialisation
    behind = c->attributes[i].value[0] != 0;
  }
  if (behind && capturing && setting("TALF_FAKE_CAPTURE_DEPENDENT", 0)) return (int)setting("TALF_FAKE_CAPTURE_DEPENDENT", 0);
  return launch(k, c->gx, c->gy, c->gz, c->bx, c->by, c->bz, params, behind);
}
#endif

API(cuStreamBeginCapture_v2)(void *, int mode) {
  LOCK;
  if (failure) return failure;
  if (capturing || mode != 1) return invalid_value; // a device's own thread alone
  capturing = new Graph;
  return success;
}
API(cuStreamEndCapture)(void *, Graph **g) {
  LOCK;
  if (!capturing) return 901;
  *g = capturing;
  capturing = nullptr;
  trace("capture", (*g)->launches.size());
  size_t n = 0;
  for (auto &l : (*g)->launches) n += l.behind;
  trace("dependent", n);
  return (int)setting("TALF_FAKE_CAPTURE", 0);
}
API(cuGraphInstantiateWithFlags)(Graph **e, Graph *g, unsigned long long flags) {
  if (flags) return invalid_value;
  *e = new Graph(*g);
  return success;
}
API(cuGraphLaunch)(Graph *e, void *) {
  if (null_driver) {
    for (auto &w : e->brief) w();
    return success;
  }
  LOCK;
  if (failure) return failure;
  if (!in_context()) return invalid_context;
  if (capturing) return 900;
  trace("graph", e->launches.size());
  for (auto &l : e->launches)
    if (int r = launched(l)) return r;
  return success;
}
API(cuGraphDestroy)(Graph *g) { delete g; return success; }
API(cuGraphExecDestroy)(Graph *g) { delete g; return success; }
