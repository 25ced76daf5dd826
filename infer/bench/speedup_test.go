package bench_test

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"talf/infer"
	"talf/infer/bench"
	"talf/infer/bench/benchtest"
	"talf/internal/stats"
	"talf/internal/table"
)

// answers are measurements of plain decoding and of a method on four prompts: seconds end to
// end, seconds of decoding, and tokens.
func answers() (c bench.Config, got []bench.Measurement) {
	c = bench.Default()
	c.Warmup = 0
	c.Methods = []bench.Method{{Spec: "pld"}, {Spec: "recycle"}}
	c.Sets = []bench.Set{{Prompts: benchtest.Prompts(4, 20)}}
	for i, p := range c.Sets[0].Prompts {
		for method, seconds := range map[string][2]float64{
			"ar": {12, 10}, "pld": {[]float64{5, 8, 11, 20}[i], []float64{4, 5, 10, 20}[i]}, "recycle": {24, 20},
		} {
			m := bench.Measurement{Method: method, Prompt: p.Name, Total: time.Duration(seconds[0] * 1e9)}
			m.Stats = infer.Stats{Tokens: 10 * (i + 1), Passes: 10, Decode: time.Duration(seconds[1] * 1e9)}
			got = append(got, m)
		}
	}
	return c, got
}

// Every figure by hand: end to end 48/44 and decoding 40/39 of the totals, and the means of 12/5,
// 12/8, 12/11, 12/20 and of 10/4, 10/5, 1, 10/20.
func TestASpeedUpIsARatioOfTotalsBesideTheMeanOfPrompts(t *testing.T) {
	c, got := answers()
	r := c.Report(got)
	row := r.Row("pld", "", 0)
	for _, x := range []struct {
		name      string
		got, want float64
	}{
		{"end to end", row.EndToEnd.Value, 48.0 / 44},
		{"decoding", row.Decoding.Value, 40.0 / 39},
		{"end to end by prompt", row.EndMean.Mean, (12.0/5 + 12.0/8 + 12.0/11 + 12.0/20) / 4},
		{"decoding by prompt", row.Speedup.Mean, 1.5},
		{"slowest", row.Slowest, 0.5},
		{"τ", row.TauOf.Value, 2.5},
	} {
		if math.Abs(x.got-x.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", x.name, x.got, x.want)
		}
	}
	// The bootstrap pairs: it draws prompts, and both sides of a ratio are of the same ones.
	want := stats.DefaultBootstrap().Of(4, func(times []int) float64 {
		plain, mine := 0.0, 0.0
		for i, n := range times {
			plain, mine = plain+12*float64(n), mine+[]float64{5, 8, 11, 20}[i]*float64(n)
		}
		return plain / mine
	})
	if math.Abs(row.EndToEnd.Low-want.Low) > 1e-12 || math.Abs(row.EndToEnd.High-want.High) > 1e-12 || !(want.Low < want.Value && want.Value < want.High) {
		t.Errorf("interval %v, want %v", row.EndToEnd, want)
	}
	if ar := r.Row("ar", "", 0); ar.EndToEnd != (stats.Interval{Value: 1, Low: 1, High: 1}) || ar.Decoding != ar.EndToEnd {
		t.Errorf("plain decoding is %v times as fast as itself, decoding %v", ar.EndToEnd, ar.Decoding)
	}
	// recycle takes twice as long as plain decoding on every prompt: no interval.
	if len(r.Compared) != 2 || r.Compared[1].Method != "recycle" || r.Compared[1].Against != "pld" || math.Abs(r.Compared[1].Ratio.Value-44.0/96) > 1e-12 {
		t.Errorf("compared with the fastest: %+v", r.Compared)
	}
	var b strings.Builder
	if err := table.Write(&b, r.Tables(), false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"end to end", "0.50 [0.50, 0.50]", "1.50 ± 0.91", "Speed against the fastest"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}

func TestASpeedUpWithoutAllTimesIsNotKnown(t *testing.T) {
	c, got := answers()
	for i := range got {
		if got[i].Method == "pld" {
			got[i].Total = 0 // an earlier release's
			break
		}
	}
	r := c.Report(got)
	if row := r.Row("pld", "", 0); row.EndToEnd.Value != 0 || row.EndMean.N != 0 || row.Decoding.Value == 0 || len(r.Compared) != 0 {
		t.Errorf("end to end %v, decoding %v, compared %v", row.EndToEnd, row.Decoding, r.Compared)
	}
}

// A method that keeps its table drafts from the run's earlier prompts, and from nothing if it is
// cold. The second repetition must not draft from the first one's answers.
func TestRepetitionsDoNotLearnFromEachOther(t *testing.T) {
	e, _ := benchtest.Engine()
	c := bench.Default()
	c.Sets, c.MaxTokens, c.Repeat, c.Seeds = benchtest.Sets(), 24, 3, []uint64{1, 2}
	c.Temperatures = []float64{0, 1}
	c.Methods = []bench.Method{{Spec: "recycle:table=keep,harvest=rounds,N=9"}, {Spec: "recycle:harvest=rounds,N=9"}, {Spec: "recycle:harvest=rounds,N=9", Cold: true}}
	if err := c.AddCold(); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range c.Methods {
		names = append(names, m.Title())
	}
	if want := []string{"recycle:table=keep,harvest=rounds,N=9", "recycle:table=keep,harvest=rounds,N=9, cold", "recycle:harvest=rounds,N=9", "recycle:harvest=rounds,N=9, cold"}; !slices.Equal(names, want) {
		t.Fatalf("methods %q, want %q", names, want)
	}
	done, all := 0, 0
	c.Progress = func(n, total int) { done, all = n, total }
	type what struct {
		method, set, prompt string
		temperature         float64
		seed                uint64
	}
	passes := map[what][]int{}
	var kept []bench.Measurement
	c.Keep = func(m *bench.Measurement) error {
		k := what{m.Method, m.Set, m.Prompt, m.Temperature, m.Seed}
		passes[k] = append(passes[k], m.Stats.Passes)
		kept = append(kept, *m)
		return nil
	}
	if _, err := bench.Run(t.Context(), e, c); err != nil {
		t.Fatal(err)
	}
	if done != all {
		t.Errorf("%d answers of %d", done, all)
	}
	warmer := 0
	for k, n := range passes {
		if len(n) != 3 || n[0] != n[1] || n[1] != n[2] {
			t.Errorf("%+v: passes %v, want as many in every repetition", k, n)
		}
		fresh := k
		switch fresh.method = "recycle:harvest=rounds,N=9"; k.method {
		case names[0]:
			if n[0] < passes[fresh][0] {
				warmer++
			}
		case names[1], names[3]:
			if n[0] != passes[fresh][0] {
				t.Errorf("%+v: %d passes, with a fresh table %d", k, n[0], passes[fresh][0])
			}
		}
	}
	if warmer == 0 {
		t.Error("the warm table saved no pass on any prompt")
	}

	// An interrupted run measures what learns again from the beginning of its repetition.
	c.Known = kept[:len(kept)-1]
	last := kept[len(kept)-1]
	again := map[string]int{}
	c.Keep = func(m *bench.Measurement) error {
		again[m.Method]++
		if m.Key == last.Key && m.Stats.Passes != last.Stats.Passes {
			t.Errorf("%s: %d passes, uninterrupted %d", m.Key, m.Stats.Passes, last.Stats.Passes)
		}
		return nil
	}
	if _, err := bench.Run(t.Context(), e, c); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{last.Method: 1}
	if last.Method == names[0] {
		want[last.Method] = 3 // the counted prompts of the repetition
	}
	if len(again) != 1 || again[last.Method] != want[last.Method] {
		t.Errorf("measured again: %v, want %v", again, want)
	}
}

// A log says what the run said, without its models and prompts.
func TestALogIsSummedUpWithoutItsRun(t *testing.T) {
	e, target := benchtest.Engine()
	c := matrix(target)
	c.Methods = append(c.Methods, bench.Method{Spec: "recycle:table=keep,N=9"}, bench.Method{Spec: "pld", MaxTokens: 8})
	if err := c.AddCold(); err != nil {
		t.Fatal(err)
	}
	c.Temperatures = []float64{0, 1}
	var log bytes.Buffer
	log.WriteString(header(these()))
	c.Keep = func(m *bench.Measurement) error { return json.NewEncoder(&log).Encode(m) }
	want, err := bench.Run(t.Context(), e, c)
	if err != nil {
		t.Fatal(err)
	}
	again := bytes.SplitAfter(log.Bytes(), []byte("\n"))[2] // a measurement made twice counts once
	got, made, err := bench.ReadLog(io.MultiReader(&log, bytes.NewReader(again)))
	if err != nil || made == nil || made.Function.Tensors != "m" {
		t.Fatalf("settings %+v, %v", made, err)
	}
	r, err := bench.Recount(got)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != len(want.Rows) {
		t.Fatalf("%d rows, want %d", len(r.Rows), len(want.Rows))
	}
	for i := range want.Rows {
		a := &r.Rows[i]
		b := want.Row(a.Method, a.Set, a.Temperature)
		if b == nil || a.EndToEnd != b.EndToEnd || a.Speedup != b.Speedup || a.Tau != b.Tau || a.Spec != b.Spec || a.Tokens != b.Tokens {
			t.Errorf("%+v\nwant %+v", a, b)
		}
	}
	if !reflect.DeepEqual(r.Compared, want.Compared) {
		t.Errorf("compared: %+v, want %+v", r.Compared, want.Compared)
	}
}

// Measurements of one method may name other origins, in another order: a log that two releases wrote.
func TestOriginsAreSummedByName(t *testing.T) {
	of := func(prompt string, p *bench.Paths) bench.Measurement {
		return bench.Measurement{Key: "ar|||0|8|0|" + prompt + "|1|0|0|0", Method: "ar", Prompt: prompt, Paths: p}
	}
	r, err := bench.Recount([]bench.Measurement{
		of("a", &bench.Paths{Origins: []string{"spine", "branch"}, Drafted: []int{3, 4}, Reached: []int{2, 2}, Kept: []int{1, 0}}),
		of("b", &bench.Paths{Origins: []string{"table", "spine"}, Drafted: []int{5, 6}, Reached: []int{4, 3}, Kept: []int{2, 3}}),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &bench.Paths{Origins: []string{"spine", "branch", "table"}, Drafted: []int{9, 4, 5}, Reached: []int{5, 2, 4}, Kept: []int{4, 0, 2}, Kinds: map[string]int{}}
	if d := cmp.Diff(want, r.Rows[0].Paths); d != "" {
		t.Errorf("want -, got +:\n%s", d)
	}
}

// Passes of one answer lie in two classes of contexts: 508 tokens of a prompt, then 9 more.
func TestTauIsToldByContextWhereContextsAreLong(t *testing.T) {
	e, target := benchtest.Engine()
	target.MaxLen = 2000
	c := bench.Default()
	c.Warmup, c.MaxTokens = 0, 9
	c.Methods = []bench.Method{{Spec: "pld"}}
	c.Sets = []bench.Set{{Prompts: benchtest.Prompts(3, 20)}}
	short, err := bench.Run(t.Context(), e, c)
	if err != nil {
		t.Fatal(err)
	}
	long := &c.Sets[0].Prompts[0]
	long.Tokens = slices.Repeat(long.Tokens, 508)[:508]
	got, err := bench.Run(t.Context(), e, c)
	if err != nil {
		t.Fatal(err)
	}
	const caption = "τ by the tokens before a pass"
	var b strings.Builder
	if err := table.Write(&b, short.Tables(), false); err != nil {
		t.Fatal(err)
	}
	if row := short.Row("pld", "", 0); row.Contexts != nil || strings.Contains(b.String(), caption) {
		t.Errorf("short contexts have a table of their own: %v\n%s", row.Contexts, &b)
	}
	for _, method := range []string{"ar", "pld"} {
		row := got.Row(method, "", 0)
		passes, tokens := 0, 0.0
		for _, x := range row.Contexts {
			passes, tokens = passes+x.Passes, tokens+float64(x.Passes)*x.Tau.Value
		}
		if len(row.Contexts) != 2 || row.Contexts[1].From != 512 || passes != row.Passes || math.Abs(tokens-float64(row.Tokens)) > 1e-9 {
			t.Fatalf("%s: %v are not the %d passes and %d tokens of the row", method, row.Contexts, row.Passes, row.Tokens)
		}
	}
	// Plain decoding's passes after 508, …, 511 tokens are of the first class, those after 512, …, 516 of the second.
	if n := got.Row("ar", "", 0).Contexts[1].Passes; n != 5 {
		t.Errorf("%d passes of the second class, want 5", n)
	}
	b.Reset()
	if err := table.Write(&b, got.Tables(), false); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), caption) || !strings.Contains(b.String(), "from 512") {
		t.Errorf("no table of contexts in\n%s", &b)
	}
}
