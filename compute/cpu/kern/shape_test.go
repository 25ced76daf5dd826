package kern

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// shaped returns the tables whose products can be cut in several ways.
func shaped(t *testing.T) (fs []*Funcs) {
	for _, f := range others(t) {
		if f.cut != nil {
			fs = append(fs, f)
		}
	}
	if len(fs) == 0 {
		t.Skip("no class here has several shapes")
	}
	return fs
}

// Every shape that is tried, and odd ones, give the portable bits.
func TestEveryShapeHasThePortableBits(t *testing.T) {
	shapes := append([]Shape{{1, 4}, {3, 8}, {12, 4}, {7, 1000}}, slices.Concat(triedQ8, triedQ4, triedF32)...)
	for _, f := range shaped(t) {
		r := rand.New(rand.NewPCG(51, 52))
		for _, s := range shapes {
			for name, next := range sources(r) {
				for _, rows := range []int{1, 12, 13, 16, 33, 64} {
					if s.Rows <= f.MaxRows {
						g, err := f.With(Shapes{F32: s})
						if err != nil {
							t.Fatal(err)
						}
						compareGemm(t, r, g, name, rows, 1+r.IntN(40), next)
						compareGemm(t, r, g, name, rows, 250+r.IntN(40), next)
					}
					for i := range f.Shapes.Q8 {
						if f.Shapes.Q8[i] == (Shape{}) || s.Rows > f.MaxRowsQ8 {
							continue
						}
						var by Shapes
						by.Q8[i] = s
						g, err := f.With(by)
						if err != nil {
							t.Fatal(err)
						}
						compareQ8(t, r, g, name, rows, 1+r.IntN(600), i+1, next)
					}
					for i := range f.Shapes.Q4 {
						if f.Shapes.Q4[i] == (Shape{}) || s.Rows > f.MaxRowsQ4 {
							continue
						}
						var by Shapes
						by.Q4[i] = s
						g, err := f.With(by)
						if err != nil {
							t.Fatal(err)
						}
						compareQ4(t, r, g, name, rows, Q4KBlock*(1+r.IntN(4)), i+1, next)
					}
				}
			}
		}
	}
}

// Measuring chooses a shape that it tried, or leaves that of the table, however little time it has.
func TestTuningChoosesFromWhatItTries(t *testing.T) {
	for _, f := range shaped(t) {
		in := func(s, own Shape, tried []Shape) bool { return s == own || slices.Contains(tried, s) }
		for _, most := range []time.Duration{0, mostTuning} {
			g := f.tune(most)
			t.Logf("%v: %v", f.Class, g.Shapes)
			if !in(g.Shapes.F32, f.Shapes.F32, triedF32) || !in(g.Shapes.Q8[0], f.Shapes.Q8[0], triedQ8) || !in(g.Shapes.Q8[1], f.Shapes.Q8[1], triedQ8) ||
				!in(g.Shapes.Q4[0], f.Shapes.Q4[0], triedQ4) || !in(g.Shapes.Q4[1], f.Shapes.Q4[1], triedQ4) {
				t.Errorf("%v: shapes %v were not tried", f.Class, g.Shapes)
			}
		}
		again, err := Tuned(f.Class)
		if err != nil {
			t.Fatal(err)
		}
		if third, _ := Tuned(f.Class); third != again {
			t.Errorf("%v: shapes are measured twice", f.Class)
		}
	}
	if f, err := Tuned(Portable); err != nil || f.Class != Portable {
		t.Errorf("portable: %v, %v", f, err)
	}
}

func TestShapesInText(t *testing.T) {
	want := Shapes{F32: Shape{14, 256}, Q8: [2]Shape{{7, 16}, {8, 12}}, Q4: [2]Shape{{6, 1024}, {8, 16}}}
	got, err := ParseShapes(want.String())
	if err != nil || got != want {
		t.Errorf("%v is read as %v, %v", want, got, err)
	}
	if got, err := ParseShapes("q8x2=7/12"); err != nil || got != (Shapes{Q8: [2]Shape{1: {7, 12}}}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "f32", "f32=8", "f32=8/", "q8=7/12", "f32=a/8", "f32=8/8,", "q4=7/12"} {
		if s, err := ParseShapes(bad); err == nil {
			t.Errorf("%q is read as %v", bad, s)
		}
	}
	for _, f := range shaped(t) {
		for _, bad := range []string{"f32=15/128", "f32=14/130", "f32=-1/128", "f32=8/0", "q8x1=13/8", "q8x2=1/100000", "q4x1=13/8", "q4x2=1/0"} {
			s, err := ParseShapes(bad)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.With(s); err == nil {
				t.Errorf("%v accepts %s", f.Class, bad)
			}
		}
	}
}

// A product of rows that are cut runs for every panel of every matrix: it allocates nothing.
func TestCutProductsDoNotAllocate(t *testing.T) {
	for _, f := range others(t) {
		const rows, k = 33, Q4KBlock // more than any kernel has
		x, c := make([]float32, rows*k), make([]float32, rows*Panel)
		w := make([]byte, 4*k*Panel)
		half := make([]uint16, k*Panel)
		f32 := make([]float32, k*Panel)
		for planes := 1; planes <= 2; planes++ {
			a := make([]uint32, rows*Q8ALen(k))
			for r := range rows {
				f.QuantA(a[r*Q8ALen(k):][:Q8ALen(k)], x[r*k:][:k], planes)
			}
			for name, product := range map[string]func(){
				"f32":  func() { f.Gemm(c, Panel, x, k, 1, f32, Panel, rows, k, false) },
				"bf16": func() { f.GemmBF16(c, Panel, x, k, 1, half, rows, k, false) },
				"q8":   func() { f.GemmQ8(c, Panel, a, Q8ALen(k), w, rows, k/Q8Block, planes, false) },
				"q4":   func() { f.GemmQ4(c, Panel, a, Q8ALen(k), w, rows, k/Q8Block, planes, false) },
				"q6k":  func() { f.GemmQ6K(c, Panel, a, Q8ALen(k), w, rows, k/Q4KBlock, planes, false) },
				"q4k":  func() { f.GemmQ4K(c, Panel, a, Q8ALen(k), w, rows, k/Q4KBlock, planes, false) },
			} {
				if n := testing.AllocsPerRun(10, product); n != 0 {
					t.Errorf("%v, %s, %d planes: %g allocations", f.Class, name, planes, n)
				}
			}
		}
	}
}
