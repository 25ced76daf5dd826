package cost

import (
	"math"

	"talf/infer/experts"
)

// A mixture is what a Curve knows of a target's experts. A pass over n rows reads the experts that any
// of them chose: besides its rows, its cost depends on how many these are. The zero value is of a target
// without experts.
type mixture struct {
	experts.Read // as of the first pass
	// Cost of an expert: what its bytes take of those that the pass reads, corrected by passes of
	// about as many rows that read more experts or fewer. These are the sums of a regression with a
	// normal prior.
	guess, xx, xy float64
	spared        float64 // log of the probability that a row does not choose an expert
}

const (
	spread   = 0.5  // standard deviation of the prior, in costs that the bytes say
	noise    = 0.1  // of a pass's cost
	slowly   = 0.99 // weight that a pass keeps in the regression with each later one
	dearest  = 2    // most that an expert costs, in costs that the bytes say
	cheapest = 0.1  // and the least
)

// newMixture takes what the first pass read, which costs 1.
func newMixture(x experts.Read) (m mixture) {
	if x.Of <= x.Top || x.Top < 1 || x.Layers < 1 || !(x.Share > 0) {
		return m // every row reads the same
	}
	m.Read = x
	m.spared = math.Log1p(-float64(x.Top) / float64(x.Of))
	m.guess = x.Share / (1 + x.Share*float64(max(0, x.Distinct-x.Top*x.Layers)))
	return m
}

// each returns the cost of an expert.
func (m *mixture) each() float64 {
	if m.guess == 0 {
		return 0
	}
	prior := noise * noise / (spread * spread * m.guess * m.guess)
	return min(max((prior*m.guess+m.xy)/(prior+m.xx), cheapest*m.guess), dearest*m.guess)
}

// learn takes a pass that read so many more experts than usual, and cost so much more; both in costs
// of such a pass, by which what disturbs passes grows.
func (m *mixture) learn(read, cost float64) {
	m.xx, m.xy = slowly*m.xx+read*read, slowly*m.xy+read*cost
}

// alone returns how many experts a pass would read if all rows chose independently of each other, each
// expert with the same probability; 0 without experts.
func (m *mixture) alone(rows float64) float64 {
	if m.guess == 0 {
		return 0
	}
	return -float64(m.Of*m.Layers) * math.Expm1(rows*m.spared)
}

// apart returns how many further rows that choose independently read as many experts as a further row
// of passes like p does.
func (m *mixture) apart(p *point) float64 {
	if p.rows <= 1 {
		return 1
	}
	left := 1 - p.read/float64(m.Of*m.Layers)
	if left <= 0 {
		return 1
	}
	return min(max((math.Log(left)/m.spared-1)/(p.rows-1), 0), 1)
}

// beyond returns how many experts a pass over rows reads, when one over p.rows reads p.read.
func (m *mixture) beyond(p *point, rows float64) float64 {
	if m.guess == 0 {
		return 0
	}
	a := m.apart(p)
	return min(p.read+m.alone(1+a*(rows-1))-m.alone(1+a*(p.rows-1)), float64(m.Of*m.Layers))
}

// between returns how far rows is on the way from p to q, from 0 to 1: in rows, and for the part of the
// difference that experts make up, in these.
func (m *mixture) between(p, q *point, rows float64) float64 {
	far := (rows - p.rows) / (q.rows - p.rows)
	if m.guess == 0 || q.cost <= p.cost {
		return far
	}
	part := min(max(0, m.each()*(q.read-p.read)/(q.cost-p.cost)), 1)
	return far + part*(m.way(p, q, rows)-far)
}

// way is how far rows is on the way from p to q in experts.
func (m *mixture) way(p, q *point, rows float64) float64 {
	a := m.apart(q)
	from, to := m.alone(1+a*(p.rows-1)), m.alone(1+a*(q.rows-1))
	if to <= from {
		return (rows - p.rows) / (q.rows - p.rows)
	}
	return (m.alone(1+a*(rows-1)) - from) / (to - from)
}
