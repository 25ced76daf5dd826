package source_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/source"
	"talf/infer/verify"
	"talf/model"
	"talf/model/head"
	"talf/model/modeltest"
	"talf/tree"
)

// A mirror passes everything to a source and answers every ask a second time with a fresh
// source that has seen nothing before: all tokens committed so far, in one chain, with features
// from a fresh pass of the target. The rows must have the same bits, whatever was accepted,
// rejected, cached, cancelled or batched before.
type mirror struct {
	t      *testing.T
	inner  *source.Head
	target *model.Model
	head   *head.Head
	tokens map[infer.SeqID][]int32 // committed, the root last
	fresh  map[infer.SeqID]*source.Head
	rows   int
	read   int // committed tokens, by inner
	stumble
}

func (m *mirror) Match(prompt []int32) int { return m.inner.Match(prompt) }

func (m *mirror) Open(id infer.SeqID, prompt []int32, keep int) error {
	m.tokens[id] = slices.Clone(prompt[:keep+1])
	return m.inner.Open(id, prompt, keep)
}

func (m *mirror) Close(id infer.SeqID) { m.inner.Close(id) }

func (*mirror) Abilities() infer.Abilities { return infer.Abilities{} }

func (m *mirror) Backlog(id infer.SeqID) int { return m.inner.Backlog(id) }

func (m *mirror) Commit(id infer.SeqID, p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	for _, n := range v.Path[1:] {
		m.tokens[id] = append(m.tokens[id], p.Tree.Token(n))
	}
	m.tokens[id] = append(m.tokens[id], v.Next)
	return m.inner.Commit(id, p, v, s)
}

func (m *mirror) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	ctx = m.stumble.pass(ctx)
	unread := func() (n int) {
		for _, a := range asks {
			if a.From == 0 {
				n += m.inner.Backlog(a.ID)
			}
		}
		return n
	}
	before := unread()
	rows, err := m.inner.Rows(ctx, asks)
	m.read += before - unread()
	if err != nil {
		return nil, err
	}
	at := 0
	for _, a := range asks {
		if a.Tree == nil {
			continue
		}
		if a.From == 0 {
			m.fresh[a.ID] = m.replay(a.ID)
		}
		b := a
		b.ID = 1
		want, err := m.fresh[a.ID].Rows(context.Background(), []infer.Ask{b})
		if err != nil {
			m.t.Fatal(err)
		}
		for i := range want {
			got := rows[at+i]
			if !slices.Equal(got.Tokens, want[i].Tokens) || !slices.EqualFunc(got.LogProb, want[i].LogProb, func(x, y float32) bool {
				return math.Float32bits(x) == math.Float32bits(y)
			}) {
				m.t.Fatalf("sequence %d after %d tokens, node %d: row %v, a fresh head gives %v", a.ID, len(m.tokens[a.ID]), a.From+i, got, want[i])
			}
			m.rows++
		}
		at += len(want)
	}
	return rows, nil
}

func (m *mirror) replay(id infer.SeqID) *source.Head {
	tokens := m.tokens[id]
	h := source.NewHead(m.head, 0)
	if err := h.Open(1, tokens, 0); err != nil {
		m.t.Fatal(err)
	}
	n := len(tokens) - 1
	if n == 0 {
		return h
	}
	seq := m.target.NewSeq()
	defer seq.Close()
	out, err := seq.Append(context.Background(), tokens[:n], nil, model.WantNone)
	if err != nil {
		m.t.Fatal(err)
	}
	store, err := m.head.NewInputStore(n)
	if err != nil {
		m.t.Fatal(err)
	}
	chain, path, f := tree.New(tokens[0], n), []int{0}, []model.Feature{out.Feature(0, 0)}
	for i := 1; i < n; i++ {
		path, f = append(path, chain.Add(i-1, tokens[i])), append(f, out.Feature(0, i))
	}
	if err := store.Put(0, f...); err != nil {
		m.t.Fatal(err)
	}
	if err := h.Commit(1, infer.Proposal{Tree: chain}, infer.Verdict{Path: path, Next: tokens[n]}, given{store: store}); err != nil {
		m.t.Fatal(err)
	}
	return h
}

// A stumble cancels some passes of a source: as a failure of the source, or together with the
// step that it is in.
type stumble struct {
	rng    *rand.Rand // nil: none
	cancel context.CancelFunc
}

func (s *stumble) step(ctx context.Context, e *infer.Engine, seqs []*infer.Sequence) error {
	ctx, s.cancel = context.WithCancel(ctx)
	defer s.cancel()
	return e.Step(ctx, seqs)
}

func (s *stumble) pass(ctx context.Context) context.Context {
	if s.rng == nil {
		return ctx
	}
	switch s.rng.IntN(24) {
	case 0:
		s.cancel()
	case 1:
		c, cancel := context.WithCancel(ctx)
		cancel()
		return c
	}
	return ctx
}

// follow drafts with an oracle every other round, so that the head's own rounds follow paths of
// every length; the rounds in between ask nothing.
type follow struct {
	searched infer.Drafter
	oracle   *drafttest.Oracle
	rng      *rand.Rand
	asking   bool
}

func (f *follow) Start(p []int32) error { return f.searched.Start(p) }

func (f *follow) Grow(p *infer.Proposal, rows []infer.Row, c infer.Chance) ([]int, error) {
	if rows == nil {
		f.asking = f.rng.IntN(2) == 0
	}
	if f.asking {
		ask, err := f.searched.Grow(p, rows, c)
		if len(ask) > 0 || err != nil {
			return ask, err
		}
		// The search's tree is rarely verified: it comes from a random head.
		if f.rng.IntN(2) == 0 {
			return nil, nil
		}
		p.Tree = tree.New(p.Tree.Token(0), p.MaxNodes)
	}
	return f.oracle.Grow(p, nil, c)
}

func (f *follow) Observe(infer.Proposal, infer.Verdict, infer.Scores) error { return nil }

func (*follow) Traits() infer.Traits { return infer.Traits{} }

func TestRowsAreThoseOfAFreshHead(t *testing.T) {
	trials := 30
	if testing.Short() {
		trials = 6
	}
	rows := 0
	var all infer.Stats
	for trial := range trials {
		rng := rand.New(rand.NewPCG(uint64(trial), 8))
		dev, err := cpu.New(cpu.Config{Class: cpu.Default().Class, Threads: 1 + trial%2})
		if err != nil {
			t.Fatal(err)
		}
		conf := modeltest.Default()
		conf.EOS, conf.MaxPos = -1, 150
		target, err := model.Load(modeltest.Random(t, conf, uint64(trial)), dev, model.Default())
		if err != nil {
			t.Fatal(err)
		}
		spec := target.Spec().DraftFor(trial%2 == 0)
		if trial%3 == 2 {
			spec = networks["EAGLE-3"](target.Spec())
		}
		if trial%5 == 4 {
			spec.MaxPos = 40 // the head's positions end before the target's
		}
		h, err := head.FromTensors(spec, target, head.Default(), modeltest.Tensors(spec, false, uint64(trial))...)
		if err != nil {
			t.Fatal(err)
		}
		m := &mirror{
			t: t, inner: source.NewHead(h, 2), target: target, head: h,
			tokens: map[infer.SeqID][]int32{}, fresh: map[infer.SeqID]*source.Head{},
			stumble: stumble{rng: rng},
		}
		e := &infer.Engine{Target: infer.NewTarget(target, 2), Config: infer.Config{PrefillChunk: 1 + rng.IntN(12), MaxNodes: 32}}
		base := make([]int32, rng.IntN(40))
		for i := range base {
			base[i] = rng.Int32N(int32(conf.Vocab))
		}
		var seqs []*infer.Sequence
		for range 4 {
			prompt := slices.Clone(base)
			for range 1 + rng.IntN(6) {
				prompt = append(prompt, rng.Int32N(int32(conf.Vocab)))
			}
			req := infer.Request{Prompt: prompt, MaxTokens: 1 + rng.IntN(40), Verifier: new(verify.Greedy), Processor: drafttest.Plain{}}
			plain, err := e.Generate(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			d, _, err := draft.New([]string{"salf:N=14,B=3,th=0", "beam:N=12,k=3,depth=3"}[rng.IntN(2)])
			if err != nil {
				t.Fatal(err)
			}
			req.Source, req.Verifier = m, new(verify.Greedy)
			req.Drafter = &follow{searched: d, rng: rng, oracle: &drafttest.Oracle{
				Truth: slices.Concat(prompt, plain.Tokens()), Vocab: conf.Vocab, Depth: 6, Nodes: 20, Rand: rng,
			}}
			s, err := e.Open(req)
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, s)
			if rng.IntN(2) == 0 { // the others join later, some from a kept prefix
				for range 200 {
					if err := m.step(t.Context(), e, seqs); err != nil && !strings.Contains(err.Error(), "canceled") {
						t.Fatal(err)
					}
				}
				e.Close(seqs[0])
				all.Add(seqs[0].Stats())
				seqs = slices.Delete(seqs, 0, 1)
			}
		}
		for range 300 {
			if err := m.step(t.Context(), e, seqs); err != nil && !strings.Contains(err.Error(), "canceled") {
				t.Fatal(err)
			}
		}
		for _, s := range seqs {
			if r, done := s.Done(); !done || s.Err() != nil {
				t.Fatalf("ended by %q, error %v", r, s.Err())
			}
			all.Add(s.Stats())
			e.Close(s)
		}
		rows += m.rows
		if err := dev.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d rows compared; τ = %.2f, %d of %d prompt tokens from kept prefixes", rows, all.Tau(), all.Cached, all.Prompt)
	if rows == 0 || all.Cached == 0 || all.Tau() < 1.5 {
		t.Error("too little was tested")
	}
}

// Tokens may wait for a long time; if there are more than a tree can hold, they run in several
// passes, with the same bits.
func TestTokensMayWait(t *testing.T) {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	conf := modeltest.Default()
	conf.MaxPos = 4096
	target, err := model.Load(modeltest.Random(t, conf, 1), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	spec := target.Spec().DraftFor(true)
	h, err := head.FromTensors(spec, target, head.Default(), modeltest.Tensors(spec, false, 1)...)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 9))
	const part, parts = 600, 3
	tokens := make([]int32, part*parts+1)
	for i := range tokens {
		tokens[i] = rng.Int32N(int32(conf.Vocab))
	}
	features := make([]float32, part*conf.Hidden)
	for i := range features {
		features[i] = float32(rng.NormFloat64())
	}
	store, err := target.NewStore(part)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Load(0, features); err != nil {
		t.Fatal(err)
	}
	answer := func(between func(*source.Head)) infer.Row {
		src := source.NewHead(h, 0)
		if err := src.Open(1, tokens, 0); err != nil {
			t.Fatal(err)
		}
		defer src.Close(1)
		for p := range parts {
			x := tokens[p*part:]
			chain, path := tree.New(x[0], part), []int{0}
			for i := 1; i < part; i++ {
				path = append(path, chain.Add(i-1, x[i]))
			}
			if err := src.Commit(1, infer.Proposal{Tree: chain}, infer.Verdict{Path: path, Next: x[part]}, given{store: store}); err != nil {
				t.Fatal(err)
			}
			between(src)
		}
		rows, err := src.Rows(context.Background(), []infer.Ask{{ID: 1, Tree: tree.New(tokens[part*parts], 1), Width: 5, Full: true}})
		if err != nil {
			t.Fatal(err)
		}
		return infer.Row{Tokens: slices.Clone(rows[0].Tokens), Logits: slices.Clone(rows[0].Logits)}
	}
	atOnce := answer(func(*source.Head) {})
	inParts := answer(func(src *source.Head) {
		if _, err := src.Rows(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
	})
	if !slices.Equal(atOnce.Tokens, inParts.Tokens) || len(atOnce.Logits) != conf.Vocab {
		t.Fatalf("rows %v and %v", atOnce.Tokens, inParts.Tokens)
	}
	for i := range atOnce.Logits {
		if math.Float32bits(atOnce.Logits[i]) != math.Float32bits(inParts.Logits[i]) {
			t.Fatalf("logit %d: %v and %v", i, atOnce.Logits[i], inParts.Logits[i])
		}
	}
}
