// Package verifytest proves verifiers lossless by taking every branch that their
// randomness can take. What runs is the production code: an infer.Chance is its
// only randomness, and the one here tries all outcomes and multiplies their
// probabilities.
package verifytest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"talf/infer"
	"talf/model"
	"talf/tree"
)

// Tolerance is how far a probability may be off: sums of a few hundred float64
// products.
const Tolerance = 1e-12

// Enumerate calls f once for every sequence of random outcomes that it can see,
// with the probability of that sequence once f returns.
func Enumerate(f func(c infer.Chance) (done func(prob float64))) {
	c := &every{}
	for {
		c.at, c.prob = 0, 1
		if done := f(c); done != nil {
			done(c.prob)
		}
		if !c.next() {
			return
		}
	}
}

// every is a Chance that replays choices and takes the first branch of new ones.
type every struct {
	choices []choice
	at      int
	prob    float64
}

type choice struct{ taken, of int }

// next moves to the next sequence of choices, depth first.
func (c *every) next() bool {
	c.choices = c.choices[:c.at]
	for n := len(c.choices) - 1; n >= 0; n-- {
		if c.choices[n].taken+1 < c.choices[n].of {
			c.choices[n].taken++
			c.choices = c.choices[:n+1]
			return true
		}
	}
	return false
}

func (c *every) choose(of int) int {
	if c.at == len(c.choices) {
		c.choices = append(c.choices, choice{0, of})
	}
	c.at++
	return c.choices[c.at-1].taken
}

func (c *every) Accept(p float64) bool {
	if math.IsNaN(p) {
		panic("verifytest: accept with probability NaN")
	}
	if p <= 0 || p >= 1 {
		return p >= 1
	}
	if c.choose(2) == 0 {
		c.prob *= p
		return true
	}
	c.prob *= 1 - p
	return false
}

func (c *every) Draw(_ int, d infer.Dist) int32 {
	var sum float64
	var ids []int32
	for i, p := range d {
		if math.IsNaN(p) || p < 0 {
			panic(fmt.Sprintf("verifytest: token %d has probability %v", i, p))
		}
		if p > 0 {
			ids = append(ids, int32(i))
			sum += p
		}
	}
	if math.Abs(sum-1) > 1e-9 {
		panic(fmt.Sprintf("verifytest: a distribution sums to %v", sum))
	}
	x := ids[c.choose(len(ids))]
	c.prob *= d[x] / sum
	return x
}

// Rows gives a model's next-token distribution after a path of tokens, the root
// first.
type Rows func(path []int32) infer.Dist

// Scores are the target's rows over a tree.
type Scores struct {
	Tree *tree.Tree
	P    Rows
}

func (s Scores) path(n int) (out []int32) {
	for _, m := range s.Tree.AppendPath(nil, n) {
		out = append(out, s.Tree.Token(m))
	}
	return out
}

// Argmax is the lowest id of the largest probability.
func (s Scores) Argmax(n int) int32 {
	d, best := s.Dist(n), 0
	for i := range d {
		if d[i] > d[best] {
			best = i
		}
	}
	return int32(best)
}

// Dist is a fresh row: what a verifier does to it stays its own.
func (s Scores) Dist(n int) infer.Dist { return s.P(s.path(n)) }

// TopK is not for verifiers.
func (Scores) TopK(int, int) []infer.Candidate { panic("verifytest: a verifier reads raw candidates") }

// Hidden is not for verifiers.
func (Scores) Hidden(int) model.Feature { panic("verifytest: a verifier reads hidden states") }

// A Scheme is a way to grow trees: Grow adds nodes to p.Tree and says in p how
// they were drawn. It draws from c alone.
type Scheme struct {
	Name string
	Grow func(p *infer.Proposal, q Rows, c infer.Chance, rng *rand.Rand)
}

// Schemes lists trees chosen without randomness, and children drawn from q with
// and without replacement.
func Schemes() []Scheme {
	return []Scheme{
		{"fixed trees", growFixed},
		{"children drawn with replacement", func(p *infer.Proposal, q Rows, c infer.Chance, rng *rand.Rand) { growDrawn(p, q, c, rng, true) }},
		{"children drawn without replacement", func(p *infer.Proposal, q Rows, c infer.Chance, rng *rand.Rand) { growDrawn(p, q, c, rng, false) }},
	}
}

// growFixed grows a random tree; rng is the same for every branch of Chance, so
// the tree is too.
func growFixed(p *infer.Proposal, q Rows, _ infer.Chance, rng *rand.Rand) {
	vocab := int32(len(q([]int32{p.Tree.Token(0)})))
	for range rng.IntN(8) {
		n, x := rng.IntN(p.Tree.Len()), rng.Int32N(vocab)
		if p.Tree.Depth(n) < p.MaxDepth && p.Tree.Child(n, x) < 0 && p.Tree.Room() > 0 {
			p.Tree.Add(n, x)
		}
	}
}

// growDrawn draws one to two children per node and level.
func growDrawn(p *infer.Proposal, q Rows, c infer.Chance, rng *rand.Rand, replace bool) {
	p.Replace = replace
	p.Q = func(n int) infer.Dist { return q(Scores{Tree: p.Tree}.path(n)) }
	first, last := 0, 1
	for d := range p.MaxDepth {
		kids := 1
		if d == 0 {
			kids += rng.IntN(2)
		}
		for n := first; n < last; n++ {
			row := p.Q(n)
			for range kids {
				var sum float64
				for _, x := range row {
					sum += x
				}
				if sum == 0 || p.Tree.Room() == 0 {
					break // fewer tokens have mass than children are wanted
				}
				for i := range row {
					row[i] /= sum
				}
				x := c.Draw(0, row)
				p.Tree.Add(n, x)
				if !replace {
					row[x] = 0
				}
			}
		}
		first, last = last, p.Tree.Len()
	}
}

// table is a random model over a small vocabulary, as a function of the path.
func table(rng *rand.Rand, vocab, depth int, zeros bool) Rows {
	rows := map[string]infer.Dist{}
	var fill func(path []int32)
	fill = func(path []int32) {
		d, sum := make(infer.Dist, vocab), 0.0
		for sum == 0 {
			for i := range d {
				d[i] = rng.ExpFloat64()
				if zeros && rng.IntN(3) == 0 {
					d[i] = 0
				}
				sum += d[i]
			}
		}
		for i := range d {
			d[i] /= sum
		}
		rows[fmt.Sprint(path)] = d
		if len(path) <= depth {
			for x := range int32(vocab) {
				fill(append(path[:len(path):len(path)], x))
			}
		}
	}
	fill([]int32{0})
	return func(path []int32) infer.Dist {
		return append(infer.Dist(nil), rows[fmt.Sprint(path)]...)
	}
}

// greedy turns a model into its argmax.
func greedy(p Rows) Rows {
	return func(path []int32) infer.Dist {
		d := p(path)
		out := make(infer.Dist, len(d))
		best := 0
		for i := range d {
			if d[i] > d[best] {
				best = i
			}
		}
		out[best] = 1
		return out
	}
}

// Check compares, for random models over two or three tokens, the joint
// distribution of the tokens that a verifier emits, completed by the target, with
// the target's own. At temperature 0 the target's own is its argmax.
func Check(newVerifier func() infer.Verifier, scheme Scheme, temperature0 bool, cases int) error {
	for seed := range uint64(cases) {
		rng := rand.New(rand.NewPCG(seed, 11))
		vocab, depth := 2+rng.IntN(2), 1+rng.IntN(2)
		p := table(rng, vocab, depth, rng.IntN(3) == 0)
		q := p
		if rng.IntN(4) > 0 {
			q = table(rng, vocab, depth, rng.IntN(3) == 0)
		}
		own := p
		if temperature0 {
			own = greedy(p)
		}
		shape := rng.Uint64()
		joint := make([]float64, pow(vocab, depth+1))
		var bad error
		Enumerate(func(c infer.Chance) func(float64) {
			prop := infer.Proposal{Tree: tree.New(0, 64), Pos: 10, MaxNodes: 64, MaxDepth: depth}
			scheme.Grow(&prop, q, c, rand.New(rand.NewPCG(shape, 12)))
			v, err := newVerifier().Verify(prop, Scores{prop.Tree, p}, c)
			if err != nil {
				bad = err
				return nil
			}
			if err := CheckPath(prop.Tree, v); err != nil {
				bad = err
				return nil
			}
			path := Scores{Tree: prop.Tree}.path(v.Path[len(v.Path)-1])
			path = append(path, v.Next)
			return func(prob float64) { complete(joint, own, path, depth+2, prob) }
		})
		if bad != nil {
			return fmt.Errorf("case %d: %w", seed, bad)
		}
		want := make([]float64, len(joint))
		complete(want, own, []int32{0}, depth+2, 1)
		for i := range want {
			if math.Abs(joint[i]-want[i]) > Tolerance {
				return fmt.Errorf("case %d (%s, vocabulary %d, depth %d): tokens %v have probability %.15g, the target gives %.15g",
					seed, scheme.Name, vocab, depth, digits(i, vocab, depth+1), joint[i], want[i])
			}
		}
	}
	return nil
}

// CheckPath reports a verdict whose path is not one from the root.
func CheckPath(t *tree.Tree, v infer.Verdict) error {
	for i, n := range v.Path {
		parent := -1
		if i > 0 {
			parent = v.Path[i-1]
		}
		if n >= t.Len() || t.Parent(n) != parent {
			return fmt.Errorf("verifytest: path %v: node %d does not follow node %d", v.Path, n, parent)
		}
	}
	if len(v.Path) == 0 {
		return fmt.Errorf("verifytest: an empty path, want the root at least")
	}
	return nil
}

// complete adds prob to every continuation of path to n tokens in all, weighted
// by the target.
func complete(joint []float64, p Rows, path []int32, n int, prob float64) {
	if prob == 0 {
		return
	}
	if len(path) == n {
		i := 0
		for _, x := range path[1:] {
			i = i*len(p([]int32{path[0]})) + int(x)
		}
		joint[i] += prob
		return
	}
	for x, px := range p(path) {
		complete(joint, p, append(path[:len(path):len(path)], int32(x)), n, prob*px)
	}
}

func pow(b, n int) int {
	r := 1
	for range n {
		r *= b
	}
	return r
}

func digits(i, base, n int) []int {
	d := make([]int, n)
	for k := n - 1; k >= 0; k-- {
		d[k], i = i%base, i/base
	}
	return d
}

// Lossless fails t unless the verifier emits exactly the target's distribution
// with every given scheme.
func Lossless(t *testing.T, newVerifier func() infer.Verifier, temperature0 bool, schemes ...Scheme) {
	t.Helper()
	cases := 300
	if testing.Short() {
		cases = 80
	}
	for _, s := range schemes {
		t.Run(s.Name, func(t *testing.T) {
			if err := Check(newVerifier, s, temperature0, cases); err != nil {
				t.Error(err)
			}
		})
	}
}
