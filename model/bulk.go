package model

import (
	"errors"

	"talf/compute"
)

// Bulk allows passes, or not, products that are faster for many rows but whose bits
// depend on what else is in a pass: for labelling, not for decoding. It returns what
// computes them, or why nothing does.
func (m *Model) Bulk(on bool) (by string, err error) {
	q, ok := m.q.(compute.BulkQueue)
	if !ok {
		return "", errors.New("the device has one kind of products")
	}
	return q.Bulk(on)
}

// ReadHiddenBF16 copies rows [row, row+len(dst)/(2·Hidden)) of the hidden states to
// dst as bfloat16, and reports whether the device can.
func (o *Output) ReadHiddenBF16(dst []byte, row int) bool {
	q, ok := o.m.q.(compute.BF16Reader)
	if ok {
		h := o.m.spec.Hidden
		o.check("hidden", row, (len(dst)/2+h-1)/h, o.rows)
		q.ReadBF16(dst, o.Hidden, row*h)
	}
	return ok
}
