//go:build gpu && linux && cgo

package cuda_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"talf/compute"
	"talf/compute/computetest"
	"talf/compute/computetest/draws"
	"talf/compute/computetest/levels"
	"talf/compute/cuda"
)

func TestDeviceConforms(t *testing.T) {
	computetest.Run(t, func() compute.Device { return device(t) })
	t.Run("Choose finds the nodes of levels", func(t *testing.T) { levels.Run(t, device(t)) })
	t.Run("Draw draws from rows of logits", func(t *testing.T) { draws.Run(t, device(t)) })
}

// TestOnePlaneConforms runs products where BF16 weights meet activations that are rounded to bfloat16: the reference rounds them,
// too, so the tolerances are those of two planes. No other operation has planes, and no other weights meet them.
func TestOnePlaneConforms(t *testing.T) {
	computetest.RunFormat(t, func() compute.Device { return onePlane(t) }, compute.BF16)
}

// onePlane opens a device that rounds activations to bfloat16.
func onePlane(t testing.TB) compute.Device {
	t.Helper()
	c := cuda.Default()
	c.Planes = 1
	d, err := cuda.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestProductsWhoseInputsBlocksShare covers depths for which several blocks, here four, sum a
// part each: more than in the conformance suite.
func TestProductsWhoseInputsBlocksShare(t *testing.T) {
	if *runPTX { // takes long
		testProducts(t, 2, 33, 4200, 9, 1)
	} else {
		testProducts(t, 2, 33, 4200, 70, 1, 8, 9, 17, 33, 64)
	}
}

// TestProductsOfAnyNumberOfRows covers every kernel of products of few rows, where blocks share nothing: those of 32
// outputs a block, and those of 128, which are taken where enough blocks are left for the device.
func TestProductsOfAnyNumberOfRows(t *testing.T) {
	for _, out := range []int{33, 290} {
		t.Run(fmt.Sprintf("%d outputs", out), func(t *testing.T) { testProducts(t, 2, out, 70, 34, 8, 9, 17, 33) })
	}
}

// TestProductsInOnePlane covers every kernel of products with one plane, in which all rows meet bf16 weights in one order: blocks
// of 16 and 64 rows where there are few outputs, of 128 and 256 where enough are left for the device.
func TestProductsInOnePlane(t *testing.T) {
	t.Run("33 outputs", func(t *testing.T) { testProducts(t, 1, 33, 70, 67, 1, 16, 17, 64) })
	t.Run("290 outputs", func(t *testing.T) { testProducts(t, 1, 290, 70, 131, 15, 33, 65, 128) })
	if !*runPTX { // takes long
		t.Run("many inputs", func(t *testing.T) { testProducts(t, 1, 33, 4200, 70, 1, 16, 33) })
		t.Run("more rows than a launch has", func(t *testing.T) { testProducts(t, 1, 40, 34, 1100, 1, 70, 1030) })
	}
}

// testProducts compares products of most rows with float64, and those of fewer rows with their bits. With one plane, the reference
// rounds the rows to bfloat16, too.
func testProducts(t *testing.T, planes, out, in, most int, fewer ...int) {
	open, types := device, []compute.DType{compute.F32, compute.BF16, compute.Q8}
	if planes == 1 {
		open, types = onePlane, []compute.DType{compute.BF16}
	}
	d := open(t)
	defer d.Close()
	q := d.Queue()
	r := rand.New(rand.NewPCG(3, 5))
	random := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	buffer := func(x []float32, shape ...int) compute.Buffer {
		b, err := d.Alloc(compute.F32, shape...)
		if err != nil {
			t.Fatal(err)
		}
		q.Write(b, x)
		return b
	}
	read := func(b compute.Buffer, n int) []float32 {
		x := make([]float32, n)
		q.Read(x, b, 0)
		if err := q.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		return x
	}
	x, old, bias := random(most*in), random(most*out), random(out)
	met := x // by the weights
	if planes == 1 {
		met = make([]float32, len(x))
		for i, v := range x {
			u := math.Float32bits(v)
			met[i] = math.Float32frombits((u + 0x7fff + u>>16&1) &^ 0xffff)
		}
	}
	products := func(t *testing.T, as compute.DType) {
		l := &compute.Linear{Bias: buffer(bias, out), Act: compute.SiLU}
		var stored [2][]float32 // the weights as they are kept
		for i, w := range []*compute.Weight{&l.W, &l.Up} {
			var data []byte
			for _, v := range random(out * in) {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v/64))
			}
			var err error
			if *w, err = d.Pack(as, compute.Matrix{Rows: out, Cols: in, Type: compute.F32, Data: data}); err != nil {
				t.Fatal(err)
			}
			ids := make([]int32, out)
			for o := range ids {
				ids[o] = int32(o)
			}
			rows := buffer(nil, out, in)
			q.Embed(rows, 0, *w, ids)
			stored[i] = read(rows, out*in)
		}
		run := func(first, n int) []float32 {
			dst := buffer(old[first*out:][:n*out], n, out)
			q.Linear(dst, buffer(x[first*in:][:n*in], n, in), l, compute.Accumulate, n)
			return read(dst, n*out)
		}
		all := run(0, most)
		for row := 0; row < most; row += 9 {
			for o := range out {
				gate, up := float64(bias[o]), 0.0
				for k := range in {
					gate += float64(met[row*in+k]) * float64(stored[0][o*in+k])
					up += float64(met[row*in+k]) * float64(stored[1][o*in+k])
				}
				want := float64(old[row*out+o]) + gate/(1+math.Exp(-gate))*up
				// Products of size 1 times 16 bits of activations.
				if got := float64(all[row*out+o]); !(math.Abs(got-want) <= 1e-4*max(1, math.Abs(want))) {
					t.Fatalf("%v: row %d, output %d is %g, want %g", as, row, o, got, want)
				}
			}
		}
		for _, n := range fewer {
			for i, v := range run(most-n, n) {
				if want := all[(most-n)*out+i]; math.Float32bits(v) != math.Float32bits(want) {
					t.Fatalf("%v: element %d of %d rows is %g, of %d rows %g", as, i, n, v, most, want)
				}
			}
		}
	}
	for _, as := range types {
		t.Run(as.String(), func(t *testing.T) { products(t, as) })
	}
}
