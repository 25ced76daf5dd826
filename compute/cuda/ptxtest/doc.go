// Package ptxtest runs PTX, the assembly language of NVIDIA's drivers, on the CPU, and watches what
// it does: it is a test tool, and knows the instructions that the kernels of package cuda consist of.
//
// A warp's 32 threads run together where they are at the same instruction, as on a device. Warps
// and blocks take turns at random. Whatever a device may put off is put off at random: stores that
// other blocks could see, until a fence; copies to shared memory, until they are waited for.
//
// A [Fault] ends a launch, and names the instruction, the thread and what is wrong with it:
//
//   - an access outside of an allocation or a shared variable, or at an address that is no multiple
//     of its width;
//   - a branch, an address or a lane mask that depends on uninitialised memory: such values may be
//     moved and calculated with, as rows that are not there are;
//   - two accesses to one byte by different threads, one of them a store, that neither a barrier nor,
//     between blocks, a fence and an atomic operation puts in order;
//   - a read-only load (ld.global.nc) of a byte that the launch stores to;
//   - an access to shared memory that a copy is still on its way to;
//   - of a kernel that may begin before those in front have ended: a store to global memory before griddepcontrol.wait, a load there of
//     what they store, or an end without it;
//   - an operation of a whole warp, or a barrier, that not all of its threads reach.
//
// Order between threads is that of the memory model of the PTX ISA (version 7.8, chapter 8), for the
// pattern in use: fence, atomic operation, fence. A store in a block is before what follows the block's next
// barrier. A fence makes what is before it visible to a thread of another block that fences after
// its atomic operation at the same address.
package ptxtest
