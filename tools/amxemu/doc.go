// Command amxemu runs a program that uses Intel AMX on a processor without it:
//
//	go -C tools build -o ../bin/ ./amxemu && bin/amxemu command arguments…
//
// It is the tracer of the command's processes and threads. A tile instruction, for which this
// processor raises SIGILL, is decoded, computed here on the thread's own tiles, and skipped;
// every other signal reaches the program unchanged. A program that AMX itself would have stopped
// is stopped: wrong shapes and unconfigured tiles cause SIGILL, a bad configuration and
// inaccessible memory cause SIGSEGV, with the reason on standard error.
//
// The instructions are those of AMX-TILE, AMX-INT8 and AMX-BF16, implemented from the Operation
// sections of Intel's Architecture Instruction Set Extensions Programming Reference (319433),
// chapter 3. The command's environment has AMXEMU=1. The exit status is the command's, 128 plus
// the signal that ended it, or 126 if it could not be traced here.
//
// It shows neither speed nor what the operating system does with tiles: permission, context
// switches, signal frames.
package main

// The exit status if the command was not run.
const exitRefused = 126
