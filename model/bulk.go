package model

import "errors"

// Bulk sets whether passes may use products that are faster for many rows but whose
// bits depend on the other rows of the pass: good for labelling, not for decoding. It
// returns the name of the library that computes them, or an error if the device has no
// such products.
func (m *Model) Bulk(on bool) (by string, err error) {
	if m.can.Bulk == nil {
		return "", errors.New("the device has no separate products for many rows")
	}
	return m.can.Bulk.Bulk(on)
}

// ReadHiddenBF16 copies rows [row, row+len(dst)/(2·Hidden)) of the hidden states to
// dst as bfloat16, and reports whether the device can.
func (o *Output) ReadHiddenBF16(dst []byte, row int) bool {
	q := o.m.can.BF16
	if q == nil {
		return false
	}
	h := o.m.spec.Hidden
	o.check("hidden", row, (len(dst)/2+h-1)/h, o.rows)
	q.ReadBF16(dst, o.Hidden, row*h)
	return true
}
