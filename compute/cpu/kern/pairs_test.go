package kern

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// bigFMA is a fused multiply-add that flushes, by arbitrary precision: big.Float rounds to 24 bits
// whatever the exponent, as x86 does before it looks whether a result is tiny.
func bigFMA(a, b, c float32) float32 {
	a, b, c = flushed(a), flushed(b), flushed(c)
	p := float64(a) * float64(b)
	if s := p + float64(c); s-s != 0 || s == 0 { // not finite, or a zero, whose sign float64 knows
		return float32(s)
	}
	exact := new(big.Float).SetPrec(1000)
	exact.Add(exact.SetFloat64(p), new(big.Float).SetFloat64(float64(c)))
	r := new(big.Float).SetPrec(24).SetMode(big.ToNearestEven).Set(exact)
	if d, _ := r.Float64(); math.Abs(d) < 0x1p-126 {
		return float32(math.Copysign(0, d))
	}
	f, _ := r.Float32()
	return f
}

// edge returns a pair's element of weights and of activations, and a term for their product, at the edges:
// products around the smallest normal number, with terms that cancel them or leave something tiny, numbers
// just below the normal ones, subnormal ones, and arbitrary bits.
func edge(r *rand.Rand) (a, b uint16, c float32) {
	a, b = uint16(r.Uint32())&0x807f|uint16(127-63-r.IntN(14))<<7, uint16(r.Uint32())&0x807f|uint16(127-63-r.IntN(14))<<7
	p := widen(a) * widen(b)
	switch r.IntN(7) {
	case 0:
		c = math.Float32frombits(r.Uint32()&0x807fffff | uint32(r.IntN(6))<<23)
	case 1:
		c = math.Float32frombits(math.Float32bits(-p) + r.Uint32N(64) - 32)
	case 2:
		c = math.Float32frombits(math.Float32bits(2*p) ^ r.Uint32N(2)<<31)
	case 3: // down to the edge at which rounding decides
		c = math.Float32frombits(0x00800000 | r.Uint32N(2)<<31)
		a, b = 0x0080|uint16(r.Uint32N(2))<<15, uint16(127-20-r.IntN(8))<<7|uint16(r.Uint32())&0x7f
	case 4:
		a, b, c = uint16(r.Uint32()), uint16(r.Uint32()), math.Float32frombits(r.Uint32())
	case 5: // halfway between two float32, or almost
		a, b = uint16(127+r.IntN(4))<<7|uint16(r.Uint32())&0x807f, uint16(127-r.IntN(30))<<7|uint16(r.Uint32())&0x807f
		c = math.Float32frombits(uint32(127+r.IntN(4))<<23 | r.Uint32()&0x807fffff)
	default:
		a, c = BF16(special[r.IntN(len(special))]), special[r.IntN(len(special))]
	}
	return a, b, c
}

// A step of plain Go is that of exact arithmetic.
func TestAFlushedStepIsThatOfExactArithmetic(t *testing.T) {
	r := rand.New(rand.NewPCG(61, 62))
	for range 100000 {
		a, b, c := edge(r)
		got, want := flushedFMA(flushedWord(a), flushedWord(b), flushed(c)), bigFMA(widen(a), widen(b), c)
		if !sameBits(got, want) {
			t.Fatalf("%x · %x + %x is %x, want %x", widen(a), widen(b), c, got, want)
		}
	}
}

// The processor's instructions, the one for pairs where it has that and its fused multiply-adds with DAZ
// and FTZ, do what plain Go does, in every lane.
func TestPairsAreThoseOfTheProcessor(t *testing.T) {
	for _, f := range others(t) {
		t.Run(f.Class.String(), func(t *testing.T) {
			if f.Pairs == "" {
				t.Skip("this class computes pairs in plain Go")
			}
			t.Log(f.Pairs)
			r := rand.New(rand.NewPCG(63, 64))
			var b [bf16Line]uint16
			var got, want, c [Panel]float32
			var a [1]uint32
			for n := range 20000 {
				var even uint16
				for j := range c {
					x, w, term := edge(r)
					if j == 0 {
						even, _, _ = edge(r)
						a[0] = uint32(x)<<16 | uint32(even)
					} else if r.IntN(2) == 0 { // about the products of this panel's activation
						term = -widen(uint16(a[0]>>16)) * widen(w)
					}
					_, v, _ := edge(r)
					b[2*j], b[2*j+1], c[j] = v, w, term
				}
				got = c
				f.GemmPairs(got[:], Panel, a[:], 1, b[:], 1, 2, true)
				for j := range want {
					want[j] = bigFMA(widen(even), widen(b[2*j]), bigFMA(widen(uint16(a[0]>>16)), widen(b[2*j+1]), c[j]))
					if n%16 > 0 { // exact arithmetic is slow
						want[j] = flushedFMA(flushedWord(even), flushedWord(b[2*j]), flushedFMA(flushedWord(uint16(a[0]>>16)), flushedWord(b[2*j+1]), flushed(c[j])))
					}
					if !sameBits(got[j], want[j]) {
						t.Fatalf("%#x · (%#x %#x) + %x is %x, want %x", a[0], b[2*j+1], b[2*j], c[j], got[j], want[j])
					}
				}
			}
		})
	}
}

// gemmPairsOracle is GemmPairs, one output after the other.
func gemmPairsOracle(c []float32, ldc int, a []uint32, ars int, b []uint16, rows, k int, acc bool) {
	for r := range rows {
		for j := range Panel {
			var s float32
			if acc {
				s = c[r*ldc+j]
			}
			for i := range (k + 1) / 2 {
				x, w := a[r*ars+i], b[i*bf16Line+2*j:]
				s = fmaFlushed(widen(uint16(x>>16)), widen(w[1]), s)
				s = fmaFlushed(widen(uint16(x)), widen(w[0]), s)
			}
			c[r*ldc+j] = s
		}
	}
}

func comparePairs(t *testing.T, r *rand.Rand, f *Funcs, what string, rows, k int, next source) {
	t.Helper()
	ldc, lda, ars := Panel+r.IntN(9), k+r.IntN(9), PairsALen(k)+r.IntN(9)
	x, w := make([]float32, rows*lda), make([]float32, Panel*k)
	for i := range x {
		x[i] = next()
	}
	for i := range w {
		w[i] = next()
	}
	b := make([]uint16, BF16PanelLen(k))
	if k > 0 {
		PackBF16(b, w, Panel, k, k)
	}
	a := make([]uint32, rows*ars)
	for i := range a {
		a[i] = 0xdeadbeef
	}
	for i := range rows {
		RoundPairs(a[i*ars:], x[i*lda:][:k])
		for j, v := range a[i*ars:][:ars] {
			want := uint32(0xdeadbeef)
			if 2*j < k {
				want = uint32(BF16(x[i*lda+2*j]))
			}
			if 2*j+1 < k {
				want |= uint32(BF16(x[i*lda+2*j+1])) << 16
			}
			if v != want {
				t.Fatalf("pair %d of a row of %d is %#x, want %#x", j, k, v, want)
			}
		}
	}
	for _, acc := range []bool{false, true} {
		want := newGuarded(r, (rows-1)*ldc+Panel)
		for i := range want.x {
			want.x[i] = next()
		}
		whole, cut := newGuarded(r, len(want.x)), newGuarded(r, len(want.x))
		copy(whole.x, want.x)
		copy(cut.x, want.x)
		gemmPairsOracle(want.x, ldc, a, ars, b, rows, k, acc)
		what := fmt.Sprintf("%v GemmPairs, %s, %d rows, k=%d, acc=%v, strides %d %d", f.Class, what, rows, k, acc, ars, ldc)
		f.GemmPairs(whole.x, ldc, a, ars, b, rows, k, acc)
		equal(t, what, whole.x, want.x)
		whole.check(t, what)
		if at := 2 * r.IntN(max(1, k/2)); at > 0 {
			f.GemmPairs(cut.x, ldc, a, ars, b, rows, at, acc)
			f.GemmPairs(cut.x, ldc, a[at/2:], ars, b[at*Panel:], rows, k-at, true)
			equal(t, what+" split", cut.x, want.x)
			cut.check(t, what+" split")
		}
	}
}

func TestGemmPairsHasTheBitsOfItsSteps(t *testing.T) {
	everyTable(t, func(t *testing.T, f *Funcs) {
		if f.Class != Portable && f.Pairs == "" {
			t.Skip("this class computes pairs in plain Go")
		}
		r := rand.New(rand.NewPCG(65, 66))
		for name, next := range sources(r) {
			t.Run(name, func(t *testing.T) {
				for rows := 1; rows <= 64; rows++ {
					if testing.Short() && rows > f.MaxRowsPairs+1 && rows%9 > 0 {
						continue
					}
					for _, k := range depths(r) {
						if rows > 16 {
							k = 1 + k%11
						}
						comparePairs(t, r, f, name, rows, k, next)
					}
				}
				comparePairs(t, r, f, name, f.MaxRowsPairs+1, 512+r.IntN(100), next)
				comparePairs(t, r, f, name, f.MaxRowsPairs, 0, next)
			})
		}
		f.GemmPairs(nil, Panel, nil, 1, nil, 0, 3, false) // no rows: nothing is touched
	})
}

// The kernels that set MXCSR leave it as it was: afterwards subnormal numbers are numbers again.
func TestPairsLeaveSubnormalNumbersToOthers(t *testing.T) {
	everyTable(t, func(t *testing.T, f *Funcs) {
		for rows := 1; rows <= f.MaxRowsPairs; rows++ {
			c := make([]float32, rows*Panel)
			f.GemmPairs(c, Panel, make([]uint32, rows), 1, make([]uint16, bf16Line), rows, 2, false)
			x := []float32{0x1p-140}
			f.Scale(x, 2)
			// Bits: to a processor that takes subnormal numbers for zeros, 2⁻¹³⁹ equals 0.
			if u := math.Float32bits(x[0]); u != 1<<10 {
				t.Fatalf("after %d rows 2⁻¹⁴⁰·2 is %#x", rows, u)
			}
		}
	})
}
