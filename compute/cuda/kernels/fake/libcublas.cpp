// A libcublas.so.12 beside the emulated device: the few entry points that the
// program binds, and products in an order of sums of their own. It aborts at what
// the library would read past, or would do wrong without a word, and otherwise returns what the
// library would refuse with.
//
//   TALF_FAKE_BLAS=n        what cublasCreate_v2 returns (0)
//   TALF_FAKE_BLAS_PLANT=n  a bug: 1 takes a for transposed where it is not and the reverse, if it is square, 2 does so with b,
//                           3 forgets beta (0: none)
//   TALF_FAKE_BLAS_TRACE=file  appends a line for every product: transpositions, m, n, k, type and beta
#include <dlfcn.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define API(name) extern "C" __attribute__((visibility("default"))) int name

enum { invalid_value = 7, execution_failed = 13, not_supported = 15 };

struct Handle {
  int device; // context
  void *stream;
  bool workspace;
};

static void refuse(const char *what) {
  fprintf(stderr, "emulated cuBLAS: %s\n", what);
  abort();
}

template <typename F> static F *driver(const char *name) {
  F *f = (F *)dlsym(RTLD_DEFAULT, name);
  if (!f) refuse("no driver");
  return f;
}
static int current() {
  static auto get = driver<int(void **)>("cuCtxGetCurrent");
  void *c;
  get(&c);
  return (int)(size_t)c;
}

API(cublasCreate_v2)(void **h) {
  if (!h) return invalid_value;
  *h = new Handle{current(), nullptr, false};
  const char *r = getenv("TALF_FAKE_BLAS");
  return r ? atoi(r) : 0;
}
API(cublasDestroy_v2)(Handle *h) { delete h; return 0; }
API(cublasGetVersion_v2)(Handle *h, int *v) {
  if (!h || !v) return invalid_value;
  *v = 120804;
  return 0;
}
API(cublasSetStream_v2)(Handle *h, void *s) {
  static auto stream = driver<int(void *)>("talf_fake_stream");
  if (stream(s) != h->device) refuse("another device's stream");
  h->stream = s, h->workspace = false;
  return 0;
}
API(cublasSetWorkspace_v2)(Handle *h, void *p, size_t n) {
  static auto owner = driver<int(uint64_t, uint64_t)>("talf_fake_owner");
  if ((uint64_t)p % 256) return invalid_value;
  if (n < 1 << 20 || owner((uint64_t)p, n) != h->device) refuse("a workspace that is small, or not the device's");
  h->workspace = true;
  return 0;
}
API(cublasSetMathMode)(Handle *h, int mode) { return !h || mode < 0 || (mode & ~16) > 3 ? invalid_value : 0; }

static float element(const void *p, int type, int64_t i) {
  if (type == 0) return ((const float *)p)[i];
  uint32_t v = (uint32_t)((const uint16_t *)p)[i] << 16;
  float f;
  memcpy(&f, &v, 4);
  return f;
}

// Column-major: c [m][n] = alpha·op(a)·op(b) + beta·c.
API(cublasGemmEx)(Handle *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int at, int lda, const void *b, int bt, int ldb,
                  const void *beta, void *c, int ct, int ldc, int compute, int algo) {
  if (!h) return 1; // not initialised
  if (!h->stream || !h->workspace) refuse("a product before its stream and workspace are set");
  if (current() != h->device) refuse("a product while another device's context is current");
  if (m < 0 || n < 0 || k < 0 || ta < 0 || tb < 0 || ta > 2 || tb > 2 || lda < (ta ? k : m) || ldb < (tb ? n : k) || ldc < m || lda < 1 || ldb < 1 || ldc < 1) return invalid_value;
  if (!alpha || !beta) return invalid_value;
  if (at != bt || (at != 14 && at != 0) || ct != 0 || compute != 68 || algo != -1) return not_supported;
  if (m == 0 || n == 0 || k == 0) refuse("an empty product");
  if (!a || !b || !c) return invalid_value;
  uint64_t size = at ? 2 : 4;
  if ((uint64_t)a % size || (uint64_t)b % size || (uint64_t)c % 4) refuse("an operand that is not aligned");
  static auto owner = driver<int(uint64_t, uint64_t)>("talf_fake_owner");
  auto bytes = [](int64_t rows, int64_t columns, int64_t ld, uint64_t size) { return ((columns - 1) * ld + rows) * size; };
  if (owner((uint64_t)a, ta ? bytes(k, m, lda, size) : bytes(m, k, lda, size)) != h->device) refuse("a is not within one allocation of the device");
  if (owner((uint64_t)b, tb ? bytes(n, k, ldb, size) : bytes(k, n, ldb, size)) != h->device) refuse("b is not within one allocation of the device");
  if (owner((uint64_t)c, bytes(m, n, ldc, 4)) != h->device) refuse("c is not within one allocation of the device");
  float x = *(const float *)alpha, y = *(const float *)beta;
  if (const char *file = getenv("TALF_FAKE_BLAS_TRACE"))
    if (FILE *f = fopen(file, "a")) {
      fprintf(f, "%c%c %d %d %d %s %g\n", ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, at ? "bf16" : "f32", y);
      fclose(f);
    }
  const char *plant = getenv("TALF_FAKE_BLAS_PLANT");
  switch (plant ? atoi(plant) : 0) {
  case 1: if (m == k) ta = !ta; break;
  case 2: if (n == k) tb = !tb; break;
  case 3: y = 0; break;
  }
  // The stream's work is done first: a device may be that fast.
  static auto synchronize = driver<int(void *)>("cuStreamSynchronize");
  if (synchronize(h->stream)) return execution_failed;
  static int (*wrote)(uint64_t, uint64_t) = (int (*)(uint64_t, uint64_t))dlsym(RTLD_DEFAULT, "talf_fake_wrote");
  std::vector<float> row(k), columns((size_t)n * k);
  for (int64_t j = 0; j < n; j++)
    for (int64_t l = 0; l < k; l++) columns[j * k + l] = element(b, bt, tb ? l * ldb + j : j * ldb + l);
  for (int64_t i = 0; i < m; i++) {
    for (int64_t l = 0; l < k; l++) row[l] = element(a, at, ta ? i * lda + l : l * lda + i);
    for (int64_t j = 0; j < n; j++) {
      double s = 0;
      for (int64_t l = 0; l < k; l++) s += (double)row[l] * columns[j * k + l];
      float *p = (float *)c + j * ldc + i;
      *p = x * (float)s + (y ? y * *p : 0);
      if (wrote) wrote((uint64_t)p, 4);
    }
  }
  return 0;
}
