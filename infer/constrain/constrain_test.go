package constrain_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"talf/infer"
	"talf/infer/constrain"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/lookup/datastore"
	"talf/infer/verify"
	"talf/infer/verify/verifytest"
	"talf/internal/leak"
	"talf/model/sample"
	"talf/text/grammar/grammartest"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m.Run)) }

// pieces is a vocabulary that writes JSON and some more; the last token ends answers.
var pieces = []string{"{", "}", `"`, `":`, ",", "a", "b", "1", "-", "[", "]", "tr", "ue", `{"a":`, " ", `"}`, "é", "\xc3", "\xa9", ":", "</s>"}

const end = 20

func formats() []constrain.Format {
	return []constrain.Format{
		{Kind: constrain.JSON},
		{Kind: constrain.Schema, Text: `{"type":"object","properties":{"a":{"type":"array","items":{"enum":[1,true,"é"]}},"b":{"$ref":"#"}},"additionalProperties":false}`},
		{Kind: constrain.Regex, Text: `(a|b1){3,12}-é?|\[1\]+`},
		{Kind: constrain.GBNF, Text: `root ::= "[" root? "]" root? | "tr" "ue"? | "a"+`},
		{Kind: constrain.GBNF, Text: `root ::= "{\"a\":true" (",\"b\":" ("1" | "true"))* "}"`},
	}
}

func constraint(t testing.TB, f constrain.Format, tokens []string, ends ...int32) *constrain.Constraint {
	t.Helper()
	c, err := constrain.New(f, grammartest.Words(tokens...), ends)
	if err != nil {
		t.Fatal(err)
	}
	c.Encode = func(text string) (ids []int32, err error) {
		for text != "" {
			best := -1
			for id, piece := range tokens {
				if strings.HasPrefix(text, piece) && (best < 0 || len(piece) > len(tokens[best])) {
					best = id
				}
			}
			if best < 0 {
				return nil, errors.New("no token begins this")
			}
			ids, text = append(ids, int32(best)), text[len(tokens[best]):]
		}
		return ids, nil
	}
	return c
}

// params draws parameters, so that penalties and truncation meet the mask.
func params(rng *rand.Rand, temperature float64) sample.Params {
	p := sample.Default()
	p.Temperature = temperature
	if rng.IntN(3) == 0 {
		p.RepetitionPenalty = 1.3
	}
	if rng.IntN(3) == 0 {
		p.FrequencyPenalty, p.PresencePenalty = 0.3, 0.5
	}
	if rng.IntN(3) == 0 {
		p.LogitBias = []sample.Bias{{Token: 2, By: 3}, {Token: 5, By: -100}}
	}
	if rng.IntN(3) == 0 {
		p.TopK = 1 + rng.IntN(6)
	}
	if rng.IntN(3) == 0 {
		p.TopP = 0.3 + 0.7*rng.Float64()
	}
	if rng.IntN(3) == 0 {
		p.MinP = 0.1 * rng.Float64()
	}
	return p
}

// reference decodes without an engine and without an automaton's masks: every token of the
// vocabulary is tried byte by byte.
func reference(t *testing.T, c *constrain.Constraint, table drafttest.Table, p sample.Params, prompt []int32, most int, seed uint64, endless bool) []int32 {
	t.Helper()
	context := slices.Clone(prompt)
	state := c.Automaton.Start()
	row := make([]float32, table.Vocab)
	dist := make([]float64, table.Vocab)
	for len(context)-len(prompt) < most {
		table.Logits(row, context)
		allow := make([]uint64, 1)
		for id, piece := range pieces {
			may := c.Automaton.Read(state, []byte(piece)) != nil
			if id == end && !endless {
				may = state.Accepting()
			}
			if may {
				allow[0] |= 1 << id
			}
		}
		s := sample.New(p, len(prompt))
		s.Restrict(allow, nil, false)
		var id int32
		if p.Temperature == 0 {
			id = s.Argmax(row, context)
		} else {
			s.Dist64(dist, row, context)
			u := sample.Uniform(seed, len(context))
			for ; id < end && u >= dist[id]; id++ {
				u -= dist[id]
			}
		}
		context = append(context, id)
		if id == end && !endless {
			break
		}
		if state = c.Automaton.Next(state, id); state == nil {
			t.Fatalf("token %d leaves the grammar", id)
		}
		if state.Complete() {
			break
		}
	}
	return context[len(prompt):]
}

// text returns the bytes of an answer.
func text(tokens []int32) string {
	var b strings.Builder
	for _, id := range tokens {
		if id != end {
			b.WriteString(pieces[id])
		}
	}
	return b.String()
}

// Constrained output with every draft method and every exact verifier is that of constrained
// plain decoding, token by token and log probability by log probability, several sequences side
// by side and with kept prefixes; and that is what a loop without an engine writes.
func TestOutputEqualsConstrainedPlainDecoding(t *testing.T) {
	trials := 40
	if testing.Short() {
		trials = 8
	}
	var specs []string
	for _, m := range draft.Methods() {
		if d, _, err := draft.New(m.Name); err == nil && d != nil {
			specs = append(specs, m.Name)
		}
	}
	if len(specs) < 10 {
		t.Fatalf("only %v can be made without files", specs)
	}
	specs = append(specs, "oracle", "oracle")
	var all infer.Stats
	reasons := map[infer.Reason]int{}
	for trial := range trials {
		rng := rand.New(rand.NewPCG(uint64(trial), 3))
		target := &drafttest.Target{Table: drafttest.Table{Seed: uint64(trial), Vocab: len(pieces), Order: 1 + rng.IntN(2), Sharp: 2}, MaxLen: 90, EOS: []int32{end}}
		source := &drafttest.Source{Target: target, Agree: 0.7}
		e := &infer.Engine{Target: target, Config: infer.Config{PrefillChunk: 1 + rng.IntN(9), MaxNodes: 2 + rng.IntN(40)}}
		c := constraint(t, formats()[trial%len(formats())], pieces, end)
		temperature := float64(rng.IntN(2))
		shared := []int32{1, 2, 3, 4, 5, 6}[:rng.IntN(7)]
		var seqs []*infer.Sequence
		var plains []*infer.Sequence
		for _, spec := range specs {
			p := params(rng, temperature)
			prompt := append(slices.Clone(shared), rng.Int32N(19), rng.Int32N(19))
			req := infer.Request{
				Prompt: prompt, MaxTokens: 1 + rng.IntN(40), Seed: rng.Uint64(), NoEOS: rng.IntN(4) == 0,
				Method: spec, LogProbs: true, Top: 2,
			}
			build := func() infer.Request {
				r := req
				var err error
				if r.Processor, err = c.Processor(p, len(prompt), req.NoEOS); err != nil {
					t.Fatal(err)
				}
				if r.Verifier, err = verify.New("", temperature); err != nil {
					t.Fatal(err)
				}
				return r
			}
			plain, err := e.Generate(t.Context(), build())
			if err != nil {
				t.Fatalf("trial %d, after %q: %v", trial, text(plain.Tokens()), err)
			}
			if want := reference(t, c, target.Table, p, prompt, req.MaxTokens, req.Seed, req.NoEOS); !slices.Equal(plain.Tokens(), want) {
				t.Fatalf("trial %d: plain decoding gives %q, the loop %q", trial, text(plain.Tokens()), text(want))
			}
			plains = append(plains, plain)
			r := build()
			if spec == "oracle" {
				r.Drafter = &drafttest.Oracle{Truth: slices.Concat(prompt, plain.Tokens()), Vocab: len(pieces), Depth: 9, Nodes: 40, Rand: rng}
			} else {
				d, m, err := draft.New(spec)
				if err != nil {
					t.Fatal(err)
				}
				if r.Drafter = d; m.Source || m.May {
					r.Source = source
				}
			}
			if r.Drafter != nil && rng.IntN(3) > 0 { // the others may leave the grammar
				r.Drafter = r.Processor.(*constrain.Processor).Draft(r.Drafter, true)
			}
			s, err := e.Open(r)
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, s)
		}
		for {
			if err := e.Step(t.Context(), seqs); err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(seqs, func(s *infer.Sequence) bool { _, done := s.Done(); return !done }) {
				break
			}
		}
		for i, s := range seqs {
			reason, _ := s.Done()
			want, _ := plains[i].Done()
			if s.Err() != nil || reason != want || !slices.Equal(s.Tokens(), plains[i].Tokens()) {
				t.Fatalf("trial %d, %s: %q (%s, %v), constrained plain decoding gives %q (%s)", trial, specs[i], text(s.Tokens()), reason, s.Err(), text(plains[i].Tokens()), want)
			}
			if !slices.EqualFunc(s.Snapshot().Logged, plains[i].Snapshot().Logged, func(a, b infer.Logged) bool {
				return a.Likely == b.Likely && slices.Equal(a.Top, b.Top)
			}) {
				t.Fatalf("trial %d, %s: the log probabilities differ", trial, specs[i])
			}
			state := c.Automaton.Read(c.Automaton.Start(), []byte(text(s.Tokens())))
			if state == nil || reason == infer.Complete && !state.Complete() || reason == infer.EOS && !state.Accepting() {
				t.Fatalf("trial %d, %s: %q (%s) does not match", trial, specs[i], text(s.Tokens()), reason)
			}
			reasons[reason]++
			all.Add(s.Stats())
			e.Close(s)
		}
	}
	if t.Logf("%d tokens, τ = %.2f, %v", all.Tokens, all.Tau(), reasons); all.Tau() < 1.2 || reasons[infer.Complete] == 0 || reasons[infer.EOS] == 0 || reasons[infer.Length] == 0 {
		t.Errorf("τ = %.2f and %v test too little", all.Tau(), reasons)
	}
}

// rows returns the distributions that a processor of c makes of a case's target: the root is the
// last token of the prompt. blind plants a bug: every node is given the mask of the root.
func rows(t testing.TB, c *constrain.Constraint, of *verifytest.Case, blind bool) verifytest.Rows {
	table := of.P
	return func(path []int32) infer.Dist {
		proc, err := c.Processor(sample.Default(), 1, false)
		if err != nil {
			t.Fatal(err)
		}
		from := table.Row(path)
		logits := make([]float32, len(from))
		for i, p := range from {
			logits[i] = float32(p) // the numbers do not matter, only that they are of this path
		}
		if blind {
			path = path[:1]
		}
		d := make(infer.Dist, len(from))
		proc.Dist(d, logits, path)
		return d
	}
}

// Every verifier is lossless with respect to the constrained distribution, by enumeration; with
// masks that do not see a node's path it is not.
func TestVerifiersAreLosslessUnderAGrammar(t *testing.T) {
	cases := 12
	if testing.Short() {
		cases = 4
	}
	bound := map[int]*constrain.Constraint{}
	for vocab := 2; vocab <= 4; vocab++ {
		// Tokens 0 and 1 alternate in some order, 2 is allowed after a 1, and 3 ends.
		bound[vocab] = constraint(t, constrain.Format{Kind: constrain.GBNF, Text: `root ::= "a" root | "b" (after | "")
after ::= "a" root | "c" root`}, []string{"a", "b", "c", "!"}[:vocab], 3)
	}
	caught := 0
	for _, m := range verify.Methods() {
		for _, s := range verifytest.Schemes() {
			if !m.Fits(s.Draw, s.Chain) {
				continue
			}
			err := verifytest.CheckOf(m.New, s, m.Greedy, cases, func(c *verifytest.Case) verifytest.Rows {
				return rows(t, bound[c.Vocab], c, false)
			})
			if err != nil {
				t.Errorf("%s: %v", m.Name, err)
			}
			err = verifytest.CheckOf(m.New, s, m.Greedy, cases, func(c *verifytest.Case) verifytest.Rows {
				c.Target = rows(t, bound[c.Vocab], c, true)
				return rows(t, bound[c.Vocab], c, false)
			})
			if err != nil && strings.Contains(err.Error(), "the target gives") {
				caught++
			} else if err != nil {
				t.Error(err)
			}
		}
	}
	if t.Logf("masks that are blind for the path are caught in %d pairs", caught); caught < 20 {
		t.Error("the planted bug is caught too rarely")
	}
}

// Children that are drawn within the grammar are drawn from what the verifiers take for their
// distribution: they stay lossless, by enumeration, and are not if they are told the draft's own.
func TestVerifiersAreLosslessForDraftsDrawnWithinAGrammar(t *testing.T) {
	cases := 16
	if testing.Short() {
		cases = 6
	}
	bound := map[int]*constrain.Constraint{}
	for vocab := 2; vocab <= 4; vocab++ {
		bound[vocab] = constraint(t, constrain.Format{Kind: constrain.GBNF, Text: `root ::= "a" root | "b" (after | "")
after ::= "a" root | "c" root`}, []string{"a", "b", "c", "!"}[:vocab], 3)
	}
	within := func(d infer.Drafter, vocab int) infer.Drafter {
		proc, err := bound[vocab].Processor(sample.Default(), 11, false)
		if err != nil {
			t.Fatal(err)
		}
		return proc.Draft(d, false)
	}
	caught, outside := 0, 0
	for _, m := range verify.Methods() {
		for _, spec := range []string{
			"linear:K=3,draw=distinct", "linear:K=3,draw=repeated", "static:binary-2,draw=distinct", "static:kary-3-2,draw=repeated",
			"sequoia:N=7,accept=0.5/0.3/0.1,draw=distinct",
		} {
			s := verifytest.DraftingAs(spec, within)
			if !m.Fits(s.Draw, s.Chain) {
				continue
			}
			check := func(s verifytest.Scheme) error {
				return verifytest.CheckOf(m.New, s, m.Greedy, cases, func(c *verifytest.Case) verifytest.Rows {
					return rows(t, bound[c.Vocab], c, false)
				})
			}
			sound, blind := s, s
			sound.Grow = func(p *infer.Proposal, q verifytest.Rows, c infer.Chance, rng *rand.Rand) {
				s.Grow(p, q, c, rng)
				proc, err := bound[len(q([]int32{0}))].Processor(sample.Default(), 1, false)
				if err != nil {
					t.Fatal(err)
				}
				for n := 1; n < p.Tree.Len(); n++ {
					var path []int32
					for _, m := range p.Tree.AppendPath(nil, n) {
						path = append(path, p.Tree.Token(m))
					}
					if last := path[len(path)-1]; last != 3 && proc.State(path) == nil {
						outside++
					}
				}
			}
			if err := check(sound); err != nil {
				t.Errorf("%s, %s: %v", m.Name, spec, err)
			}
			blind.Grow = func(p *infer.Proposal, q verifytest.Rows, c infer.Chance, rng *rand.Rand) {
				s.Grow(p, q, c, rng)
				of := p.Q
				p.Q = func(n int) infer.Dist {
					drawn, all := of(n), make(infer.Dist, 0, 4)
					for _, x := range drawn { // as if every token might have been drawn
						all = append(all, (x+0.25)/(1+0.25*float64(len(drawn))))
					}
					return all
				}
			}
			if err := check(blind); err != nil && strings.Contains(err.Error(), "the target gives") {
				caught++
			}
		}
	}
	if outside > 0 {
		t.Errorf("%d nodes are outside the grammar", outside)
	}
	if t.Logf("a draft that is not told of the grammar is caught in %d pairs", caught); caught < 6 {
		t.Error("the planted bug is caught too rarely")
	}
}

// A draft model that finds the grammar's tokens unlikely drafts full trees of them nevertheless: it is
// asked about nothing else.
func TestNoNodeIsSpentOnWhatCannotCome(t *testing.T) {
	var letters []string
	for b := '!'; b < '!'+80; b++ {
		letters = append(letters, string(b))
	}
	c := constraint(t, constrain.Format{Kind: constrain.Regex, Text: "[AbC]{30}"}, letters)
	for spec, least := range map[string]int{ // nodes per tree
		"beam:N=20,k=3,depth=4": 15, "optimal:N=20": 16, "static:binary-3": 12, "dynatree:N=20": 6, "recycle:N=20": 0, "isotropic:k=2,N=20": 0,
	} {
		target := &drafttest.Target{Table: drafttest.Table{Vocab: len(letters), Order: 1, Sharp: 3}, MaxLen: 60}
		e := &infer.Engine{Target: target, Config: infer.Default()}
		proc, err := c.Processor(sample.Greedy(), 1, false)
		if err != nil {
			t.Fatal(err)
		}
		d, m, err := draft.New(spec)
		if err != nil {
			t.Fatal(err)
		}
		seen := &watcher{Drafter: proc.Draft(d, false)}
		req := infer.Request{Prompt: []int32{1}, MaxTokens: 40, Verifier: new(verify.Greedy), Processor: proc, Drafter: seen}
		if m.Source {
			req.Source = &drafttest.Source{Target: target}
		}
		s, err := e.Generate(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if t.Logf("%s: %d nodes in %d passes", spec, len(seen.chains), s.Stats().Passes); len(seen.chains) < least*s.Stats().Passes {
			t.Errorf("%s: trees have fewer than %d nodes", spec, least)
		}
		for _, chain := range seen.chains {
			if proc.State(chain) == nil {
				t.Fatalf("%s: the draft %v cannot come", spec, chain)
			}
		}
	}
}

// What auto chooses from stays within the grammar while it is drafted, as it does alone: what cannot come would
// take the places of tokens that can, and would be counted as a draft that was wrong.
func TestNoNodeOfWhatAutoComparesIsSpentOnWhatCannotCome(t *testing.T) {
	letters := strings.Split("abcdefghijkl", "")
	c := constraint(t, constrain.Format{Kind: constrain.Regex, Text: "([abc][a-d]{2}){30}"}, letters)
	prompt := []int32{0, 11, 1, 11, 2, 11, 3, 11, 0, 0, 11, 1, 1, 11, 2, 0} // l cannot come
	all := 0
	store := storeFile(t, len(letters), slices.Concat(prompt, []int32{0, 11, 1, 0, 11, 2, 3, 0, 1, 2, 3, 0, 1, 11, 2, 1, 3, 2, 1, 1, 2, 0, 3}))
	for _, spec := range []string{
		"pld:lo=1", "recycle:N=20", "goose:N=20,lo=1", "goose:N=20,lo=1,consensus=off,bypass=64", "isotropic:k=2,N=20,lo=1", "suffix",
		"lookahead:W=3,N=3,G=4,prompt=on", "rest:file=" + store + ",set=full,N=20",
	} {
		target := &drafttest.Target{Table: drafttest.Table{Seed: 5, Vocab: len(letters), Order: 2, Sharp: 1}, MaxLen: 120}
		costs := &drafttest.Costs{Pass: func(int) time.Duration { return time.Millisecond }} // drafts take no time
		e := &infer.Engine{Target: costs.Target(target), Config: infer.Default(), Clock: costs.Now}
		var own [2]*constrain.Processor
		for i := range own {
			var err error
			if own[i], err = c.Processor(sample.Greedy(), len(prompt), false); err != nil {
				t.Fatal(err)
			}
		}
		mk, _, err := draft.Open(spec, draft.Env{Vocab: len(letters), Tokenizer: func() string { return strings.Repeat("ab", 32) }})
		if err != nil {
			t.Fatal(err)
		}
		seen := &watcher{}
		both := draft.Union([]draft.Candidate{{Name: spec, New: func() infer.Drafter {
			seen.Drafter = mk.New()
			return &grown{seen}
		}}})
		s, err := e.Generate(t.Context(), infer.Request{
			Prompt: prompt, MaxTokens: 90, Verifier: new(verify.Greedy), Processor: own[0], Drafter: own[0].Draft(both(), true),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := mk.Close(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d nodes in %d passes", spec, len(seen.chains), s.Stats().Passes)
		all += len(seen.chains)
		for _, chain := range seen.chains {
			if own[1].State(chain) == nil {
				t.Errorf("%s: the draft %v cannot come", spec, chain)
				break
			}
		}
	}
	if all < 100 {
		t.Errorf("%d nodes are drafted, want more", all)
	}
}

// storeFile writes a datastore of one text.
func storeFile(t *testing.T, vocab int, tokens []int32) string {
	t.Helper()
	b, err := datastore.NewBuilder(vocab, strings.Repeat("ab", 32))
	if err == nil {
		err = b.Add(tokens)
	}
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "store.idx"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := b.WriteTo(f); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// An answer that nothing in the vocabulary continues fails with a reason, in plain decoding and
// in a tree alike.
func TestAnswersThatGetStuckFail(t *testing.T) {
	c := constraint(t, constrain.Format{Kind: constrain.Regex, Text: "ab[xy]"}, []string{"a", "b", "c", "!"}, 3)
	for _, drafted := range []bool{false, true} {
		e := &infer.Engine{Target: &drafttest.Target{Table: drafttest.Table{Vocab: 4, Sharp: 1}, MaxLen: 20, EOS: []int32{3}}, Config: infer.Default()}
		proc, err := c.Processor(sample.Greedy(), 1, false)
		if err != nil {
			t.Fatal(err)
		}
		req := infer.Request{Prompt: []int32{1}, MaxTokens: 9, Verifier: new(verify.Greedy), Processor: proc}
		if drafted {
			req.Drafter = &drafttest.Oracle{Truth: []int32{1, 0, 1, 2, 2, 2}, Vocab: 4, Depth: 4, Nodes: 20, Rand: rand.New(rand.NewPCG(1, 1))}
		}
		s, err := e.Generate(t.Context(), req)
		if err == nil {
			err = s.Err()
		}
		if err == nil || !strings.Contains(err.Error(), "no token of the vocabulary") {
			t.Errorf("drafted %v: %v", drafted, err)
		}
	}
	if _, err := constraint(t, constrain.Format{Kind: constrain.Regex, Text: "x"}, []string{"a"}).Processor(sample.Greedy(), 1, false); err == nil {
		t.Error("a grammar that no token begins is accepted")
	}
}

// The end of the grammar inside an accepted path ends the answer there: nothing follows, not even
// an end-of-sequence token, and stop strings still come first.
func TestTheEndOfTheGrammarEndsTheAnswer(t *testing.T) {
	c := constraint(t, constrain.Format{Kind: constrain.Regex, Text: "aab"}, []string{"a", "b", "!"}, 2)
	for _, stop := range []string{"", "ab", "aa"} {
		e := &infer.Engine{Target: &drafttest.Target{Table: drafttest.Table{Vocab: 3, Sharp: 1}, MaxLen: 20, EOS: []int32{2}}, Config: infer.Default()}
		proc, err := c.Processor(sample.Greedy(), 1, false)
		if err != nil {
			t.Fatal(err)
		}
		req := infer.Request{
			Prompt: []int32{1}, MaxTokens: 9, Verifier: new(verify.Greedy), Processor: proc, Stop: []string{stop},
			Detok:   func() infer.Detokenizer { return new(letters) },
			Drafter: &exactly{[]int32{0, 0, 1, 1, 2, 0}},
		}
		s, err := e.Generate(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		reason, _ := s.Done()
		want := map[string]struct {
			text   string
			reason infer.Reason
		}{"": {"aab", infer.Complete}, "ab": {"a", infer.Stop}, "aa": {"", infer.Stop}}[stop]
		if s.Text() != want.text || reason != want.reason || s.Stats().Passes > 2 {
			t.Errorf("stop %q: %q, %s after %d passes, want %q, %s", stop, s.Text(), reason, s.Stats().Passes, want.text, want.reason)
		}
	}
}

type letters struct{}

func (letters) Push(id int32) string { return "ab!"[id : id+1] }
func (letters) Flush() string        { return "" }

// exactly drafts one chain.
type exactly struct{ chain []int32 }

func (d *exactly) Start([]int32) error { return nil }

func (d *exactly) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	at := 0
	for i, id := range d.chain[min(p.Pos, len(d.chain)):] {
		if i == p.MaxDepth || p.Tree.Room() == 0 {
			break
		}
		at = p.Tree.Add(at, id)
	}
	return nil, nil
}

func (d *exactly) Observe(infer.Proposal, infer.Verdict, infer.Scores) error { return nil }
func (d *exactly) Traits() infer.Traits                                      { return infer.Traits{} }

func TestFormatsThatDoNotCompileAreRefused(t *testing.T) {
	if _, err := (constrain.Format{Kind: constrain.Schema, Text: `{"type":"array","minItems":3,"maxItems":2}`}).Compile(); err == nil || !strings.Contains(err.Error(), "JSON schema: no value is valid") {
		t.Errorf("a schema without values: %v", err)
	}
	v := grammartest.Words("a")
	for want, f := range map[string]constrain.Format{
		"closes nothing": {Kind: constrain.Regex, Text: "a)"},
		"::=":            {Kind: constrain.GBNF, Text: "root"},
		"format":         {Kind: "xml"},
		"keyword":        {Kind: constrain.Schema, Text: `{"uniqueItems":true}`},
		"empty one":      {Kind: constrain.Regex, Text: ""},
		"no text":        {Kind: constrain.Regex, Text: "[]"},
	} {
		if _, err := constrain.New(f, v, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want an error with %q", f, err, want)
		}
	}
	if c, err := constrain.New(constrain.Format{}, v, nil); c != nil || err != nil {
		t.Errorf("no format: %v, %v", c, err)
	}
}

// Drafts stay within the grammar, and what has to come is drafted without a model: a fixed text
// takes one pass for all but its first token and what follows.
func TestDraftsKnowTheGrammar(t *testing.T) {
	letters := []string{"a", "b", "c", "d", "!"}
	c := constraint(t, constrain.Format{Kind: constrain.Regex, Text: "abcdabcd[ab]dcba"}, letters, 4)
	passes := map[bool]int{}
	for _, knows := range []bool{false, true} {
		target := &drafttest.Target{Table: drafttest.Table{Vocab: 5, Order: 2, Sharp: 1}, MaxLen: 50, EOS: []int32{4}}
		e := &infer.Engine{Target: target, Config: infer.Default()}
		proc, err := c.Processor(sample.Greedy(), 1, false)
		if err != nil {
			t.Fatal(err)
		}
		seen := &watcher{Drafter: &exactly{make([]int32, 40)}}
		req := infer.Request{Prompt: []int32{1}, MaxTokens: 30, Verifier: new(verify.Greedy), Processor: proc, Drafter: seen}
		if knows {
			seen.Drafter = proc.Draft(seen.Drafter, true)
		}
		s, err := e.Generate(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		reason, _ := s.Done()
		text := ""
		for _, id := range s.Tokens() {
			text += letters[id]
		}
		if !strings.HasPrefix(text, "abcdabcd") || !strings.HasSuffix(text, "dcba") || reason != infer.Complete {
			t.Errorf("%q, %s", text, reason)
		}
		passes[knows] = s.Stats().Passes
		outside := 0
		for _, chain := range seen.chains {
			if state := proc.State(chain); state == nil {
				outside++
			}
		}
		if knows == (outside > 0) {
			t.Errorf("knows the grammar: %v, and %d drafts are outside it", knows, outside)
		}
	}
	if passes[true] > 5 || passes[false] < 10 {
		t.Errorf("%v passes", passes)
	}
}

// What has to come is in the tree whatever is drafted: a draft model's tree goes on below it, a chain
// stays one, and without a draft it is there alone.
func TestTreesGoOnBelowWhatHasToCome(t *testing.T) {
	letters := []string{"a", "b", "x", "y", "z", "!"}
	c := constraint(t, constrain.Format{Kind: constrain.Regex, Text: "([ab]xyzz){9}"}, letters, 5)
	for name, x := range map[string]struct {
		spec  string
		chain []int32 // in place of a method
		below bool    // trees go on
		most  int     // passes
	}{
		"a draft model's tree":  {spec: "optimal:N=14", below: true, most: 20},
		"a chain that differs":  {chain: slices.Repeat([]int32{1, 0}, 40), most: 23},
		"a chain that is right": {chain: slices.Repeat([]int32{0, 2, 3, 4, 4}, 9), below: true, most: 23},
		"no draft":              {chain: []int32{}, most: 23},
	} {
		target := &drafttest.Target{Table: drafttest.Table{Seed: 3, Vocab: len(letters), Order: 2, Sharp: 1}, MaxLen: 90, EOS: []int32{5}}
		e := &infer.Engine{Target: target, Config: infer.Default()}
		proc, err := c.Processor(sample.Greedy(), 1, false)
		if err != nil {
			t.Fatal(err)
		}
		var d infer.Drafter = &exactly{x.chain}
		req := infer.Request{Prompt: []int32{1}, MaxTokens: 60, Verifier: new(verify.Greedy), Processor: proc}
		if x.spec != "" {
			if d, _, err = draft.New(x.spec); err != nil {
				t.Fatal(err)
			}
			req.Source = &drafttest.Source{Target: target, Agree: 1}
		}
		below := false
		req.Drafter = proc.Draft(d, true)
		origin, names := req.Drafter.Traits().Origins.Of, req.Drafter.Traits().Origins.Names
		req.Trace = func(r infer.Round) error {
			tr := r.Proposal.Tree
			if x.chain != nil && !r.Proposal.Chain() {
				t.Errorf("%s: the tree is no chain", name)
			}
			for n := 1; n < tr.Len(); n++ {
				if tok := tr.Token(n); (tok == 0 || tok == 1) && tr.Depth(n) > 1 {
					below = true
				}
				if x.chain != nil && len(x.chain) == 0 && names[origin(n)] != "grammar" {
					t.Errorf("%s: node %d is from %s", name, n, names[origin(n)])
				}
			}
			return nil
		}
		s, err := e.Generate(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		reason, _ := s.Done()
		if reason != infer.Complete || len(s.Tokens()) != 45 {
			t.Errorf("%s: %d tokens, %s", name, len(s.Tokens()), reason)
		}
		if t.Logf("%s: %d passes", name, s.Stats().Passes); below != x.below || s.Stats().Passes > x.most {
			t.Errorf("%s: trees go on below what has to come: %v; %d passes", name, below, s.Stats().Passes)
		}
	}
}

// A grown drafter keeps the paths of all trees that its watcher's drafter grows, whether they are proposed or not.
type grown struct{ *watcher }

func (g *grown) Grow(p *infer.Proposal, rows []infer.Row, c infer.Chance) ([]int, error) {
	ask, err := g.Drafter.Grow(p, rows, c)
	g.see(*p)
	return ask, err
}

func (g *grown) Observe(p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	g.follow(p, v)
	return g.Drafter.Observe(p, v, s)
}

// A watcher keeps the paths of all trees that a drafter proposes.
type watcher struct {
	infer.Drafter
	tokens []int32
	chains [][]int32
}

func (w *watcher) Start(prompt []int32) error {
	w.tokens = slices.Clone(prompt)
	return w.Drafter.Start(prompt)
}

func (w *watcher) Observe(p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	w.see(p)
	w.follow(p, v)
	return w.Drafter.Observe(p, v, s)
}

func (w *watcher) see(p infer.Proposal) {
	t := p.Tree
	for n := 1; n < p.LiveNodes(); n++ { // the others are only scored
		chain := slices.Clone(w.tokens)
		for _, m := range t.AppendPath(nil, n)[1:] {
			chain = append(chain, t.Token(m))
		}
		w.chains = append(w.chains, chain)
	}
}

func (w *watcher) follow(p infer.Proposal, v infer.Verdict) {
	if p.Pos < len(w.tokens)-1 {
		return // it belongs to the prompt
	}
	for _, n := range v.Path[1:] {
		w.tokens = append(w.tokens, p.Tree.Token(n))
	}
	w.tokens = append(w.tokens, v.Next)
}
