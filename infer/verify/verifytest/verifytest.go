// Package verifytest proves verifiers lossless by taking every branch that their randomness can
// take. It runs the production code, including the drafters that draw children: an infer.Chance
// is their only randomness, and the one here tries all outcomes and multiplies their
// probabilities.
package verifytest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/method"
	"talf/model"
	"talf/tree"
)

// Tolerance is the largest error of a probability: that of sums of a few thousand float64 products.
const Tolerance = 1e-12

// Enumerate calls f once for every possible sequence of random outcomes, and passes the
// probability of that sequence to the function that f returns.
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
	drawn   []int // positions
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

func (c *every) Draw(pos int, d infer.Dist) int32 {
	c.drawn = append(c.drawn, pos)
	var sum float64
	of := 0
	for i, p := range d {
		if math.IsNaN(p) || p < 0 {
			panic(fmt.Sprintf("verifytest: token %d has probability %v", i, p))
		}
		if p > 0 {
			of++
			sum += p
		}
	}
	if of == 0 {
		panic("verifytest: a draw from a distribution without mass")
	}
	k := c.choose(of)
	for i, p := range d {
		if p > 0 {
			if k == 0 {
				c.prob *= p / sum
				return int32(i)
			}
			k--
		}
	}
	panic("verifytest: a draw changed between two runs of the same choices")
}

// Rows returns a model's next-token distribution after a path of tokens, the root first. The
// rows belong to the model: nobody writes to them.
type Rows func(path []int32) infer.Dist

// Scores are the target's rows over a tree.
type Scores struct {
	Tree *tree.Tree
	P    Rows
}

func pathTo(t *tree.Tree, n int) (out []int32) {
	for _, m := range t.AppendPath(make([]int, 0, 8), n) {
		out = append(out, t.Token(m))
	}
	return out
}

// Argmax returns the lowest id of the largest probability.
func (s Scores) Argmax(n int) int32 {
	d, best := s.Dist(n), 0
	for i := range d {
		if d[i] > d[best] {
			best = i
		}
	}
	return int32(best)
}

// Dist returns the row of n's path.
func (s Scores) Dist(n int) infer.Dist { return s.P(pathTo(s.Tree, n)) }

// TopK is not for verifiers.
func (Scores) TopK(int, int) []infer.Candidate { panic("verifytest: a verifier reads raw candidates") }

// Rank is not for verifiers.
func (Scores) Rank([]int32, int, int) []int32 { panic("verifytest: a verifier reads raw candidates") }

// Hidden is not for verifiers.
func (Scores) Hidden(int) model.Feature { panic("verifytest: a verifier reads hidden states") }

// A Scheme is a way to grow trees: Grow adds nodes to p.Tree, within p's limits, and says in p
// how they were drawn. It draws only from c; rng is the same for every branch of c.
type Scheme struct {
	Name  string
	Draw  infer.Choice
	Chain bool
	Grow  func(p *infer.Proposal, q Rows, c infer.Chance, rng *rand.Rand)
}

// Schemes lists random trees chosen without randomness; random trees and chains whose children
// the samplers of infer/draft draw; the same with nodes that are only scored; and the drafters
// that draw, as `talf generate` runs them.
func Schemes() []Scheme {
	all := []Scheme{
		{Name: "trees chosen without randomness", Grow: growFixed},
		Drawn("chains drawn", infer.Distinct, true),
		Drawn("trees drawn without replacement", infer.Distinct, false),
		Drawn("trees drawn with replacement", infer.Repeated, false),
	}
	for _, s := range all {
		all = append(all, scored(s))
	}
	for _, spec := range []string{
		"linear:K=3,draw=distinct", "linear:K=3,draw=repeated",
		"static:binary-2,draw=distinct", "static:binary-2,draw=repeated",
		"static:kary-3-2,draw=distinct", "static:kary-3-2,draw=repeated",
		"static:eagle-sparse,draw=distinct", "static:eagle-sparse,draw=repeated",
		"static:medusa,draw=distinct", "static:medusa,draw=repeated",
		"sequoia:N=7,accept=0.5/0.3/0.1,draw=distinct", "sequoia:N=7,accept=0.5/0.3/0.1,draw=repeated",
	} {
		all = append(all, Drafting(spec))
	}
	return all
}

// growFixed grows a random tree.
func growFixed(p *infer.Proposal, q Rows, _ infer.Chance, rng *rand.Rand) {
	vocab := int32(len(q([]int32{p.Tree.Token(0)})))
	for range rng.IntN(8) {
		n, x := rng.IntN(p.Tree.Len()), rng.Int32N(vocab)
		if p.Tree.Depth(n) < p.MaxDepth && p.Tree.Child(n, x) < 0 && p.Tree.Room() > 0 {
			p.Tree.Add(n, x)
		}
	}
}

// Drawn is the scheme of random shapes whose children are drawn from a draft.Urn.
func Drawn(name string, d infer.Choice, chain bool) Scheme {
	return Scheme{Name: name, Draw: d, Chain: chain, Grow: func(p *infer.Proposal, q Rows, c infer.Chance, rng *rand.Rand) {
		most := rng.IntN(3) + 1
		GrowDrawn(p, q, c, d, func(int, int) int {
			if chain {
				return 1
			}
			return rng.IntN(most + 1)
		})
	}}
}

// scored is s with all but the first few nodes beyond Proposal.Live. How many nodes remain live
// does not depend on what is drawn.
func scored(s Scheme) Scheme {
	grow := s.Grow
	s.Name += ", some only scored"
	s.Grow = func(p *infer.Proposal, q Rows, c infer.Chance, rng *rand.Rand) {
		live := 1 + rng.IntN(p.MaxNodes)
		grow(p, q, c, rng)
		p.Live = min(live, p.Tree.Len())
	}
	return s
}

// binSize is the bin size of GrowDrawn's urns: small enough that vocabularies of a few tokens
// have several bins.
const binSize = 2

// GrowDrawn draws a tree breadth first; kids(n, depth) is the largest number of children of node n.
func GrowDrawn(p *infer.Proposal, q Rows, c infer.Chance, d infer.Choice, kids func(n, depth int) int) {
	p.Replace = d == infer.Repeated
	p.Q = func(n int) infer.Dist { return q(pathTo(p.Tree, n)) }
	var urn method.Urn[float64]
	for n := 0; n < p.Tree.Len() && p.Tree.Depth(n) < p.MaxDepth; n++ {
		k := min(kids(n, p.Tree.Depth(n)), p.Tree.Room())
		urn.Fill(p.Q(n), binSize)
		for _, x := range urn.Children(nil, c, p.Pos+p.Tree.Depth(n)+1, k, d) {
			p.Tree.Add(n, x)
		}
	}
}

// temperature is that of Drafting's drafters.
const temperature = 0.7

// Drafting is the scheme of a drafter of infer/draft, whose draft model's logits
// are log q.
func Drafting(spec string) Scheme {
	return DraftingAs(spec, func(d infer.Drafter, _ int) infer.Drafter { return d })
}

// DraftingAs is Drafting for what as makes of the drafter, for a vocabulary of so many tokens. It is
// started with a prompt of tokens 0, the last of which is the root.
func DraftingAs(spec string, as func(d infer.Drafter, vocab int) infer.Drafter) Scheme {
	mk, _, err := draft.Open(spec, draft.Env{Temperature: temperature})
	if err != nil {
		panic("verifytest: " + err.Error())
	}
	return Scheme{Name: spec, Draw: mk.Draw, Chain: mk.Chain, Grow: func(p *infer.Proposal, q Rows, c infer.Chance, _ *rand.Rand) {
		d := as(mk.New(), len(q([]int32{p.Tree.Token(0)})))
		if err := d.Start(make([]int32, p.Pos+1)); err != nil {
			panic("verifytest: " + err.Error())
		}
		var rows []infer.Row
		for {
			ask, err := d.Grow(p, rows, c)
			if err != nil {
				panic("verifytest: " + err.Error())
			}
			if len(ask) == 0 {
				return
			}
			rows = rows[:0]
			for _, n := range ask {
				rows = append(rows, answer(p, n, q))
			}
		}
	}}
}

// answer returns the row of node n of p's tree of asked nodes.
func answer(p *infer.Proposal, n int, q Rows) (r infer.Row) {
	work := p.Work
	if work == nil {
		work = p.Tree
	}
	var allow []uint64
	if p.Allow != nil {
		allow = p.Allow(n)
	}
	mass := false
	for i, x := range q(pathTo(work, n)) {
		if allow != nil && (i/64 >= len(allow) || allow[i/64]>>(i%64)&1 == 0) {
			x = 0
		}
		mass = mass || x > 0
		r.Logits = append(r.Logits, float32(math.Log(x)))
	}
	if !mass {
		return infer.Row{}
	}
	return r
}

// A Table is a random model over a small vocabulary, as a function of the path.
type Table struct {
	vocab int
	rows  []infer.Dist
	was   []infer.Dist
}

// NewTable returns a table for paths of up to depth tokens below the root. With
// zeros, a third of the tokens have no mass.
func NewTable(rng *rand.Rand, vocab, depth int, zeros bool) *Table {
	t := &Table{vocab: vocab}
	for n, level := 0, 1; n <= depth; n++ {
		for range level {
			t.rows = append(t.rows, random(rng, vocab, zeros))
		}
		level *= vocab
	}
	for _, r := range t.rows {
		t.was = append(t.was, slices.Clone(r))
	}
	return t
}

func random(rng *rand.Rand, vocab int, zeros bool) infer.Dist {
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
	return d
}

// Row returns the row of a path; it is a Rows.
func (t *Table) Row(path []int32) infer.Dist {
	i, first, level := 0, 0, 1
	for _, x := range path[1:] {
		i = i*t.vocab + int(x)
		first, level = first+level, level*t.vocab
	}
	return t.rows[first+i]
}

// written reports whether a row has been changed.
func (t *Table) written() bool {
	return !slices.EqualFunc(t.rows, t.was, func(a, b infer.Dist) bool { return slices.Equal(a, b) })
}

// greedy replaces a model's rows by their argmax.
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

// A Case is a random target, draft and shape of tree, small enough to enumerate.
type Case struct {
	Seed         uint64
	Vocab, Depth int
	Nodes        int // most nodes of a tree, root counted
	P, Q         *Table
	// Target is what verifiers see, and what they have to reproduce; nil means P's rows.
	Target Rows
	shape  uint64
}

// target returns the rows that verifiers see.
func (c *Case) target() Rows {
	if c.Target != nil {
		return c.Target
	}
	return c.P.Row
}

// NewCase draws a case. In some cases the draft is the target; in some, rows have zeros, unless
// positive asks for mass on all tokens.
func NewCase(seed uint64, positive bool) Case {
	rng := rand.New(rand.NewPCG(seed, 11))
	c := Case{Seed: seed, Vocab: 2 + rng.IntN(3), Depth: 1 + rng.IntN(3)}
	c.Nodes = []int{9, 6, 5}[c.Vocab-2] - rng.IntN(2)
	c.P = NewTable(rng, c.Vocab, c.Depth, !positive && rng.IntN(3) == 0)
	c.Q = c.P
	if rng.IntN(4) > 0 {
		c.Q = NewTable(rng, c.Vocab, c.Depth, !positive && rng.IntN(3) == 0)
	}
	c.shape = rng.Uint64()
	return c
}

// Each calls f with every tree that s draws and every verdict on it, together with their
// probability.
func (c *Case) Each(s Scheme, newVerifier func() infer.Verifier, f func(p *infer.Proposal, v infer.Verdict, prob float64)) (err error) {
	defer func() {
		if r := recover(); r != nil {
			msg, ok := r.(string)
			if !ok || !strings.HasPrefix(msg, "verifytest: ") {
				panic(r)
			}
			err = fmt.Errorf("case %d (%s): %s", c.Seed, s.Name, msg)
		}
	}()
	verifier := newVerifier()
	Enumerate(func(ch infer.Chance) func(float64) {
		if err != nil {
			return nil
		}
		p := infer.Proposal{Tree: tree.New(0, c.Nodes), Pos: 10, MaxNodes: c.Nodes, MaxDepth: c.Depth}
		s.Grow(&p, c.Q.Row, ch, rand.New(rand.NewPCG(c.shape, 12)))
		e := ch.(*every)
		e.drawn = e.drawn[:0]
		v, bad := verifier.Verify(p, Scores{p.Tree, c.target()}, ch)
		if bad == nil {
			bad = CheckPath(p.Tree, v)
		}
		if last := len(v.Path) - 1; bad == nil && v.Path[last] >= p.LiveNodes() {
			bad = fmt.Errorf("path %v: node %d is only scored", v.Path, v.Path[last])
		}
		if bad == nil {
			bad = checkDrawn(e.drawn, p.Pos, len(v.Path))
		}
		if bad == nil && (c.P.written() || c.Q.written()) {
			bad = errors.New("a row of a model was written to")
		}
		if bad != nil {
			err = fmt.Errorf("case %d (%s): %w", c.Seed, s.Name, bad)
			return nil
		}
		return func(prob float64) { f(&p, v, prob) }
	})
	return err
}

// Emitted returns the expected number of tokens per round, over all trees that s draws and all
// verdicts.
func (c *Case) Emitted(s Scheme, newVerifier func() infer.Verifier) (mean float64, err error) {
	err = c.Each(s, newVerifier, func(_ *infer.Proposal, v infer.Verdict, prob float64) {
		mean += prob * float64(len(v.Path))
	})
	return mean, err
}

// Check compares, for random models over two to four tokens, the joint distribution of the
// tokens that a verifier emits, completed by the target, with the target's own. At temperature
// 0 the target's own is its argmax.
func Check(newVerifier func() infer.Verifier, scheme Scheme, temperature0 bool, cases int) error {
	return CheckOf(newVerifier, scheme, temperature0, cases, func(c *Case) Rows { return c.P.Row })
}

// CheckOf is Check for targets that of makes of each case, and whose rows verifiers see unless of
// sets the case's Target to others: a bug that is planted there has to be found.
func CheckOf(newVerifier func() infer.Verifier, scheme Scheme, temperature0 bool, cases int, of func(c *Case) Rows) error {
	for seed := range uint64(cases) {
		c := NewCase(seed, false)
		own := of(&c)
		if c.Target == nil {
			c.Target = own
		}
		if temperature0 {
			own = greedy(own)
		}
		joint := make([]float64, pow(c.Vocab, c.Depth+1))
		err := c.Each(scheme, newVerifier, func(p *infer.Proposal, v infer.Verdict, prob float64) {
			path := append(pathTo(p.Tree, v.Path[len(v.Path)-1]), v.Next)
			complete(joint, own, path, c.Depth+2, prob)
		})
		if err != nil {
			return err
		}
		want := make([]float64, len(joint))
		complete(want, own, []int32{0}, c.Depth+2, 1)
		for i := range want {
			if math.Abs(joint[i]-want[i]) > Tolerance {
				return fmt.Errorf("case %d (%s, vocabulary %d, depth %d): tokens %v have probability %.15g, the target gives %.15g",
					seed, scheme.Name, c.Vocab, c.Depth, digits(i, c.Vocab, c.Depth+1), joint[i], want[i])
			}
		}
	}
	return nil
}

// CheckPath reports a verdict whose path does not start at the root.
func CheckPath(t *tree.Tree, v infer.Verdict) error {
	for i, n := range v.Path {
		parent := -1
		if i > 0 {
			parent = v.Path[i-1]
		}
		if n >= t.Len() || t.Parent(n) != parent {
			return fmt.Errorf("path %v: node %d does not follow node %d", v.Path, n, parent)
		}
	}
	if len(v.Path) == 0 {
		return errors.New("an empty path, want the root at least")
	}
	return nil
}

// checkDrawn reports draws for positions other than that of the token after the path or, before
// it, of one on it. The engine's draws depend only on the position, so tokens that are drawn
// for another token's position would depend on that token.
func checkDrawn(drawn []int, root, path int) error {
	for i, pos := range drawn {
		if pos <= root || pos > root+path || i > 0 && pos < drawn[i-1] {
			return fmt.Errorf("a path of %d nodes from position %d on, draws for positions %v", path, root, drawn)
		}
	}
	if n := len(drawn); n > 0 && drawn[n-1] != root+path {
		return fmt.Errorf("the token after a path of %d nodes from position %d on is drawn for position %d", path, root, drawn[n-1])
	}
	return nil
}

// complete adds prob to every continuation of path to n tokens in total, weighted by the target.
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
	cases := 40
	if testing.Short() {
		cases = 15
	}
	for _, s := range schemes {
		t.Run(s.Name, func(t *testing.T) {
			if err := Check(newVerifier, s, temperature0, cases); err != nil {
				t.Error(err)
			}
		})
	}
}
