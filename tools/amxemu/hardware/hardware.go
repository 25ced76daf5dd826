// Package hardware has the processor compute the operations of tile instructions, in 16 lanes:
// sums and fused multiply-adds that treat subnormal inputs and results as zeros, and the dot
// products of bfloat16 of AVX-512 BF16.
package hardware
