package gg

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"talf/compute"
)

// Bytes returns the values of tensors, one after another, in 32 bits each.
func Bytes(ts []*Tensor) (b []byte) {
	for _, t := range ts {
		t.Pull()
		for _, v := range t.Data {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}
	}
	return b
}

// Lookup returns rows ids of table [V][W]: [ids][W].
func Lookup(ctx context.Context, q compute.Queue, table *Tensor, ids []int32) ([]float32, error) {
	w := table.Shape[1]
	t, err := NewTensor(q, "rows of "+table.Name, make([]float32, len(ids)*w), len(ids), w)
	if err != nil {
		return nil, err
	}
	lookup(q, t.Buf, table.Buf, ids)
	t.Pull()
	return t.Data, q.Sync(ctx)
}

// Beside returns the host's copies of two matrices side by side.
func Beside(a, b *Tensor) *Tensor {
	n, wa, wb := a.Shape[0], a.Shape[1], b.Shape[1]
	t := &Tensor{Name: a.Name, Shape: []int{n, wa + wb}, Data: make([]float32, 0, n*(wa+wb))}
	for r := range n {
		t.Data = append(append(t.Data, a.Data[r*wa:][:wa]...), b.Data[r*wb:][:wb]...)
	}
	return t
}

// Detach makes b, which Bytes returned elsewhere, all that is left of tensors whose device does not answer any more.
func Detach(ts []*Tensor, b []byte) error {
	n := 0
	for _, t := range ts {
		n += 4 * len(t.Data)
	}
	if len(b) != n {
		return fmt.Errorf("gg: %d bytes for tensors of %d", len(b), n)
	}
	for _, t := range ts {
		t.far, t.Buf = nil, nil
		for i := range t.Data {
			t.Data[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
		b = b[4*len(t.Data):]
	}
	return nil
}

// Finite reports whether no value of t is infinite or NaN.
func (t *Tensor) Finite(ops compute.TrainOps) bool {
	sum := 0.0
	if t.Buf != nil {
		sum = ops.SumSquares(t.Buf)
	} else { // it is detached
		for _, v := range t.Data {
			sum += float64(v) * float64(v)
		}
	}
	return !math.IsNaN(sum) && !math.IsInf(sum, 0)
}
