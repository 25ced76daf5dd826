package bench_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/bench"
	"talf/infer/draft/drafttest"
	"talf/infer/source"
	"talf/internal/golden"
	"talf/internal/table"
	"talf/model"
	"talf/model/head"
	"talf/model/modeltest"
	"talf/model/safetensors"
)

func device(t testing.TB) *cpu.Device {
	t.Helper()
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// Accuracy and calibration by rank of the conditioning token, against transformers
// and the public head code: hits and tokens exactly, errors to 1e-6, because f32
// moves a confidence by 3e-7 and the nearest item is 1.5e-5 from the edge of a bin.
func TestAccuracyAndCalibrationByRankEqualTheReference(t *testing.T) {
	dir := golden.File(t, "reference")
	m, err := model.Load(filepath.Join(dir, "target_trees", "target"), device(t), model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	h, err := head.Load(filepath.Join(dir, "eval", "head"), m, head.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	set, err := safetensors.Open(filepath.Join(dir, "eval", "items.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	ints := func(name string) []int32 {
		x, err := set.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		v, err := x.Int32s()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	var seqs [][]int32
	for i := range 3 {
		seqs = append(seqs, ints(fmt.Sprintf("seq%d.token_ids", i)))
	}
	ranks, err := bench.ByRank(t.Context(), m, h, seqs, 5)
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Items int
		N     map[string]map[string]float64
	}
	b, err := os.ReadFile(filepath.Join(dir, "eval", "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	for n, items := range ranks {
		if len(items) != want.Items {
			t.Fatalf("rank %d: %d items, want %d", n+1, len(items), want.Items)
		}
		tokens, next, correct := ints(fmt.Sprintf("n%d.token", n+1)), ints(fmt.Sprintf("n%d.target_next", n+1)), ints(fmt.Sprintf("n%d.correct", n+1))
		for i, it := range items {
			if it.Token != tokens[i] || it.Next != next[i] || it.Correct != (correct[i] == 1) {
				t.Errorf("rank %d, item %d: %+v, want token %d, next %d, correct %d", n+1, i, it, tokens[i], next[i], correct[i])
			}
		}
		e := want.N[fmt.Sprint(n+1)]
		if got := bench.Accuracy(items); got != e["accuracy"] {
			t.Errorf("rank %d: accuracy %v, want %v", n+1, got, e["accuracy"])
		}
		for _, bins := range []int{10, 15} {
			for name, usual := range map[string]bool{"paper_conf": false, "max_prob_conf": true} {
				hit, conf := bench.Split(items, usual)
				for cut, got := range map[string]float64{"width": bench.ECEWidth(hit, conf, bins), "count": bench.ECECount(hit, conf, bins)} {
					key := fmt.Sprintf("ece.%s.%s.M%d", name, cut, bins)
					w, ok := e[key]
					if !ok || math.Abs(got-w) > 1e-6 {
						t.Errorf("rank %d: %s is %v, want %v", n+1, key, got, w)
					}
				}
			}
		}
	}
}

func prompts(n, vocab int) (out []bench.Prompt) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		p := bench.Prompt{Name: fmt.Sprint("p", i)}
		for range 3 + rng.IntN(20) {
			p.Tokens = append(p.Tokens, rng.Int32N(int32(vocab)))
		}
		out = append(out, p)
	}
	return out
}

func TestARunComparesEveryMethodWithPlainDecoding(t *testing.T) {
	conf := modeltest.Default()
	conf.EOS = -1
	m, err := model.Load(modeltest.Random(t, conf, 1), device(t), model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	spec := m.Spec().DraftFor(true)
	h, err := head.FromTensors(spec, m, head.Default(), head.Random(spec, 1)...)
	if err != nil {
		t.Fatal(err)
	}
	src := source.NewHead(h, 0)
	c := bench.Default()
	c.Methods = []bench.Method{
		{Spec: "beam:N=10,k=3,depth=2", Source: src}, {Label: "salf, untrained", Spec: "salf:N=10", Source: src},
	}
	c.Sets = []bench.Set{{Name: "a", Prompts: prompts(4, conf.Vocab)}, {Name: "b", Prompts: prompts(2, conf.Vocab)}}
	c.Temperatures, c.Seeds, c.MaxTokens, c.Parts = []float64{0, 1}, []uint64{1, 2}, 12, true
	calls := 0
	c.Progress = func(done, total int) {
		if calls++; done != calls || total != 3*6*2*2 {
			t.Errorf("progress %d of %d at call %d", done, total, calls)
		}
	}
	e := &infer.Engine{Target: infer.NewTarget(m, 0), Config: infer.Default()}
	r, err := bench.Run(t.Context(), e, c)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 3*6 || r.Prompts != 4 {
		t.Fatalf("%d rows over %d prompts, want 18 over 4", len(r.Rows), r.Prompts)
	}
	counted := map[string]int{"": 4, "a": 3, "b": 1}
	for _, row := range r.Rows {
		n := counted[row.Set]
		if row.Tokens != n*2*12 || row.Tau.N != n || row.Equal != 2*n || row.Outputs != 2*n || row.Compared != 2*n {
			t.Errorf("%s at %v: %d tokens, %d prompts, %d of %d outputs equal", row.Method, row.Temperature, row.Tokens, row.Tau.N, row.Equal, row.Outputs)
		}
		if s := row.Draft + row.Verified + row.Overhead; math.Abs(s-1) > 1e-9 {
			t.Errorf("%s: time shares sum to %v", row.Method, s)
		}
		if row.Method == bench.Baseline && (row.Tau.Mean != 1 || row.Speedup.Mean != 1) {
			t.Errorf("plain decoding has τ %v and speed-up %v", row.Tau, row.Speedup)
		}
		if p := row.Parts; p == nil || p.Rounds != row.Passes || p.TargetAlone <= 0 || (p.DraftAlone > 0) != (row.Method != bench.Baseline) {
			t.Errorf("%s: parts %+v of %d passes", row.Method, p, row.Passes)
		}
		emitted := 0
		for k, c := range row.Emitted {
			emitted += k * c
		}
		if emitted != row.Tokens {
			t.Errorf("%s: the histogram holds %d tokens, %d were emitted", row.Method, emitted, row.Tokens)
		}
	}
	var text, md bytes.Buffer
	if err := table.Write(&text, r.Tables(), false); err != nil {
		t.Fatal(err)
	}
	if err := table.Write(&md, r.Tables(), true); err != nil {
		t.Fatal(err)
	}
	// Three tables: a caption, a blank line, a header and six rows, and a blank line
	// between; and that of the parts, of 18 rows.
	if strings.Count(text.String(), "\n") != 3*9+2+22 || strings.Count(md.String(), "\n") != 3*10+2+23 || !strings.Contains(md.String(), "| salf, untrained | 1 |") {
		t.Errorf("tables:\n%s\n%s", &text, &md)
	}
	b, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back bench.Report
	if err := json.Unmarshal(b, &back); err != nil || back.Rows[1].Tau != r.Rows[1].Tau {
		t.Errorf("JSON round trip: %v", err)
	}
}

// A target that answers trees unlike plain decoding is what --check is for.
type unstable struct{ *drafttest.Target }

func (u unstable) Open(id infer.SeqID, prompt []int32, keep int) error {
	u.Table.Seed++
	return u.Target.Open(id, prompt, keep)
}

func TestCheckFindsAnOutputThatDiffers(t *testing.T) {
	target := &drafttest.Target{Table: drafttest.Table{Vocab: 20, Order: 2, Sharp: 2}, MaxLen: 100}
	c := bench.Default()
	c.Methods = []bench.Method{{Spec: "salf", Source: &drafttest.Source{Target: target, Agree: 1}}}
	c.Sets = []bench.Set{{Prompts: prompts(3, 20)}}
	e := &infer.Engine{Target: target, Config: infer.Default()}
	if _, err := bench.Run(t.Context(), e, c); err != nil {
		t.Fatal(err)
	}
	e.Target = unstable{target}
	_, err := bench.Run(t.Context(), e, c)
	if err == nil || !strings.Contains(err.Error(), "leaves plain decoding's at token") {
		t.Errorf("error %v, want the first token that differs", err)
	}
	c.Check = false
	r, err := bench.Run(t.Context(), e, c)
	if err != nil {
		t.Fatal(err)
	}
	if row := r.Rows[1]; row.Equal == row.Outputs {
		t.Errorf("%d of %d outputs are called equal", row.Equal, row.Outputs)
	}
}

// later is unstable after its first sequences.
type later struct {
	*drafttest.Target
	stable *int
}

func (l later) Open(id infer.SeqID, prompt []int32, keep int) error {
	if *l.stable--; *l.stable < 0 {
		return unstable{l.Target}.Open(id, prompt, keep)
	}
	return l.Target.Open(id, prompt, keep)
}

// Means of methods are over the same prompts, also where the run ends early.
func TestAPromptCountsForAllMethodsOrForNone(t *testing.T) {
	target := &drafttest.Target{Table: drafttest.Table{Vocab: 20, Order: 2, Sharp: 2}, MaxLen: 100}
	c := bench.Default()
	c.Methods = []bench.Method{{Spec: "salf", Source: &drafttest.Source{Target: target, Agree: 1}}}
	c.Sets, c.Warmup = []bench.Set{{Prompts: prompts(3, 20)}}, 0
	kept := 0
	c.Keep = func(*bench.Measurement) error { kept++; return nil }
	stable := 2 // the first prompt's
	r, err := bench.Run(t.Context(), &infer.Engine{Target: later{target, &stable}, Config: infer.Default()}, c)
	if err == nil || r == nil {
		t.Fatalf("error %v, report %v, want both", err, r)
	}
	for _, row := range r.Rows {
		if row.Outputs != 1 {
			t.Errorf("%s: %d outputs, want that of the first prompt", row.Method, row.Outputs)
		}
	}
	if len(r.Rows) != 2 || kept != 2 {
		t.Errorf("%d rows, %d measurements kept, want 2 of each", len(r.Rows), kept)
	}
}

// A run may go on with prompts in another place of their file.
func TestKnownMeasurementsTakeTheNameOfThePrompt(t *testing.T) {
	e, target := tableEngine()
	c := matrix(target)
	c.Sets, c.Warmup, c.Repeat = c.Sets[:1], 0, 1
	c.Keep = func(m *bench.Measurement) error { c.Known = append(c.Known, *m); return nil }
	if _, err := bench.Run(t.Context(), e, c); err != nil {
		t.Fatal(err)
	}
	ps := c.Sets[0].Prompts
	ps[0].Name, ps[2].Name = ps[2].Name, ps[0].Name
	twice := bench.Prompt{Name: "again", Tokens: ps[1].Tokens}
	c.Sets[0].Prompts = append(ps, twice)
	c.Keep = func(m *bench.Measurement) error {
		t.Errorf("%s of prompt %s is measured again", m.Method, m.Prompt)
		return nil
	}
	r, err := bench.Run(t.Context(), e, c)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.Rows[0].Tau.N; n != 4 {
		t.Errorf("a mean over %d prompts, want 4", n)
	}
}

func TestBadRunsAreRefused(t *testing.T) {
	ok := bench.Default()
	ok.Sets = []bench.Set{{Prompts: prompts(3, 9)}}
	for name, c := range map[string]struct {
		change func(c *bench.Config)
		want   string
	}{
		"only warm-up": {func(c *bench.Config) { c.Warmup = 3 }, "3 prompts with the first 3 for warm-up"},
		"no seeds":     {func(c *bench.Config) { c.Seeds = nil }, "at least one temperature and one seed"},
		"no tokens":    {func(c *bench.Config) { c.MaxTokens = 0 }, "max tokens is 0"},
		"cold":         {func(c *bench.Config) { c.Temperatures = []float64{-1} }, "temperature is -1"},
		"equal heat":   {func(c *bench.Config) { c.Temperatures = []float64{0, 1, 0} }, "temperature 0 is there twice"},
		"equal seeds":  {func(c *bench.Config) { c.Seeds = []uint64{7, 7} }, "seed 7 is there twice"},
		"no such":      {func(c *bench.Config) { c.Methods = []bench.Method{{Spec: "salve"}} }, "unknown method"},
		"no source":    {func(c *bench.Config) { c.Methods = []bench.Method{{Spec: "salf"}} }, "want a source"},
		"no sets":      {func(c *bench.Config) { c.Sets = nil }, "at least one set"},
		"equal sets":   {func(c *bench.Config) { c.Sets = append(c.Sets, c.Sets[0]) }, "sets must differ"},
		"no verifier":  {func(c *bench.Config) { c.Methods = []bench.Method{{Spec: "ar", Verify: "target"}} }, "not lossless at temperature 0"},
		"never": {func(c *bench.Config) {
			c.Methods = []bench.Method{{Spec: "ar", Label: "x", Temperatures: []float64{1}}}
		}, "at none of the temperatures"},
		"small":     {func(c *bench.Config) { c.Methods = []bench.Method{{Spec: "ar", Budget: -1}} }, "budget -1"},
		"no repeat": {func(c *bench.Config) { c.Repeat = 0 }, "repeat is 0"},
		"twice":     {func(c *bench.Config) { c.Methods = []bench.Method{{Spec: "ar"}, {Spec: "ar"}} }, "two rows"},
	} {
		x := ok
		c.change(&x)
		if err := x.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that says %q", name, err, c.want)
		}
	}
}

func TestCalibrationErrorOfKnownBins(t *testing.T) {
	correct := []bool{true, false, true, true}
	conf := []float64{0.5, 0.5, 1, 0}
	// Width: (0,0.5] holds 0.5, 0.5 and 0: |2−1|/4; (0.5,1] holds 1: 0.
	if got := bench.ECEWidth(correct, conf, 2); got != 0.25 {
		t.Errorf("equal width: %v, want 0.25", got)
	}
	// Count: {0, 0.5}: |2−0.5|/4; {0.5, 1}: |1−1.5|/4.
	if got := bench.ECECount(correct, conf, 2); got != 0.5 {
		t.Errorf("equal count: %v, want 0.5", got)
	}
}
