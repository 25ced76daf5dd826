package cpu

import (
	"math"

	"talf/compute"
	"talf/compute/cpu/topology"
)

// WeightBytes returns the memory of a packed weight; as Q4, of one in blocks of a kind.
func (d *Device) WeightBytes(as compute.DType, kept compute.Kept, out, in int) int64 {
	switch as {
	case compute.BF16, compute.BF16DP:
		as = compute.BF16
	case compute.Q4:
		if kept == compute.NotKept {
			as = compute.Q8
		}
	}
	return int64(panels(out)) * int64(layout{as, kept}.bytes(in))
}

// KVBytes returns the memory of a store's blocks when all of them have been written.
func (d *Device) KVBytes(c compute.KVConfig, blocks int) int64 {
	return int64(unitOf(c)) * int64(c.Layers) * int64(c.KVHeads) * int64(c.Type.Size()) * int64(blocks)
}

// WorkBytes returns the most that a queue and the workers take for themselves: normalised rows,
// rows of integers or bfloat16 for products, and each worker's part of attention.
func (d *Device) WorkBytes(c compute.KVConfig, heads, width, rows, positions int) int64 {
	part := int64(attendRows*(2*c.HeadDim+panel) + attendScores + (positions+block)*2*panel)
	return 4*int64(rows)*int64(width)*2 + 4*part*int64(d.cfg.Threads)
}

// Free returns the memory that this process may take now, by the machine and its control groups,
// or a number that nothing exceeds if the system does not say.
func (d *Device) Free() (int64, error) {
	if m := topology.ReadMemory(); m.Total > 0 {
		return int64(min(m.Available, math.MaxInt64)), nil
	}
	return math.MaxInt64, nil
}
