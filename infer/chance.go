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

// uniform maps (seed, domain, a, b) to [0,1): one step of SplitMix64 per word in turn, top 53
// bits.
func uniform(seed, domain, a, b uint64) float64 {
	h := mix(seed ^ domain)
	h = mix(h + a)
	h = mix(h + b)
	return float64(h>>11) / (1 << 53)
}

func mix(z uint64) uint64 { return splitmix.Mix(z + splitmix.Gamma) }

// invert returns the token at quantile u of d, by ascending id. A token without mass is never
// returned. It first finds the run of tokens that contains the quantile.
func invert(d Dist, u float64) int32 {
	var sum float64
	for at := 0; at < len(d); at += sample.Bin {
		sum += sample.Sum(d[at:min(at+sample.Bin, len(d))])
	}
	u *= sum
	first, left := 0, u // of the run: the last one with mass, if none contains u
	for at := 0; at < len(d); at += sample.Bin {
		if s := sample.Sum(d[at:min(at+sample.Bin, len(d))]); s > 0 {
			if first, left = at, u; u < s {
				break
			}
			u -= s
		}
	}
	last := int32(first)
	for i, p := range d[first:min(first+sample.Bin, len(d))] {
		if p > 0 {
			last = int32(first + i)
			if left -= p; left < 0 {
				break
			}
		}
	}
	return last
}

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
	return uniform(c.seed, domainAccept, uint64(c.pos), c.count) < p
}

func (c *keyed) Draw(pos int, d Dist) int32 {
	return invert(d, sample.Uniform(c.seed, pos))
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
func (c *sequential) Draw(_ int, d Dist) int32 { return invert(d, c.rng.Float64()) }
