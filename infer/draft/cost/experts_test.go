package cost

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"talf/infer/experts"
)

// A routed target has layers of experts of which each row chooses some; part of the choices are
// those of the tree's first row.
type routed struct {
	x     experts.Read
	alike float64 // probability that a row chooses as the first one
	rest  func(rows int) float64
	each  float64 // seconds of an expert
	rng   *rand.Rand
}

func newRouted(of, top int, alike float64) *routed {
	r := &routed{
		x:     experts.Read{Of: of, Top: top, Layers: 6},
		alike: alike, each: 0.02e-3,
		rest: func(rows int) float64 { return 0.6e-3 + 0.004e-3*float64(rows) },
		rng:  rand.New(rand.NewPCG(3, uint64(of))),
	}
	r.x.Share = r.each / (r.rest(1) + r.each*float64(top*r.x.Layers))
	return r
}

// pass returns what a pass over rows reads, and its seconds.
func (r *routed) pass(rows int) (experts.Read, float64) {
	x := r.x
	for range x.Layers {
		seen := make([]bool, x.Of)
		for i := range rows {
			if i > 0 && r.rng.Float64() < r.alike {
				continue
			}
			for _, e := range r.rng.Perm(x.Of)[:x.Top] {
				seen[e] = true
			}
		}
		for _, s := range seen {
			if s {
				x.Distinct++
			}
		}
	}
	return x, r.rest(rows) + r.each*float64(x.Distinct)
}

// mean is what passes over rows read and cost on average.
func (r *routed) mean(rows int) (read, seconds float64) {
	const n = 40
	for range n {
		x, s := r.pass(rows)
		read, seconds = read+float64(x.Distinct)/n, seconds+s/n
	}
	return read, seconds
}

// Costs of passes over a mixture follow the different experts that they read: between sizes that were
// measured and beyond them, however much rows agree.
func TestCurvesFollowExperts(t *testing.T) {
	for _, x := range []struct {
		of, top int
		alike   float64
	}{{32, 4, 0}, {64, 8, 0}, {64, 4, 0.5}, {128, 8, 0.8}, {8, 2, 0}} {
		r := newRouted(x.of, x.top, x.alike)
		var c Curve
		var m Meter
		for range 40 {
			for _, rows := range []int{1, 4, 16} {
				e, s := r.pass(rows)
				m.Add(&c, rows, e, s*math.Exp(0.03*r.rng.NormFloat64()))
			}
		}
		for _, rows := range []int{1, 2, 4, 6, 8, 12, 16, 24, 32, 64} {
			read, want := r.mean(rows)
			got := m.Level * c.Cost(rows)
			bound := 0.1
			if rows > 16 {
				bound = 0.2 // never measured
			}
			if math.Abs(got/want-1) > bound {
				t.Errorf("%+v: %d rows cost %.4f ms, want about %.4f", x, rows, got*1e3, want*1e3)
			}
			if got := c.Read(rows); math.Abs(got/read-1) > 1.5*bound {
				t.Errorf("%+v: %d rows read %.1f experts, want about %.1f", x, rows, got, read)
			}
		}
	}
}

// From one pass of a row it is known that more rows read more experts.
func TestOneRowSaysWhatExpertsWillCost(t *testing.T) {
	r := newRouted(64, 8, 0)
	var c Curve
	e, s := r.pass(1)
	new(Meter).Add(&c, 1, e, s)
	_, one := r.mean(1)
	_, eight := r.mean(8)
	if got := c.Cost(8); math.Abs(got/(eight/one)-1) > 0.15 {
		t.Errorf("8 rows are taken to cost %.2f of one, want about %.2f", got, eight/one)
	}
}

// A pass that reads more experts than others of its size says nothing about the machine's speed, and
// nothing about the size; where experts cost less than their bytes say, that is learnt.
func TestPassesThatReadMoreAreToldApart(t *testing.T) {
	for _, dear := range []float64{1, 0.4} {
		r := newRouted(64, 4, 0)
		r.x.Share /= dear
		var c Curve
		var m Meter
		for range 400 {
			r.alike = r.rng.Float64()
			for _, rows := range []int{1, 8} {
				e, s := r.pass(rows)
				m.Add(&c, rows, e, s*math.Exp(0.03*r.rng.NormFloat64()))
			}
		}
		for _, alike := range []float64{0, 1} {
			r.alike = alike
			e, want := r.pass(8)
			if got := m.Level * c.CostOf(8, e); math.Abs(got/want-1) > 0.12 {
				t.Errorf("share over %.1f, rows alike %v: %d experts cost %.4f ms, want %.4f", dear, alike, e.Distinct, got*1e3, want*1e3)
			}
		}
	}
}

// Costs never fall, whatever passes read.
func TestCurvesOfExpertsNeverFall(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for range 100 {
		x := experts.Read{Of: 2 + rng.IntN(100), Layers: 1 + rng.IntN(9), Share: math.Exp(-8 * rng.Float64())}
		x.Top = 1 + rng.IntN(x.Of)
		var c Curve
		var m Meter
		for range 1 + rng.IntN(30) {
			rows := 1 + rng.IntN(300)
			x.Distinct = x.Layers * (x.Top + rng.IntN(x.Of-x.Top+1))
			m.Add(&c, rows, x, math.Exp(2*rng.NormFloat64()))
			m.Add(&c, rows, experts.Read{}, math.Exp(2*rng.NormFloat64())) // of an engine that does not say
		}
		last := 0.0
		for rows := 1; rows <= 400; rows++ {
			got := c.Cost(rows)
			if !(got >= last*(1-1e-12)) || math.IsInf(got, 0) {
				t.Fatalf("%+v: %d rows cost %v, %d cost %v", x, rows, got, rows-1, last)
			}
			last = got
		}
	}
}

// Trees whose rows choose the same experts may come after one whose rows chose many. What their passes cost
// falls, but not to nothing, from where it could not rise again.
func TestCostsStayPositive(t *testing.T) {
	for _, later := range []float64{0.3, 1, 3} {
		x := experts.Read{Of: 64, Top: 4, Layers: 8, Share: 1.0 / 33}
		var c Curve
		var m Meter
		add := func(rows, distinct int, seconds float64) {
			x.Distinct = distinct
			m.Add(&c, rows, x, seconds)
		}
		add(1, 32, 1e-3)
		add(8, 210, 2e-3)
		for i := range 40 {
			add(8, 32, later*1e-3)
			if p := c.at[bucket(8)]; !(p.cost > 0) {
				t.Fatalf("after %d passes of %v ms 8 rows cost %v", i+1, later, p.cost)
			}
		}
	}
}

// Twenty rounds of passes over trees of 1 to 64 rows, timed on a machine like any other, are enough: no
// size keeps what its first passes took by chance, and the smallest, by which others are measured, does not
// either, even if the first pass of all was far too slow or fast.
func TestNoSizeKeepsTheChanceOfItsFirstPasses(t *testing.T) {
	const seeds, rounds = 40, 20
	sizes := []int{1, 2, 4, 8, 16, 32, 64}
	for _, x := range []struct {
		name  string
		alike float64
		first float64 // factor of the first pass
		bound float64 // of 9 in 10 predictions after the last round
	}{
		{"rows choose by themselves", 0, 1, 0.12},
		{"rows choose alike", 0.8, 1, 0.12},
		{"a slow first pass", 0.8, 3, 0.25},
		{"a fast first pass", 0.8, 0.6, 0.15},
	} {
		off, want := map[int][]float64{}, map[int]float64{}
		for seed := range uint64(seeds) {
			r := newRouted(32, 4, x.alike)
			r.rng = rand.New(rand.NewPCG(seed, 7))
			r.rest = func(rows int) float64 { return 0.5e-3 + 0.08e-3*float64(rows) }
			r.x.Share = r.each / (r.rest(1) + r.each*float64(r.x.Top*r.x.Layers))
			var c Curve
			var m Meter
			for i := range rounds {
				for _, rows := range sizes {
					e, s := r.pass(rows)
					s *= math.Exp(0.1 * r.rng.NormFloat64())
					if r.rng.Float64() < 0.05 { // interrupted
						s *= 1 + 3*r.rng.Float64()
					}
					if i == 0 && rows == 1 {
						s *= x.first
					}
					m.Add(&c, rows, e, s)
				}
			}
			for _, rows := range sizes {
				if seed == 0 {
					_, want[rows] = r.mean(rows)
				}
				off[rows] = append(off[rows], math.Abs(m.Level*c.Cost(rows)/want[rows]-1))
			}
		}
		for _, rows := range sizes {
			slices.Sort(off[rows])
			if got := off[rows][seeds*9/10]; got > x.bound {
				t.Errorf("%s: one in ten predictions for %d rows is off by %.0f%% or more, want %.0f%% at most", x.name, rows, 100*got, 100*x.bound)
			}
		}
	}
}
