package kern

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// panels4 are a panel of q4 and one of q4k of random integers and scales, and what they stand for.
type panels4 struct {
	q4, q4k []byte
	q8      []byte           // q4's weights
	w4, w4k [Panel][]float64 // exact
	blocks  int              // of 32
}

// randomPanels4 returns panels of depth k, a multiple of Q4KBlock. Scales are ordinary, or any bits.
func randomPanels4(r *rand.Rand, k int, any bool) panels4 {
	n := k / Q8Block
	p := panels4{q4: make([]byte, n*Q4BlockLen), q4k: make([]byte, k/Q4KBlock*Q4KBlockLen), q8: make([]byte, n*Q8BlockLen), blocks: n}
	f := func() uint16 {
		if any {
			return uint16(r.Uint32())
		}
		return uint16(r.IntN(2)<<15 | (5+r.IntN(12))<<10 | r.IntN(1<<10))
	}
	for j := range Panel {
		q, ints, d, s := make([]byte, k), make([]byte, k), make([]byte, 2*n), make([]byte, k/Q4KBlock*Q4KScales)
		for i := range q {
			q[i] = byte(r.IntN(16))
			ints[i] = q[i] - 8
		}
		for b := range n {
			binary.LittleEndian.PutUint16(d[2*b:], f())
			PackQ8Row(p.q8[b*Q8BlockLen:], j, ints[b*Q8Block:][:Q8Block], d[2*b:2*b+2])
		}
		for b := range k / Q4KBlock {
			at := s[b*Q4KScales:]
			binary.LittleEndian.PutUint16(at, f())
			binary.LittleEndian.PutUint16(at[2:], f())
			for i := range 2 * Q4KBlock / Q8Block {
				at[4+i] = byte(r.IntN(64))
			}
		}
		packQ4Row(p.q4, j, q, d)
		packQ4KRow(p.q4k, j, q, s)
		for i := range k {
			p.w4[j] = append(p.w4[j], float64(fromF16(binary.LittleEndian.Uint16(d[i/Q8Block*2:])))*(float64(q[i])-8))
			at := s[i/Q4KBlock*Q4KScales:]
			b := i % Q4KBlock / Q8Block
			p.w4k[j] = append(p.w4k[j], float64(fromF16(binary.LittleEndian.Uint16(at)))*float64(at[4+b])*float64(q[i])-
				float64(fromF16(binary.LittleEndian.Uint16(at[2:])))*float64(at[12+b]))
		}
	}
	return p
}

// Panels hold the integers and scales of each output: they decode to the exact values, rounded once.
func TestPackedQ4HasItsWeights(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 1))
	for _, any := range []bool{false, true} {
		p := randomPanels4(r, 2*Q4KBlock, any)
		row := make([]float32, 2*Q4KBlock)
		for j := range Panel {
			UnpackQ4(row, p.q4, j)
			for i, w := range p.w4[j] {
				if !sameBits(row[i], float32(w)) && !(row[i] == 0 && w == 0) {
					t.Fatalf("q4, output %d, k=%d: %v, want %v", j, i, row[i], w)
				}
			}
			UnpackQ4K(row, p.q4k, j)
			for i, w := range p.w4k[j] {
				if !sameBits(row[i], float32(w)) && !(row[i] == 0 && w == 0) {
					t.Fatalf("q4k, output %d, k=%d: %v, want %v", j, i, row[i], w)
				}
			}
		}
	}
}

// compareQ4 compares products with 4-bit weights with the portable ones, and those with q4 also
// with the same weights' in q8, each class with its own rounded activations, whole and split at a block.
func compareQ4(t *testing.T, r *rand.Rand, f *Funcs, what string, rows, k, planes int, next source) {
	t.Helper()
	ldc, ars := Panel+r.IntN(9), Q8ALen(k)+r.IntN(9)
	p := randomPanels4(r, k, r.IntN(4) == 0)
	a := make([]float32, rows*k)
	for i := range a {
		a[i] = next()
	}
	var acts [2][]uint32
	for i, f := range []*Funcs{&portable, f} {
		acts[i] = make([]uint32, rows*ars)
		for j := range rows {
			f.QuantA(acts[i][j*ars:][:Q8ALen(k)], a[j*k:][:k], planes)
		}
	}
	type product = func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool)
	for _, acc := range []bool{false, true} {
		start := make([]float32, (rows-1)*ldc+Panel)
		for i := range start {
			start[i] = next()
		}
		check := func(name string, ref, of product, b []byte, blocks, step, parts int) []float32 {
			want := append([]float32(nil), start...)
			ref(want, ldc, acts[0], ars, b, rows, blocks, planes, acc)
			whole, cut := newGuarded(r, len(want)), newGuarded(r, len(want))
			copy(whole.x, start)
			copy(cut.x, start)
			of(whole.x, ldc, acts[1], ars, b, rows, blocks, planes, acc)
			at := r.IntN(blocks + 1)
			of(cut.x, ldc, acts[1], ars, b, rows, at, planes, acc)
			of(cut.x, ldc, acts[1][at*parts*Q8ABlockLen:], ars, b[at*step:], rows, blocks-at, planes, true)
			what := fmt.Sprintf("%v %s, %s, %d planes, %d rows, k=%d, acc=%v, strides %d %d", f.Class, name, what, planes, rows, k, acc, ars, ldc)
			equal(t, what, whole.x, want)
			whole.check(t, what)
			equal(t, what+" split", cut.x, want)
			cut.check(t, what+" split")
			return want
		}
		q4 := check("GemmQ4", portable.GemmQ4, f.GemmQ4, p.q4, p.blocks, Q4BlockLen, 1)
		q8 := append([]float32(nil), start...)
		f.GemmQ8(q8, ldc, acts[1], ars, p.q8, rows, p.blocks, planes, acc)
		equal(t, fmt.Sprintf("%v: %s, %d planes, %d rows, k=%d: the same weights in q8", f.Class, what, planes, rows, k), q8, q4)
		check("GemmQ4K", portable.GemmQ4K, f.GemmQ4K, p.q4k, k/Q4KBlock, Q4KBlockLen, Q4KBlock/Q8Block)
	}
}

func TestProductsOf4BitsHaveThePortableBits(t *testing.T) {
	everyTable(t, func(t *testing.T, f *Funcs) {
		r := rand.New(rand.NewPCG(42, 1))
		for name, next := range sources(r) {
			for rows := 1; rows <= 40; rows++ {
				if testing.Short() && (rows > f.MaxRowsQ4+1 && rows%9 > 0 || f.Class == Portable && rows > 2) {
					continue
				}
				for planes := 1; planes <= 2; planes++ {
					k := Q4KBlock
					if rows%5 == 1 {
						k *= 1 + r.IntN(4)
					}
					compareQ4(t, r, f, name, rows, k, planes, next)
				}
			}
		}
		f.GemmQ4(nil, Panel, nil, 1, nil, 0, 3, 1, false) // no rows: nothing is touched
		f.GemmQ4K(nil, Panel, nil, 1, nil, 0, 3, 2, false)
	})
}

// Products are near those of the exact weights and activations: what is left is the rounding of
// activations.
func TestProductsOf4BitsAreAccurate(t *testing.T) {
	const k, rows = 4 * Q4KBlock, 3
	r := rand.New(rand.NewPCG(43, 1))
	f, err := For(Best())
	if err != nil {
		t.Fatal(err)
	}
	p := randomPanels4(r, k, false)
	x := fill(r, rows*k)
	for planes, bound := range map[int]float64{1: 1e-2, 2: 5e-5} {
		a, c := make([]uint32, rows*Q8ALen(k)), make([]float32, rows*Panel)
		for i := range rows {
			f.QuantA(a[i*Q8ALen(k):], x[i*k:][:k], planes)
		}
		check := func(name string, w *[Panel][]float64) {
			want := make([]float64, rows*Panel)
			for i := range rows {
				for j := range Panel {
					for l, v := range w[j] {
						want[i*Panel+j] += v * float64(x[i*k+l])
					}
				}
			}
			if e := relative(c, want); !(e < bound) || math.IsNaN(e) {
				t.Errorf("%s, %d planes: error %.2e, want below %.0e", name, planes, e, bound)
			}
		}
		f.GemmQ4(c, Panel, a, Q8ALen(k), p.q4, rows, k/Q8Block, planes, false)
		check("q4", &p.w4)
		f.GemmQ4K(c, Panel, a, Q8ALen(k), p.q4k, rows, k/Q4KBlock, planes, false)
		check("q4k", &p.w4k)
	}
}
