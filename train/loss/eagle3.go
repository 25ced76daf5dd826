package loss

import "talf/internal/spec"

// eagle3 is training-time test (EAGLE-3, Li et al. 2025, arXiv 2503.01840, §3.2): the head is unrolled
// over its own outputs along the text. Step k at root i is fed x_{i+1+k} and, for k > 0, what step
// k−1 of the same root fed back; it attends to the first steps of roots 0 to i and to its own
// earlier ones, and its label is the target's distribution after x_{i+1+k}. Gradients flow through
// everything that is fed back. The loss is Σ_k decay^k · CE of step k, without a regression.
//
// Which rows count differs between published trainers. mask=token counts a row if the token that it
// predicts is to be learnt. speculators asks this of the token before, EAGLE and SpecForge of the
// one before that. Either way the sum is divided by the number of roots that count, where EAGLE
// and SpecForge divide by all positions, padding included, and speculators by the rows of each step.
type eagle3 struct {
	soft
	steps, early int
	decay        float32
	detach       bool
}

// The masks of eagle3, by how many places they are early.
var eagle3Masks = []string{"token", "speculators", "eagle"}

func eagle3Method() Method {
	return Method{
		Line: spec.Line{
			Name: "eagle3", Doc: "cross-entropy in several steps along the text, the head following its own features: training-time test (EAGLE-3)",
			Params: append([]spec.Param{
				spec.Int("steps", 7, 1, 16, "steps from every position"),
				spec.Float("decay", 0.8, spec.Closed(0.001, 1000), "weight of a step over that of the step before"),
				spec.Choice("mask", "which rows count: those whose predicted token is to be learnt (token), or the token before (speculators), or the one before that (eagle, as SpecForge)", eagle3Masks...),
				spec.Choice("feed", "gradient through what is fed back: flow or detach (none)", "flow", "detach"),
			}, textParams(Mask, Renorm, Drop)...),
		},
		New: newEAGLE3,
	}
}

func newEAGLE3(v spec.Values) (Loss, error) {
	e := eagle3{soft: newSoft(v), steps: v.Int("steps"), decay: v.Float32("decay"), detach: v.Text("feed") == "detach"}
	for i, m := range eagle3Masks {
		if v.Text("mask") == m {
			e.early = i
		}
	}
	return e, nil
}

func (e eagle3) Plan(d Labelling) (Plan, error) {
	return Plan{
		Levels: e.steps, Text: true, Once: true, Early: e.early, Undrafted: true, Detach: e.detach,
		Outside: e.outside, Tail: e.tail, Temp: e.temp, Exact: e.exact(d),
	}, e.check(d)
}

func (e eagle3) Build(in Inputs) []Term {
	var ts []Term
	w := float32(1)
	for l := range in.FHat {
		ts = append(ts, e.cls(in, l, w))
		w *= e.decay
	}
	return ts
}
