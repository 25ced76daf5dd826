//go:build gpu && linux && cgo

#include "route.h"
#include "_cgo_export.h"
#include <dlfcn.h>

static int (*native)(void *);

// Route is that of libcuda.cpp.
struct Route {
  int (*event)(int kind, uint64_t at, uint64_t from, uint64_t n);
  int (*image)(const char *ptx);
  int (*launch)(const char *name, const void *args, uint64_t size, const int *grid, int threads, int behind, void *native);
};

static int event(int kind, uint64_t at, uint64_t from, uint64_t n) { return talfPTXEvent(kind, at, from, n); }
static int image(const char *ptx) { return talfPTXImage((char *)ptx); }
static int launch(const char *name, const void *args, uint64_t size, const int *grid, int threads, int behind, void *work) {
  return talfPTXLaunch((char *)name, (void *)args, size, (int *)grid, threads, behind, work);
}

int talf_ptx_install(void) {
  void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  int (*route)(const struct Route *) = lib ? (int (*)(const struct Route *))dlsym(lib, "talf_fake_route") : 0;
  native = lib ? (int (*)(void *))dlsym(lib, "talf_fake_native") : 0;
  if (!route || !native) return 1;
  static const struct Route hooks = {event, image, launch};
  return route(&hooks);
}

int talf_ptx_native(void *work) { return native(work); }
