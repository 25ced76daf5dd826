package kern

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// panel6 is a panel of q6k of random integers and scales, and what it stands for.
type panel6 struct {
	b []byte
	w [Panel][]float64 // exact
}

// randomPanel6 returns a panel of depth k, a multiple of Q6KBlock. Scales are ordinary, or any bits.
func randomPanel6(r *rand.Rand, k int, any bool) panel6 {
	p := panel6{b: make([]byte, k/Q6KBlock*Q6KBlockLen)}
	for i := range p.b { // packing replaces all of it
		p.b[i] = byte(r.Uint32())
	}
	extreme := r.IntN(4) == 0 // sums are as large as they can be
	for j := range Panel {
		q, s := make([]byte, k), make([]byte, k/Q6KBlock*Q6KScales)
		for i := range q {
			q[i] = byte(r.IntN(64))
			if extreme {
				q[i] = 63 * byte(j%2)
			}
		}
		for b := range k / Q6KBlock {
			at := s[b*Q6KScales:][:Q6KScales]
			for i := range at {
				at[i] = byte(r.Uint32())
			}
			if !any {
				binary.LittleEndian.PutUint16(at, uint16(r.IntN(2)<<15|(5+r.IntN(12))<<10|r.IntN(1<<10)))
			}
		}
		PackQ6KRow(p.b, j, q, s)
		for i := range k {
			at := s[i/Q6KBlock*Q6KScales:]
			d, sc := fromF16(binary.LittleEndian.Uint16(at)), int8(at[2+i%Q6KBlock/16])
			p.w[j] = append(p.w[j], float64(d)*float64(sc)*(float64(q[i])-32))
		}
	}
	return p
}

// A panel holds the integers and scales of each output: they decode to the exact values, rounded once.
func TestPackedQ6KHasItsWeights(t *testing.T) {
	r := rand.New(rand.NewPCG(44, 1))
	for _, any := range []bool{false, true} {
		p := randomPanel6(r, 2*Q6KBlock, any)
		row := make([]float32, 2*Q6KBlock)
		for j := range Panel {
			UnpackQ6K(row, p.b, j)
			for i, w := range p.w[j] {
				if !sameBits(row[i], float32(w)) && !(row[i] == 0 && w == 0) {
					t.Fatalf("output %d, k=%d: %v, want %v", j, i, row[i], w)
				}
			}
		}
	}
}

// compareQ6K compares a product with 6-bit weights with the portable one, each class with its own
// rounded activations, whole and split at a block.
func compareQ6K(t *testing.T, r *rand.Rand, f *Funcs, what string, rows, k, planes int, next source) {
	t.Helper()
	ldc, ars, blocks := Panel+r.IntN(9), Q8ALen(k)+r.IntN(9), k/Q6KBlock
	p := randomPanel6(r, k, r.IntN(4) == 0)
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
	for _, acc := range []bool{false, true} {
		want := make([]float32, (rows-1)*ldc+Panel)
		for i := range want {
			want[i] = next()
		}
		whole, cut := newGuarded(r, len(want)), newGuarded(r, len(want))
		copy(whole.x, want)
		copy(cut.x, want)
		portable.GemmQ6K(want, ldc, acts[0], ars, p.b, rows, blocks, planes, acc)
		f.GemmQ6K(whole.x, ldc, acts[1], ars, p.b, rows, blocks, planes, acc)
		at := r.IntN(blocks + 1)
		f.GemmQ6K(cut.x, ldc, acts[1], ars, p.b, rows, at, planes, acc)
		f.GemmQ6K(cut.x, ldc, acts[1][at*Q6KBlock/Q8Block*Q8ABlockLen:], ars, p.b[at*Q6KBlockLen:], rows, blocks-at, planes, true)
		what := fmt.Sprintf("%v GemmQ6K, %s, %d planes, %d rows, k=%d, acc=%v, strides %d %d", f.Class, what, planes, rows, k, acc, ars, ldc)
		equal(t, what, whole.x, want)
		whole.check(t, what)
		equal(t, what+" split", cut.x, want)
		cut.check(t, what+" split")
	}
}

func TestProductsOf6BitsHaveThePortableBits(t *testing.T) {
	everyTable(t, func(t *testing.T, f *Funcs) {
		r := rand.New(rand.NewPCG(45, 1))
		for name, next := range sources(r) {
			for rows := 1; rows <= 40; rows++ {
				if testing.Short() && (rows > f.MaxRowsQ6K+1 && rows%9 > 0 || f.Class == Portable && rows > 2) {
					continue
				}
				for planes := 1; planes <= 2; planes++ {
					k := Q6KBlock
					if rows%5 == 1 {
						k *= 1 + r.IntN(4)
					}
					compareQ6K(t, r, f, name, rows, k, planes, next)
				}
			}
		}
		f.GemmQ6K(nil, Panel, nil, 1, nil, 0, 3, 1, false) // no rows: nothing is touched
	})
}

// Products are near those of the exact weights and activations: what is left is the rounding of
// activations.
func TestProductsOf6BitsAreAccurate(t *testing.T) {
	const k, rows = 4 * Q6KBlock, 3
	r := rand.New(rand.NewPCG(46, 1))
	f, err := For(Best())
	if err != nil {
		t.Fatal(err)
	}
	p := randomPanel6(r, k, false)
	x := fill(r, rows*k)
	want := make([]float64, rows*Panel)
	for i := range rows {
		for j := range Panel {
			for l, v := range p.w[j] {
				want[i*Panel+j] += v * float64(x[i*k+l])
			}
		}
	}
	for planes, bound := range map[int]float64{1: 1e-2, 2: 5e-5} {
		a, c := make([]uint32, rows*Q8ALen(k)), make([]float32, rows*Panel)
		for i := range rows {
			f.QuantA(a[i*Q8ALen(k):], x[i*k:][:k], planes)
		}
		f.GemmQ6K(c, Panel, a, Q8ALen(k), p.b, rows, k/Q6KBlock, planes, false)
		if e := relative(c, want); !(e < bound) || math.IsNaN(e) {
			t.Errorf("%d planes: error %.2e, want below %.0e", planes, e, bound)
		}
	}
}
