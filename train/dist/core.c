//go:build mpi && cgo && unix

#if !__has_include(<mpi.h>)
#error "MPI's header is not found: build with CC=mpicc"
#endif
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "core.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static pthread_t worker;

static MPI_Comm comm;
static MPI_Request *requests; // [room]; [0, live) were begun and are not known to have ended
static int live, room, failure, opened, closing, status, my_rank, my_size;

static void rest(long nanoseconds) {
  struct timespec t = {0, nanoseconds};
  nanosleep(&t, NULL);
}

static long long now(void) { // microseconds
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}

// advance moves all operations on and forgets them when the last has ended.
static void advance(void) {
  if (live == 0) return;
  int done = 0;
  int code = MPI_Testall(live, requests, &done, MPI_STATUSES_IGNORE);
  if (code != MPI_SUCCESS) failure = code;
  if (done || failure) live = 0;
}

static int start(void) {
  int provided = 0, code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
  if (code != MPI_SUCCESS) return code;
  if (provided < MPI_THREAD_SERIALIZED) return MPI_ERR_UNSUPPORTED_OPERATION;
  // A communicator of our own, whose errors are returned.
  if ((code = MPI_Comm_dup(MPI_COMM_WORLD, &comm)) != MPI_SUCCESS) return code;
  if ((code = MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN)) != MPI_SUCCESS) return code;
  if ((code = MPI_Comm_rank(comm, &my_rank)) != MPI_SUCCESS) return code;
  return MPI_Comm_size(comm, &my_size);
}

// work begins and ends MPI, which must be one thread's, and polls between.
static void *work(void *unused) {
  (void)unused;
  pthread_mutex_lock(&lock);
  status = start();
  opened = 1;
  pthread_cond_broadcast(&change);
  while (status == MPI_SUCCESS && !closing) {
    if (live == 0) {
      pthread_cond_wait(&change, &lock);
      continue;
    }
    advance();
    pthread_mutex_unlock(&lock);
    rest(100000);
    pthread_mutex_lock(&lock);
  }
  if (status == MPI_SUCCESS) status = MPI_Finalize();
  pthread_mutex_unlock(&lock);
  return NULL;
}

int talf_mpi_open(int *rank, int *size) {
  // Signals are for the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int code = pthread_create(&worker, NULL, work, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (code != 0) return MPI_ERR_INTERN;
  pthread_mutex_lock(&lock);
  while (!opened) pthread_cond_wait(&change, &lock);
  code = status;
  pthread_mutex_unlock(&lock);
  *rank = my_rank;
  *size = my_size;
  return code;
}

int talf_mpi_close(void) {
  pthread_mutex_lock(&lock);
  closing = 1;
  pthread_cond_broadcast(&change);
  pthread_mutex_unlock(&lock);
  pthread_join(worker, NULL);
  return status;
}

// begin makes room for one more request and returns it, with the lock held.
static MPI_Request *begin(void) {
  pthread_mutex_lock(&lock);
  if (live == room) {
    int more = room ? 2 * room : 64;
    MPI_Request *r = realloc(requests, more * sizeof *r);
    if (!r) return NULL;
    requests = r;
    room = more;
  }
  return &requests[live];
}

static int begun(int code) {
  if (code == MPI_SUCCESS) {
    live++;
    pthread_cond_broadcast(&change);
  }
  pthread_mutex_unlock(&lock);
  return code;
}

int talf_mpi_reduce(float *x, int n) {
  MPI_Request *r = begin();
  return begun(r ? MPI_Iallreduce(MPI_IN_PLACE, x, n, MPI_FLOAT, MPI_SUM, comm, r) : MPI_ERR_NO_MEM);
}

int talf_mpi_broadcast(float *x, int n) {
  MPI_Request *r = begin();
  return begun(r ? MPI_Ibcast(x, n, MPI_FLOAT, 0, comm, r) : MPI_ERR_NO_MEM);
}

int talf_mpi_gather(const void *from, int n, void *to) {
  MPI_Request *r = begin();
  return begun(r ? MPI_Iallgather(from, n, MPI_BYTE, to, n, MPI_BYTE, comm, r) : MPI_ERR_NO_MEM);
}

int talf_mpi_wait(int microseconds, int *done) {
  long long from = now();
  for (int i = 0;; i++) {
    pthread_mutex_lock(&lock);
    advance();
    int code = failure;
    *done = live == 0;
    pthread_mutex_unlock(&lock);
    if (code != MPI_SUCCESS || *done || now() - from > microseconds) return code;
    // Who is waited for may need this core.
    if (i < 20) sched_yield();
    else rest(20000);
  }
}

void talf_mpi_error(int code, char *text, int size) {
  char full[MPI_MAX_ERROR_STRING];
  int n = 0;
  if (MPI_Error_string(code, full, &n) != MPI_SUCCESS) n = 0;
  if (n > size - 1) n = size - 1;
  for (int i = 0; i < n; i++) text[i] = full[i];
  text[n] = 0;
}
