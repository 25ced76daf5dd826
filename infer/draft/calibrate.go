package draft

import (
	"math"
)

// An origin is the source of one of fuse's candidates.
type origin uint8

const (
	fromHead    origin = iota // the draft model
	fromContext               // earlier places of the sequence
	fromPair                  // the table, by the last two tokens
	fromToken                 // the table, by the last token
	fromStore                 // the datastore
	origins
)

var originNames = []string{"head", "context", "pair", "token", "store"}

// A cell counts candidates that one source proposed at one depth and rank with about
// the same estimate.
type cell struct{ tried, kept float32 }

const (
	depthClasses = 4 // 1, 2, 3, more
	rankClasses  = 4 // likewise
	bins         = 12
)

// An evidence value is one source's estimate of a candidate.
type evidence struct {
	odds float32 // log odds of the calibrated estimate
	cell int16   // -1: it does not propose the candidate
}

// A calibration turns the sources' estimates of a token into the probability that the target
// continues with it, and learns from verdicts. It has two steps.
//
// The first treats each source alone. Cells by source, depth, rank and estimate count how many
// of their candidates were kept. The calibrated estimate is (kept + κ·q)/(tried + κ), with κ = Shrink: the
// source's own q until there is evidence.
//
// The second is for candidates that several sources propose, or that some propose while others
// know the place but do not. Their log odds are added up with weights learned by gradient
// descent on the coding loss, separately for every set of sources that agree: logistic mixing,
// as in compressors (Mahoney 2005). On six sets of prompts, both the maximum of the calibrated
// estimates and their noisy-or led to fewer accepted tokens.
type calibration struct {
	fuseConstants
	cells [int(origins) * depthClasses * rankClasses * bins]cell
	mix   [patterns]mixer
}

// patterns counts what each source may do about a candidate: not know the place, know it but not
// propose the candidate, or propose it.
const patterns = 3 * 3 * 3 * 3 * 3

var powers = [origins]int{1, 3, 9, 27, 81}

type mixer struct {
	weight [origins]float32
	bias   float32
	ready  bool
}

// Bounds of a candidate's probability, which keep its log odds finite.
const (
	highest = 0.9995
	lowest  = 1e-5
)

func logit(p float64) float64 { return math.Log(p / (1 - p)) }

// cellOf returns the cell that counts candidates with about these log odds. rank counts from 0.
func cellOf(o origin, depth, rank int, odds float64) int16 {
	bin := int((odds + 6) * bins / 12)
	return int16(((int(o)*depthClasses+min(depth-1, depthClasses-1))*rankClasses+min(rank, rankClasses-1))*bins + min(max(bin, 0), bins-1))
}

// evidence evaluates source o's estimate q of a candidate below depth.
func (c *calibration) evidence(o origin, depth, rank int, q float64) evidence {
	q = min(max(q, lowest), highest)
	odds := logit(q)
	i := cellOf(o, depth, rank, odds)
	if x := &c.cells[i]; x.tried > 0 {
		p := (float64(x.kept) + c.shrink*q) / (float64(x.tried) + c.shrink)
		odds = logit(min(max(p, lowest), highest))
	}
	return evidence{odds: float32(odds), cell: i}
}

// probability merges the sources' estimates of a candidate. Bit o of know says that source o
// knows the place.
func (c *calibration) probability(ev *[origins]evidence, know uint8) float64 {
	m, z := c.mixer(ev, know)
	for o := range ev {
		if ev[o].cell >= 0 {
			z += float64(m.weight[o] * ev[o].odds)
		}
	}
	return 1 / (1 + math.Exp(-z))
}

func (c *calibration) mixer(ev *[origins]evidence, know uint8) (*mixer, float64) {
	pattern, agree, absent := 0, 0, 0
	for o := range ev {
		switch {
		case ev[o].cell >= 0:
			pattern += 2 * powers[o]
			agree++
		case know>>o&1 == 1:
			pattern += powers[o]
			absent++
		}
	}
	m := &c.mix[pattern]
	if !m.ready {
		m.ready = true
		for o := range m.weight {
			m.weight[o] = firstWeights[agree]
		}
		m.bias = -float32(c.dissent) * float32(absent)
		if agree > 1 {
			m.bias += float32(c.agree)
		}
	}
	return m, float64(m.bias)
}

// firstWeights are the initial weights by the number of sources that agree on a candidate: about a mean of
// their log odds. A single source is trusted as it is.
var firstWeights = [origins + 1]float32{0, 1, 0.5, 0.35, 0.27, 0.22}

// learn takes the verdict on a candidate to which probability p was given.
func (c *calibration) learn(ev *[origins]evidence, know uint8, kept bool) {
	p := c.probability(ev, know)
	m, _ := c.mixer(ev, know)
	y := 0.0
	if kept {
		y = 1
	}
	err := y - p
	for o := range ev {
		e := &ev[o]
		if e.cell < 0 {
			continue
		}
		m.weight[o] += float32(c.rate * err * float64(e.odds))
		x := &c.cells[e.cell]
		if float64(x.tried) >= c.memory {
			x.tried, x.kept = x.tried/2, x.kept/2
		}
		x.tried++
		x.kept += float32(y)
	}
	m.bias += float32(c.rate * err)
}
