package infer_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/auto"
	"talf/infer/draft/drafttest"
	"talf/infer/source"
	"talf/infer/verify"
	"talf/model"
	"talf/model/arch"
	"talf/model/head"
	"talf/model/modeltest"
	"talf/model/sample"
)

// nets are a random target and a random head for it.
type nets struct {
	target *model.Model
	head   *head.Head
}

func newNets(t testing.TB, threads int, seed uint64) nets {
	t.Helper()
	return netsWith(t, threads, seed, func(s *arch.Spec) *arch.Spec { return s.DraftFor(true) })
}

// newEagle3Nets is newNets with an EAGLE-3 head.
func newEagle3Nets(t testing.TB, threads int, seed uint64) nets {
	t.Helper()
	return netsWith(t, threads, seed, func(s *arch.Spec) *arch.Spec { return s.Eagle3For([]int{0, 1, s.Layers}, 0) })
}

func netsWith(t testing.TB, threads int, seed uint64, network func(target *arch.Spec) *arch.Spec) nets {
	t.Helper()
	c := cpu.Default()
	c.Threads = threads
	dev, err := cpu.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	conf := modeltest.Default()
	conf.EOS = 5
	m, err := model.Load(modeltest.Random(t, conf, seed), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	spec := network(m.Spec())
	h, err := head.FromTensors(spec, m, head.Default(), modeltest.Tensors(spec, false, seed)...)
	if err != nil {
		t.Fatal(err)
	}
	return nets{m, h}
}

func verifier(t testing.TB, temperature float64) infer.Verifier {
	t.Helper()
	v, err := verify.New("", temperature)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// sampling draws parameters, so that penalties and truncation see the context of
// every node.
func sampling(t testing.TB, rng *rand.Rand, temperature float64) infer.Processor {
	t.Helper()
	p := sample.Default()
	p.Temperature = temperature
	if rng.IntN(3) == 0 {
		p.RepetitionPenalty = 1.3
	}
	if rng.IntN(3) == 0 {
		p.FrequencyPenalty, p.PresencePenalty = 0.3, 0.5
	}
	if rng.IntN(3) == 0 {
		p.LogitBias = []sample.Bias{{Token: 2, By: 1}}
	}
	if rng.IntN(3) == 0 {
		p.TopK = 1 + rng.IntN(20)
	}
	if rng.IntN(3) == 0 {
		p.TopP = 0.3 + 0.7*rng.Float64()
	}
	if rng.IntN(3) == 0 {
		p.MinP = 0.1 * rng.Float64()
	}
	s, err := infer.NewSampling(p, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A recorder keeps the raw bits of every row of logits on a kept path, by
// sequence position.
type recorder struct {
	infer.Target
	vocab int
	job   infer.Job
	rows  infer.Rows
	at    int // position of the tree's root
	bits  map[int][]uint32
}

func (*recorder) Abilities() infer.Abilities { return infer.Abilities{} }

func (r *recorder) Open(id infer.SeqID, prompt []int32, keep int) error {
	r.at, r.bits = keep, map[int][]uint32{}
	return r.Target.Open(id, prompt, keep)
}

func (r *recorder) Score(ctx context.Context, jobs []infer.Job) ([]infer.Rows, error) {
	rows, err := r.Target.Score(ctx, jobs)
	if err == nil {
		r.job, r.rows = jobs[0], rows[0]
	}
	return rows, err
}

func (r *recorder) Commit(id infer.SeqID, path []int) error {
	if r.job.Want == model.WantAll {
		row := make([]float32, r.vocab)
		for i, n := range path {
			r.rows.Logits(row, n)
			bits := make([]uint32, len(row))
			for j, x := range row {
				bits[j] = math.Float32bits(x)
			}
			r.bits[r.at+i] = bits
		}
	}
	r.at += len(path)
	return r.Target.Commit(id, path)
}

// Every draft tree must leave the output unchanged, to the byte, and the logits of kept nodes,
// to the bit: over random prompts, budgets, prompt chunks and thread counts, greedy and sampled,
// with an oracle whose planted errors make every depth both accepted and rejected.
func TestOutputEqualsPlainDecodingWithAnOracle(t *testing.T) {
	trials := 1200
	if testing.Short() {
		trials = 150
	}
	const depth = 8
	var nets3 []nets
	for threads := 1; threads <= 3; threads++ {
		nets3 = append(nets3, newNets(t, threads, 3)) // the same weights
	}
	var all infer.Stats
	above := 0
	for trial := range trials {
		rng := rand.New(rand.NewPCG(uint64(trial), 5))
		m := nets3[trial%3].target
		rec := &recorder{Target: infer.NewTarget(m, 0), vocab: m.Spec().Vocab}
		e := &infer.Engine{Target: rec, Config: infer.Config{PrefillChunk: []int{1, 3, 7, 256}[rng.IntN(4)], MaxNodes: 64}}
		prompt := make([]int32, 1+rng.IntN(20))
		for i := range prompt {
			prompt[i] = rng.Int32N(int32(m.Spec().Vocab))
		}
		temperature := float64(trial / 3 % 2)
		req := infer.Request{
			Prompt: prompt, MaxTokens: 1 + rng.IntN(40), Seed: rng.Uint64(), NoEOS: rng.IntN(4) > 0,
			Verifier: verifier(t, temperature), Processor: sampling(t, rng, temperature),
		}
		plain, err := e.Generate(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		plainBits := rec.bits
		if trial < 60 { // the same on another number of threads
			other := &infer.Engine{Target: infer.NewTarget(nets3[(trial+1)%3].target, 0), Config: e.Config}
			s, err := other.Generate(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(s.Tokens(), plain.Tokens()) {
				t.Fatalf("trial %d: %d and %d threads write different output", trial, 1+trial%3, 1+(trial+1)%3)
			}
		}
		req.Drafter = &drafttest.Oracle{
			Truth: slices.Concat(prompt, plain.Tokens()), Vocab: m.Spec().Vocab,
			Depth: 1 + rng.IntN(depth), Nodes: 2 + rng.IntN(40), Rand: rng,
		}
		e.Config.PrefillChunk = []int{1, 3, 7, 256}[rng.IntN(4)]
		s, err := e.Generate(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(s.Tokens(), plain.Tokens()) {
			t.Fatalf("trial %d, temperature %v: %v, plain decoding gives %v", trial, temperature, s.Tokens(), plain.Tokens())
		}
		for pos, bits := range rec.bits {
			if want, ok := plainBits[pos]; ok && !slices.Equal(bits, want) {
				t.Fatalf("trial %d: the logits at position %d differ in their bits from plain decoding's", trial, pos)
			}
		}
		all.Add(s.Stats())
		if s.Stats().Tau() > 2 {
			above++
		}
	}
	t.Logf("%d prompts, %d tokens, τ = %.2f; τ > 2 in %d", trials, all.Tokens, all.Tau(), above)
	if 2*above < trials {
		t.Errorf("only %d of %d runs have τ > 2: the drafts test too little", above, trials)
	}
	for d := 1; d <= depth; d++ {
		r := all.Depth[d]
		t.Logf("depth %d: %d accepted, %d rejected", d, r.Kept, r.Tried-r.Kept)
		if r.Kept == 0 || r.Kept == r.Tried {
			t.Errorf("depth %d was accepted %d times of %d, want both outcomes", d, r.Kept, r.Tried)
		}
	}
}

// shortsighted penalises by the tokens committed before the round, not by those on
// the path to a node: the bug that the test below plants.
type shortsighted struct {
	infer.Processor
	committed int
}

func (*shortsighted) Abilities() infer.ProcessorAbilities { return infer.ProcessorAbilities{} }

func (p *shortsighted) Argmax(logits []float32, context []int32) int32 {
	return p.Processor.Argmax(logits, context[:min(p.committed, len(context))])
}

func (p *shortsighted) Dist(dst infer.Dist, logits []float32, context []int32) {
	p.Processor.Dist(dst, logits, context[:min(p.committed, len(context))])
}

// Penalties see the path to a node as plain decoding would have written it; a context without it
// is noticed.
func TestPenaltiesSeeTheNodesOwnPath(t *testing.T) {
	params := sample.Default()
	params.RepetitionPenalty = 3
	for _, temperature := range []float64{0, 1} {
		params.Temperature = temperature
		caught := 0
		for seed := range uint64(30) {
			e := tableEngine(9)
			e.Target.(*drafttest.Target).Table.Seed = seed
			penalised, err := infer.NewSampling(params, 0)
			if err != nil {
				t.Fatal(err)
			}
			req := plainRequest(t, 1, 2)
			req.Seed, req.MaxTokens, req.Processor, req.Verifier = seed, 20, penalised, verifier(t, temperature)
			plain, err := e.Generate(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			bug := &shortsighted{penalised, 2}
			for _, proc := range []infer.Processor{penalised, bug} {
				req.Processor = proc
				req.Drafter = &drafttest.Oracle{
					Truth: slices.Concat(req.Prompt, plain.Tokens()), Vocab: 9, Depth: 6, Nodes: 30, Rand: rand.New(rand.NewPCG(seed, 1)),
				}
				bug.committed = 2
				s, err := e.Stream(t.Context(), req, func(d infer.Delta) error {
					bug.committed += len(d.Tokens)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				same := slices.Equal(s.Tokens(), plain.Tokens())
				if proc == infer.Processor(bug) {
					if !same {
						caught++
					}
				} else if !same {
					t.Errorf("seed %d, temperature %v: %v, plain decoding gives %v", seed, temperature, s.Tokens(), plain.Tokens())
				}
			}
		}
		if t.Logf("temperature %v: the planted bug is caught in %d of 30 runs", temperature, caught); caught == 0 {
			t.Errorf("temperature %v: the planted bug is not caught", temperature)
		}
	}
}

// The tree searches with a real head, whose f̂ and KV rows go through every kind of rollback;
// the head is untrained, so most drafts are rejected.
func TestHeadDraftsLeaveTheOutputAsItIs(t *testing.T) {
	trials := 60
	if testing.Short() {
		trials = 12
	}
	var all infer.Stats
	for trial := range trials {
		rng := rand.New(rand.NewPCG(uint64(trial), 6))
		nets := newNets
		if trial%4 >= 2 {
			nets = newEagle3Nets
		}
		n := nets(t, 1+trial%3, uint64(trial))
		src := source.NewHead(n.head, 2)
		e := &infer.Engine{Target: infer.NewTarget(n.target, 2), Config: infer.Config{PrefillChunk: 1 + rng.IntN(20), MaxNodes: 64}}
		temperature := float64(trial % 2)
		var seqs []*infer.Sequence
		var want [][]int32
		var logged [][]infer.Logged
		shared := make([]int32, rng.IntN(50))
		for i := range shared {
			shared[i] = rng.Int32N(int32(n.target.Spec().Vocab))
		}
		for range 2 { // the second round finds kept prefixes
			seqs, want, logged = seqs[:0], want[:0], logged[:0]
			for _, spec := range []string{"salf:paper,N=20", "beam:N=12,k=4,depth=3", "optimal:N=9,B=3", "salf:th=0.1,N=40", "ar"} {
				prompt := slices.Clone(shared)
				for range 1 + rng.IntN(9) {
					prompt = append(prompt, rng.Int32N(int32(n.target.Spec().Vocab)))
				}
				req := infer.Request{
					Prompt: prompt, MaxTokens: 1 + rng.IntN(25), Seed: rng.Uint64(),
					Verifier: verifier(t, temperature), Processor: drafttest.Plain{Temperature: temperature},
					LogProbs: trial%3 > 0, Top: trial % 3,
				}
				plain, err := e.Generate(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				want, logged = append(want, slices.Clone(plain.Tokens())), append(logged, plain.Snapshot().Logged)
				d, m, err := draft.New(spec)
				if err != nil {
					t.Fatal(err)
				}
				req.Drafter = d
				if m.Source {
					req.Source = src
				}
				s, err := e.Open(req)
				if err != nil {
					t.Fatal(err)
				}
				seqs = append(seqs, s)
			}
			for {
				// A cancelled context must leave everything unchanged.
				if rng.IntN(4) == 0 {
					ctx, cancel := context.WithCancel(t.Context())
					cancel()
					if err := e.Step(ctx, seqs); err != nil && !errors.Is(err, context.Canceled) {
						t.Fatal(err)
					}
				}
				if err := e.Step(t.Context(), seqs); err != nil {
					t.Fatal(err)
				}
				if !slices.ContainsFunc(seqs, func(s *infer.Sequence) bool { _, done := s.Done(); return !done }) {
					break
				}
			}
			for i, s := range seqs {
				if s.Err() != nil {
					t.Fatal(s.Err())
				}
				if !slices.Equal(s.Tokens(), want[i]) {
					t.Fatalf("trial %d, sequence %d: %v, plain decoding gives %v", trial, i, s.Tokens(), want[i])
				}
				if got := s.Snapshot().Logged; !reflect.DeepEqual(got, logged[i]) || len(got) != min(trial%3, 1)*len(want[i]) {
					t.Fatalf("trial %d, sequence %d: log probabilities %v, with plain decoding %v", trial, i, got, logged[i])
				}
				all.Add(s.Stats())
				e.Close(s)
			}
		}
	}
	t.Logf("τ = %.2f, %d nodes drafted, %d of %d prompt tokens from kept prefixes", all.Tau(), all.Drafted, all.Cached, all.Prompt)
	if all.Drafted == 0 || all.Cached == 0 {
		t.Error("nothing was drafted, or no prefix was re-used")
	}
}

func plainRequest(t testing.TB, prompt ...int32) infer.Request {
	return infer.Request{Prompt: prompt, MaxTokens: 10, Verifier: verifier(t, 0), Processor: drafttest.Plain{}}
}

func tableEngine(vocab int) *infer.Engine {
	return &infer.Engine{
		Target: &drafttest.Target{Table: drafttest.Table{Seed: 4, Vocab: vocab, Order: 2, Sharp: 2}, MaxLen: 40},
		Config: infer.Default(),
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	ok := plainRequest(t, 1, 2)
	for name, c := range map[string]struct {
		change func(r *infer.Request)
		want   string
	}{
		"no prompt":      {func(r *infer.Request) { r.Prompt = nil }, "no tokens"},
		"long prompt":    {func(r *infer.Request) { r.Prompt = make([]int32, 40) }, "fewer than the context of 40"},
		"no room":        {func(r *infer.Request) { r.MaxTokens = 0 }, "max tokens is 0"},
		"no verifier":    {func(r *infer.Request) { r.Verifier = nil }, "needs a verifier"},
		"no detokenizer": {func(r *infer.Request) { r.Stop = []string{"x"} }, "need a detokenizer"},
		"wrong token":    {func(r *infer.Request) { r.Prompt = []int32{1, 9} }, "prompt token 1 is 9"},
		"no tree":        {func(r *infer.Request) { r.MaxNodes = -1 }, "largest tree is -1"},
		"no such tokens": {func(r *infer.Request) { r.Top = 10 }, "10 likeliest tokens"},
		"below tokens":   {func(r *infer.Request) { r.Prompt = []int32{-1} }, "prompt token 0 is -1"},
	} {
		r := ok
		c.change(&r)
		if _, err := tableEngine(9).Open(r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that says %q", name, err, c.want)
		}
	}
	e := tableEngine(9)
	e.Config.PrefillChunk = 0
	if _, err := e.Open(ok); err == nil {
		t.Error("a prefill chunk of 0 is accepted")
	}
}

// A limit that no sequence can reach has no effect.
func TestAnOutputMayBeAsLongAsTheContext(t *testing.T) {
	req := plainRequest(t, 1, 2)
	req.MaxTokens = math.MaxInt
	s, err := tableEngine(9).Generate(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if r, _ := s.Done(); r != infer.Length || len(s.Tokens()) != 38 {
		t.Errorf("%d tokens, ended by %q; want the 38 that the context of 40 leaves", len(s.Tokens()), r)
	}
}

// A drafter that breaks its contract ends its own sequence, with an error that says how.
func TestABadTreeEndsItsSequenceAlone(t *testing.T) {
	for _, c := range []struct {
		name  string
		draft truth
		most  int // tokens to emit
		want  string
	}{
		{"too deep", truth{1, 2, 3}, 3, "node 3 is 3 edges deep, want at most 2"},
		{"no token of the vocabulary", truth{1, 9}, 9, "node 2 has token 9, want 0..8"},
		{"no token at all", truth{-1}, 9, "node 1 has token -1, want 0..8"},
	} {
		e := tableEngine(9)
		bad, good := plainRequest(t, 1), plainRequest(t, 1)
		bad.Drafter, bad.MaxTokens = c.draft, c.most
		var seqs []*infer.Sequence
		for _, r := range []infer.Request{bad, good} {
			s, err := e.Open(r)
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, s)
		}
		for range 10 {
			if err := e.Step(t.Context(), seqs); err != nil {
				t.Fatal(err)
			}
		}
		if r, _ := seqs[0].Done(); r != infer.Failed || !strings.Contains(seqs[0].Err().Error(), c.want) {
			t.Errorf("%s: reason %q, error %v; want one that says %q", c.name, r, seqs[0].Err(), c.want)
		}
		if r, _ := seqs[1].Done(); r != infer.Length || len(seqs[1].Tokens()) != 10 {
			t.Errorf("%s: the other sequence: reason %q, %d tokens", c.name, r, len(seqs[1].Tokens()))
		}
	}
}

// words spells token i as the i-th word, and a byte that is no character as
// U+FFFD, as a byte-level vocabulary does.
type words []string

func (w words) text(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		b.WriteString(w[id])
	}
	return string([]rune(b.String()))
}

func (w words) detok() infer.Detokenizer { return &speller{words: w} }

type speller struct {
	words words
	held  string
}

func (s *speller) Push(id int32) string {
	text := s.held + s.words[id]
	n := len(text)
	for n > 0 && len(text)-n < utf8.UTFMax && !utf8.FullRuneInString(text[n-1:]) {
		n--
	}
	s.held = text[n:]
	return string([]rune(text[:n]))
}

func (s *speller) Flush() string { return string([]rune(s.held)) }

func TestStopStringsEndTheTextBeforeThem(t *testing.T) {
	words := words{"ab", "b", "c", " st", "op", "\xc3", "\xa9", "x", "stop"}
	within := 0 // outputs that were drafted and ended by a stop string
	for seed := range uint64(200) {
		e := tableEngine(len(words))
		e.Target.(*drafttest.Target).Table.Seed = seed
		req := plainRequest(t, int32(seed%9))
		req.MaxTokens, req.Detok = 30, words.detok
		free, err := e.Generate(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		full := words.text(free.Tokens())
		if free.Text() != full {
			t.Fatalf("seed %d: the streamed text is %q, decoded at once %q", seed, free.Text(), full)
		}
		req.Stop = []string{"stop", "bc", "é"}
		var streamed strings.Builder
		var tokens []int32
		var by string
		emit := func(d infer.Delta) error {
			by = d.Stop
			streamed.WriteString(d.Text)
			tokens = append(tokens, d.Tokens...)
			return nil
		}
		s, err := e.Stream(t.Context(), req, emit)
		if err != nil {
			t.Fatal(err)
		}
		want, reason := full, infer.Length
		for _, stop := range req.Stop {
			if i := strings.Index(want, stop); i >= 0 {
				want, reason = want[:i], infer.Stop
			}
		}
		if got, _ := s.Done(); streamed.String() != want || s.Text() != want || got != reason {
			t.Fatalf("seed %d: streamed %q, text %q, ended by %q; want %q, %q of %q", seed, &streamed, s.Text(), got, want, reason, full)
		}
		if !slices.Equal(tokens, s.Tokens()) {
			t.Fatalf("seed %d: emitted %v, the output is %v", seed, tokens, s.Tokens())
		}
		named := func() bool { return (by != "") == (reason == infer.Stop) && strings.HasPrefix(full[len(want):], by) }
		if !named() {
			t.Fatalf("seed %d: %q of %q ended at %q", seed, want, full, by)
		}
		// A stop string in the middle of an accepted path ends the output at once.
		streamed.Reset()
		tokens = nil
		req.Drafter = &drafttest.Oracle{
			Truth: slices.Concat(req.Prompt, free.Tokens()), Vocab: len(words), Depth: 8, Nodes: 20, Rand: rand.New(rand.NewPCG(seed, 3)),
		}
		d, err := e.Stream(t.Context(), req, emit)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := d.Done(); streamed.String() != want || d.Text() != want || got != reason || !slices.Equal(d.Tokens(), s.Tokens()) || !slices.Equal(tokens, s.Tokens()) {
			t.Fatalf("seed %d, with drafts: streamed %q, text %q of %v, ended by %q; want %q of %v, %q", seed, &streamed, d.Text(), d.Tokens(), got, want, s.Tokens(), reason)
		}
		if !named() {
			t.Fatalf("seed %d, with drafts: %q of %q ended at %q", seed, want, full, by)
		}
		if d.Stats().Tokens != len(s.Tokens()) {
			t.Fatalf("seed %d: statistics count %d tokens, want %d", seed, d.Stats().Tokens, len(s.Tokens()))
		}
		if reason == infer.Stop && d.Stats().Passes < len(s.Tokens()) {
			within++
		}
	}
	if within == 0 {
		t.Error("no stop string was drafted")
	}
}

// A stop string counts as soon as it is complete, even if its last token also begins an
// incomplete character, and even if no other token follows.
func TestAStopStringBeforeAnUnfinishedCharacterEndsTheText(t *testing.T) {
	e := tableEngine(3)
	for _, most := range []int{1, 5} {
		req := plainRequest(t, 1)
		req.MaxTokens, req.Stop = most, []string{"stop"}
		req.Detok = words{"a stop\xc3", "a stop\xc3", "a stop\xc3"}.detok
		s, err := e.Generate(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if r, _ := s.Done(); r != infer.Stop || s.Text() != "a " || len(s.Tokens()) != 1 {
			t.Errorf("at most %d tokens: %q, %q of %d tokens; want %q, %q of 1", most, r, s.Text(), len(s.Tokens()), infer.Stop, "a ")
		}
	}
}

// Text that was held back counts when the output ends, including stop strings.
func TestTextHeldBackIsEmittedAtTheEnd(t *testing.T) {
	e := tableEngine(3)
	for stop, want := range map[string]string{"": "\ufffd", "\ufffd": ""} {
		req := plainRequest(t, 1)
		req.MaxTokens, req.Detok = 1, words{"\xc3", "\xc3", "\xc3"}.detok
		if stop != "" {
			req.Stop = []string{stop}
		}
		emitted := ""
		s, err := e.Stream(t.Context(), req, func(d infer.Delta) error {
			emitted += d.Text
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if s.Text() != want || emitted != want {
			t.Errorf("stop %q: text %q, emitted %q, want %q", stop, s.Text(), emitted, want)
		}
	}
}

// The engine's default limits no tree that a method accepts.
func TestTheDefaultLeavesLargeTreesWhole(t *testing.T) {
	target := &drafttest.Target{Table: drafttest.Table{Seed: 4, Vocab: 50, Order: 2, Sharp: 1}, MaxLen: 100}
	e := &infer.Engine{Target: target, Config: infer.Default()}
	d, _, err := draft.New("optimal:N=700,B=64")
	if err != nil {
		t.Fatal(err)
	}
	req := plainRequest(t, 1, 2)
	req.Drafter, req.Source = d, &drafttest.Source{Target: target, Agree: 1}
	s, err := e.Open(req)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(s)
	for s.Stats().Passes == 0 {
		if err := e.Step(t.Context(), []*infer.Sequence{s}); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Stats().Drafted; n != 699 {
		t.Errorf("%d nodes drafted, want 699", n)
	}
}

func TestAnEmitErrorEndsItsSequence(t *testing.T) {
	e := tableEngine(9)
	full := errors.New("the pipe is full")
	s, err := e.Stream(t.Context(), plainRequest(t, 1), func(infer.Delta) error { return full })
	if r, _ := s.Done(); r != infer.Failed || !errors.Is(err, full) || err.Error() != "emit: the pipe is full" || s.Err() != err || len(s.Tokens()) != 1 {
		t.Errorf("reason %q, error %v and %v, %d tokens", r, err, s.Err(), len(s.Tokens()))
	}
}

func TestGenerateReturnsWhatItHasWhenCancelled(t *testing.T) {
	e := tableEngine(9)
	ctx, cancel := context.WithCancel(t.Context())
	req := plainRequest(t, 1, 2, 3)
	req.MaxTokens = 30
	rounds := 0
	s, err := e.Stream(ctx, req, func(infer.Delta) error {
		if rounds++; rounds == 3 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || len(s.Tokens()) != 3 {
		t.Errorf("error %v, %d tokens; want context canceled, 3", err, len(s.Tokens()))
	}
}

// A round with a draft from a real head must not allocate once buffers have reached their size.
// Passes cost what the clock says, so that drafters that adapt to costs do the same in every
// run.
func TestRoundsDoNotAllocateOnceWarm(t *testing.T) {
	first, third := newNets(t, 1, 1), newEagle3Nets(t, 1, 1)
	for _, c := range []struct {
		spec, verify string
		temperature  float64
	}{
		{"ar", "greedy", 0},
		{"EAGLE-3 salf:paper,N=20", "greedy", 0},
		{"beam:N=20,k=4,depth=3", "greedy", 0},
		{"salf:paper,N=20", "greedy", 0},
		{"salf:th=auto,N=20", "greedy", 0},
		{"dynatree:N=20", "greedy", 0},
		{"sequoia:N=20", "greedy", 0},
		{"auto", "greedy", 0},
		{"auto", "target", 1},
		{"static:binary-3", "target", 1},
		{"static:binary-3,draw=repeated", "rrs", 1},
		{"static:binary-3,draw=distinct", "rrsw", 1},
		{"linear:draw=distinct", "block", 1},
		{"static:binary-3,draw=distinct", "traversal", 1},
	} {
		n, spec := first, c.spec
		if of, ok := strings.CutPrefix(spec, "EAGLE-3 "); ok {
			n, spec = third, of
		}
		mk, m, err := draft.Open(spec, draft.Env{Temperature: c.temperature, Source: true})
		if err != nil {
			t.Fatal(err)
		}
		costs := &drafttest.Costs{
			Pass: func(rows int) time.Duration { return time.Millisecond + time.Duration(rows)*20*time.Microsecond },
			Step: func(rows int) time.Duration { return time.Duration(100+rows) * time.Microsecond },
		}
		d := mk.New()
		e := &infer.Engine{Target: costs.Target(infer.NewTarget(n.target, 0)), Config: infer.Default(), Clock: costs.Now, Control: auto.New()}
		req := plainRequest(t, 1, 2, 3)
		req.MaxTokens, req.NoEOS, req.Drafter = 1000, true, d
		if req.Verifier, err = verify.New(c.verify, c.temperature); err != nil {
			t.Fatal(err)
		}
		params := sample.Default()
		params.Temperature = c.temperature
		if req.Processor, err = infer.NewSampling(params, 0); err != nil {
			t.Fatal(err)
		}
		if m.Source || m.May {
			req.Source = costs.Source(source.NewHead(n.head, 0))
		}
		s, err := e.Open(req)
		if err != nil {
			t.Fatal(err)
		}
		seqs := []*infer.Sequence{s}
		step := func() {
			if err := e.Step(context.Background(), seqs); err != nil {
				t.Fatal(err)
			}
		}
		for range 100 {
			step()
		}
		allocs := testing.AllocsPerRun(100, step)
		if reason, done := s.Done(); done {
			t.Fatalf("%s, %s: the sequence is done: %s, %v", spec, c.verify, reason, s.Err())
		}
		st := s.Stats()
		passes := time.Duration(st.Passes)
		t.Logf("%s: %v allocations a round; draft %v, verify %v, overhead %v a round", spec, allocs,
			st.Draft/passes, st.Verify/passes, st.Overhead/passes)
		// KV stores and histograms grow now and then, and the runtime may allocate. What auto looks texts up in grows with them, and its trees with what is kept.
		if allocs > 0 && (c.spec != "auto" || allocs > 4) {
			t.Errorf("%s, %s: %v allocations a round", spec, c.verify, allocs)
		}
		e.Close(s)
	}
}

// The engine's own draws must follow the target: the joint distribution of the
// first two sampled tokens over many seeds, with a tree that accepts some of
// them. χ² over 16 cells exceeds 58 with probability 1e-6 (15 degrees of
// freedom); seeds are fixed.
func TestSampledTokensFollowTheTarget(t *testing.T) {
	const vocab, limit = 4, 58
	seeds := 20000
	if testing.Short() {
		seeds = 4000
	}
	target := &drafttest.Target{Table: drafttest.Table{Seed: 9, Vocab: vocab, Order: 2, Sharp: 1}, MaxLen: 40}
	src := &drafttest.Source{Target: target, Agree: 0.5}
	e := &infer.Engine{Target: target, Config: infer.Default()}
	prompt := []int32{1, 2}
	var count [vocab][vocab]float64
	accepted := 0
	for seed := range seeds {
		d, _, err := draft.New("salf:paper,N=4,B=2")
		if err != nil {
			t.Fatal(err)
		}
		s, err := e.Generate(t.Context(), infer.Request{
			Prompt: prompt, MaxTokens: 2, Seed: uint64(seed), Drafter: d, Source: src,
			Verifier: verifier(t, 1), Processor: drafttest.Plain{Temperature: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		count[s.Tokens()[0]][s.Tokens()[1]]++
		if s.Stats().Passes == 1 {
			accepted++
		}
	}
	row := func(ctx ...int32) infer.Dist {
		logits, d := make([]float32, vocab), make(infer.Dist, vocab)
		target.Table.Logits(logits, ctx)
		drafttest.Plain{Temperature: 1}.Dist(d, logits, nil)
		return d
	}
	var chi2 float64
	for a, pa := range row(prompt...) {
		for b, pb := range row(1, 2, int32(a)) {
			want := float64(seeds) * pa * pb
			chi2 += (count[a][b] - want) * (count[a][b] - want) / want
		}
	}
	t.Logf("χ² = %.1f over 15 degrees of freedom; %d of %d drafts accepted", chi2, accepted, seeds)
	if chi2 > limit {
		t.Errorf("χ² = %.1f, want at most %d", chi2, limit)
	}
	if accepted == 0 || accepted == seeds {
		t.Errorf("%d of %d drafts accepted, want some of each", accepted, seeds)
	}
}

// One drafted token is worth a pass, if two tokens are left and a tree may have two nodes.
func TestTheLastTwoTokensAreDrafted(t *testing.T) {
	e := tableEngine(9)
	free, err := e.Generate(t.Context(), plainRequest(t, 1, 2))
	if err != nil {
		t.Fatal(err)
	}
	e.Config.MaxNodes = 2
	req := plainRequest(t, 1, 2)
	req.MaxTokens, req.Drafter = 2, truth(free.Tokens()[:1])
	s, err := e.Generate(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if s.Stats().Passes != 1 || !slices.Equal(s.Tokens(), free.Tokens()[:2]) {
		t.Errorf("%v in %d passes, want %v in one", s.Tokens(), s.Stats().Passes, free.Tokens()[:2])
	}
}
