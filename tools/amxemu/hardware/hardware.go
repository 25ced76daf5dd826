// Package hardware has the processor compute what tile instructions are made of, in
// 16 lanes: sums and fused multiply-adds that take subnormal numbers for zeros and
// give none, and the dot products of bfloat16 that AVX-512 BF16 has.
package hardware
