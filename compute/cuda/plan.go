//go:build gpu && linux && cgo

package cuda

import (
	"fmt"

	"gorgonia.org/cu"

	"talf/compute"
	"talf/compute/cuda/internal/driver"
)

// WeightBytes returns the memory of a packed weight; as Q4, of one in blocks of a kind.
func (d *device) WeightBytes(as compute.DType, kept compute.Kept, out, in int) int64 {
	w := weight{out: out, in: in}
	w.t, w.kind = formatOf(as, kept)
	data, scales := w.groupBytes()
	return int64(w.groups()) * int64(data+scales)
}

// KVBytes returns the memory of a store with this many blocks, which it allocates in chunks.
func (d *device) KVBytes(c compute.KVConfig, blocks int) int64 {
	unit, per := kvUnit(c)
	return int64((blocks+per-1)/per)*int64(per)*unit + 8*maxChunks
}

// WorkBytes returns the memory of a queue's arguments and of the scratch of products and attention.
// Scratch memory doubles when it grows, and the old half may not be freed yet. The best of pieces,
// topBytes, are fewer than the sums of products.
func (d *device) WorkBytes(c compute.KVConfig, heads, width, rows, positions int) int64 {
	chunks := power((positions+chunk-1)/chunk, 8)
	attend := min(4*int64(rows*heads*chunks)*int64(c.HeadDim+2), 2*partBytes)
	units := (width + unit - 1) / unit
	most := splitsOf(1, units)
	product := 4 * int64(2*most*linearRows) * int64(min(width, 264*group/most))
	planes := int64(units) * 2 * linearRows / 8 * 512
	if d.cfg.Planes == 1 {
		planes = max(planes, int64(units)*2*singleRows/16*512)
	}
	return 2*pinnedSize + 2*max(attend, product) + 2*planes
}

// Free returns the unallocated bytes of the device.
func (d *device) Free() (int64, error) {
	var free int64
	err := d.do(func() (err error) {
		free, _, err = cu.MemInfo()
		return driver.Wrap(err)
	})
	if err != nil {
		return 0, fmt.Errorf("cuda: ask for free memory: %w", err)
	}
	return free, nil
}
