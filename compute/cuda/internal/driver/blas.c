//go:build gpu && linux && cgo

// cuBLAS, bound with dlopen when it is first asked for: it is large, and most
// programs never need it.
#include <dlfcn.h>
#include <stddef.h>
#include "blas.h"

static int (*create)(void **);
static int (*destroy)(void *);
static int (*version)(void *, int *);
static int (*set_stream)(void *, void *);
static int (*set_workspace)(void *, void *, size_t);
static int (*gemm)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int, const void *, void *, int, int, int, int);

const char *talf_blas_load(void) {
  static const char *names[] = {"libcublas.so.12", "libcublas.so.13", "libcublas.so.11"};
  static const struct {
    const char *name;
    void **slot;
  } table[] = {
      {"cublasCreate_v2", (void **)&create},       {"cublasDestroy_v2", (void **)&destroy},
      {"cublasGetVersion_v2", (void **)&version},  {"cublasSetStream_v2", (void **)&set_stream},
      {"cublasSetWorkspace_v2", (void **)&set_workspace}, {"cublasGemmEx", (void **)&gemm},
  };
  static const char *failure;
  static int loaded;
  if (loaded) return failure;
  loaded = 1;
  void *lib = NULL;
  for (size_t i = 0; !lib && i < sizeof names / sizeof *names; i++) lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (!lib) return failure = "there is no libcublas.so.12, .13 or .11";
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (!(*table[i].slot = dlsym(lib, table[i].name))) return failure = "the library lacks an entry point";
  return NULL;
}

int talf_blas_create(void **h) { return create(h); }
void talf_blas_destroy(void *h) { destroy(h); }
int talf_blas_version(void *h, int *v) { return version(h, v); }
int talf_blas_use(void *h, void *stream, void *workspace, size_t n) {
  int r = set_stream(h, stream);
  return r ? r : set_workspace(h, workspace, n); // a new stream resets the workspace
}

// Row-major c [n][m] = x [n][k] · w [m][k]ᵀ + beta·c: cuBLAS counts in columns.
// Sums are kept in f32 (CUBLAS_COMPUTE_32F); bf16 is CUDA_R_16BF.
int talf_blas_product(void *h, int bf16, int m, int n, int k, void *w, int ldw, void *x, int ldx, float beta, void *c, int ldc) {
  enum { no = 0, transposed = 1, real32 = 0, bfloat16 = 14, compute32 = 68, any_algorithm = -1 };
  float one = 1;
  int type = bf16 ? bfloat16 : real32;
  return gemm(h, transposed, no, m, n, k, &one, w, type, ldw, x, type, ldx, &beta, c, real32, ldc, compute32, any_algorithm);
}
