// What blas.c binds of cuBLAS. talf_blas_load returns why it cannot be used, or
// null; the others need it to have returned null.
#include <stddef.h>
const char *talf_blas_load(void);
int talf_blas_create(void **);
void talf_blas_destroy(void *);
int talf_blas_version(void *, int *);
int talf_blas_use(void *, void *stream, void *workspace, size_t);
int talf_blas_product(void *, int bf16, int ta, int tb, int m, int n, int k, void *a, int lda, void *b, int ldb, float beta, void *c, int ldc);
