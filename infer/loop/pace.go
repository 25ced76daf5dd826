package loop

import (
	"talf/infer"
	"talf/infer/draft/cost"
)

// A Pace compares decoding as it goes with plain decoding of the same requests, over about the
// last paceWindow passes. It is zero until there are enough.
type Pace struct {
	Tau     float64 // tokens of a round
	Even    float64 // tokens that plain decoding would put out in the time of a round: below it, drafts cost time
	Drafted float64 // share of rounds with a draft
	Losing  bool    // drafts cost time, and have for a while
}

// Speedup is the speed against that of plain decoding, 0 if it is not known.
func (p *Pace) Speedup() float64 {
	if p.Even == 0 {
		return 0
	}
	return p.Tau / p.Even
}

const (
	paceWindow = 256  // passes whose weight is more than 1/e
	paceLeast  = 64   // passes before there is a Pace
	losing     = 0.95 // a speed-up below which drafts lose: costs are not measured better than that
	winning    = 1    // and above which they do so no longer
	hardly     = 0.02 // share of rounds with a draft below which drafts cost nothing to speak of
)

// A pacer measures a Pace. Passes that read prompts are left out: drafts do not change their time.
type pacer struct {
	passes  int
	rounds  float64 // of sequences; of this and the next, older passes count less
	tokens  float64
	plain   float64 // tokens of plain decoding in the same time
	drafted float64 // rounds with a draft
	draft   float64 // seconds of the draft model in a pass that asked it
	losing  bool
}

// add takes a pass that put out so many tokens in rounds of which some had drafts. What passes of
// the target cost is m's, with drafts and without: a pass that the machine interrupted must not look as
// if its drafts had cost the time.
func (p *pacer) add(pass *infer.Pass, tokens, drafts int, m *cost.Model) {
	with, without := m.Target(pass.Rows), m.Target(pass.Trees)
	if pass.Trees == 0 || pass.Prompt > 0 || without <= 0 {
		return
	}
	const keep = 1 - 1.0/paceWindow
	n, rest, draft := float64(pass.Trees), m.Rest(pass.Trees), pass.Draft.Seconds()
	if p.draft > 0 {
		draft = min(draft, 4*p.draft)
	}
	if draft > 0 {
		if p.draft == 0 {
			p.draft = draft
		}
		p.draft += blend * (draft - p.draft)
	}
	p.passes++
	p.rounds = keep*p.rounds + n
	p.tokens = keep*p.tokens + float64(tokens)
	p.drafted = keep*p.drafted + float64(drafts)
	p.plain = keep*p.plain + n*(with+draft+rest)/(without+rest)
	switch s := p.tokens / p.plain; {
	case p.passes < paceLeast || p.drafted < hardly*p.rounds || s > winning:
		p.losing = false
	case s < losing:
		p.losing = true
	}
}

func (p *pacer) pace() Pace {
	if p.passes < paceLeast {
		return Pace{}
	}
	return Pace{Tau: p.tokens / p.rounds, Even: p.plain / p.rounds, Drafted: p.drafted / p.rounds, Losing: p.losing}
}
