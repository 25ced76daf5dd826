package loop

import (
	"talf/infer"
	"talf/infer/draft/auto"
)

// A Pace compares decoding as it goes with plain decoding of the same requests. It is zero until there were enough
// passes.
type Pace struct {
	Tau     float64 // tokens of a round
	Even    float64 // tokens that plain decoding would emit in the time of a round: below it, drafts cost time
	Drafted float64 // share of rounds with a draft
	Losing  bool    // drafts cost time, and have for a while
	// Rate is the tokens a second of all requests together, and Plain what they would be without drafts.
	Rate, Plain float64
}

// Speedup is the speed against that of plain decoding, 0 if it is not known.
func (p *Pace) Speedup() float64 {
	if p.Even == 0 {
		return 0
	}
	return p.Tau / p.Even
}

// A pacer sums what passes without prompts did, older ones counting less. What they cost is what passes of their sizes
// usually do: one that the machine interrupted must not look as if its drafts had cost the time.
type pacer struct {
	passes                                int
	rounds, tokens, drafts, with, without float64
	losing                                bool
}

// Drafts are told to lose from a speed-up of losing, which is what costs are known to, until it is back at 1; not if
// few rounds have some.
const (
	paceWindow = 256 // passes whose weight is more than 1/e
	paceLeast  = 64  // before there is a Pace
	losing     = 0.95
	hardly     = 0.02
)

func (x *pacer) add(p *infer.Pass, c *auto.Controller) {
	with, without := c.Cost(p)
	if with == 0 || p.Prompt > 0 {
		return
	}
	const keep = 1 - 1.0/paceWindow
	x.passes++
	x.rounds = keep*x.rounds + float64(p.Trees)
	x.tokens = keep*x.tokens + float64(p.Tokens)
	x.drafts = keep*x.drafts + float64(p.Drafted)
	x.with = keep*x.with + with
	x.without = keep*x.without + without
	switch s := x.tokens * x.without; {
	case x.passes < paceLeast || x.drafts < hardly*x.rounds || s > x.rounds*x.with:
		x.losing = false
	case s < losing*x.rounds*x.with:
		x.losing = true
	}
}

func (x *pacer) pace() Pace {
	if x.passes < paceLeast {
		return Pace{}
	}
	return Pace{
		Tau: x.tokens / x.rounds, Even: x.with / x.without, Drafted: x.drafts / x.rounds, Losing: x.losing,
		Rate: x.tokens / x.with, Plain: x.rounds / x.without,
	}
}
