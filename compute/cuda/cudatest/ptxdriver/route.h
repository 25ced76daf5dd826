// The emulated driver's hooks: kernels/fake/libcuda.cpp.
#include <stdint.h>

// talf_ptx_install hands launches to package ptxdriver. It returns 0, or 1 if the
// driver is another one.
int talf_ptx_install(void);
// talf_ptx_native runs a launch as the emulated driver would.
int talf_ptx_native(void *work);
