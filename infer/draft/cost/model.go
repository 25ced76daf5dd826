package cost

// A Model is what the passes of rounds cost now, in seconds: learned while they run, and the one
// thing that everything which shares passes looks at. The zero value knows nothing.
type Model struct {
	curve          Curve // of the target's passes over draft trees
	meter          Meter
	prompts        Ratio  // seconds that rows of prompts add to such a pass, per row
	first, further Affine // passes of a draft model: the first of a round, which runs what was accepted too, and the others
	rest           Affine // the rest of a round, by sequences
}

// AddTarget takes the measure of a pass of the target over draft trees alone.
func (m *Model) AddTarget(rows int, seconds float64) { m.meter.Add(&m.curve, rows, seconds) }

// Target returns what a pass over draft trees of so many rows costs, 0 if that is unknown.
func (m *Model) Target(rows int) float64 { return m.meter.Level * m.curve.Cost(rows) }

// Knows reports whether a pass over about so many rows was seen lately.
func (m *Model) Knows(rows int) bool { return m.curve.Knows(rows) }

// AddPrompts takes the measure of a pass over rows of draft trees and rows of prompts. Those of
// prompts cost less: no next token is read from most of them.
func (m *Model) AddPrompts(rows, prompts int, seconds float64) {
	if base := m.Target(rows); base > 0 {
		extra := max(0, seconds-base)
		if m.prompts.Of > 0 { // an outlier is time that the machine spent on something else
			extra = min(extra, 4*m.prompts.Value(0, 0)*float64(prompts))
		}
		m.prompts.Add(extra, float64(prompts))
	}
}

// Prompt returns what a row of a prompt adds to a pass, 0 if that is unknown.
func (m *Model) Prompt() float64 {
	if m.prompts.Of == 0 {
		return 0
	}
	return m.prompts.Value(0, 0)
}

func (m *Model) draft(first bool) *Affine {
	if first {
		return &m.first
	}
	return &m.further
}

// AddDraft takes the measure of a pass of a draft model; first says that it is the first of its
// round.
func (m *Model) AddDraft(first bool, nodes int, seconds float64) {
	m.draft(first).Add(float64(nodes), seconds)
}

// Draft returns what a pass of a draft model costs: a part for the pass, and one for each node.
// Without samples of one kind, those of the other count.
func (m *Model) Draft(first bool) (pass, node float64, ok bool) {
	if pass, node, ok = m.draft(first).Fit(); !ok {
		pass, node, ok = m.draft(!first).Fit()
	}
	return pass, node, ok
}

// AddRest takes the measure of all that a round of so many sequences took beside its passes.
func (m *Model) AddRest(sequences int, seconds float64) { m.rest.Add(float64(sequences), seconds) }

// Rest returns what a round of so many sequences costs beside its passes.
func (m *Model) Rest(sequences int) float64 {
	a, b, _ := m.rest.Fit()
	return a + b*float64(sequences)
}
