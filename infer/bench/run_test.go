package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"talf/infer"
	"talf/infer/bench"
	"talf/infer/bench/benchtest"
	"talf/infer/draft/drafttest"
	"talf/model/identity"
)

func matrix(target *drafttest.Target) bench.Config {
	c := bench.Default()
	c.Methods = []bench.Method{{Spec: "salf:paper", Source: &drafttest.Source{Target: target, Agree: 0.8}, SourceName: "near"}}
	c.Sets = benchtest.Sets()
	c.MaxTokens, c.Repeat = 20, 2
	return c
}

func TestAnInterruptedRunKeepsItsMeasurementsAndContinues(t *testing.T) {
	e, target := benchtest.Engine()
	c := matrix(target)
	whole, err := bench.Run(t.Context(), e, c)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	log.WriteString(header(these()))
	c.Keep = func(m *bench.Measurement) error { return json.NewEncoder(&log).Encode(m) }
	ctx, cancel := context.WithCancel(t.Context())
	c.Progress = func(done, _ int) {
		if done == 9 {
			cancel()
		}
	}
	part, err := bench.Run(ctx, e, c)
	if !errors.Is(err, context.Canceled) || part == nil || part.Rows[0].Outputs == 0 || part.Rows[0].Outputs >= whole.Rows[0].Outputs {
		t.Fatalf("error %v, report %+v, want a part of %d outputs", err, part, whole.Rows[0].Outputs)
	}
	log.WriteString(`{"key":"torn`)
	got, n, err := bench.ReadOwn(bytes.NewReader(log.Bytes()), these())
	if err != nil || n != int64(bytes.LastIndexByte(log.Bytes(), '\n')+1) {
		t.Fatalf("the log: %v, %d bytes are whole", err, n)
	}
	if again := c.Report(got); !reflect.DeepEqual(benchtest.Counts(again), benchtest.Counts(part)) {
		t.Errorf("the log says %v, the run said %v", benchtest.Counts(again), benchtest.Counts(part))
	}
	known := len(got)
	c.Known, c.Progress = got, nil
	kept := 0
	c.Keep = func(m *bench.Measurement) error { kept++; return nil }
	full, err := bench.Run(t.Context(), e, c)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(benchtest.Counts(full), benchtest.Counts(whole)) {
		t.Errorf("continued: %v\nat once: %v", benchtest.Counts(full), benchtest.Counts(whole))
	}
	if want := 2 * 2 * 3; known+kept != want {
		t.Errorf("%d known and %d new measurements, want %d in all", known, kept, want)
	}
	c.Keep = func(*bench.Measurement) error { return errors.New("disk full") }
	c.Known = nil
	if _, err := bench.Run(t.Context(), e, c); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("error %v, want the reason why nothing could be kept", err)
	}
}

// these are the settings of the runs of these tests.
func these() *bench.Settings {
	of := func(tensors string) *identity.Function {
		return &identity.Function{Model: identity.Model{Tensors: tensors}, KV: "f32"}
	}
	return &bench.Settings{
		Function: of("m"), Rest: identity.Spec{"--warmup": []byte("1")},
		Drafts: []bench.DraftModel{{Name: "near", Function: of("t"), Tokenizer: "y"}},
	}
}

func other(change func(*bench.Settings)) *bench.Settings {
	s := these()
	change(s)
	return s
}

// header is the first line of a log with settings.
func header(s *bench.Settings) string {
	return fmt.Sprintf("{\"format\":\"talf-bench-2\",\"settings\":%q}\n", s.Text())
}

func TestLogsOfOtherThingsAreRefused(t *testing.T) {
	for in, want := range map[string]string{
		"{\"format\":\"talf-bench-1\",\"settings\":\"others\"}\n":                     "this is not a log of measurements",
		"{\"format\":\"talf-bench-2\",\"settings\":\"others\"}\n":                     "another model or with other options",
		header(other(func(s *bench.Settings) { s.Function.KV = "bf16" })):             "the type of keys and values is f32, the measurements were made with bf16",
		header(other(func(s *bench.Settings) { s.Rest["--warmup"] = []byte("3") })):   "--warmup is 1, the measurements were made with 3",
		header(other(func(s *bench.Settings) { s.Drafts[0].Function.Tensors = "x" })): "of the draft model near, the hash of the tensors is t, the measurements were made with x",
		header(other(func(s *bench.Settings) { s.Drafts[0].Tokenizer = "x" })):        "the tokenizer of the draft model near is y, the measurements were made with x",
		header(other(func(s *bench.Settings) { s.Drafts = nil })):                     "1 draft models, the measurements were made with 0",
		"{\"a\":1}\n":                     "this is not a log of measurements",
		"precious":                        "this is not a log of measurements",
		header(these()) + "{\"key\":3}\n": "line 2",
		header(these()) + "{}\n":          "without a key",
	} {
		if _, _, err := bench.ReadOwn(strings.NewReader(in), these()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one that says %q", in, err, want)
		}
	}
	if got, n, err := bench.ReadOwn(strings.NewReader(`{"format":"talf-be`), these()); err != nil || n != 0 || len(got) != 0 {
		t.Errorf("a log torn in its first line: %v, %d, %v", got, n, err)
	}
}

func FuzzReadLog(f *testing.F) {
	f.Add([]byte(header(these()) + "{\"key\":\"k\",\"by_origin\":{}}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, n, err := bench.ReadOwn(bytes.NewReader(b), these())
		if err == nil && (n > int64(len(b)) || len(got) > bytes.Count(b, []byte("\n"))) {
			t.Errorf("%d measurements in %d bytes of %d", len(got), n, len(b))
		}
	})
}

func TestMethodsMayHaveBudgetsAndLengthsOfTheirOwn(t *testing.T) {
	e, target := benchtest.Engine()
	c := matrix(target)
	src := c.Methods[0].Source
	c.Repeat, c.Temperatures = 1, []float64{0, 1}
	c.Methods = []bench.Method{
		{Spec: "salf:paper", Source: src},
		{Spec: "salf:paper", Source: src, Budget: 4},
		{Spec: "salf:paper", Source: src, MaxTokens: 8, Temperatures: []float64{1}},
		{Spec: "salf:paper", Source: src, PromptChars: 2},
	}
	r, err := bench.Run(t.Context(), e, c)
	if err != nil {
		t.Fatal(err)
	}
	row := func(name string, temperature float64) *bench.Row {
		x := r.Row(name, "", temperature)
		if x == nil {
			t.Fatalf("there is no row %q at %v", name, temperature)
		}
		return x
	}
	if a, b := row("salf:paper", 0), row("salf:paper, 4 nodes", 0); b.Drafted > 3*b.Passes || a.Drafted <= b.Drafted {
		t.Errorf("%d nodes in %d passes at a budget of 4 nodes, %d without", b.Drafted, b.Passes, a.Drafted)
	}
	if x := row("salf:paper, 8 tokens", 1); x.Tokens != 8*x.Outputs || x.Equal != x.Outputs {
		t.Errorf("%d tokens in %d outputs of 8", x.Tokens, x.Outputs)
	}
	if row("ar, 8 tokens", 1).Tokens != row("salf:paper, 8 tokens", 1).Tokens || row("ar, prompt of 2", 0).Passes == 0 {
		t.Error("plain decoding of the same lengths is missing")
	}
	if x := r.Row("salf:paper, 8 tokens", "", 0); x != nil {
		t.Errorf("a method for temperature 1 has a row at 0: %+v", x)
	}
	if x := r.Row("salf:paper", "b", 1); x == nil || x.Outputs != 1 {
		t.Errorf("set b: %+v", x)
	}
}

func TestLoopsAreStretchesThatRepeat(t *testing.T) {
	text := func(n int) (out []int32) { // no token occurs twice
		for i := range n {
			out = append(out, int32(i))
		}
		return out
	}
	repeat := func(block []int32, n int) (out []int32) {
		for range n {
			out = append(out, block...)
		}
		return out
	}
	for name, c := range map[string]struct {
		tokens []int32
		want   int
	}{
		"empty":               {nil, 0},
		"text":                {text(100), 0},
		"one token":           {append(text(10), repeat([]int32{500}, 30)...), 30},
		"too short":           {append(text(10), repeat([]int32{500}, 23)...), 0},
		"three sentences":     {repeat(text(20), 3), 60},
		"two sentences":       {repeat(text(20), 2), 0},
		"long blocks":         {repeat(text(33), 5), 0},
		"left again":          {append(repeat([]int32{501, 502, 503}, 9), text(50)...), 27},
		"a loop, cut short":   {append(repeat(text(10), 3), 0, 1, 2), 33},
		"one in two places":   {append(append(repeat([]int32{7}, 24), text(5)...), repeat([]int32{8}, 24)...), 48},
		"period 2, 24 tokens": {repeat([]int32{1, 2}, 12), 24},
	} {
		if got := bench.LoopTokens(c.tokens); got != c.want {
			t.Errorf("%s: %d tokens in loops, want %d", name, got, c.want)
		}
	}
}

// A labelled drafter proposes a spine and a branch. The spine's token is right at every second
// depth, the branch's at the others.
type labelled struct {
	target *drafttest.Target
	tokens []int32
}

func (l *labelled) Traits() infer.Traits {
	return infer.Traits{Origins: infer.Origins{Names: []string{bench.Spine, bench.Branch}, Of: func(n int) int { return (n + 1) % 2 }}}
}

func (l *labelled) Start(prompt []int32) error {
	l.tokens = append(l.tokens[:0], prompt...)
	return nil
}

func (l *labelled) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	if p.MaxDepth < 2 {
		return nil, nil
	}
	row := make([]float32, l.target.Table.Vocab)
	next := func(ctx []int32) int32 {
		l.target.Table.Logits(row, ctx)
		return drafttest.Plain{}.Argmax(row, nil)
	}
	right := next(l.tokens)
	wrong := (right + 1) % int32(len(row))
	spine := p.Tree.Add(0, right) // node 1
	p.Tree.Add(0, wrong)          // node 2
	after := next(append(l.tokens[:len(l.tokens):len(l.tokens)], right))
	p.Tree.Add(spine, (after+1)%int32(len(row))) // node 3, of the spine
	p.Tree.Add(spine, after)                     // node 4
	return nil, nil
}

func (l *labelled) Observe(p infer.Proposal, v infer.Verdict, _ infer.Scores) error {
	l.tokens = l.tokens[:p.Pos+1]
	for _, n := range v.Path[1:] {
		l.tokens = append(l.tokens, p.Tree.Token(n))
	}
	l.tokens = append(l.tokens, v.Next)
	return nil
}

func TestLabelledNodesAreCounted(t *testing.T) {
	_, target := benchtest.Engine()
	target.Fail = nil
	d := &labelled{target: target}
	p := bench.CountPaths(t, target, d, benchtest.Prompts(1, 20)[0].Tokens, 3*7+1)
	// Seven rounds of three tokens, then one of a single token without a tree.
	for name, c := range map[string]struct{ got, want any }{
		"drafted": {p.Drafted, []int{14, 14}}, "reached": {p.Reached, []int{14, 14}}, "kept": {p.Kept, []int{7, 7}},
		"kinds": {p.Kinds, map[string]int{"spine+branch": 7, "none": 1}},
		"spine": {p.Length, []int{1, 0, 7}}, "fan": {p.Fan, [][]int{{0, 7}, {0, 7}}}, "bare": {p.Bare, []int{1}},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
	}
	if s := p.Share("spine+branch"); s != 7.0/8 {
		t.Errorf("a share of %v, want 7/8", s)
	}
}

// The children of the token that ends an answer are drafted, but never reached.
func TestLabelsPastTheEndAreNotReached(t *testing.T) {
	_, target := benchtest.Engine()
	target.Fail = nil
	prompt := benchtest.Prompts(1, 20)[0].Tokens
	row := make([]float32, target.Table.Vocab)
	target.Table.Logits(row, prompt)
	p := bench.CountPaths(t, target, &labelled{target: target}, prompt, 9, drafttest.Plain{}.Argmax(row, nil))
	got, want := [][]int{p.Drafted, p.Reached, p.Kept}, [][]int{{2, 2}, {1, 1}, {1, 0}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("drafted, reached and kept: %v, want %v", got, want)
	}
}

func TestMethodsAreCombinedWithWhatSuitsThem(t *testing.T) {
	sources := []bench.Source{{Name: "a"}, {Name: "b"}}
	for _, c := range []struct {
		axes bench.Axes
		want string
	}{
		// Plain decoding has no tree for a budget to limit.
		{bench.Axes{Methods: []string{"ar", "pld"}, Budgets: []int{4, 8}}, "ar; pld, 4 nodes; pld, 8 nodes"},
		{bench.Axes{Methods: []string{"salf:paper,N=8", "pld"}, Sources: sources}, "salf:paper,N=8 a; salf:paper,N=8 b; pld"},
		{bench.Axes{Methods: []string{"pld@target", "pld"}, Verifiers: []string{"greedy"}, Temperatures: []float64{0, 1}}, "pld @target; pld @greedy"},
	} {
		got, err := bench.Cross(c.axes)
		var names []string
		for _, m := range got {
			names = append(names, m.Name())
		}
		if s := strings.Join(names, "; "); err != nil || s != c.want {
			t.Errorf("%q, %v, want %q", s, err, c.want)
		}
	}
	got, err := bench.Cross(bench.Axes{Methods: []string{"pld@target"}, Temperatures: []float64{0, 1}})
	if err != nil || len(got) != 1 || !reflect.DeepEqual(got[0].Temperatures, []float64{1}) {
		t.Errorf("%+v, %v, want a method for temperature 1", got, err)
	}
	for want, x := range map[string]bench.Axes{
		"asks a draft model":   {Methods: []string{"salf"}},
		"at temperature 0":     {Methods: []string{"pld@target"}, Temperatures: []float64{0}},
		"unknown method \"pdl": {Methods: []string{"pdl"}},
	} {
		if _, err := bench.Cross(x); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
}
