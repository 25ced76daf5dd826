package kern

// Class amx multiplies tiles. Products with q8 weights have the same bits as on other classes.
// With bfloat16 weights the tiles take bfloat16 on the other side too: SplitA cuts activations
// into one or two planes of it, whose products GemmSplit adds up as TDPBF16PS does. Those bits
// are the class's own; GemmBF16's are the same on all classes.
//
// Bits, shapes and memory accesses of the tile kernels are verified under emulation
// (docs/adr/0005-amx-without-hardware.md); on processors with tiles, the same tests run
// natively. The arithmetic of TDPBF16PS is Intel's text; that the hardware sums in this order
// was measured once, on normal numbers. Speeds, and the choices that rest on them (rows at once,
// chunks, amxFew), are those of other kernels of this design on Sapphire Rapids, not measured
// for these.
//
// A row of planes is a sequence of steps of BF16Step elements in ascending k, the
// last one padded with zeros; a step is [planes][BF16Step] bfloat16.

// BF16Step is the consecutive k of a step of GemmSplit.
const BF16Step = 32

// BF16AStepLen returns the elements of a step of a row of planes.
func BF16AStepLen(planes int) int { return planes * BF16Step / 2 }

// BF16ALen returns the elements of a row of k activations in planes. They fill an odd number of
// cache lines, so that rows side by side spread over the cache's sets: the last line may be
// padding, which is neither written nor read.
func BF16ALen(k, planes int) int {
	const line = 16
	lines := (k + BF16Step - 1) / BF16Step * BF16AStepLen(planes) / line
	return (lines | 1) * line
}
