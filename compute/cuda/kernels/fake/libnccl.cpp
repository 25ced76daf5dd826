// A libnccl.so.2 beside the emulated device: communicators of one process, whose sums have the order of a ring. It
// aborts at what would hang a device, or read what is not its own, and otherwise returns what the library would.
//
//   TALF_FAKE_NCCL_INIT=n      what ncclCommInitAll returns (0)
//   TALF_FAKE_NCCL_PLANT=kNr   in the N-th group from here on, of rank r: k is f, the group fails; h, it never ends, and the rank's
//                              communicator says why; l, it never ends, because the rank's device is lost; s, it never ends, and nobody says why; o, the rank gets its own
//                              numbers, not the sum
//   TALF_FAKE_NCCL_TRACE=file  appends a line for every group: its sums and all of their floats
#include <dlfcn.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#define API(name) extern "C" __attribute__((visibility("default"))) int name

enum { unhandled_cuda_error = 1, invalid_argument = 4, invalid_usage = 5, remote_error = 6 };

struct Comm;
struct Clique {
  std::vector<Comm *> comms;
  int left = 0; // comms that are there
  bool stuck = false;
};
struct Comm {
  Clique *clique;
  int rank, device; // context
  int async = 0;
};
struct Op {
  const float *in;
  float *out;
  size_t n;
  Comm *comm;
  void *stream;
};
static thread_local int depth;
static thread_local std::vector<Op> ops;

static void refuse(const char *what) {
  fprintf(stderr, "emulated NCCL: %s\n", what);
  abort();
}
template <typename F> static F *driver(const char *name) {
  F *f = (F *)dlsym(RTLD_DEFAULT, name);
  if (!f) refuse("no driver");
  return f;
}
static int setting(const char *name) {
  const char *v = getenv(name);
  return v ? atoi(v) : 0;
}

API(ncclGetVersion)(int *v) { *v = 22703; return 0; }
extern "C" __attribute__((visibility("default"))) const char *ncclGetErrorString(int r) {
  switch (r) {
  case 0: return "no error";
  case unhandled_cuda_error: return "unhandled cuda error";
  case remote_error: return "remote process exited or there was a network error";
  }
  return "another error";
}
API(ncclCommInitAll)(Comm **comms, int n, const int *devices) {
  static auto count = driver<int(int *)>("cuDeviceGetCount");
  int all = 0;
  count(&all);
  if (!comms || n < 1) return invalid_argument;
  if (int r = setting("TALF_FAKE_NCCL_INIT")) return r;
  for (int i = 0; i < n; i++)
    for (int k = 0; k <= i; k++)
      if (devices[i] < 0 || devices[i] >= all || (k < i && devices[k] == devices[i])) return invalid_usage;
  Clique *c = new Clique;
  c->left = n;
  for (int i = 0; i < n; i++) c->comms.push_back(comms[i] = new Comm{c, i, devices[i] + 1});
  return 0;
}
static int leave(Comm *c, bool abort) {
  if (!c) return invalid_argument;
  Clique *q = c->clique;
  if (q->stuck && !abort) refuse("a communicator is destroyed whose sum never ends");
  q->comms[c->rank] = nullptr;
  delete c;
  if (--q->left) return 0;
  static auto hold = driver<int(int)>("talf_fake_hold");
  if (q->stuck) hold(0);
  delete q;
  return 0;
}
API(ncclCommDestroy)(Comm *c) { return leave(c, false); }
API(ncclCommAbort)(Comm *c) { return leave(c, true); }
API(ncclCommGetAsyncError)(Comm *c, int *e) {
  if (!c || !e) return invalid_argument;
  *e = c->async;
  return 0;
}
API(ncclGroupStart)() { depth++; return 0; }

API(ncclAllReduce)(const void *in, void *out, size_t n, int type, int op, Comm *c, void *stream) {
  static auto owner = driver<int(uint64_t, uint64_t)>("talf_fake_owner");
  static auto whose = driver<int(void *)>("talf_fake_stream");
  if (!c || !in || !out || type != 7 || op != 0) return invalid_argument;
  if (depth == 0 && c->clique->comms.size() > 1) refuse("a sum outside a group: its thread would wait for itself");
  if (!n || (uint64_t)in % 4 || (uint64_t)out % 4) refuse("no floats, or not aligned");
  if (owner((uint64_t)in, 4 * n) != c->device || owner((uint64_t)out, 4 * n) != c->device) refuse("floats that are not within one allocation of the communicator's device");
  if (whose(stream) != c->device) refuse("a stream of another device");
  ops.push_back({(const float *)in, (float *)out, n, c, stream});
  return 0;
}

API(ncclGroupEnd)() {
  if (depth == 0) return invalid_usage;
  if (--depth) return 0;
  std::vector<Op> all;
  all.swap(ops);
  if (all.empty()) return 0;
  Clique *q = all[0].comm->clique;
  size_t ranks = q->comms.size();
  std::vector<std::vector<Op>> of(ranks);
  for (auto &o : all) {
    if (o.comm->clique != q) refuse("two cliques in one group");
    of[o.comm->rank].push_back(o);
  }
  size_t floats = 0;
  for (auto &o : of[0]) floats += o.n;
  for (auto &list : of) {
    if (list.size() != of[0].size()) refuse("a group without a sum of every rank never ends");
    for (size_t i = 0; i < list.size(); i++)
      if (list[i].n != of[0][i].n) refuse("ranks sum different numbers of floats");
  }
  if (const char *file = getenv("TALF_FAKE_NCCL_TRACE"))
    if (FILE *f = fopen(file, "a")) {
      fprintf(f, "%zu %zu\n", of[0].size(), floats);
      fclose(f);
    }
  static int groups; // since the plant was another
  static std::string planted;
  char kind = 0;
  int at = 0, rank = 0;
  const char *plant = getenv("TALF_FAKE_NCCL_PLANT");
  if (plant && planted != plant) planted = plant, groups = 0;
  if (!plant || sscanf(plant, "%c%d,%d", &kind, &at, &rank) != 3 || ++groups != at) kind = 0;
  if (kind == 'f') return unhandled_cuda_error;
  static auto current = driver<int(void *)>("cuCtxSetCurrent");
  static auto synchronize = driver<int(void *)>("cuStreamSynchronize");
  static auto hold = driver<int(int)>("talf_fake_hold");
  static auto lose = driver<int(int)>("talf_fake_lose");
  for (auto &list : of) {
    current((void *)(size_t)list[0].comm->device);
    if (synchronize(list[0].stream)) return unhandled_cuda_error;
  }
  if (kind == 'h' || kind == 'l' || kind == 's') {
    q->stuck = true;
    hold(1);
    if (kind == 'h') q->comms[rank]->async = remote_error;
    if (kind == 'l') lose(q->comms[rank]->device);
    return 0;
  }
  static int (*wrote)(uint64_t, uint64_t) = (int (*)(uint64_t, uint64_t))dlsym(RTLD_DEFAULT, "talf_fake_wrote");
  for (size_t i = 0; i < of[0].size(); i++) {
    size_t n = of[0][i].n, piece = (n + ranks - 1) / ranks;
    for (size_t e = 0; e < n; e++) {
      // The ring passes a piece on from the rank behind its own.
      size_t from = e / piece + 1;
      float s = of[from % ranks][i].in[e];
      for (size_t r = 1; r < ranks; r++) s += of[(from + r) % ranks][i].in[e];
      for (size_t r = 0; r < ranks; r++)
        if (kind != 'o' || (int)r != rank) of[r][i].out[e] = s;
    }
    for (size_t r = 0; wrote && r < ranks; r++) wrote((uint64_t)of[r][i].out, 4 * n);
  }
  return 0;
}
