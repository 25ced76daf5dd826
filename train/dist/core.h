// The calls of MPI that a group needs, and one thread that keeps them moving: Open MPI
// makes progress only inside its calls, and training makes none while it computes.
// All calls are made under one lock (MPI_THREAD_SERIALIZED).
//
// Functions return 0 or an error code of MPI for talf_mpi_error.

int talf_mpi_open(int *rank, int *size);
int talf_mpi_close(void);

// They begin an operation, which talf_mpi_wait ends. The memory is the caller's, and
// must stay where it is until then.
int talf_mpi_reduce(float *x, int n);
int talf_mpi_broadcast(float *x, int n);
int talf_mpi_gather(const void *from, int n, void *to);

// talf_mpi_wait waits at most so long for all operations begun; done says whether they
// have ended.
int talf_mpi_wait(int microseconds, int *done);

void talf_mpi_error(int code, char *text, int size);
