package source_test

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/source"
	"talf/infer/verify"
	"talf/internal/golden"
	"talf/model"
	"talf/model/modeltest"
	"talf/text/tokenizer"
)

// spelling returns a tokenizer of the given texts, whose ids are their indices.
func spelling(t testing.TB, texts []string) *tokenizer.Tokenizer {
	t.Helper()
	vocab := map[string]int{}
	for i, s := range texts {
		vocab[s] = i
	}
	b, err := json.Marshal(map[string]any{
		"version": "1.0", "added_tokens": []any{}, "normalizer": nil, "pre_tokenizer": nil, "post_processor": nil,
		"decoder": map[string]any{"type": "Fuse"},
		"model":   map[string]any{"type": "BPE", "vocab": vocab, "merges": []any{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// texts are all strings of up to three letters, short ones first.
func texts() (all []string) {
	const letters = "abcd"
	for i := range letters {
		all = append(all, letters[i:i+1])
	}
	for begin := 0; len(all) < 4+16+64; {
		end := len(all)
		for _, s := range all[begin:end] {
			for i := range letters {
				all = append(all, s+letters[i:i+1])
			}
		}
		begin = end
	}
	return all
}

// A lmMirror answers every ask a second time with a fresh source that has seen only the tokens
// committed so far.
type lmMirror struct {
	t      *testing.T
	inner  *source.LM
	fresh  func() *source.LM
	again  map[infer.SeqID]*source.LM
	tokens map[infer.SeqID][]int32 // committed, the root last
	rows   int
	short  int // rows with fewer tokens than asked
	empty  int
	stumble
}

func (m *lmMirror) Match(prompt []int32) int { return m.inner.Match(prompt) }

func (m *lmMirror) Open(id infer.SeqID, prompt []int32, keep int) error {
	m.tokens[id] = slices.Clone(prompt[:keep+1])
	return m.inner.Open(id, prompt, keep)
}

func (m *lmMirror) Close(id infer.SeqID) { m.inner.Close(id) }

func (*lmMirror) Abilities() infer.Abilities { return infer.Abilities{} }

func (m *lmMirror) Backlog(id infer.SeqID) int { return m.inner.Backlog(id) }

func (m *lmMirror) Commit(id infer.SeqID, p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	for _, n := range v.Path[1:] {
		m.tokens[id] = append(m.tokens[id], p.Tree.Token(n))
	}
	m.tokens[id] = append(m.tokens[id], v.Next)
	return m.inner.Commit(id, p, v, s)
}

func (m *lmMirror) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	ctx = m.stumble.pass(ctx)
	asks = slices.Clone(asks)
	for i := range asks {
		asks[i].Full = asks[i].ID%2 == 0
	}
	rows, err := m.inner.Rows(ctx, asks)
	if err != nil {
		return nil, err
	}
	bits := func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }
	at := 0
	for _, a := range asks {
		if a.Tree == nil {
			continue
		}
		if a.From == 0 {
			f := m.fresh()
			if err := f.Open(1, m.tokens[a.ID], len(m.tokens[a.ID])-1); err != nil {
				m.t.Fatal(err)
			}
			m.again[a.ID] = f
		}
		b := a
		b.ID = 1
		want, err := m.again[a.ID].Rows(context.Background(), []infer.Ask{b})
		if err != nil {
			m.t.Fatal(err)
		}
		for i := range want {
			got := rows[at+i]
			if !slices.Equal(got.Tokens, want[i].Tokens) || !slices.EqualFunc(got.LogProb, want[i].LogProb, bits) ||
				!slices.EqualFunc(got.Logits, want[i].Logits, bits) {
				m.t.Fatalf("sequence %d after %d tokens, node %d: row %v, a fresh source gives %v", a.ID, len(m.tokens[a.ID]), a.From+i, got, want[i])
			}
			m.rows++
			if len(got.Tokens) < a.Width {
				m.short++
			}
			if len(got.Tokens) == 0 {
				m.empty++
			}
		}
		at += len(want)
	}
	return rows, nil
}

// Whatever was accepted, rejected, kept, forgotten, cancelled or batched before, the rows are
// those of a model that reads the text for the first time.
func TestRowsAreThoseOfAFreshModel(t *testing.T) {
	trials := 30
	if testing.Short() {
		trials = 12
	}
	rows, short, empty := 0, 0, 0
	var all infer.Stats
	for trial := range trials {
		rng := rand.New(rand.NewPCG(uint64(trial), 18))
		dev, err := cpu.New(cpu.Config{Class: cpu.Default().Class, Threads: 1 + trial%2})
		if err != nil {
			t.Fatal(err)
		}
		conf := modeltest.Default()
		conf.Vocab, conf.EOS, conf.MaxPos = 84, -1, 150
		target, err := model.Load(modeltest.Random(t, conf, uint64(trial)), dev, model.Default())
		if err != nil {
			t.Fatal(err)
		}
		theirs := texts()
		ours := slices.Clone(theirs)
		small := conf
		switch trial % 3 {
		case 1: // another order, and some of the longest are missing
			ours = ours[:60:60]
			for i := range 60 {
				ours = append(ours, "abcd"+theirs[i])
			}
			rng.Shuffle(len(ours), func(i, j int) { ours[i], ours[j] = ours[j], ours[i] })
			small.Vocab = len(ours) + 5 // padded
		case 2:
			ours = ours[1:] // no text for "a": such tokens are read without it
			small.Vocab = len(ours)
		}
		if trial%4 == 3 {
			small.MaxPos = 12
		}
		if trial%5 == 2 { // longrope, which turns all positions otherwise beyond some
			small = modeltest.Of("phi3")
			small.Vocab, small.EOS, small.MaxPos, small.Window, small.Original = len(ours), -1, 150, 0, 20+rng.IntN(60)
		}
		small.Hidden, small.Heads, small.KVHeads, small.HeadDim, small.FFN = 20, 2, 1, 10, 24
		lm, err := model.Load(modeltest.Random(t, small, uint64(trial)+99), dev, model.Default())
		if err != nil {
			t.Fatal(err)
		}
		v, err := source.NewVocab(spelling(t, theirs), spelling(t, ours), conf.Vocab, small.Vocab)
		if err != nil {
			t.Fatal(err)
		}
		if v.Same() != (trial%3 == 0) {
			t.Fatalf("trial %d: the vocabularies are the same: %v", trial, v.Same())
		}
		m := &lmMirror{
			t: t, inner: source.NewLM(lm, v, 2), fresh: func() *source.LM { return source.NewLM(lm, v, 0) },
			tokens: map[infer.SeqID][]int32{}, again: map[infer.SeqID]*source.LM{},
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
			d, _, err := draft.New([]string{"salf:N=14,B=3,th=0", "beam:N=12,k=3,depth=3", "beam:N=9,k=1,depth=7"}[rng.IntN(3)])
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
		rows, short, empty = rows+m.rows, short+m.short, empty+m.empty
		if err := dev.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d rows compared, %d of them short, %d empty; τ = %.2f, %d of %d prompt tokens from kept prefixes", rows, short, empty, all.Tau(), all.Cached, all.Prompt)
	if rows == 0 || short == empty || empty == 0 || all.Cached == 0 || all.Tau() < 1.5 {
		t.Error("too little was tested")
	}
}

// A model as its own draft predicts itself: every drafted token is accepted.
func TestAModelThatDraftsForItselfIsAlwaysRight(t *testing.T) {
	dev, err := cpu.New(cpu.Config{Class: cpu.Default().Class, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	conf := modeltest.Default()
	conf.Vocab, conf.EOS = 84, -1
	target, err := model.Load(modeltest.Random(t, conf, 3), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	tok := spelling(t, texts())
	v, err := source.NewVocab(tok, tok, conf.Vocab, conf.Vocab)
	if err != nil {
		t.Fatal(err)
	}
	d, _, err := draft.New("beam:N=6,k=1,depth=4")
	if err != nil {
		t.Fatal(err)
	}
	e := &infer.Engine{Target: infer.NewTarget(target, 0), Config: infer.Default()}
	s, err := e.Generate(t.Context(), infer.Request{
		Prompt: []int32{1, 2, 3}, MaxTokens: 60, Drafter: d, Source: source.NewLM(target, v, 0),
		Verifier: new(verify.Greedy), Processor: drafttest.Plain{},
	})
	if err != nil {
		t.Fatal(err)
	}
	if st := s.Stats(); st.Passes != 10 || st.Tau() != 6 {
		t.Errorf("60 tokens in %d passes, want 10 of 6", st.Passes)
	}
}

// A draft token is drafted as the target's token with the same bytes; a vocabulary that lacks
// too many is refused.
func TestVocabulariesAreMappedByBytes(t *testing.T) {
	target := spelling(t, []string{"a", "b", "ab", "ba", "abb", "<0x41>"})
	v, err := source.NewVocab(target, spelling(t, []string{"ab", "b", "a", "x", "ba"}), 8, 6)
	if err != nil {
		t.Fatal(err)
	}
	shared, tokens, text := v.Cover()
	// For "ab", "ba", "abb" and the byte token, by 1/(rank+2.7): all but the last two.
	if want := (1/3.7 + 1/4.7) / (1/3.7 + 1/4.7 + 1/5.7 + 1/6.7); shared != 4 || tokens != 6 || math.Abs(text-want) > 1e-12 {
		t.Errorf("covers %d of %d tokens and %v of the text, want 4 of 6 and %v", shared, tokens, text, want)
	}
	if _, err := source.NewVocab(target, spelling(t, []string{"a", "b"}), 8, 2); err == nil ||
		!strings.Contains(err.Error(), "about 0% of the target's text (2 of its 6 tokens), want at least 50%") {
		t.Errorf("letters alone: error %v", err)
	}
}

// How well real vocabularies match, by the estimate and on a text.
func TestTheEstimateOfCoverIsNearATextsOwn(t *testing.T) {
	text, err := os.ReadFile(golden.Shared(t, "data/text/wikitext2_valid.txt"))
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"gpt-neox", "gpt2", "llama2", "phi3"}
	toks := map[string]*tokenizer.Tokenizer{}
	for _, name := range names {
		if toks[name], err = tokenizer.Load(golden.Shared(t, "data/tokenizers/"+name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, a := range names {
		ids, err := toks[a].Encode(string(text[:200_000]), false)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range names {
			v, err := source.NewVocab(toks[a], toks[b], toks[a].VocabSize(), toks[b].VocabSize())
			if err != nil {
				t.Fatal(err)
			}
			known := map[string]bool{}
			for id := range int32(toks[b].VocabSize()) {
				if x, ok := toks[b].Bytes(id); ok {
					known[string(x)] = true
				}
			}
			have := 0
			for _, id := range ids {
				if x, _ := toks[a].Bytes(id); known[string(x)] {
					have++
				}
			}
			shared, tokens, estimate := v.Cover()
			measured := float64(have) / float64(len(ids))
			t.Logf("%s drafted by %s: %d of %d tokens, %.3f of the text by the estimate, %.3f measured", a, b, shared, tokens, estimate, measured)
			if math.Abs(estimate-measured) > 0.15 {
				t.Errorf("%s drafted by %s: estimate %.3f, measured %.3f", a, b, estimate, measured)
			}
			if (a == b) != v.Same() {
				t.Errorf("%s and %s are the same: %v", a, b, v.Same())
			}
		}
	}
}
