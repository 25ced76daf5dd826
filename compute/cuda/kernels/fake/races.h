// What the emulated device tells races.cpp.
#pragma once
extern "C" {
#pragma GCC visibility push(hidden)
// behind: the launch may begin before those in front have ended.
void races_launch(const char *kernel, int threads, bool behind);
void races_block(int x, int y, int z);
// The emulator's own code runs, or a thread's, after this many barriers.
void races_emulator();
void races_kernel(int thread, int barriers, const void *stack, unsigned long size);
// A thread's copy to shared memory lands, it passes a fence, or takes a ticket.
void races_copy(void *to, const void *from, bool ok);
void races_fence();
void races_ticket(const void *ticket);
// A thread waits for the kernels in front.
void races_wait();
#pragma GCC visibility pop
}
