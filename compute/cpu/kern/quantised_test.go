package kern

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// everyTable runs a subtest for each class.
func everyTable(t *testing.T, fn func(t *testing.T, f *Funcs)) {
	for _, c := range Available() {
		f, err := For(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(c.String(), func(t *testing.T) { fn(t, f) })
	}
}

// depths returns the k to try for the cases of a row count.
func depths(r *rand.Rand) []int { return []int{1, 2, 3, 4, 5, 7, 8, 31, 33, 1 + r.IntN(120)} }

// compareBF16 compares a product with bfloat16 weights with Gemm's on the same
// weights widened, whole and split at an even depth.
func compareBF16(t *testing.T, r *rand.Rand, f *Funcs, what string, rows, k int, next source) {
	t.Helper()
	ldc := Panel + r.IntN(9)
	ars, aks := k+r.IntN(5), 1
	switch r.IntN(3) {
	case 0:
		ars, aks = 1, rows+r.IntN(5)
	case 1:
		ars, aks = 2*k+1, 2
	}
	a := make([]float32, (rows-1)*ars+max(k-1, 0)*aks+1)
	for i := range a {
		a[i] = next()
	}
	b, w := make([]uint16, BF16PanelLen(k)), make([]float32, k*Panel)
	for i := range b {
		b[i] = uint16(math.Float32bits(next()) >> 16)
	}
	for i := range k {
		for j := range Panel {
			w[i*Panel+j] = widen(b[i/2*2*Panel+2*j+i%2])
		}
	}
	if k%2 == 1 {
		for j := range Panel { // the partner of an odd k must not be used
			b[len(b)-2*Panel+2*j+1] = 0x7fc0
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
		for i := range rows {
			portable.Gemm(want.x[i*ldc:], ldc, a[i*ars:], ars, aks, w, Panel, 1, k, acc)
		}
		what := fmt.Sprintf("%v GemmBF16, %s, %d rows, k=%d, acc=%v, strides %d %d %d", f.Class, what, rows, k, acc, ars, aks, ldc)
		at := 2 * r.IntN(max(1, k/2))
		f.GemmBF16(whole.x, ldc, a, ars, aks, b, rows, k, acc)
		equal(t, what, whole.x, want.x)
		whole.check(t, what)
		if at > 0 {
			f.GemmBF16(cut.x, ldc, a, ars, aks, b, rows, at, acc)
			f.GemmBF16(cut.x, ldc, a[at*aks:], ars, aks, b[at*Panel:], rows, k-at, true)
			equal(t, what+" split", cut.x, want.x)
			cut.check(t, what+" split")
		}
	}
}

func TestGemmBF16HasTheBitsOfGemmOnWidenedWeights(t *testing.T) {
	everyTable(t, func(t *testing.T, f *Funcs) {
		r := rand.New(rand.NewPCG(21, 22))
		for name, next := range sources(r) {
			for rows := 1; rows <= 64; rows++ {
				if testing.Short() && rows > f.MaxRowsBF16+1 && rows%9 > 0 {
					continue
				}
				for _, k := range depths(r) {
					if rows > 16 {
						k = 1 + k%11
					}
					compareBF16(t, r, f, name, rows, k, next)
				}
			}
			compareBF16(t, r, f, name, f.MaxRowsBF16, 300+r.IntN(100), next)
			compareBF16(t, r, f, name, f.MaxRowsBF16, 0, next)
		}
		f.GemmBF16(nil, Panel, nil, 1, 1, nil, 0, 3, false) // no rows: nothing is touched
	})
}

// compareQ8 compares a product with q8 weights with the portable one, each with
// its own quantised activations, whole and split at a block.
func compareQ8(t *testing.T, r *rand.Rand, f *Funcs, what string, rows, k, planes int, next source) {
	t.Helper()
	ldc, lda, ars := Panel+r.IntN(9), k+r.IntN(9), Q8ALen(k)+r.IntN(9)
	a, w := make([]float32, rows*lda), make([]float32, Panel*k)
	for i := range a {
		a[i] = next()
	}
	for i := range w {
		w[i] = next()
	}
	b, n := make([]byte, Q8Len(Panel, k)), Q8Blocks(k)
	PackQ8(b, w, Panel, k, k)
	if r.IntN(4) == 0 { // any integers and scales, −128 and infinities too
		for i := range b {
			b[i] = byte(r.Uint32())
		}
	}
	var qa [2][]uint32
	for i, f := range []*Funcs{&portable, f} {
		qa[i] = make([]uint32, rows*ars)
		for j := range qa[i] {
			qa[i][j] = 0xdeadbeef
		}
		for j := range rows {
			f.QuantA(qa[i][j*ars:][:Q8ALen(k)], a[j*lda:][:k], planes)
		}
		for j, v := range qa[i] {
			if j%ars >= Q8ALen(k) && v != 0xdeadbeef {
				t.Fatalf("%v QuantA wrote beyond a row of %d", f.Class, k)
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
		portable.GemmQ8(want.x, ldc, qa[0], ars, b, rows, n, planes, acc)
		at := r.IntN(n + 1)
		f.GemmQ8(whole.x, ldc, qa[1], ars, b, rows, n, planes, acc)
		f.GemmQ8(cut.x, ldc, qa[1], ars, b, rows, at, planes, acc)
		f.GemmQ8(cut.x, ldc, qa[1][at*Q8ABlockLen:], ars, b[at*Q8BlockLen:], rows, n-at, planes, true)
		what := fmt.Sprintf("%v GemmQ8, %s, %d planes, %d rows, k=%d, acc=%v, strides %d %d", f.Class, what, planes, rows, k, acc, ars, ldc)
		equal(t, what, whole.x, want.x)
		whole.check(t, what)
		equal(t, what+" split", cut.x, want.x)
		cut.check(t, what+" split")
	}
}

func TestGemmQ8HasThePortableBits(t *testing.T) {
	for _, f := range others(t) {
		t.Run(f.Class.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(23, 24))
			for name, next := range sources(r) {
				for rows := 1; rows <= 64; rows++ {
					if testing.Short() && rows > f.MaxRowsQ8+1 && rows%9 > 0 {
						continue
					}
					for planes := 1; planes <= 2; planes++ {
						for _, k := range []int{1, 32, 33, 1 + r.IntN(200)} {
							if rows > 16 {
								k = 1 + k%70
							}
							compareQ8(t, r, f, name, rows, k, planes, next)
						}
					}
				}
			}
			f.GemmQ8(nil, Panel, nil, 1, nil, 0, 3, 2, false) // no rows: nothing is touched
		})
	}
}

func FuzzQuantised(f *testing.F) {
	f.Add(uint64(1), uint8(3), uint8(17))
	f.Fuzz(func(t *testing.T, seed uint64, rows, k uint8) {
		for _, c := range Available() {
			g, err := For(c)
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(seed, 2))
			next := func() float32 { return randBits(r) }
			compareBF16(t, r, g, "fuzz", 1+int(rows)%16, int(k), next)
			compareQ8(t, r, g, "fuzz", 1+int(rows)%16, 1+int(k), 1+int(seed%2), next)
		}
	})
}

// A row's integers and scale, recovered through products with weights that pick one element
// each.
func TestActivationsAreRoundedToTheNearestInteger(t *testing.T) {
	everyTable(t, func(t *testing.T, f *Funcs) {
		r := rand.New(rand.NewPCG(25, 26))
		unit := make([]byte, Q8BlockLen)
		w := make([]float32, Panel*Q8Block)
		for i := range Panel {
			w[i*Q8Block+i] = 127
		}
		PackQ8(unit, w, Panel, Q8Block, Q8Block) // q = 127, d = 1
		for name, next := range sources(r) {
			for range 300 {
				x := make([]float32, 1+r.IntN(Q8Block))
				for i := range x {
					x[i] = next()
				}
				amax := float64(absMax(x))
				for planes := 1; planes <= 2; planes++ {
					m := map[int]float64{1: 127, 2: 32767}[planes]
					q, c := make([]uint32, Q8ABlockLen), make([]float32, Panel)
					f.QuantA(q, x, planes)
					f.GemmQ8(c, Panel, q, Q8ABlockLen, unit, 1, 1, planes, false)
					for i, v := range x {
						got, want := float64(c[i])/127, float64(v)
						switch {
						case math.IsNaN(amax) || math.IsInf(amax, 0):
							if !math.IsNaN(got) {
								t.Fatalf("%s: %v became %v with a largest of %v", name, v, got, amax)
							}
						case amax < q8Tiny:
							if got != 0 {
								t.Fatalf("%s: %v became %v", name, v, got)
							}
						case math.IsInf(got, 0) && amax > math.MaxFloat32/127: // 127 times it is beyond float32
						case math.Abs(got-want) > amax/m*(0.5+0x1p-7):
							t.Fatalf("%s: %v became %v, largest %v, %d planes", name, v, got, amax, planes)
						}
					}
				}
			}
		}
	})
}

// relative returns the root mean square error of got relative to want's.
func relative(got []float32, want []float64) float64 {
	var e, s float64
	for i, w := range want {
		d := float64(got[i]) - w
		e, s = e+d*d, s+w*w
	}
	return math.Sqrt(e / s)
}

// Products of 256×2048 weights with three kinds of activations, against float64. The bounds are twice what was measured.
func TestAccuracy(t *testing.T) {
	const outs, k, rows = 256, 2048, 4
	r := rand.New(rand.NewPCG(27, 28))
	w := fill(r, outs*k)
	for i := range w {
		w[i] *= 0.02
		if r.IntN(500) == 0 {
			w[i] *= 6
		}
	}
	kinds := map[string]func(i int) float64{
		"normal": func(int) float64 { return r.NormFloat64() },
		"outliers": func(i int) float64 {
			return r.NormFloat64() * map[bool]float64{true: 20 + float64(i%41), false: 1}[i%340 == 7]
		},
		"gated": func(int) float64 {
			g := 2 * r.NormFloat64()
			return g / (1 + math.Exp(-g)) * 2 * r.NormFloat64()
		},
	}
	f, err := For(Best())
	if err != nil {
		t.Fatal(err)
	}
	b16, b8 := make([]uint16, BF16Len(outs, k)), make([]byte, Q8Len(outs, k))
	PackBF16(b16, w, outs, k, k)
	PackQ8(b8, w, outs, k, k)
	w16, w8 := make([]float32, outs*k), make([]float32, outs*k)
	for o := range outs {
		UnpackBF16(w16[o*k:][:k], b16, o)
		UnpackQ8(w8[o*k:][:k], b8, o)
	}
	bound := map[string]map[string][2]float64{ // arithmetic, total
		"normal":   {"bf16": {2e-6, 3.5e-3}, "q8": {5e-5, 1.2e-2}, "q8 one plane": {1.1e-2, 1.6e-2}},
		"outliers": {"bf16": {2e-6, 3.5e-3}, "q8": {1e-4, 1.2e-2}, "q8 one plane": {2.5e-2, 2.6e-2}},
		"gated":    {"bf16": {2e-6, 3.5e-3}, "q8": {7e-5, 1.2e-2}, "q8 one plane": {1.8e-2, 2.2e-2}},
	}
	for name, next := range kinds {
		a := make([]float32, rows*k)
		for i := range a {
			a[i] = float32(next(i % k))
		}
		exact := func(w []float32) []float64 {
			c := make([]float64, rows*outs)
			for i := range rows {
				for o := range outs {
					for j := range k {
						c[i*outs+o] += float64(a[i*k+j]) * float64(w[o*k+j])
					}
				}
			}
			return c
		}
		check := func(kernel string, got, stored []float32) {
			e, all := relative(got, exact(stored)), relative(got, exact(w))
			t.Logf("%-9s %-13s arithmetic %.1e, total %.1e", name, kernel, e, all)
			if m := bound[name][kernel]; e > m[0] || all > m[1] {
				t.Errorf("%s %s: errors %.2e and %.2e are above %.1e and %.1e", name, kernel, e, all, m[0], m[1])
			}
		}
		c := make([]float32, rows*outs)
		for p := range outs / Panel {
			f.GemmBF16(c[p*Panel:], outs, a, k, 1, b16[p*BF16PanelLen(k):], rows, k, false)
		}
		check("bf16", c, w16)
		for planes := 1; planes <= 2; planes++ {
			n := Q8ALen(k)
			q := make([]uint32, rows*n)
			for i := range rows {
				f.QuantA(q[i*n:], a[i*k:][:k], planes)
			}
			for p := range outs / Panel {
				f.GemmQ8(c[p*Panel:], outs, q, n, b8[p*Q8PanelLen(k):], rows, Q8Blocks(k), planes, false)
			}
			check(map[int]string{1: "q8 one plane", 2: "q8"}[planes], c, w8)
		}
	}
}

func TestPackedBF16HoldsEveryElement(t *testing.T) {
	r := rand.New(rand.NewPCG(29, 30))
	for range 200 {
		outs, k, pad := 1+r.IntN(100), 1+r.IntN(70), r.IntN(5)
		rows := fill(r, outs*(k+pad))
		want, got := make([]uint16, BF16Len(outs, k)), make([]uint16, BF16Len(outs, k))
		var stored []byte
		for o := range outs {
			for i := range k {
				v := rows[o*(k+pad)+i]
				want[o/Panel*BF16PanelLen(k)+i/2*2*Panel+o%Panel*2+i%2] = BF16(v)
				stored = binary.LittleEndian.AppendUint16(stored, BF16(v))
			}
		}
		for name, pack := range map[string]func(){
			"PackBF16":       func() { PackBF16(got, rows, outs, k, k+pad) },
			"PackBF16Stored": func() { PackBF16Stored(got, stored, outs, k) },
		} {
			for i := range got {
				got[i] = 7
			}
			pack()
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("%s of %d outputs, depth %d: element %d is %#04x, want %#04x", name, outs, k, i, got[i], want[i])
				}
			}
		}
		row, o := make([]float32, k), r.IntN(outs)
		UnpackBF16(row, got, o)
		for i, v := range row {
			if v != widen(BF16(rows[o*(k+pad)+i])) {
				t.Fatalf("UnpackBF16 of output %d gives %v at %d", o, v, i)
			}
		}
	}
}

// The row-by-row storage of a file gives the same as a panel, from any block on.
func TestStoredQ8IsPackedQ8(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	for _, k := range []int{1, 32, 255, 256, 257, 600} {
		const outs = 40
		w := fill(r, outs*k)
		a := make([]byte, Q8Len(outs, k))
		PackQ8(a, w, outs, k, k)
		b := make([]byte, len(a))
		q, d := make([]byte, k), make([]byte, 2*Q8Blocks(k))
		want, got := make([]float32, k), make([]float32, k)
		for o := range outs {
			QuantQ8(q, d, w[o*k:][:k])
			for n := range Q8Blocks(k) {
				at := n * Q8Block
				PackQ8Row(b[o/Panel*Q8PanelLen(k)+n*Q8BlockLen:][:Q8BlockLen], o%Panel, q[at:min(at+Q8Block, k)], d[2*n:2*n+2])
				UnpackQ8(want, a, o)
				DequantQ8(got[at:], q, d, at)
				if !slices.Equal(got[at:], want[at:]) {
					t.Fatalf("depth %d: output %d from %d on differs", k, o, at)
				}
			}
		}
		if string(a) != string(b) {
			t.Errorf("depth %d: bytes differ", k)
		}
	}
}

// Long slices are packed and converted by other instructions than short ones.
func TestLongSlicesArePackedAsShortOnes(t *testing.T) {
	r := rand.New(rand.NewPCG(33, 34))
	var stored []byte
	for u := range 1 << 16 {
		stored = binary.LittleEndian.AppendUint16(stored, uint16(u))
	}
	for name, decode := range map[string]func(dst []float32, src []byte){"FromF16": FromF16, "FromBF16": FromBF16} {
		all, one := make([]float32, 1<<16), make([]float32, 1<<16)
		decode(all, stored)
		for i := range one {
			decode(one[i:i+1], stored[2*i:])
		}
		equal(t, name, all, one)
	}
	for name, next := range sources(r) {
		for range 20 {
			k, ld := 1+r.IntN(100), 100+r.IntN(5)
			x := make([]float32, Panel*ld)
			for i := range x {
				x[i] = next()
			}
			half := make([]uint16, len(x)+1)
			half[len(x)] = 0x1234
			Narrow(half, x)
			for i, v := range x {
				if half[i] != BF16(v) {
					t.Fatalf("Narrow, %s: %x became %#04x, want %#04x", name, v, half[i], BF16(v))
				}
			}
			if half[len(x)] != 0x1234 {
				t.Fatal("Narrow writes beyond its source")
			}
			got, want := make([]byte, Q8Len(Panel, k)), make([]byte, Q8Len(Panel, k))
			PackQ8(got, x, Panel, k, ld)
			for i := 0; i < k; i += Q8Block {
				for j := range Panel {
					packQ8((*[Q8BlockLen]byte)(want[i/Q8Block*Q8BlockLen:]), j, x[j*ld+i:][:min(Q8Block, k-i)])
				}
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("PackQ8, %s: differs at depth %d", name, k)
			}
		}
	}
}

func TestProductsDoNotAllocate(t *testing.T) {
	const rows, k = 20, 300
	everyTable(t, func(t *testing.T, f *Funcs) {
		r := rand.New(rand.NewPCG(35, 36))
		a, c := fill(r, rows*k), make([]float32, rows*Panel)
		w, half, octets := make([]float32, Panel*k), make([]uint16, BF16PanelLen(k)), make([]byte, Q8PanelLen(k))
		q := make([]uint32, rows*max(Q8ALen(k), BF16ALen(k, 2)))
		if n := testing.AllocsPerRun(3, func() {
			f.Gemm(c, Panel, a, k, 1, w, Panel, rows, k, false)
			f.GemmBF16(c, Panel, a, k, 1, half, rows, k, false)
			for i := range rows {
				RoundPairs(q[i*PairsALen(k):], a[i*k:][:k])
			}
			f.GemmPairs(c, Panel, q, PairsALen(k), half, rows, k, false)
			PackBF16(half, a, Panel/2, k, k)
			PackQ8(octets, a, Panel/2, k, k)
			for planes := 1; planes <= 2; planes++ {
				for i := range rows {
					f.QuantA(q[i*Q8ALen(k):], a[i*k:][:k], planes)
				}
				f.GemmQ8(c, Panel, q, Q8ALen(k), octets, rows, Q8Blocks(k), planes, false)
				if f.GemmSplit == nil {
					continue
				}
				for i := range rows {
					f.SplitA(q[i*BF16ALen(k, planes):], a[i*k:][:k], planes)
				}
				f.GemmSplit(c, Panel, q, BF16ALen(k, planes), half, rows, k, planes, false)
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}
