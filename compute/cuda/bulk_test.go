//go:build gpu && linux && cgo

package cuda_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cuda/cudatest"
)

const envBLAS = "TALF_CUDA_TEST_BLAS"

// withBLAS reports whether this process has the emulated cuBLAS; if it has not, it runs the test
// in a process that has. A real device uses what the machine has.
func withBLAS(t *testing.T, env ...string) bool {
	t.Helper()
	if !emulated() || os.Getenv(envBLAS) != "" {
		return true
	}
	dir, err := cudatest.BLAS()
	if err != nil {
		t.Fatal(err)
	}
	out, err := again(t, t.Name(), dir, append(env, envBLAS+"=1")...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Log(out)
	return false
}

// TestProductsOfManyRows compares the library's products with float64, with everything that is
// fused to them, and checks that few rows and q8 weights keep the bits that they have without
// it.
func TestProductsOfManyRows(t *testing.T) {
	if !withBLAS(t) {
		return
	}
	d := device(t)
	defer d.Close()
	q, plain := d.Queue(), d.Queue()
	by, err := q.Abilities().Bulk.Bulk(true)
	if err != nil {
		if !emulated() {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	if emulated() && by != "cuBLAS 12.8.4 on 4 multiprocessors" {
		t.Errorf("by %q", by)
	}
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
		plain.Write(b, x)
		if err := plain.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		return b
	}
	read := func(q compute.Queue, b compute.Buffer, n int) []float32 {
		x := make([]float32, n)
		q.Read(x, b, 0)
		if err := q.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		return x
	}
	for _, c := range []struct {
		as                    compute.DType
		out, in, n            int
		norm, bias, up, add   bool
		wantLibrary, wantBits bool
	}{
		{as: compute.BF16, out: 70, in: 75, n: 130, wantLibrary: true},
		{as: compute.BF16, out: 33, in: 40, n: 128, norm: true, bias: true, up: true, wantLibrary: true},
		{as: compute.BF16, out: 65, in: 33, n: 129, norm: true, add: true, wantLibrary: true},
		{as: compute.F32, out: 37, in: 41, n: 128, wantLibrary: true},
		{as: compute.F32, out: 64, in: 30, n: 131, norm: true, bias: true, up: true, add: true, wantLibrary: true},
		{as: compute.BF16, out: 40, in: 40, n: 60, norm: true, wantBits: true},
		{as: compute.Q8, out: 40, in: 40, n: 130, up: true, wantBits: true},
	} {
		x, old, weight, bias := random(c.n*c.in), random(c.n*c.out), random(c.in), random(c.out)
		l := &compute.Linear{}
		if c.norm {
			l.Norm = &compute.Norm{Weight: buffer(weight, c.in), Eps: 1e-5}
		}
		if c.bias {
			l.Bias, l.Act = buffer(bias, c.out), compute.SiLU
		}
		var stored [2][]float32
		for i, w := range []*compute.Weight{&l.W, &l.Up} {
			if i == 1 && !c.up {
				continue
			}
			var data []byte
			for _, v := range random(c.out * c.in) {
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v/8))
			}
			if *w, err = d.Pack(c.as, compute.Matrix{Rows: c.out, Cols: c.in, Type: compute.F32, Data: data}); err != nil {
				t.Fatal(err)
			}
			ids := make([]int32, c.out)
			for o := range ids {
				ids[o] = int32(o)
			}
			rows := buffer(nil, c.out, c.in)
			plain.Embed(rows, 0, *w, ids)
			stored[i] = read(plain, rows, c.out*c.in)
		}
		epi := compute.Store
		if c.add {
			epi = compute.Accumulate
		}
		run := func(q compute.Queue) []float32 {
			dst := buffer(old, c.n, c.out)
			q.Linear(dst, buffer(x, c.n, c.in), l, epi, c.n)
			return read(q, dst, c.n*c.out)
		}
		got, own := run(q), run(plain)
		if same := sameBits(got, own); same && c.wantLibrary || !same && c.wantBits {
			t.Errorf("%+v: the bits of the device's own products: %v", c, same)
		}
		worst := 0.0
		for row := range c.n {
			in := make([]float64, c.in)
			for k := range in {
				in[k] = float64(x[row*c.in+k])
			}
			if c.norm {
				s := 0.0
				for _, v := range in {
					s += v * v
				}
				for k := range in {
					in[k] *= float64(weight[k]) / math.Sqrt(s/float64(c.in)+1e-5)
				}
			}
			for o := range c.out {
				gate, up := 0.0, 1.0
				for k, v := range in {
					gate += v * float64(stored[0][o*c.in+k])
				}
				if c.bias {
					gate += float64(bias[o])
					gate /= 1 + math.Exp(-gate)
				}
				if c.up {
					up = 0
					for k, v := range in {
						up += v * float64(stored[1][o*c.in+k])
					}
				}
				want := gate * up
				if c.add {
					want += float64(old[row*c.out+o])
				}
				worst = max(worst, math.Abs(float64(got[row*c.out+o])-want)/max(1, math.Abs(want)))
			}
		}
		// Activations of 16 bits against bf16 and q8 weights.
		if t.Logf("%+v: off by %.2g", c, worst); !(worst <= 1e-4) {
			t.Errorf("%+v: off by %g", c, worst)
		}
	}
	// Turned off, it stays off.
	if _, err := q.Abilities().Bulk.Bulk(false); err != nil {
		t.Fatal(err)
	}
	x := random(130 * 40)
	var data []byte
	for _, v := range random(64 * 40) {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	w, err := d.Pack(compute.BF16, compute.Matrix{Rows: 64, Cols: 40, Type: compute.F32, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	var both [2][]float32
	for i, q := range []compute.Queue{q, plain} {
		dst := buffer(nil, 130, 64)
		q.Linear(dst, buffer(x, 130, 40), &compute.Linear{W: w}, compute.Store, 130)
		both[i] = read(q, dst, 130*64)
	}
	if !sameBits(both[0], both[1]) {
		t.Error("products that were turned off are still taken")
	}
}

func sameBits(a, b []float32) bool {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) {
			return false
		}
	}
	return true
}

// Without the library, or with one that does not start, there is a reason.
func TestProductsOfManyRowsNeedTheLibrary(t *testing.T) {
	needsEmulated(t)
	if os.Getenv(envBLAS) == "" {
		dir, err := cudatest.BLAS()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ dir, env, want string }{
			{"", "X=", "there is no libcublas.so.12, .13 or .11"},
			{dir, "TALF_FAKE_BLAS=1", "cuBLAS: it could not start (status 1)"},
			{dir, "TALF_FAKE_MEMORY=33000000", "the workspace of cuBLAS need 32.0 MiB"},
		} {
			out, err := again(t, t.Name(), c.dir, envBLAS+"=1", c.env)
			if err != nil || !strings.Contains(out, c.want) {
				t.Errorf("%v, without %q:\n%s", err, c.want, out)
			}
		}
		return
	}
	d := device(t)
	defer d.Close()
	by, err := d.Queue().Abilities().Bulk.Bulk(true)
	if by != "" || err == nil {
		t.Fatalf("%q, %v", by, err)
	}
	t.Log(err)
}

// TestRowsAreReadAsBF16 compares with rounding on the host, at any offset.
func TestRowsAreReadAsBF16(t *testing.T) {
	d := device(t)
	defer d.Close()
	q := d.Queue()
	r := rand.New(rand.NewPCG(1, 9))
	const n = 300_000 // more than one piece of a copy
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	x[5], x[6], x[7] = 0, float32(math.Inf(-1)), math.Float32frombits(0x3f808000) // halfway
	b, err := d.Alloc(compute.F32, n)
	if err != nil {
		t.Fatal(err)
	}
	q.Write(b, x)
	for _, c := range []struct{ off, n int }{{0, n}, {5, 3}, {n - 1, 1}, {7, 0}} {
		got := make([]byte, 2*c.n)
		q.Abilities().BF16.ReadBF16(got, b, c.off)
		if err := q.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range c.n {
			v := math.Float32bits(x[c.off+i])
			want := uint16((v + 0x7fff + v>>16&1) >> 16)
			if g := binary.LittleEndian.Uint16(got[2*i:]); g != want {
				t.Fatalf("element %d is %#x, want %#x", c.off+i, g, want)
			}
		}
	}
}
