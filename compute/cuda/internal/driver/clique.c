//go:build gpu && linux && cgo

// NCCL, bound with dlopen when several devices train together.
#include <dlfcn.h>
#include <stddef.h>
#include "clique.h"
#include "include/nccl.h"

#define SLOT(name) static __typeof__(name) *name##_slot
SLOT(ncclGetVersion);
SLOT(ncclCommInitAll);
SLOT(ncclCommDestroy);
SLOT(ncclCommAbort);
SLOT(ncclCommGetAsyncError);
SLOT(ncclGetErrorString);
SLOT(ncclGroupStart);
SLOT(ncclGroupEnd);
SLOT(ncclAllReduce);

const char *talf_nccl_load(void) {
#define ROW(name) {#name, (void **)&name##_slot}
  static const struct {
    const char *name;
    void **slot;
  } table[] = {
      ROW(ncclGetVersion),        ROW(ncclCommInitAll),    ROW(ncclCommDestroy), ROW(ncclCommAbort),
      ROW(ncclCommGetAsyncError), ROW(ncclGetErrorString), ROW(ncclGroupStart),  ROW(ncclGroupEnd),
      ROW(ncclAllReduce),
  };
  static const char *failure;
  static int loaded;
  if (loaded) return failure;
  loaded = 1;
  void *lib = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!lib) return failure = "there is no libnccl.so.2";
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (!(*table[i].slot = dlsym(lib, table[i].name))) return failure = "the library lacks an entry point";
  return NULL;
}

int talf_nccl_version(int *v) { return ncclGetVersion_slot(v); }
int talf_nccl_open(void **comms, int n, const int *devices) { return ncclCommInitAll_slot((ncclComm_t *)comms, n, devices); }
int talf_nccl_close(void *c, int abort) { return abort ? ncclCommAbort_slot(c) : ncclCommDestroy_slot(c); }
int talf_nccl_async(void *c) {
  ncclResult_t e = ncclSuccess;
  int r = ncclCommGetAsyncError_slot(c, &e);
  return r ? r : (int)e;
}
const char *talf_nccl_error(int r) { return ncclGetErrorString_slot((ncclResult_t)r); }
int talf_nccl_start(void) { return ncclGroupStart_slot(); }
int talf_nccl_end(void) { return ncclGroupEnd_slot(); }
int talf_nccl_sum(void *comm, unsigned long long at, size_t n, void *stream) {
  return ncclAllReduce_slot((void *)at, (void *)at, n, ncclFloat32, ncclSum, comm, stream);
}
