//go:build gpu && linux && cgo

// cuBLAS, bound with dlopen when it is first asked for: it is large, and most
// programs never need it.
#include <dlfcn.h>
#include <stddef.h>
#include "blas.h"
#include "include/cublas_api.h"

#define SLOT(name) static __typeof__(name) *name##_slot
SLOT(cublasCreate_v2);
SLOT(cublasDestroy_v2);
SLOT(cublasGetVersion_v2);
SLOT(cublasSetStream_v2);
SLOT(cublasSetWorkspace_v2);
SLOT(cublasSetMathMode);
SLOT(cublasGemmEx);

const char *talf_blas_load(void) {
  static const char *names[] = {"libcublas.so.12", "libcublas.so.13", "libcublas.so.11"};
#define ROW(name) {#name, (void **)&name##_slot}
  static const struct {
    const char *name;
    void **slot;
  } table[] = {
      ROW(cublasCreate_v2),       ROW(cublasDestroy_v2),  ROW(cublasGetVersion_v2), ROW(cublasSetStream_v2),
      ROW(cublasSetWorkspace_v2), ROW(cublasSetMathMode), ROW(cublasGemmEx),
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

int talf_blas_create(void **h) { return cublasCreate_v2_slot((cublasHandle_t *)h); }
void talf_blas_destroy(void *h) { cublasDestroy_v2_slot(h); }
int talf_blas_version(void *h, int *v) { return cublasGetVersion_v2_slot(h, v); }
int talf_blas_use(void *h, void *stream, void *workspace, size_t n) {
  int r = cublasSetStream_v2_slot(h, stream);
  if (!r) r = cublasSetWorkspace_v2_slot(h, workspace, n); // a new stream resets the workspace
  return r ? r : cublasSetMathMode_slot(h, CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
}

// Row-major c [m][n] = op(a)·op(b) + beta·c. cuBLAS counts in columns: what lies in rows is transposed to it, so it
// computes cᵀ = op(b)ᵀ·op(a)ᵀ. Sums are kept in f32 (CUBLAS_COMPUTE_32F).
int talf_blas_product(void *h, int bf16, int ta, int tb, int m, int n, int k, void *a, int lda, void *b, int ldb, float beta, void *c, int ldc) {
  float one = 1;
  cudaDataType type = bf16 ? CUDA_R_16BF : CUDA_R_32F;
  return cublasGemmEx_slot(h, tb ? CUBLAS_OP_T : CUBLAS_OP_N, ta ? CUBLAS_OP_T : CUBLAS_OP_N, n, m, k, &one, b, type, ldb, a, type, lda, &beta, c,
                           CUDA_R_32F, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}
