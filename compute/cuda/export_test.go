//go:build gpu && linux && cgo

package cuda

import "talf/compute"

// Staged reports whether a product of a bf16 weight, whose rows are so many blocks, is one of 128 outputs a block on a
// device of so many multiprocessors.
func Staged(sms, blocks, out, in int) bool {
	w := &weight{out: out, in: in}
	w.splits = splitsOf(w.groups(), w.units())
	return (&device{info: Info{SMs: sms}}).occupied(blocks * (out + stagedOutputs - 1) / stagedOutputs * w.splits)
}

// Single returns the kernel of a product of n rows in one plane on a device of so many multiprocessors, and the rows and outputs of
// a block.
func Single(sms, outputs, n int) (name string, rows, outs int) {
	s := singles[(&device{info: Info{SMs: sms}}).singleOf(outputs, n)]
	return kernels[s.kernel].name, s.rows, s.outputs
}

// SingleRows is the most rows of a launch of such a product.
const SingleRows = singleRows

// Items returns the first row, the rows and the chunk of each of attention's items for s, where so many heads are a group.
func Items(s *compute.Step, group, window int) (all [][3]int) {
	var b stepBuilder
	b.reset(group, window)
	for i := range s.Spans {
		b.span(&s.Spans[i], s)
	}
	b.cut(1)
	for _, i := range b.items {
		all = append(all, [3]int{int(i.row), int(i.rows), int(i.chunk)})
	}
	return all
}

// Halved returns how many elements of a buffer or a packed weight have a copy in bfloat16.
func Halved(b compute.Buffer) int {
	m, ok := b.(*weight)
	var mem *block
	if ok {
		mem = m.mem
	} else {
		mem = b.(*buffer).mem
	}
	h := mem.half.Load()
	if h == nil || h.mem == nil {
		return 0
	}
	return int(h.fresh.Load())
}

// Uploading returns how many bytes of long writes a queue has not waited for.
func Uploading(q compute.Queue) int { return q.(*queue).up.at }

// SetPieces makes a device unpack so many bytes of a weight at a time for cuBLAS, and keep about so many logits of an LM head.
func SetPieces(d compute.Device, slab, logits int) {
	d.(*device).slab, d.(*device).logits = slab, logits
}

// Waiting returns the kernels that wait for those in front of them themselves.
func Waiting() (names []string) {
	for _, k := range kernels {
		if k.waits {
			names = append(names, k.name)
		}
	}
	return names
}
