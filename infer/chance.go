package infer

import (
	"math/rand/v2"

	"talf/internal/splitmix"
	"talf/model/sample"
)

// Domains separate the streams of one seed.
const (
	domainAccept = 0xc2b2ae3d27d4eb4f
	domainDraft  = 0x165667b19e3779f9
)

// A keyed chance is a verifier's. Draw depends only on (seed, position), so that plain decoding
// and every draft tree draw the same number for the same position; Accept counts within a round.
type keyed struct {
	seed  uint64
	pos   int
	count uint64
}

func (c *keyed) begin(pos int) { c.pos, c.count = pos, 0 }

func (c *keyed) Accept(p float64) bool {
	c.count++
	return splitmix.Uniform(c.seed^domainAccept, uint64(c.pos), c.count) < p
}

func (c *keyed) Draw(pos int, d Dist) int32 { return sample.Invert(d, c.quantile(pos)) }

// quantile is the number by which the token at a position is drawn.
func (c *keyed) quantile(pos int) float64 { return sample.Uniform(c.seed, pos) }

// DrawNext draws the token after node n of s, for position pos: c's Draw from the node's distribution, which need not
// be known for it if the engine's own draw is asked for.
func DrawNext(c Chance, s Scores, n, pos int) int32 {
	if k, ok := c.(*keyed); ok {
		if own, ok := s.(*scores); ok {
			if token, ok := own.quantile(n, k.quantile(pos)); ok {
				return token
			}
		}
	}
	return c.Draw(pos, s.Dist(n))
}

// A sequential chance is a drafter's. It is not keyed by position: noise that
// drew a rejected draft would draw it again.
type sequential struct {
	pcg   rand.PCG
	start rand.PCG // at the mark
	rng   *rand.Rand
}

func newSequential(seed uint64) *sequential {
	c := &sequential{pcg: *rand.NewPCG(seed, domainDraft)}
	c.rng = rand.New(&c.pcg)
	return c
}

func (c *sequential) mark()   { c.start = c.pcg }
func (c *sequential) rewind() { c.pcg = c.start }

func (c *sequential) Accept(p float64) bool    { return c.rng.Float64() < p }
func (c *sequential) Draw(_ int, d Dist) int32 { return sample.Invert(d, c.rng.Float64()) }
