package bench_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"talf/infer"
	"talf/infer/bench"
	"talf/infer/bench/benchtest"
	"talf/infer/draft/drafttest"
	"talf/infer/source"
	"talf/internal/table"
	"talf/model"
	"talf/model/head"
	"talf/model/modeltest"
)

func TestARunComparesEveryMethodWithPlainDecoding(t *testing.T) {
	conf := modeltest.Default()
	conf.EOS = -1
	m, err := model.Load(modeltest.Random(t, conf, 1), benchtest.CPU(t), model.Default())
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
		{Spec: "beam:N=10,k=3,depth=2", Source: src}, {Label: "salf, untrained", Spec: "salf:paper,N=10", Source: src},
	}
	c.Sets = []bench.Set{{Name: "a", Prompts: benchtest.Prompts(4, conf.Vocab)}, {Name: "b", Prompts: benchtest.Prompts(2, conf.Vocab)}}
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
	// Three tables of a caption, a blank line, a header and six rows, with a blank line between
	// them, the comparison with four, and the table of the parts with 18.
	if strings.Count(text.String(), "\n") != 3*9+2+8+22 || strings.Count(md.String(), "\n") != 3*10+2+9+23 || !strings.Contains(md.String(), "| salf, untrained | 1 |") {
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

// unstable scores trees differently from plain decoding, which --check must notice.
type unstable struct{ *drafttest.Target }

func (u unstable) Open(id infer.SeqID, prompt []int32, keep int) error {
	u.Table.Seed++
	return u.Target.Open(id, prompt, keep)
}

func TestCheckFindsAnOutputThatDiffers(t *testing.T) {
	target := &drafttest.Target{Table: drafttest.Table{Vocab: 20, Order: 2, Sharp: 2}, MaxLen: 100}
	c := bench.Default()
	c.Methods = []bench.Method{{Spec: "salf:paper", Source: &drafttest.Source{Target: target, Agree: 1}}}
	c.Sets = []bench.Set{{Prompts: benchtest.Prompts(3, 20)}}
	e := &infer.Engine{Target: target, Config: infer.Default()}
	if _, err := bench.Run(t.Context(), e, c); err != nil {
		t.Fatal(err)
	}
	e.Target = unstable{target}
	_, err := bench.Run(t.Context(), e, c)
	if err == nil || !strings.Contains(err.Error(), "differs from plain decoding's at token") {
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

// A later target is unstable after its first sequences.
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

// Methods are averaged over the same prompts, even when the run stops early.
func TestAPromptCountsForAllMethodsOrForNone(t *testing.T) {
	target := &drafttest.Target{Table: drafttest.Table{Vocab: 20, Order: 2, Sharp: 2}, MaxLen: 100}
	c := bench.Default()
	c.Methods = []bench.Method{{Spec: "salf:paper", Source: &drafttest.Source{Target: target, Agree: 1}}}
	c.Sets, c.Warmup = []bench.Set{{Prompts: benchtest.Prompts(3, 20)}}, 0
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

// A continued run may have its prompts elsewhere in their file.
func TestKnownMeasurementsTakeTheNameOfThePrompt(t *testing.T) {
	e, target := benchtest.Engine()
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
	ok.Sets = []bench.Set{{Prompts: benchtest.Prompts(3, 9)}}
	for name, c := range map[string]struct {
		change func(c *bench.Config)
		want   string
	}{
		"only warm-up": {func(c *bench.Config) { c.Warmup = 3 }, "3 prompts with the first 3 for warm-up"},
		"no seeds":     {func(c *bench.Config) { c.Seeds = nil }, "at least one temperature and one seed"},
		"no tokens":    {func(c *bench.Config) { c.MaxTokens = 0 }, "max tokens is 0"},
		"cold":         {func(c *bench.Config) { c.Temperatures = []float64{-1} }, "temperature is -1"},
		"equal heat":   {func(c *bench.Config) { c.Temperatures = []float64{0, 1, 0} }, "temperature 0 is given twice"},
		"equal seeds":  {func(c *bench.Config) { c.Seeds = []uint64{7, 7} }, "seed 7 is given twice"},
		"no such":      {func(c *bench.Config) { c.Methods = []bench.Method{{Spec: "salve"}} }, "unknown method"},
		"no source":    {func(c *bench.Config) { c.Methods = []bench.Method{{Spec: "salf"}} }, "none is given"},
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
