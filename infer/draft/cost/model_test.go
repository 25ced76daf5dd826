package cost

import (
	"math"
	"math/rand/v2"
	"testing"

	"talf/infer/experts"
)

// A model tells rows of trees from rows of prompts, and follows contexts that grow while prompts
// are read and few passes are without them.
func TestAModelFollowsPassesThatReadPrompts(t *testing.T) {
	var m Model
	rng := rand.New(rand.NewPCG(8, 3))
	noise := func() float64 {
		if rng.Float64() < 0.05 {
			return 4
		}
		return math.Exp(0.05 * rng.NormFloat64())
	}
	const base, row, prompt = 1e-3, 1e-4, 3e-5
	for range 40 {
		for rows := 1; rows <= 32; rows *= 2 {
			m.AddTarget(rows, experts.Read{}, (base+row*float64(rows))*noise())
		}
	}
	near := func(what string, got, want, by float64) {
		t.Helper()
		if math.Abs(got/want-1) > by {
			t.Errorf("%s costs %.3g s, want about %.3g", what, got, want)
		}
	}
	near("a pass of 8 rows", m.Target(8), base+8*row, 0.15)
	if m.Prompt() != 0 {
		t.Errorf("a row of a prompt costs %.3g s before any was read", m.Prompt())
	}
	for range 60 {
		n := 8 + rng.IntN(40)
		m.AddPrompts(4, n, (base+4*row+prompt*float64(n))*noise())
	}
	near("a row of a prompt", m.Prompt(), prompt, 0.4)
	near("a pass of 4 rows", m.Target(4), base+4*row, 0.2)
	for i := range 400 { // everything becomes three times as expensive
		longer := 1 + 2*float64(i)/400
		if i%16 == 0 {
			m.AddTarget(4, experts.Read{}, longer*(base+4*row)*noise())
			continue
		}
		m.AddPrompts(4, 30, longer*(base+4*row+prompt*30)*noise())
	}
	near("a pass of 4 rows with 30 of prompts, later", m.Target(4)+30*m.Prompt(), 3*(base+4*row+prompt*30), 0.2)
	near("a pass of 4 rows, later", m.Target(4), 3*(base+4*row), 0.2)
}

// What a draft model's passes cost is told apart by their place in the round.
func TestAModelTellsFirstPasses(t *testing.T) {
	var m Model
	if _, _, ok := m.Draft(true); ok {
		t.Error("the costs of passes that never ran are known")
	}
	for n := 1; n <= 8; n++ {
		m.AddDraft(false, n, 1e-4+1e-5*float64(n))
	}
	pass, node, ok := m.Draft(true)
	if !ok || math.Abs(pass-1e-4) > 1e-6 || math.Abs(node-1e-5) > 1e-7 {
		t.Errorf("without first passes, one costs %.3g s and %.3g a node, %v", pass, node, ok)
	}
	m.AddDraft(true, 4, 5e-4)
	if pass, _, _ := m.Draft(true); math.Abs(pass-5e-4) > 1e-6 {
		t.Errorf("a first pass costs %.3g s", pass)
	}
	m.AddRest(4, 2e-4)
	if r := m.Rest(4); math.Abs(r-2e-4) > 1e-6 {
		t.Errorf("the rest of a round costs %.3g s", r)
	}
}
