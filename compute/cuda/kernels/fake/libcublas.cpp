// A libcublas.so.12 beside the emulated device: the few entry points that the
// program binds, and products in an order of sums of their own. It aborts at what
// the library would refuse or read past.
//
//   TALF_FAKE_BLAS=n   what cublasCreate_v2 returns (0)
#include <dlfcn.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define API(name) extern "C" __attribute__((visibility("default"))) int name

static void *stream;
static bool workspace;

static void refuse(const char *what) {
  fprintf(stderr, "emulated cuBLAS: %s\n", what);
  abort();
}

API(cublasCreate_v2)(void **h) {
  *h = (void *)4;
  const char *r = getenv("TALF_FAKE_BLAS");
  return r ? atoi(r) : 0;
}
API(cublasDestroy_v2)(void *) { return 0; }
API(cublasGetVersion_v2)(void *, int *v) { *v = 120804; return 0; }
API(cublasSetStream_v2)(void *, void *s) { stream = s; workspace = false; return 0; }
API(cublasSetWorkspace_v2)(void *, void *p, size_t n) {
  if ((uint64_t)p % 256 || n < 1 << 20) refuse("a workspace that is small, or not aligned");
  workspace = true;
  return 0;
}

static float element(const void *p, int type, int64_t i) {
  if (type == 0) return ((const float *)p)[i];
  uint32_t v = (uint32_t)((const uint16_t *)p)[i] << 16;
  float f;
  memcpy(&f, &v, 4);
  return f;
}

// Column-major: c [m][n] = alpha·op(a)·op(b) + beta·c.
API(cublasGemmEx)(void *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int at, int lda, const void *b, int bt, int ldb,
                  const void *beta, void *c, int ct, int ldc, int compute, int algo) {
  if (h != (void *)4 || !stream || !workspace) refuse("a product before its stream and workspace are set");
  if (m < 1 || n < 1 || k < 1 || ta > 1 || tb > 1 || lda < (ta ? k : m) || ldb < (tb ? n : k) || ldc < m) return 7;
  if (at != bt || (at != 14 && at != 0) || ct != 0 || compute != 68 || algo != -1) return 15;
  if (((uint64_t)a | (uint64_t)b | (uint64_t)c) % 4) refuse("an operand that is not aligned");
  // The stream's work is done first: a device may be that fast.
  static int (*synchronize)(void *) = (int (*)(void *))dlsym(RTLD_DEFAULT, "cuStreamSynchronize");
  if (!synchronize) refuse("no driver");
  if (int r = synchronize(stream)) return r ? 14 : 0;
  static int (*wrote)(uint64_t, uint64_t) = (int (*)(uint64_t, uint64_t))dlsym(RTLD_DEFAULT, "talf_fake_wrote");
  float x = *(const float *)alpha, y = *(const float *)beta;
  std::vector<float> row(k);
  for (int64_t i = 0; i < m; i++) {
    for (int64_t l = 0; l < k; l++) row[l] = element(a, at, ta ? i * lda + l : l * lda + i);
    for (int64_t j = 0; j < n; j++) {
      double s = 0;
      for (int64_t l = 0; l < k; l++) s += (double)row[l] * element(b, bt, tb ? l * ldb + j : j * ldb + l);
      float *p = (float *)c + j * ldc + i;
      *p = x * (float)s + (y ? y * *p : 0);
      if (wrote) wrote((uint64_t)p, 4);
    }
  }
  return 0;
}
