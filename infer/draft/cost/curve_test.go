package cost

import (
	"math"
	"math/rand/v2"
	"testing"

	"talf/infer/experts"
)

// A busy machine, a longer context and interrupted passes change how long passes take, but not
// their costs relative to each other.
func TestCurveIsThatOfAQuietMachine(t *testing.T) {
	want := func(rows int) float64 { return 1 + 0.05*float64(rows-1) }
	var c Curve
	rng := rand.New(rand.NewPCG(1, 2))
	var m Meter
	load := 1.0
	for i := range 4000 {
		if i%64 == 0 { // another request, whose context is up to twice as expensive
			m = Meter{Level: m.Level}
			load = 1 + rng.Float64()
		}
		rows := 1
		if rng.Float64() < 0.6 {
			rows = 1 << rng.IntN(5)
		}
		took := 1e-3 * load * want(rows) * math.Exp(0.1*rng.NormFloat64())
		if rng.Float64() < 0.03 {
			took *= 10
		}
		m.Add(&c, rows, experts.Read{}, took)
	}
	for _, rows := range []int{2, 4, 8, 16} {
		if got := c.Cost(rows) / c.Cost(1); math.Abs(got/want(rows)-1) > 0.15 {
			t.Errorf("%d rows cost %.3f of one, want about %.3f", rows, got, want(rows))
		}
	}
	if got := m.Level / (1e-3 * load); math.Abs(got-1) > 0.2 {
		t.Errorf("a pass of one row takes %.2f of what it does", got)
	}
}

// One interrupted pass of a new size must not keep that size from being tried for ever.
func TestAPassThatIsInterruptedIsForgotten(t *testing.T) {
	var c Curve
	var m Meter
	for range 20 {
		m.Add(&c, 1, experts.Read{}, 1e-3)
	}
	m.Add(&c, 8, experts.Read{}, 50e-3)
	if got := c.Cost(8); got > 2.5 {
		t.Errorf("8 rows are taken to cost %.1f after one pass, want at most 2.5", got)
	}
	for range 40 {
		m.Add(&c, 1, experts.Read{}, 1e-3)
		m.Add(&c, 8, experts.Read{}, 1.2e-3)
	}
	if got := c.Cost(8); math.Abs(got-1.2) > 0.15 {
		t.Errorf("8 rows are taken to cost %.2f, want about 1.2", got)
	}
}

// A request with a much longer context measures itself within a few passes.
func TestMetersFollowTheRequest(t *testing.T) {
	var c Curve
	m := Meter{}
	for range 50 {
		m.Add(&c, 1, experts.Read{}, 1e-3)
		m.Add(&c, 4, experts.Read{}, 1.5e-3)
	}
	next := Meter{Level: m.Level}
	for range 3 {
		next.Add(&c, 1, experts.Read{}, 2e-3)
	}
	if got := next.Level; got < 1.8e-3 || got > 2.1e-3 {
		t.Errorf("a pass is taken to take %.4f s after three, want about 0.002", got)
	}
	if got := c.Cost(4) / c.Cost(1); math.Abs(got-1.5) > 0.1 {
		t.Errorf("4 rows cost %.2f of one, want 1.5: a context is not a size", got)
	}
}

// A size that is new and dear, and then taken in every round for long, is no sign of a slower machine: until there is a pass
// of one row again, all that its passes take longer is mostly theirs.
func TestANewSizeIsNoSlowerMachine(t *testing.T) {
	var c Curve
	var m Meter
	for range 4 {
		m.Add(&c, 1, experts.Read{}, 1e-3)
		m.Add(&c, 4, experts.Read{}, 1.06e-3)
	}
	for range 40 {
		m.Add(&c, 8, experts.Read{}, 3.14e-3)
	}
	if one := m.Level * c.Cost(1); math.Abs(one-1e-3) > 0.12e-3 {
		t.Errorf("a pass of one row is taken to take %.3f ms, want 1", 1e3*one)
	}
	if eight := m.Level * c.Cost(8); math.Abs(eight-3.14e-3) > 0.1e-3 {
		t.Errorf("a pass of 8 is taken to take %.3f ms, want 3.14", 1e3*eight)
	}
	// One that is known has become slower with the machine.
	for range 20 {
		m.Add(&c, 1, experts.Read{}, 1e-3)
		m.Add(&c, 8, experts.Read{}, 3.14e-3)
	}
	for range 40 {
		m.Add(&c, 8, experts.Read{}, 6.28e-3)
	}
	if one := m.Level * c.Cost(1); one < 1.5e-3 {
		t.Errorf("after passes of 8 that take twice as long, one of one row is taken to take %.3f ms, want about 2", 1e3*one)
	}
}

// Known costs grow with the rows, whatever was measured.
func TestCurveNeverFalls(t *testing.T) {
	var c Curve
	if c.Cost(7) != 0 {
		t.Error("an empty curve knows a cost")
	}
	var m Meter
	for i, rows := range []int{1, 16, 4, 2, 40, 300, 9, 4096} {
		m.Add(&c, rows, experts.Read{}, 1e-3/float64(i+1))
	}
	m.Add(&c, 0, experts.Read{}, 1)
	m.Add(&c, 3, experts.Read{}, 0)
	m.Add(&c, 3, experts.Read{}, math.NaN())
	last := 0.0
	for rows := 1; rows <= 5000; rows++ {
		got := c.Cost(rows)
		if !(got >= last) {
			t.Fatalf("%d rows cost %v, %d cost %v", rows, got, rows-1, last)
		}
		last = got
	}
}

// What a curve has told since the last pass is what it would say now.
func TestCostsAreThoseOfTheLastPass(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, of := range []int{0, 8} {
		var c Curve
		var m Meter
		for i := range 400 {
			rows := 1 + rng.IntN(80)
			x := experts.Read{Of: of, Top: of / 4, Layers: of, Distinct: min(2*of*rows, of*of), Share: 0.01}
			m.Add(&c, rows, x, 1e-3*(1+0.1*float64(rows))*math.Exp(0.2*rng.NormFloat64()))
			for range 2 {
				for n := range 70 {
					if got, want := c.Cost(n), c.cost(float64(n)); got != want {
						t.Fatalf("after %d passes %d rows cost %v, want %v", i+1, n, got, want)
					}
				}
			}
		}
	}
}
