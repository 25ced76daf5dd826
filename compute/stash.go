package compute

// A Stasher is a TrainOps that can keep values in bfloat16 while nothing reads
// them. A Queue that can implements it.
type Stasher interface {
	// Stash returns room for n elements: a BF16 buffer [n].
	Stash(n int) Buffer
	// Narrow sets the first n elements of dst, which Stash made, to those of src, an
	// F32 buffer, rounded to the nearest, ties to even. A NaN stays one.
	Narrow(dst, src Buffer, n int)
	// Widen sets the first n elements of dst, an F32 buffer, to those of src, which
	// Stash made, exactly.
	Widen(dst, src Buffer, n int)
}
