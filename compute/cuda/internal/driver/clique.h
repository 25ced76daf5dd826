// What clique.c binds of NCCL. talf_nccl_load returns why it cannot be used, or null; the others need it to have
// returned null.
#include <stddef.h>
const char *talf_nccl_load(void);
int talf_nccl_version(int *);
int talf_nccl_open(void **comms, int n, const int *devices);
int talf_nccl_close(void *, int abort);
int talf_nccl_async(void *);
const char *talf_nccl_error(int);
int talf_nccl_start(void);
int talf_nccl_end(void);
int talf_nccl_sum(void *comm, unsigned long long at, size_t n, void *stream);
