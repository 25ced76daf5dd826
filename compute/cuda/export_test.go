//go:build gpu && linux && cgo

package cuda

// Staged reports whether a product of a bf16 weight, whose rows are so many blocks, is one of 128 outputs a block on a
// device of so many multiprocessors.
func Staged(sms, blocks, out, in int) bool {
	w := &weight{out: out, in: in}
	w.splits = splitsOf(w.groups(), w.units())
	return (&device{info: Info{SMs: sms}}).occupied(blocks * (out + stagedOutputs - 1) / stagedOutputs * w.splits)
}
