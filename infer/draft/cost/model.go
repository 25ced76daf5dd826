package cost

import (
	"slices"

	"talf/infer/experts"
)

// A Model is what the passes of rounds cost now, in seconds: learned while they run, and the one
// thing that everything which shares passes looks at. The zero value knows nothing.
type Model struct {
	curve  Curve // of the target's passes over draft trees
	meter  Meter
	prompt float64 // what a row of a prompt adds to such a pass, as the curve counts
	mixed  int     // passes that had some, known at most
	// Rows of trees and of prompts in the last pass, 0 prompts if it had none.
	beside, prompts int
	// The first samples of it: their median is the price. The meter is that of a pass without
	// interruptions, so a mean would charge all of them to the prompts, and the fewer rows these
	// then get the more each would be charged.
	sorted         [known]float64
	first, further Affine // passes of a draft model: the first of a round, which runs what was accepted too, and the others
	reading        Ratio  // seconds by tokens that a draft model has to read before it drafts
	rest           Affine // the rest of a round, by sequences
}

// AddTarget takes the measure of a pass of the target over draft trees alone, which read these
// experts.
func (m *Model) AddTarget(rows int, x experts.Read, seconds float64) {
	was := m.meter.Level
	m.meter.Add(&m.curve, rows, x, seconds)
	if n := float64(m.prompts); n > 0 && m.mixed == known {
		// Passes with prompts were told right, and are to be: what trees cost less, prompts cost more.
		base := m.curve.Cost(m.beside)
		m.prompt = max((base+m.prompt*n)*was/m.meter.Level-base, leastPrompt*base) / n
	}
	m.prompts = 0
}

// Target returns what a pass over draft trees of so many rows costs, 0 if that is unknown.
func (m *Model) Target(rows int) float64 { return m.meter.Level * m.curve.Cost(rows) }

// Knows reports whether a pass over about so many rows was seen lately.
func (m *Model) Knows(rows int) bool { return m.curve.Knows(rows) }

// AddPrompts takes the measure of a pass over rows of draft trees and rows of prompts. Those of
// prompts cost less: no next token is read from most of them. What such a pass takes longer than it
// is told to cannot be charged to either kind of rows, and is the machine's or a longer context's;
// the next pass without prompts sets that right.
func (m *Model) AddPrompts(rows, prompts int, seconds float64) {
	base := m.curve.Cost(rows)
	if m.meter.Level == 0 || base == 0 {
		return
	}
	m.beside, m.prompts = rows, prompts
	price := max(seconds/m.meter.Level-base, leastPrompt*base) / float64(prompts)
	switch {
	case m.mixed < known:
		m.sorted[m.mixed] = price
		m.mixed++
		slices.Sort(m.sorted[:m.mixed])
		m.prompt = m.sorted[(m.mixed-1)/2]
	case price > m.prompt:
		m.meter.Level *= 1 + medianStep
	default:
		m.meter.Level /= 1 + medianStep
	}
}

const (
	known       = 16   // mixed passes after which the price of a prompt's row follows from passes without prompts
	medianStep  = 0.02 // by which the level then follows the median of such passes, however long one took
	leastPrompt = 0.01 // of a pass: the least that the rows of a prompt are taken to cost
)

// Prompt returns what a row of a prompt adds to a pass, 0 if that is unknown.
func (m *Model) Prompt() float64 { return m.meter.Level * m.prompt }

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

// AddReading takes the measure of what a pass of a draft model took longer because it read so many
// tokens.
func (m *Model) AddReading(tokens int, seconds float64) {
	if was := m.Reading(); was > 0 { // an outlier is time that the machine spent on something else
		seconds = min(seconds, 4*was*float64(tokens))
	}
	m.reading.Add(max(seconds, 0), float64(tokens))
}

// Reading returns what a token costs that a draft model reads; before one was read as much as a node
// that it is asked for, which is more.
func (m *Model) Reading() float64 {
	if m.reading.Of > 0 {
		return m.reading.Value(0, 0)
	}
	_, node, _ := m.Draft(false)
	return node
}

// AddRest takes the measure of all that a round of so many sequences took beside its passes.
func (m *Model) AddRest(sequences int, seconds float64) { m.rest.Add(float64(sequences), seconds) }

// Rest returns what a round of so many sequences costs beside its passes.
func (m *Model) Rest(sequences int) float64 {
	a, b, _ := m.rest.Fit()
	return a + b*float64(sequences)
}
