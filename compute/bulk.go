package compute

// A BulkQueue has products for passes of many rows that are faster than Linear's
// own and do not keep its promise: a row's bits may depend on the rows beside it.
// Labelling may take them, decoding must not.
type BulkQueue interface {
	// Bulk allows such products, or not, in what is queued from then on, which is not
	// allowed at first. It returns what computes them, or why nothing does.
	Bulk(on bool) (by string, err error)
}

// A BF16Reader reads rows rounded to bfloat16, half of what Read copies.
type BF16Reader interface {
	// ReadBF16 waits for src's producers and copies elements [off, off+len(dst)/2) of
	// src, an F32 buffer, to dst, rounded to nearest even, little endian.
	ReadBF16(dst []byte, src Buffer, off int)
}
