// Package drafttest checks drafters against their contract: a test of a drafter is one call of
// Run.
package drafttest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"talf/infer"
	"talf/infer/verify"
	"talf/model/sample"
	"talf/tree"
)

// Run decodes with fresh drafters on random models, budgets, depths, batches and positions of
// EOS, and fails t unless
//
//   - every tree has the root it was given, is within the budget and the depth,
//     has tokens of the vocabulary and no two equal siblings, unless children are
//     drawn with replacement; rows that children are drawn from are distributions
//     over the vocabulary that can yield them;
//   - the output is plain decoding's, token for token: greedy, and sampled under
//     the verifier "target";
//   - target, source and drafter agree on what is committed after a rejection, an
//     acceptance, a full acceptance, and a pass that failed or was cancelled;
//   - a second sequence with the same drafter is decoded as correctly as the first.
//
// In a third of the trials a controller bounds, ends and cuts trees at random, and lets drafters sit rounds out.
//
// Some models are broken: they have logits that are infinite or NaN.
func Run(t *testing.T, newDrafter func() infer.Drafter) {
	t.Helper()
	RunWith(t, newDrafter, nil)
}

// RunWith is Run with controllers, and clocks, of the caller's in place of that third's.
func RunWith(t *testing.T, newDrafter func() infer.Drafter, control func() (infer.Controller, func() time.Time)) {
	t.Helper()
	seeds := 300
	if testing.Short() {
		seeds = 60
	}
	var seen outcome
	for seed := range uint64(seeds) {
		if err := check(seed, newDrafter, control, &seen); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	t.Logf("τ = %.2f; %d rounds drafted nothing, %d rejected all, %d accepted a part, %d accepted a whole branch; %d passes cancelled, %d rounds without a source",
		float64(seen.tokens)/float64(max(seen.rounds, 1)), seen.empty, seen.none, seen.some, seen.full, seen.cancelled, seen.undrafted)
}

// Check is one trial of Run, with everything in it drawn from seed.
func Check(seed uint64, newDrafter func() infer.Drafter) error {
	return check(seed, newDrafter, nil, new(outcome))
}

func check(seed uint64, newDrafter func() infer.Drafter, control func() (infer.Controller, func() time.Time), seen *outcome) (err error) {
	defer func() {
		// The worlds panic when a drafter makes the engine break a contract.
		if r := recover(); r != nil {
			s, ok := r.(string)
			if !ok || !strings.HasPrefix(s, "drafttest:") && !strings.HasPrefix(s, "tree:") {
				panic(r)
			}
			err = errors.New(s)
		}
	}()
	return trial(seed, newDrafter, control, seen)
}

// An outcome counts rounds by how they ended.
type outcome struct {
	tokens, rounds, empty, none, some, full, cancelled, undrafted int
}

func trial(seed uint64, newDrafter func() infer.Drafter, control func() (infer.Controller, func() time.Time), seen *outcome) error {
	rng := rand.New(rand.NewPCG(seed, 77))
	pick := func(xs ...int) int { return xs[rng.IntN(len(xs))] }
	vocab := 2 + rng.IntN(12)
	target := &Target{
		Table: Table{
			Seed: seed, Vocab: vocab, Order: rng.IntN(4),
			Sharp: []float64{0, 0.5, 2, 2, 100}[rng.IntN(5)],
		},
		MaxLen: pick(30, 60, 200),
	}
	if rng.IntN(2) == 0 {
		target.EOS = []int32{rng.Int32N(int32(vocab))}
	}
	sources := make([]*Source, pick(1, 2))
	for i := range sources {
		sources[i] = &Source{Target: target, Agree: []float64{0, 0.5, 0.8, 1}[rng.IntN(4)]}
	}
	var proc infer.Processor = Plain{Temperature: float64(pick(0, 0, 1))}
	temperature := proc.(Plain).Temperature
	if seed%6 == 5 {
		target.Table.Odd = 0.3
		p := sample.Default()
		p.Temperature = temperature
		var err error
		if proc, err = infer.NewSampling(p, 0); err != nil {
			return err
		}
	}
	engine := &infer.Engine{Target: target, Config: infer.Config{
		PrefillChunk: pick(1, 2, 7, 256), MaxNodes: pick(1, 2, 3, 5, 16, 60, 200),
	}}
	if control != nil {
		engine.Config.Shared = true
		engine.Control, engine.Clock = control()
	} else if seed%3 == 1 {
		engine.Control, engine.Config.Shared = &Control{Rand: rand.New(rand.NewPCG(seed, 5))}, true
	}

	// Several sequences, each with its own drafter; the second round re-uses them.
	drafters := make([]*checked, pick(1, 1, 2, 3))
	for i := range drafters {
		drafters[i] = &checked{d: newDrafter(), vocab: vocab, seen: seen}
	}
	for range 2 {
		var seqs []*infer.Sequence
		var want [][]int32
		for i, d := range drafters {
			prompt := make([]int32, 1+rng.IntN(12))
			for j := range prompt {
				prompt[j] = rng.Int32N(int32(vocab))
			}
			v, err := verify.New("", temperature)
			if err != nil {
				return err
			}
			req := infer.Request{
				Prompt: prompt, MaxTokens: 1 + rng.IntN(40), Seed: rng.Uint64(),
				Verifier: v, Processor: proc,
			}
			setFail(target, sources, nil)
			control := engine.Control
			engine.Control = nil
			plain, err := engine.Generate(context.Background(), req)
			if err != nil {
				return err
			}
			engine.Control = control
			want = append(want, slices.Clone(plain.Tokens()))
			if err := checkPlain(target, req, temperature, plain.Tokens()); err != nil {
				return err
			}

			req.Drafter, req.Source = d, sources[i%len(sources)]
			s, err := engine.Open(req)
			if err != nil {
				return err
			}
			d.tokens = slices.Clone(prompt[:s.Stats().Cached+1])
			seqs = append(seqs, s)
		}
		// In half of the trials every other step is interrupted at one of its passes, or a
		// source fails in it.
		cut, failing := -1, rng.IntN(2) == 0
		var cancel context.CancelFunc
		fail := func() bool {
			if cut--; cut == 0 && rng.IntN(2) == 0 {
				cancel()
			}
			return cut == 0
		}
		setFail(target, sources, fail)
		for steps := 0; ; steps++ {
			if steps > 10000 {
				return errors.New("decoding does not end")
			}
			if cut = -1; failing && rng.IntN(2) == 0 {
				cut = 1 + rng.IntN(4)
			}
			var ctx context.Context
			ctx, cancel = context.WithCancel(context.Background())
			err := engine.Step(ctx, seqs)
			if cancel(); errors.Is(err, ErrPass) {
				seen.cancelled++
				continue
			}
			if err != nil {
				return err
			}
			done := true
			for _, s := range seqs {
				_, ended := s.Done()
				done = done && ended
			}
			if done {
				break
			}
		}
		for i, s := range seqs {
			if s.Err() != nil {
				return s.Err()
			}
			if err := s.Undrafted(); err != nil && !errors.Is(err, ErrPass) && !errors.Is(err, infer.ErrBudget) {
				return err
			}
			seen.undrafted += s.Stats().Undrafted
			if !slices.Equal(s.Tokens(), want[i]) {
				return fmt.Errorf("sequence %d: %v, plain decoding gives %v", i, s.Tokens(), want[i])
			}
			st := s.Stats()
			seen.tokens, seen.rounds = seen.tokens+st.Tokens, seen.rounds+st.Passes
			if st.Tokens != len(want[i]) {
				return fmt.Errorf("statistics count %d tokens, %d were emitted", st.Tokens, len(want[i]))
			}
			id := s.ID()
			committed, kept := slices.Clone(target.Tokens(id)), slices.Clone(sources[i%len(sources)].Tokens(id))
			engine.Close(s) // which tells a drafter that rests of its last rounds
			if s.Err() != nil {
				return s.Err()
			}
			if err := checkState(committed, kept, drafters[i], s); err != nil {
				return err
			}
		}
	}
	return nil
}

// setFail makes the passes of all models fail when fail says so.
func setFail(target *Target, sources []*Source, fail func() bool) {
	target.Fail = fail
	for _, s := range sources {
		s.Fail = fail
	}
}

// checkPlain compares plain decoding through the engine with a loop over the
// table, at temperature 0.
func checkPlain(target *Target, req infer.Request, temperature float64, got []int32) error {
	if temperature != 0 {
		return nil
	}
	ctx := slices.Clone(req.Prompt)
	row := make([]float32, target.Table.Vocab)
	for len(ctx) < len(req.Prompt)+req.MaxTokens && len(ctx) < target.MaxLen {
		target.Table.Logits(row, ctx)
		ctx = append(ctx, sample.Argmax(row))
		if slices.Contains(target.EOS, ctx[len(ctx)-1]) {
			break
		}
	}
	if want := ctx[len(req.Prompt):]; !slices.Equal(got, want) {
		return fmt.Errorf("plain decoding gives %v, the table %v", got, want)
	}
	return nil
}

// checkState compares what target, source and drafter have committed at the end of a sequence.
func checkState(target, source []int32, d *checked, s *infer.Sequence) error {
	all := append(slices.Clone(d.prompt), s.Tokens()...)
	if !slices.Equal(d.tokens, all) {
		return fmt.Errorf("the drafter observed %v, the sequence is %v", d.tokens, all)
	}
	if !slices.Equal(target, all[:len(all)-1]) {
		return fmt.Errorf("the target committed %v of %v", target, all)
	}
	if !slices.Equal(source, all) {
		return fmt.Errorf("the source committed %v of %v", source, all)
	}
	return nil
}

// A checked drafter passes everything through and checks it.
type checked struct {
	d      infer.Drafter
	vocab  int
	seen   *outcome
	prompt []int32
	tokens []int32 // observed, the root last
}

// Traits returns the drafter's traits.
func (c *checked) Traits() infer.Traits {
	t := c.d.Traits()
	if finish := t.Finish; finish != nil {
		t.Finish = func(p *infer.Proposal) error {
			if err := finish(p); err != nil {
				return err
			}
			return checkTree(p, c.tokens[len(c.tokens)-1], c.vocab)
		}
	}
	return t
}

func (c *checked) Start(prompt []int32) error {
	c.prompt = slices.Clone(prompt)
	return c.d.Start(prompt)
}

func (c *checked) Grow(p *infer.Proposal, rows []infer.Row, ch infer.Chance) ([]int, error) {
	root := c.tokens[len(c.tokens)-1]
	if rows == nil && (p.Tree.Len() != 1 || p.Tree.Token(0) != root || p.Pos != len(c.tokens)-1) {
		return nil, fmt.Errorf("a round begins with a tree of %d nodes below %d at %d, the last token is %d at %d",
			p.Tree.Len(), p.Tree.Token(0), p.Pos, root, len(c.tokens)-1)
	}
	ask, err := c.d.Grow(p, rows, ch)
	if err == nil && len(ask) == 0 {
		err = checkTree(p, root, c.vocab)
	}
	return ask, err
}

func checkTree(p *infer.Proposal, root int32, vocab int) error {
	tr := p.Tree
	if tr.Token(0) != root {
		return fmt.Errorf("the tree's root is %d, the last token is %d", tr.Token(0), root)
	}
	if tr.Len() > p.MaxNodes {
		return fmt.Errorf("%d nodes, root counted, want at most %d", tr.Len(), p.MaxNodes)
	}
	if p.Live < 0 || p.Live > tr.Len() {
		return fmt.Errorf("%d live nodes of %d", p.Live, tr.Len())
	}
	for n := 1; n < tr.Len(); n++ {
		if tr.Depth(n) > p.MaxDepth {
			return fmt.Errorf("node %d is %d edges deep, limit %d", n, tr.Depth(n), p.MaxDepth)
		}
		if tok := tr.Token(n); tok < 0 || int(tok) >= vocab {
			return fmt.Errorf("node %d carries token %d of a vocabulary of %d", n, tok, vocab)
		}
		if n < p.LiveNodes() && !p.Replace && tr.Child(tr.Parent(n), tr.Token(n)) != n {
			return fmt.Errorf("node %d has a sibling with the same token", n)
		}
	}
	return checkSaid(p, vocab)
}

// checkSaid compares what a proposal says about its draws and its probabilities with what
// verifiers and traces need.
func checkSaid(p *infer.Proposal, vocab int) error {
	tr := p.Tree
	if p.LogV != nil {
		if len(p.LogV) != tr.Len() || p.LogV[0] != 0 {
			return fmt.Errorf("log probabilities %v of %d nodes, want one for each, 0 for the root", p.LogV, tr.Len())
		}
		for n := 1; n < tr.Len(); n++ {
			if v, above := p.LogV[n], p.LogV[tr.Parent(n)]; !(v <= above+1e-6) {
				return fmt.Errorf("node %d has log probability %v, its parent %v", n, v, above)
			}
		}
	}
	if p.Q == nil {
		if p.Replace {
			return errors.New("children are drawn with replacement, and from nothing")
		}
		return nil
	}
	for n := range tr.Len() {
		if tr.FirstChild(n) < 0 {
			continue
		}
		q, sum := p.Q(n), 0.0
		for _, x := range q {
			sum += x
		}
		if len(q) != vocab || !(math.Abs(sum-1) <= 1e-9) {
			return fmt.Errorf("the children of node %d are drawn from %d tokens with a mass of %v, want %d and 1", n, len(q), sum, vocab)
		}
		for k := tr.FirstChild(n); k >= 0; k = tr.NextSibling(k) {
			if !(q[tr.Token(k)] > 0) {
				return fmt.Errorf("node %d carries token %d, which cannot be drawn", k, tr.Token(k))
			}
		}
	}
	return nil
}

func (c *checked) Observe(p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	if p.Tree.Token(0) != c.tokens[len(c.tokens)-1] {
		return fmt.Errorf("observed a tree below %d, the last token is %d", p.Tree.Token(0), c.tokens[len(c.tokens)-1])
	}
	for _, n := range v.Path[1:] {
		c.tokens = append(c.tokens, p.Tree.Token(n))
	}
	c.tokens = append(c.tokens, v.Next)
	if p.Pos >= len(c.prompt)-1 {
		c.seen.count(p.Tree, v.Path)
	}
	return c.d.Observe(p, v, s)
}

func (o *outcome) count(t *tree.Tree, path []int) {
	last := path[len(path)-1]
	switch {
	case t.Len() == 1:
		o.empty++
	case len(path) == 1:
		o.none++
	case t.FirstChild(last) < 0:
		o.full++
	default:
		o.some++
	}
}
