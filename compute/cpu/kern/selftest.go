package kern

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// A trial runs kernels of a table on operands that it chooses, the same for each table, and returns what they wrote.
type trial struct {
	name string // of the fields of Funcs that it runs
	run  func(f *Funcs, r *rand.Rand) []float32
}

// SelfTest runs every kernel of f that plain Go has as well, with every number of rows that has a kernel of its
// own, and what packs and converts for all classes, in less than a second. It calls begin with the name of each before it
// runs, and returns an error that names the first whose bits are not those of plain Go.
func (f *Funcs) SelfTest(begin func(kernel string)) error {
	for _, t := range slices.Concat(f.products(), vectorTrials(), sharedTrials()) {
		begin(t.name)
		got, want := t.run(f, rand.New(rand.NewPCG(1, 2))), t.run(&portable, rand.New(rand.NewPCG(1, 2)))
		for i := range want {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				return fmt.Errorf("kern: %s of class %v: element %d is %x, in plain Go %x", t.name, f.Class, i, got[i], want[i])
			}
		}
	}
	return nil
}

// normal returns n normal numbers.
func normal(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// products are the trials of matrix products: of each number of rows up to one more than a kernel holds.
func (f *Funcs) products() []trial {
	const k = 72
	by := func(name string, most int, run func(f *Funcs, r *rand.Rand, c []float32, rows int)) trial {
		return trial{name, func(f *Funcs, r *rand.Rand) (all []float32) {
			for rows := 1; rows <= most+1; rows++ {
				c := normal(r, rows*Panel)
				run(f, r, c, rows)
				all = append(all, c...)
			}
			return all
		}}
	}
	bf16 := func(r *rand.Rand) []uint16 {
		b := make([]uint16, BF16PanelLen(k))
		PackBF16(b, normal(r, Panel*k), Panel, k, k)
		return b
	}
	all := []trial{
		by("Gemm", f.MaxRows, func(f *Funcs, r *rand.Rand, c []float32, rows int) {
			f.Gemm(c, Panel, normal(r, rows*k), k, 1, normal(r, k*Panel), Panel, rows, k, rows%2 == 0)
		}),
		by("GemmNext", f.MaxRows, func(f *Funcs, r *rand.Rand, c []float32, rows int) {
			b := normal(r, 2*k*Panel)
			f.GemmNext(c, Panel, normal(r, rows*k), k, 1, b[:k*Panel], rows, k, rows%2 == 0, b[k*Panel:])
		}),
		by("GemmBF16", f.MaxRowsBF16, func(f *Funcs, r *rand.Rand, c []float32, rows int) {
			f.GemmBF16(c, Panel, normal(r, rows*k), k, 1, bf16(r), rows, k, rows%2 == 0)
		}),
		by("GemmBF16Next", f.MaxRowsBF16, func(f *Funcs, r *rand.Rand, c []float32, rows int) {
			f.GemmBF16Next(c, Panel, normal(r, rows*k), k, 1, bf16(r), rows, k, rows%2 == 0, bf16(r))
		}),
		by("GemmPairs", f.MaxRowsPairs, func(f *Funcs, r *rand.Rand, c []float32, rows int) {
			a := make([]uint32, rows*PairsALen(k))
			for i := range rows {
				RoundPairs(a[i*PairsALen(k):], normal(r, k))
			}
			f.GemmPairs(c, Panel, a, PairsALen(k), bf16(r), rows, k, rows%2 == 0)
		}),
	}
	for _, p := range []struct {
		name      string
		most      int
		block, ks int // bytes and k of a block of weights
		of        func(f *Funcs) func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool)
	}{
		{"GemmQ8", f.MaxRowsQ8, Q8BlockLen, Q8Block, func(f *Funcs) func([]float32, int, []uint32, int, []byte, int, int, int, bool) { return f.GemmQ8 }},
		{"GemmQ4", f.MaxRowsQ4, Q4BlockLen, Q8Block, func(f *Funcs) func([]float32, int, []uint32, int, []byte, int, int, int, bool) { return f.GemmQ4 }},
		{"GemmQ4K", f.MaxRowsQ4, Q4KBlockLen, Q4KBlock, func(f *Funcs) func([]float32, int, []uint32, int, []byte, int, int, int, bool) { return f.GemmQ4K }},
		{"GemmQ6K", f.MaxRowsQ6K, Q6KBlockLen, Q6KBlock, func(f *Funcs) func([]float32, int, []uint32, int, []byte, int, int, int, bool) { return f.GemmQ6K }},
	} {
		for planes := 1; planes <= 2; planes++ {
			all = append(all, by(fmt.Sprintf("QuantA and %s with %d bytes of activations", p.name, planes), p.most, func(f *Funcs, r *rand.Rand, c []float32, rows int) {
				const blocks = 2
				n := blocks * p.ks
				a := make([]uint32, rows*Q8ALen(n))
				for i := range rows {
					f.QuantA(a[i*Q8ALen(n):], normal(r, n), planes)
				}
				b := make([]byte, blocks*p.block)
				for i := range b { // every float16 with such bytes is a small number
					b[i] = byte(r.Uint32()) & 0x3f
				}
				p.of(f)(c, Panel, a, Q8ALen(n), b, rows, blocks, planes, rows%2 == 0)
			}))
		}
	}
	for _, format := range []*Compact{Q5_0, IQ4NL, Q4_1, Q5_1, Q5K, IQ4XS, MXFP4} {
		for planes := 1; planes <= 2; planes++ {
			all = append(all, by(fmt.Sprintf("GemmCompact of %s with %d bytes of activations", format.Name, planes), f.MaxRowsQ8, func(f *Funcs, r *rand.Rand, c []float32, rows int) {
				k, format := 2*format.Block, *format
				if f.Class == Portable {
					format.unpackAsm = nil // which all classes share
				}
				a := make([]uint32, rows*Q8ALen(k))
				for i := range rows {
					f.QuantA(a[i*Q8ALen(k):], normal(r, k), planes)
				}
				b := make([]byte, format.PanelLen(k))
				for i := range b { // every float16 and bfloat16 with such bytes is a small number
					b[i] = byte(r.Uint32()) & 0x3f
				}
				f.GemmCompact(&format, c, Panel, a, Q8ALen(k), b, rows, k, planes, make([]byte, CompactScratch))
			}))
		}
	}
	return all
}

// vectorTrials are those of functions over vectors, of each length up to beyond two registers.
func vectorTrials() []trial {
	by := func(name string, run func(f *Funcs, x, y, z, u, v []float32) []float32) trial {
		return trial{name, func(f *Funcs, r *rand.Rand) (all []float32) {
			for n := 1; n <= 40; n++ {
				x, y, z, u, v := normal(r, n), normal(r, n), normal(r, n), normal(r, n), normal(r, n)
				for i := range v {
					v[i] *= v[i]
				}
				all = append(all, run(f, x, y, z, u, v)...)
				all = append(slices.Concat(all, x, y, z), slices.Concat(u, v)...)
			}
			return all
		}}
	}
	one := func(name string, run func(f *Funcs, dst, x []float32)) trial {
		return by(name, func(f *Funcs, x, y, _, _, _ []float32) []float32 { run(f, x, y); return nil })
	}
	two := func(name string, run func(f *Funcs, dst, x, y []float32)) trial {
		return by(name, func(f *Funcs, x, y, z, _, _ []float32) []float32 { run(f, x, y, z); return nil })
	}
	value := func(name string, run func(f *Funcs, x, y []float32) float32) trial {
		return by(name, func(f *Funcs, x, y, _, _, _ []float32) []float32 { return []float32{run(f, x, y)} })
	}
	return []trial{
		one("Exp", func(f *Funcs, dst, x []float32) { f.Exp(dst, x) }),
		value("Max", func(f *Funcs, x, _ []float32) float32 { return f.Max(x) }),
		{"Peaks", func(f *Funcs, r *rand.Rand) []float32 {
			dst := make([]float32, 9)
			f.Peaks(dst, 1, normal(r, len(dst)*Panel), Panel, len(dst))
			return dst
		}},
		value("ExpSum", func(f *Funcs, x, y []float32) float32 { return f.ExpSum(x, y, 3) }),
		value("ExpTotal", func(f *Funcs, x, _ []float32) float32 { return f.ExpTotal(x, 3) }),
		one("Scale", func(f *Funcs, x, _ []float32) { f.Scale(x, 0.7) }),
		two("Add", func(f *Funcs, dst, a, b []float32) { f.Add(dst, a, b) }),
		two("Mul", func(f *Funcs, dst, a, b []float32) { f.Mul(dst, a, b) }),
		one("Axpy", func(f *Funcs, y, x []float32) { f.Axpy(y, 0.7, x) }),
		value("Dot", func(f *Funcs, a, b []float32) float32 { return f.Dot(a, b) }),
		two("SiLUMul", func(f *Funcs, dst, g, u []float32) { f.SiLUMul(dst, g, u) }),
		by("SiLUMulGrad", func(f *Funcs, x, y, z, u, v []float32) []float32 { f.SiLUMulGrad(x, y, z, u, v); return nil }),
		one("GELU", func(f *Funcs, dst, x []float32) { f.GELU(dst, x) }),
		by("Rope", func(f *Funcs, x, y, z, _, _ []float32) []float32 {
			both := append(slices.Clone(x), x...)
			f.Rope(both, y, z)
			return both
		}),
		value("ArgMax", func(f *Funcs, x, _ []float32) float32 { return float32(f.ArgMax(x)) }),
		by("AdamW", func(f *Funcs, x, y, z, _, v []float32) []float32 {
			f.AdamW(x, y, z, v, &Adam{LR: 1e-3, Beta1: 0.9, Beta2: 0.99, Eps: 1e-8, Decay: 1e-4, Scale: 0.5, C1: 2, C2: 3})
			return nil
		}),
	}
}

// sharedTrials are those of what all classes share. Plain Go is what they do with less than a step of instructions for
// vectors, so they run whole for f and in pieces for the portable table.
func sharedTrials() []trial {
	const n = 100
	pieces := func(name string, run func(dst []float32, src []uint16)) trial {
		return trial{name, func(f *Funcs, r *rand.Rand) []float32 {
			src, dst := make([]uint16, n), make([]float32, n)
			for i, v := range normal(r, n) {
				src[i] = BF16(v) // as float16, some number
			}
			if f.Class != Portable {
				run(dst, src)
				return dst
			}
			for i := range dst {
				run(dst[i:i+1], src[i:])
			}
			return dst
		}}
	}
	return []trial{
		pieces("FromBF16", func(dst []float32, src []uint16) { FromBF16(dst, bytesOf(src)) }),
		pieces("FromF16", func(dst []float32, src []uint16) { FromF16(dst, bytesOf(src)) }),
		{"RoundPairs", func(f *Funcs, r *rand.Rand) []float32 {
			x, dst := normal(r, n), make([]uint32, n/2)
			step := n
			if f.Class == Portable {
				step = 2
			}
			for i := 0; i < n; i += step {
				RoundPairs(dst[i/2:], x[i:i+step])
			}
			return floats(dst)
		}},
		{"PackRows", func(f *Funcs, r *rand.Rand) []float32 {
			x, dst := normal(r, Panel*n), make([]float32, PanelLen(Panel, n))
			if f.Class != Portable {
				PackRows(dst, x, Panel, n, n)
				return dst
			}
			for i := range n {
				for j := range Panel {
					dst[i*Panel+j] = x[j*n+i]
				}
			}
			return dst
		}},
		{"PackQ8", func(f *Funcs, r *rand.Rand) []float32 {
			x, b := normal(r, Panel*n), make([]byte, Q8Len(Panel, n))
			rows := Panel - 1
			if f.Class != Portable { // the last row is as if there were none
				clear(x[rows*n:])
				rows++
			}
			PackQ8(b, x[:rows*n], rows, n, n)
			dst := make([]float32, len(b))
			for i, v := range b {
				dst[i] = float32(v)
			}
			return dst
		}},
	}
}

func bytesOf(x []uint16) []byte {
	b := make([]byte, 0, 2*len(x))
	for _, v := range x {
		b = append(b, byte(v), byte(v>>8))
	}
	return b
}

func floats(x []uint32) []float32 {
	f := make([]float32, len(x))
	for i, v := range x {
		f[i] = math.Float32frombits(v)
	}
	return f
}
