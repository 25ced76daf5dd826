package kern

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// others returns the kernels to compare with the portable ones; if there are none, it skips the
// test.
func others(t testing.TB) []*Funcs {
	var fs []*Funcs
	for _, c := range Available()[1:] {
		f, err := For(c)
		if err != nil {
			t.Fatal(err)
		}
		fs = append(fs, f)
	}
	if len(fs) == 0 {
		t.Skip("only the portable kernels are available here")
	}
	return fs
}

func TestTablesAreComplete(t *testing.T) {
	if c := Available(); c[0] != Portable || c[len(c)-1] != Best() {
		t.Errorf("Available() = %v with Best() = %v", c, Best())
	}
	for c := range Class(len(names)) {
		if got, err := ParseClass(c.String()); err != nil || got != c {
			t.Errorf("ParseClass(%q) = %v, %v", c.String(), got, err)
		}
		f, err := For(c)
		if (err == nil) != slices.Contains(Available(), c) {
			t.Errorf("For(%v) gives error %v, with Available() = %v", c, err, Available())
		}
		if err != nil {
			t.Log(err)
			continue
		}
		if f.Class != c || f.MaxRows < 1 || f.Gemm == nil || f.MaxRowsBF16 < 1 || f.GemmBF16 == nil || f.MaxRowsPairs < 1 || f.GemmPairs == nil ||
			f.QuantA == nil || f.MaxRowsQ8 < 1 || f.GemmQ8 == nil || f.MaxRowsQ4 < 1 || f.GemmQ4 == nil || f.GemmQ4K == nil || f.MaxRowsQ6K < 1 || f.GemmQ6K == nil || f.Exp == nil || f.Max == nil || f.Peaks == nil || f.ExpSum == nil || f.ExpTotal == nil ||
			f.Scale == nil || f.Add == nil || f.Mul == nil || f.Axpy == nil || f.Dot == nil || f.SiLUMul == nil ||
			f.SiLUMulGrad == nil || f.GELU == nil || f.Rope == nil || f.ArgMax == nil || f.AdamW == nil {
			t.Errorf("class %v: table is incomplete: %+v", c, f)
		}
	}
	if _, err := ParseClass("sse"); err == nil {
		t.Error("ParseClass takes an unknown name")
	}
	if _, err := For(Class(len(names))); err == nil {
		t.Error("For takes an unknown class")
	}
}

func TestTheEnvironmentBoundsTheClasses(t *testing.T) {
	offered := []Class{Portable, AVX2, AVX512}
	for name, want := range map[string]string{
		"":         "avx512",
		"portable": "portable",
		"avx2":     "avx2",
		"avx512":   "avx512",
		"neon":     "TALF_CLASS=neon: kern: class neon is not available here: have [portable avx2 avx512]",
		"amx":      "TALF_CLASS=amx: kern: class amx is not available here: no AMX: ",
		"AVX2":     `TALF_CLASS=AVX2: kern: no class "AVX2": want portable, avx2, avxvnni, avx512, avx512vnni, amx, neon, neondot or neoni8mm`,
	} {
		if name == "amx" && NoAMX() == nil {
			continue
		}
		c, err := boundOf(name, offered)
		got := c.String()
		if err != nil {
			got = err.Error()
			if c != Portable {
				t.Errorf("%q leaves %v", name, c)
			}
		}
		if got != want && (name != "amx" || !strings.HasPrefix(got, want)) {
			t.Errorf("%q gives %q, want %q", name, got, want)
		}
	}
}

// A process sees the classes up to the one that its environment names, and only plain Go where that is none.
func TestProcessesAreBound(t *testing.T) {
	if os.Getenv("TALF_TEST_CLASSES") != "" {
		_, err := For(Best())
		fmt.Printf("%v %v; %v\n", Available(), vectors(), err)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all := Offered()
	for name, want := range map[string]string{
		"portable":               "[portable] false; <nil>",
		all[len(all)-1].String(): fmt.Sprintf("%v %v; <nil>", all, len(all) > 1 && all[1] == AVX2),
		"sse9":                   `[portable] false; TALF_CLASS=sse9: kern: no class "sse9": want `,
	} {
		cmd := exec.Command(self, "-test.run=^TestProcessesAreBound$")
		cmd.Env = append(os.Environ(), "TALF_TEST_CLASSES=1", EnvClass+"="+name)
		out, err := cmd.Output()
		if errors.Is(err, syscall.ENOEXEC) {
			t.Skip("an emulated process cannot start another")
		}
		if err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("%s: %s%v, want %s", name, out, err, want)
		}
	}
}

// canary surrounds destinations: a kernel that writes beyond its slice changes it.
const canary = 0x1.234568p-3

// guarded is n elements at an arbitrary alignment, between canaries.
type guarded struct {
	all []float32
	x   []float32
}

func newGuarded(r *rand.Rand, n int) guarded {
	off := 16 + r.IntN(17)
	all := make([]float32, n+off+33)
	for i := range all {
		all[i] = canary
	}
	return guarded{all, all[off : off+n : off+n]}
}

func (g guarded) check(t *testing.T, what string) {
	t.Helper()
	off := len(g.all) - len(g.x) - 33
	for i, v := range g.all {
		if (i < off || i >= off+len(g.x)) && v != canary {
			t.Errorf("%s wrote element %d of %d", what, i-off, len(g.x))
			return
		}
	}
}

func equal(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if !sameBits(got[i], want[i]) {
			t.Errorf("%s: element %d of %d is %x (%#08x), portable %x (%#08x)", what, i, len(want),
				got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
			return
		}
	}
}

// A source yields the elements of one case.
type source func() float32

// sources are the inputs for comparing the functions: ordinary values, special ones, and
// arbitrary bits.
func sources(r *rand.Rand) map[string]source {
	return map[string]source{
		"normal":  func() float32 { return float32(r.NormFloat64()) },
		"wide":    func() float32 { return float32(r.NormFloat64() * math.Exp(8*r.NormFloat64())) },
		"special": func() float32 { return special[r.IntN(len(special))] },
		"bits":    func() float32 { return math.Float32frombits(r.Uint32()) },
		"zeros":   func() float32 { return float32(math.Copysign(0, r.Float64()-0.5)) },
		"tiny":    func() float32 { return math.Float32frombits(r.Uint32() & 0x807fffff) },
	}
}

// compareVectors compares every vector function of f with the portable one on n
// elements of next.
func compareVectors(t *testing.T, r *rand.Rand, f *Funcs, what string, n int, next source) {
	t.Helper()
	ref := &portable
	in := func() []float32 {
		g := newGuarded(r, n)
		for i := range g.x {
			g.x[i] = next()
		}
		return g.x
	}
	a, b, c, d, e := in(), in(), in(), in(), in()
	s := next()
	// run calls fn with copies of the first w inputs between canaries, for both
	// tables, and compares everything afterwards.
	run := func(name string, fn func(f *Funcs, x [][]float32) []float32, x ...[]float32) {
		t.Helper()
		var out [2][]float32
		for i, f := range []*Funcs{ref, f} {
			cp := make([][]float32, len(x))
			gs := make([]guarded, len(x))
			for j := range x {
				gs[j] = newGuarded(r, len(x[j]))
				copy(gs[j].x, x[j])
				cp[j] = gs[j].x
			}
			out[i] = fn(f, cp)
			for j := range x {
				gs[j].check(t, fmt.Sprintf("%v %s, %s, n=%d", f.Class, name, what, n))
				out[i] = append(out[i], cp[j]...)
			}
		}
		equal(t, fmt.Sprintf("%v %s, %s, n=%d", f.Class, name, what, n), out[1], out[0])
	}
	type xs = [][]float32
	run("Exp", func(f *Funcs, x xs) []float32 { f.Exp(x[0], x[1]); return nil }, a, b)
	run("Exp in place", func(f *Funcs, x xs) []float32 { f.Exp(x[0], x[0]); return nil }, a)
	run("Max", func(f *Funcs, x xs) []float32 { return []float32{f.Max(x[0])} }, a)
	run("ArgMax", func(f *Funcs, x xs) []float32 { return []float32{float32(f.ArgMax(x[0]))} }, a)
	run("ExpSum", func(f *Funcs, x xs) []float32 { return []float32{f.ExpSum(x[0], x[1], s)} }, a, b)
	run("ExpSum in place", func(f *Funcs, x xs) []float32 { return []float32{f.ExpSum(x[0], x[0], f.Max(x[0]))} }, a)
	run("ExpTotal", func(f *Funcs, x xs) []float32 { return []float32{f.ExpTotal(x[0], s)} }, a)
	run("ExpTotal below its largest", func(f *Funcs, x xs) []float32 { return []float32{f.ExpTotal(x[0], f.Max(x[0]))} }, a)
	run("Scale", func(f *Funcs, x xs) []float32 { f.Scale(x[0], s); return nil }, a)
	run("Add", func(f *Funcs, x xs) []float32 { f.Add(x[0], x[1], x[2]); return nil }, a, b, c)
	run("Add in place", func(f *Funcs, x xs) []float32 { f.Add(x[1], x[0], x[1]); return nil }, a, b)
	run("Mul", func(f *Funcs, x xs) []float32 { f.Mul(x[0], x[1], x[2]); return nil }, a, b, c)
	run("Mul in place", func(f *Funcs, x xs) []float32 { f.Mul(x[0], x[0], x[1]); return nil }, a, b)
	run("Axpy", func(f *Funcs, x xs) []float32 { f.Axpy(x[0], s, x[1]); return nil }, a, b)
	run("Dot", func(f *Funcs, x xs) []float32 { return []float32{f.Dot(x[0], x[1])} }, a, b)
	run("Dot with itself", func(f *Funcs, x xs) []float32 { return []float32{f.Dot(x[0], x[0])} }, a)
	run("SiLUMul", func(f *Funcs, x xs) []float32 { f.SiLUMul(x[0], x[1], x[2]); return nil }, a, b, c)
	run("SiLUMul in place", func(f *Funcs, x xs) []float32 { f.SiLUMul(x[0], x[0], x[1]); return nil }, a, b)
	run("SiLUMulGrad", func(f *Funcs, x xs) []float32 { f.SiLUMulGrad(x[0], x[1], x[2], x[3], x[4]); return nil }, a, b, c, d, e)
	run("SiLUMulGrad in place", func(f *Funcs, x xs) []float32 { f.SiLUMulGrad(x[1], x[2], x[0], x[1], x[2]); return nil }, a, b, c)
	run("GELU", func(f *Funcs, x xs) []float32 { f.GELU(x[0], x[1]); return nil }, a, b)
	run("GELU in place", func(f *Funcs, x xs) []float32 { f.GELU(x[0], x[0]); return nil }, a)
	run("Rope", func(f *Funcs, x xs) []float32 { f.Rope(x[0], x[1], x[2]); return nil }, append(a[:n:n], b...), c, d)
	h := &Adam{LR: 3e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 3e-6, Scale: 0.7, C1: 10, C2: 20}
	run("AdamW", func(f *Funcs, x xs) []float32 { f.AdamW(x[0], x[1], x[2], x[3], h); return nil }, a, b, c, d)
	run("AdamW of any constants", func(f *Funcs, x xs) []float32 {
		f.AdamW(x[0], x[1], x[2], x[3], &Adam{s, s, s, s, s, s, s, s})
		return nil
	}, a, b, c, d)
}

func TestVectorsHaveThePortableBits(t *testing.T) {
	for _, f := range others(t) {
		t.Run(f.Class.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(11, 12))
			for name, next := range sources(r) {
				for n := range 70 {
					compareVectors(t, r, f, name, n, next)
				}
				for range 10 {
					compareVectors(t, r, f, name, 70+r.IntN(1000), next)
				}
			}
		})
	}
}

// Lanes whose products vanish downwards hold −0, and lanes that a tail does not reach must keep
// it: adding a masked zero would make it +0.
func TestDotKeepsTheSignOfVanishingSums(t *testing.T) {
	negZero := float32(math.Copysign(0, -1))
	for _, c := range Available() {
		f, err := For(c)
		if err != nil {
			t.Fatal(err)
		}
		for n := lanes; n < 4*lanes; n++ {
			a, b := make([]float32, n), make([]float32, n)
			for i := range a {
				a[i], b[i] = 0x1p-100, -0x1p-100
			}
			if got := f.Dot(a, b); !sameBits(got, negZero) {
				t.Errorf("%v: Dot of %d vanishing products is %v, want -0", c, n, got)
			}
		}
	}
}

func FuzzVectors(f *testing.F) {
	f.Add([]byte{0, 0, 0x80, 0x7f, 0, 0, 0xc0, 0x7f, 1, 0, 0, 0x80, 0x17, 0x72, 0xb1, 0x42}, uint16(37))
	f.Fuzz(func(t *testing.T, b []byte, n uint16) {
		r := rand.New(rand.NewPCG(13, uint64(n)))
		i := 0
		next := func() float32 {
			if len(b) < 4 {
				return 0
			}
			i = (i + 4) % (len(b) &^ 3)
			return math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))
		}
		for _, c := range Available()[1:] {
			g, err := For(c)
			if err != nil {
				t.Fatal(err)
			}
			compareVectors(t, r, g, "fuzz", int(n%200), next)
		}
	})
}

// Each exp kernel is compared with exp32 over all exponents, 64 elements per call.
func TestExpHasThePortableBitsEverywhere(t *testing.T) {
	step := uint64(4099)
	if testing.Short() {
		step = 65537
	}
	for _, f := range others(t) {
		x, y := make([]float32, 64), make([]float32, 64)
		for u := uint64(0); u < 1<<32; u += 64 * step {
			for i := range x {
				x[i] = math.Float32frombits(uint32(u + uint64(i)*step))
			}
			f.Exp(y, x)
			for i, v := range y {
				if want := exp32(x[i]); !sameBits(v, want) {
					t.Fatalf("%v: exp(%x) = %x, portable %x", f.Class, x[i], v, want)
				}
			}
		}
	}
}

// compareGemm compares one product with a chain of fma32, then with itself split
// at a random depth.
func compareGemm(t *testing.T, r *rand.Rand, f *Funcs, what string, rows, k int, next source) {
	t.Helper()
	ldc, ldb := Panel+r.IntN(9), Panel+r.IntN(9)
	ars, aks := k+r.IntN(5), 1
	switch r.IntN(3) {
	case 0:
		ars, aks = 1, rows+r.IntN(5)
	case 1:
		ars, aks = 2*k+1, 2
	}
	a := make([]float32, (rows-1)*ars+max(k-1, 0)*aks+1)
	b := make([]float32, max(k-1, 0)*ldb+Panel)
	for _, x := range [][]float32{a, b} {
		for i := range x {
			x[i] = next()
		}
	}
	for _, acc := range []bool{false, true} {
		c := newGuarded(r, (rows-1)*ldc+Panel)
		for i := range c.x {
			c.x[i] = next()
		}
		whole, split := newGuarded(r, len(c.x)), newGuarded(r, len(c.x))
		copy(whole.x, c.x)
		copy(split.x, c.x)
		for i := range rows {
			for j := range Panel {
				var s float32
				if acc {
					s = c.x[i*ldc+j]
				}
				for p := range k {
					s = fma32(a[i*ars+p*aks], b[p*ldb+j], s)
				}
				c.x[i*ldc+j] = s
			}
		}
		what := fmt.Sprintf("%v Gemm, %s, %d rows, k=%d, acc=%v, strides %d %d %d %d", f.Class, what, rows, k, acc, ars, aks, ldb, ldc)
		f.Gemm(whole.x, ldc, a, ars, aks, b, ldb, rows, k, acc)
		equal(t, what, whole.x, c.x)
		whole.check(t, what)
		if k < 2 {
			continue
		}
		cut := 1 + r.IntN(k-1)
		f.Gemm(split.x, ldc, a, ars, aks, b, ldb, rows, cut, acc)
		f.Gemm(split.x, ldc, a[cut*aks:], ars, aks, b[cut*ldb:], ldb, rows, k-cut, true)
		equal(t, what+" split", split.x, c.x)
	}
}

func TestGemmIsOneChainPerOutput(t *testing.T) {
	for _, c := range Available() {
		f, err := For(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(c.String(), func(t *testing.T) {
			r := rand.New(rand.NewPCG(14, 15))
			for name, next := range sources(r) {
				for rows := 1; rows <= 2*f.MaxRows+1; rows++ {
					for _, k := range []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 1 + r.IntN(60)} {
						compareGemm(t, r, f, name, rows, k, next)
					}
				}
				if !testing.Short() {
					compareGemm(t, r, f, name, f.MaxRows, 300+r.IntN(100), next)
					compareGemm(t, r, f, name, 64, 100+r.IntN(100), next)
				}
			}
			f.Gemm(nil, Panel, nil, 1, 1, nil, Panel, 0, 3, false) // no rows: nothing is touched
		})
	}
}

// Whatever memory a product prefetches, its bits are the same: none, a panel elsewhere, or its
// own.
func TestGemmNextHasTheBitsOfGemm(t *testing.T) {
	r := rand.New(rand.NewPCG(24, 25))
	for _, c := range Available() {
		f, err := For(c)
		if err != nil {
			t.Fatal(err)
		}
		for rows := 1; rows <= 2*f.MaxRows+1; rows++ {
			for _, k := range []int{0, 1, 4, 7, 32, 64, 140} {
				acc := k%2 == 0
				a, b, other := fill(r, rows*k), fill(r, k*Panel), fill(r, k*Panel)
				want := fill(r, rows*Panel)
				for i, next := range [][]float32{nil, b, other} {
					got := slices.Clone(want)
					f.GemmNext(got, Panel, a, k, 1, b, rows, k, acc, next)
					ref := slices.Clone(want)
					f.Gemm(ref, Panel, a, k, 1, b, Panel, rows, k, acc)
					if !slices.Equal(got, ref) {
						t.Fatalf("%v, %d rows, k %d, next %d: GemmNext differs from Gemm", c, rows, k, i)
					}
				}
				half := make([]uint16, BF16PanelLen(k))
				PackBF16(half, fill(r, k*Panel), Panel, k, k)
				for i, next := range [][]uint16{nil, half, make([]uint16, len(half))} {
					got := slices.Clone(want)
					f.GemmBF16Next(got, Panel, a, k, 1, half, rows, k, acc, next)
					ref := slices.Clone(want)
					f.GemmBF16(ref, Panel, a, k, 1, half, rows, k, acc)
					if !slices.Equal(got, ref) {
						t.Fatalf("%v, %d rows, k %d, next %d: GemmBF16Next differs from GemmBF16", c, rows, k, i)
					}
				}
			}
		}
	}
}

func FuzzGemm(f *testing.F) {
	f.Add(uint64(1), uint8(3), uint8(17))
	f.Fuzz(func(t *testing.T, seed uint64, rows, k uint8) {
		for _, c := range Available() {
			g, err := For(c)
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(seed, 1))
			compareGemm(t, r, g, "fuzz", 1+int(rows)%70, int(k), func() float32 { return randBits(r) })
		}
	})
}

func TestGemmRefusesSlicesThatAreTooShort(t *testing.T) {
	for _, c := range Available() {
		f, err := For(c)
		if err != nil {
			t.Fatal(err)
		}
		for i, short := range [][3]int{{2*Panel - 1, 14, 7 * Panel}, {2 * Panel, 13, 7 * Panel}, {2 * Panel, 14, 7*Panel - 1}} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%v: case %d did not panic", c, i)
					}
				}()
				f.Gemm(make([]float32, short[0]), Panel, make([]float32, short[1]), 7, 1, make([]float32, short[2]), Panel, 2, 7, false)
			}()
		}
	}
}
