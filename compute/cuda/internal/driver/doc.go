// Package driver binds the CUDA driver when the program starts, if there is one, and adds to
// gorgonia.org/cu what it lacks: a launch in one call into C, pinned memory and graphs.
//
// Nothing from NVIDIA is needed to build it. The prototypes are in include/, an empty
// lib/libcuda.a satisfies the -lcuda that gorgonia.org/cu passes to the linker, and every entry
// point jumps through a slot that dlopen("libcuda.so.1") fills. Without a driver there are no
// devices, and an entry point that a driver lacks fails with CUDA_ERROR_NOT_SUPPORTED when it is
// called.
package driver
