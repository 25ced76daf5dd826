//go:build gpu && linux && cgo

package cuda_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/computetest"
	"talf/compute/cuda"
	"talf/compute/cuda/cudatest"
	"talf/internal/hint"
)

// trainsByLibrary opens a device whose products of training of so many multiplications or more are cuBLAS's.
func trainsByLibrary(t *testing.T, bf16 bool, from int64) compute.Device {
	t.Helper()
	d, err := cuda.New(cuda.Config{BF16: bf16, BLAS: true, BLASFrom: from})
	if err != nil {
		t.Fatal(err)
	}
	if by, why := d.Abilities().Training.TrainsWith(); why != nil {
		if !emulated() {
			t.Skip(why)
		}
		t.Fatal(why)
	} else if emulated() && by != "cuBLAS 12.8.4 on 4 multiprocessors" {
		t.Errorf("by %q", by)
	}
	return d
}

// TestTrainingByLibraryConforms runs those parts of the suite that have products of training, in f32, all by the library.
func TestTrainingByLibraryConforms(t *testing.T) {
	if os.Getenv(envBLAS) == "" && emulated() {
		dir, err := cudatest.BLAS()
		if err != nil {
			t.Fatal(err)
		}
		trace := filepath.Join(t.TempDir(), "trace")
		out, err := again(t, t.Name()+"$/^(Gemm|SoftCE|soft|sums).*", dir, envBLAS+"=1", "TALF_FAKE_BLAS_TRACE="+trace)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		b, err := os.ReadFile(trace)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"NN ", "NT ", "TN ", "TT ", " f32 0\n", " f32 1\n"} {
			if !strings.Contains(string(b), want) {
				t.Errorf("no product has %q", want)
			}
		}
		return
	}
	computetest.Run(t, func() compute.Device { return trainsByLibrary(t, false, 1) })
}

// TestTrainingByLibraryMultiplies compares the library's products of copies in bfloat16 and of floats with float64, for all
// transpositions, with addition to the result and inside longer rows; and those of LM heads, in chunks of rows and of weights, with the
// device's own. Small products keep the device's bits.
func TestTrainingByLibraryMultiplies(t *testing.T) {
	if !withBLAS(t) {
		return
	}
	const from = 20000
	for _, bf16 := range []bool{true, false} {
		t.Run(fmt.Sprintf("bf16=%v", bf16), func(t *testing.T) {
			d := trainsByLibrary(t, bf16, from)
			defer d.Close()
			own, err := cuda.New(cuda.Config{BF16: bf16})
			if err != nil {
				t.Fatal(err)
			}
			defer own.Close()
			libraryProducts(t, d, own, bf16, from)
			cuda.SetPieces(d, 64*4*40, 1)
			cuda.SetPieces(own, 1, 1)
			libraryHeads(t, d, own, 1)
			pieces := 16 * 200
			if bf16 {
				pieces /= 2
			}
			cuda.SetPieces(d, 64*4*40, pieces)
			cuda.SetPieces(own, 1, pieces)
			libraryHeads(t, d, own, 33)
		})
	}
}

func libraryProducts(t *testing.T, d, own compute.Device, bf16 bool, from int) {
	r := rand.New(rand.NewPCG(2, 7))
	round := func(x float32) float64 {
		if u := math.Float32bits(x); bf16 {
			x = math.Float32frombits((u + 0x7fff + u>>16&1) &^ 0xffff)
		}
		return float64(x)
	}
	for _, s := range []struct{ m, n, k int }{{40, 32, 32}, {136, 40, 72}, {40, 40, 40}, {32, 24, 40}, {24, 16, 16}} {
		for mode := range 8 {
			at, bt, beta := mode&1 != 0, mode&2 != 0, float32(mode>>2)
			stored := func(rows, cols int, t bool) compute.Mat {
				m := compute.Mat{Off: 8, Rows: rows, Cols: cols, Stride: cols + 16, T: t}
				if t {
					m.Stride = rows + 16
				}
				return m
			}
			a, b := stored(s.m, s.k, at), stored(s.k, s.n, bt)
			c := compute.Mat{Off: 5, Rows: s.m, Cols: s.n, Stride: s.n + 3}
			size := func(m compute.Mat) int {
				if m.T {
					return m.Off + m.Cols*m.Stride
				}
				return m.Off + m.Rows*m.Stride
			}
			random := func(n int) []float32 {
				x := make([]float32, n)
				for i := range x {
					x[i] = float32(r.NormFloat64())
				}
				return x
			}
			xa, xb, xc := random(size(a)), random(size(b)), random(size(c))
			run := func(d compute.Device) []float32 {
				q := d.Queue()
				ops := q.Abilities().Train
				a, b, c := a, b, c
				a.Buf, b.Buf, c.Buf = ops.Host(xa, len(xa)), ops.Host(xb, len(xb)), ops.Host(xc, len(xc))
				ops.Gemm(c, a, b, beta)
				out := make([]float32, len(xc))
				q.Read(out, c.Buf, 0)
				if err := q.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				return out
			}
			get := func(m compute.Mat, x []float32, i, j int) float64 {
				if m.T {
					i, j = j, i
				}
				return round(x[m.Off+i*m.Stride+j])
			}
			got := run(d)
			for i := range got {
				row, col := (i-c.Off)/c.Stride, (i-c.Off)%c.Stride
				if i < c.Off || col >= c.Cols || row >= c.Rows {
					if got[i] != xc[i] {
						t.Fatalf("%v, mode %d: element %d, which is not the product's, was written", s, mode, i)
					}
					continue
				}
				want := float64(beta) * float64(xc[i])
				for k := range s.k {
					want += get(a, xa, row, k) * get(b, xb, k, col)
				}
				if !(math.Abs(float64(got[i])-want) <= 2e-5) {
					t.Fatalf("%v, mode %d: (%d,%d) is off by %g: %g, want %g", s, mode, row, col, math.Abs(float64(got[i])-want), got[i], want)
				}
			}
			// The library has no product of two transposed copies, as the device has none.
			library := s.m*s.n*s.k >= from && !(bf16 && at && bt)
			if same := sameBits(got, run(own)); same == library {
				t.Errorf("%v, mode %d: the device's own bits: %v", s, mode, same)
			}
		}
	}
}

// libraryHeads compares losses and gradients of LM heads that are buffers, and of packed ones.
func libraryHeads(t *testing.T, d, own compute.Device, rows int) {
	const v, hidden = 200, 40
	r := rand.New(rand.NewPCG(4, 9))
	random := func(n int, by float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64() * by)
		}
		return x
	}
	w, h, dw := random(v*hidden, 0.3), random(rows*hidden, 1), random(v*hidden, 1)
	labels := &compute.SoftLabels{K: 1}
	scale := make([]float32, rows)
	for i := range scale {
		labels.IDs, labels.Prob, scale[i] = append(labels.IDs, int32(7*i%v)), append(labels.Prob, 1), 1
	}
	run := func(d compute.Device, pack bool) (loss, dh, dwOut, probs []float32) {
		q := d.Queue()
		ops := q.Abilities().Train
		lb, dhb := ops.Host(make([]float32, rows), rows), ops.Host(make([]float32, rows*hidden), rows, hidden)
		hb, dwb := ops.Host(h, rows, hidden), ops.Host(dw, v, hidden)
		wb := ops.Host(w, v, hidden)
		if pack {
			wb = packed(t, d, w, v, hidden)
		}
		ops.SoftCE(lb, dhb, dwb, hb, wb, labels, scale, rows)
		loss, dh, dwOut, probs = make([]float32, rows), make([]float32, rows*hidden), make([]float32, v*hidden), make([]float32, rows*v)
		q.Read(loss, lb, 0)
		q.Read(dh, dhb, 0)
		q.Read(dwOut, dwb, 0)
		ops.Probs(probs, hb, wb, rows)
		if err := q.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		return loss, dh, dwOut, probs
	}
	for _, pack := range []bool{false, true} {
		l1, h1, w1, p1 := run(d, pack)
		l2, h2, w2, p2 := run(own, pack)
		for _, c := range []struct {
			what      string
			got, want []float32
			most      float64 // of the norm; a gradient of a logit may be rounded to its other neighbour in bfloat16
		}{{"loss", l1, l2, 1e-6}, {"dh", h1, h2, 2e-4}, {"dw", w1, w2, 2e-4}, {"probabilities", p1, p2, 1e-6}} {
			var off, norm float64
			for i, x := range c.want {
				off, norm = off+math.Pow(float64(c.got[i])-float64(x), 2), norm+float64(x)*float64(x)
			}
			if off = math.Sqrt(off / norm); !(off <= c.most) {
				t.Errorf("%d rows, packed %v: %s is off by %g of its norm", rows, pack, c.what, off)
			}
		}
		if rows > 2 && sameBits(h1, h2) && sameBits(w1, w2) {
			t.Errorf("%d rows, packed %v: the library took no part", rows, pack)
		}
	}
}

// TestPlantedBugsOfTheLibraryAreCaught plants wrong transpositions and a forgotten addition in the library.
func TestPlantedBugsOfTheLibraryAreCaught(t *testing.T) {
	needsEmulated(t)
	if testing.Short() {
		t.Skip("runs a test three times more")
	}
	dir, err := cudatest.BLAS()
	if err != nil {
		t.Fatal(err)
	}
	for plant := range 3 {
		out, err := again(t, "TestTrainingByLibraryMultiplies", dir, envBLAS+"=1", fmt.Sprint("TALF_FAKE_BLAS_PLANT=", plant+1))
		if err == nil || !strings.Contains(out, "off by") {
			t.Errorf("plant %d: %v\n%s", plant+1, err, out)
		}
	}
}

// Without the library there is a reason, and a device that was not asked to use it has none of its products.
func TestTrainingByLibraryNeedsIt(t *testing.T) {
	needsEmulated(t)
	d, err := cuda.New(cuda.Config{BLAS: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if by, why := d.Abilities().Training.TrainsWith(); by != "" || why == nil || !strings.Contains(why.Error(), "there is no libcublas.so.12, .13 or .11") {
		t.Errorf("%q, %v", by, why)
	}
	if _, err := cuda.New(cuda.Config{BLAS: true, BF16: true, NoCopies: true}); err == nil || !strings.Contains(err.Error(), "no copies in bfloat16") {
		t.Errorf("without copies: %v", err)
	}
}

// A run that multiplies copies in bfloat16 by the library ends where there is no memory for them: the device's own products of floats
// have other bits. That goes for LM heads, too.
func TestTrainingByLibraryEndsWithoutMemoryForCopies(t *testing.T) {
	needsEmulated(t)
	if !withBLAS(t, "TALF_FAKE_MEMORY=34900000") {
		return
	}
	for name, multiply := range map[string]func(ops compute.TrainOps, zero func(shape ...int) compute.Buffer){
		"product": func(ops compute.TrainOps, zero func(shape ...int) compute.Buffer) {
			const n = 320
			m := func() compute.Mat { return compute.Mat{Buf: zero(n, n), Rows: n, Cols: n, Stride: n} }
			ops.Gemm(m(), m(), m(), 0)
		},
		"LM head": func(ops compute.TrainOps, zero func(shape ...int) compute.Buffer) {
			const rows, v, hidden = 8, 480, 480
			labels := &compute.SoftLabels{K: 1, IDs: make([]int32, rows), Prob: make([]float32, rows)}
			ops.SoftCE(zero(rows), zero(rows, hidden), nil, zero(rows, hidden), zero(v, hidden), labels, make([]float32, rows), rows)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := trainsByLibrary(t, true, 1)
			defer d.Close()
			q := d.Queue()
			multiply(q.Abilities().Train, func(shape ...int) compute.Buffer {
				b, err := d.Alloc(compute.F32, shape...)
				if err != nil {
					t.Fatal(err)
				}
				return b
			})
			if err := q.Sync(t.Context()); err == nil || !strings.Contains(err.Error(), "no memory for copies in bfloat16") || !strings.Contains(hint.Text(err), "--cublas=false") {
				t.Errorf("without memory: %v", err)
			}
		})
	}
}
