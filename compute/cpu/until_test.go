package cpu_test

import (
	"context"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
)

// A countdown is a context that ends when it has been looked at so often, and counts how often afterwards.
type countdown struct {
	context.Context
	left, after atomic.Int64
}

func (c *countdown) Err() error {
	if c.left.Add(-1) >= 0 {
		return nil
	}
	c.after.Add(1)
	return context.Canceled
}

// An operation of training with a large vocabulary lasts seconds: it ends between two pieces of its work, of which there are
// many, and leaves nothing behind that changes the bits of those after it.
func TestOperationsEndWithTheirContext(t *testing.T) {
	const n, v, h, k, threads = 300, 8224, 64, 3, 2
	r := rand.New(rand.NewPCG(5, 6))
	random := func(n int) []float32 {
		f := make([]float32, n)
		for i := range f {
			f[i] = float32(r.NormFloat64())
		}
		return f
	}
	raw, x, scale := random(v*h), random(n*h), random(n)
	l := &compute.SoftLabels{K: k, Tail: make([]float32, n)}
	for range n {
		at := r.IntN(v)
		for j := range k {
			l.IDs, l.Prob = append(l.IDs, int32((at+j)%v)), append(l.Prob, 0.25)
		}
	}
	// run returns what a loss and a product compute.
	run := func(d compute.Device, w compute.Weight, until *countdown) [4][]float32 {
		ops := d.Queue()
		can := ops.Abilities()
		got := [4][]float32{make([]float32, n), make([]float32, n*h), make([]float32, v*h), make([]float32, n*v)}
		if until != nil {
			can.Until(until)
			defer can.Until(context.Background())
		}
		host := can.Train.Host
		can.Train.SoftCE(host(got[0], n, 1), host(got[1], n, h), host(got[2], v, h), host(x, n, h), w.(compute.Buffer), l, scale, n)
		ops.Linear(host(got[3], n, v), host(x, n, h), &compute.Linear{W: w}, compute.Store, n)
		if until != nil && until.left.Load() < 0 && ops.Sync(until) == nil {
			t.Error("Sync does not say that the operations ended early")
		}
		return got
	}
	fresh := func() (compute.Device, compute.Weight) {
		d := device(t, cpu.Default().Class, threads)
		w, err := d.Pack(compute.F32, (&matrixOf{v, h, raw}).matrix())
		if err != nil {
			t.Fatal(err)
		}
		return d, w
	}
	d, w := fresh()
	defer d.Close()
	all := &countdown{Context: t.Context()}
	all.left.Store(math.MaxInt64)
	want := run(d, w, all)
	pieces := math.MaxInt64 - all.left.Load()
	if pieces < 100 {
		t.Fatalf("the operations have %d pieces, want 100 or more", pieces)
	}
	for _, at := range []int64{0, 1, 7, pieces / 3, pieces / 2, pieces - 1} {
		d, w := fresh()
		until := &countdown{Context: t.Context()}
		until.left.Store(at)
		got := run(d, w, until)
		if same(got, want) {
			t.Errorf("ended after %d of %d pieces, everything was computed", at, pieces)
		}
		// Every worker looks once more in an operation, and each of the few operations looks.
		if most := int64(10 * threads * (2 + n/240)); until.after.Load() > most {
			t.Errorf("ended after %d pieces, the context was looked at %d times more, want %d at most", at, until.after.Load(), most)
		}
		if got := run(d, w, nil); !same(got, want) {
			t.Errorf("after operations that ended after %d pieces, others have other bits", at)
		}
		d.Close()
	}
}

func same(a, b [4][]float32) bool {
	for i := range a {
		for j := range a[i] {
			if math.Float32bits(a[i][j]) != math.Float32bits(b[i][j]) {
				return false
			}
		}
	}
	return true
}
