package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"talf/infer/bench"
	"talf/infer/bench/benchtest"
	"talf/infer/bench/replay"
	"talf/infer/draft/constants"
	"talf/infer/draft/drafttest"
)

// small is a recording of a small world, with a head and a language model.
var small = sync.OnceValues(func() ([]byte, error) {
	e, target := benchtest.Engine()
	c := bench.Default()
	c.Sets, c.MaxTokens = []bench.Set{{Name: "a", Prompts: benchtest.Prompts(10, target.Shape().Vocab)}}, 24
	c.Temperatures = []float64{0, 1}
	c.Methods = []bench.Method{{Spec: "recycle:rows"}, {Spec: "fuse"}}
	r, err := replay.Record(context.Background(), e, c, []bench.Source{
		{Name: "head", Source: &drafttest.Source{Target: target, Agree: 0.5}},
		{Name: "lm", LM: true, Source: &drafttest.Source{Target: target, Agree: 0.8}},
	}, replay.Default())
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = r.Write(&b)
	return b.Bytes(), err
})

// recorded writes it to a file.
func recorded(t *testing.T) string {
	t.Helper()
	b, err := small()
	if err != nil {
		t.Fatal(err)
	}
	return save(t, b)
}

func save(t *testing.T, recording []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "small.rec")
	if err := os.WriteFile(path, recording, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// A command that does not exist is told before a recording is read, and one without answers to fit on is named.
func TestWhatCannotBeFittedIsRefused(t *testing.T) {
	if err := run(t.Context(), "fits", []string{"none.rec"}, &options{}); err == nil || !strings.Contains(err.Error(), `"fits", want fit, report`) {
		t.Errorf("an unknown command: %v", err)
	}
	r, err := replay.Open(recorded(t))
	if err != nil {
		t.Fatal(err)
	}
	r.Warmup = len(r.Texts)
	var b bytes.Buffer
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	path := save(t, b.Bytes())
	if _, err := open([]string{path}, "costs.json"); err == nil || !strings.Contains(err.Error(), path+": no prompts") {
		t.Errorf("a recording of warm-up alone: %v", err)
	}
}

// A fit never ends slower than it began, repairs a constant that was spoilt, and is the same again.
func TestAFitRepairsASpoiltConstant(t *testing.T) {
	l, err := open([]string{recorded(t)}, "costs.json")
	if err != nil {
		t.Fatal(err)
	}
	spoilt := *constants.Fitted()
	spoilt.Fuse.Th = 0.99
	f, err := l.fit(t.Context(), spoilt)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Values.Validate(); err != nil {
		t.Error(err)
	}
	if got := f.Values.Fuse.Th; got >= 0.99 {
		t.Errorf("th stays %v", got)
	}
	before, err := l.speed(t.Context(), &spoilt)
	if err != nil {
		t.Fatal(err)
	}
	after, err := l.speed(t.Context(), &f.Values)
	if err != nil {
		t.Fatal(err)
	}
	if mean, deviation := change(after, fused(&f.Values), before, fused(&spoilt)); mean <= deviation || deviation <= 0 {
		t.Errorf("the fit makes decoding faster by %v ± %v", mean, deviation)
	}
	if mean, deviation := change(before, fused(&spoilt), before, fused(&spoilt)); mean != 0 || deviation != 0 {
		t.Errorf("the same speeds differ by %v ± %v", mean, deviation)
	}
	if got := before.score(fused(&spoilt)...); f.Trials[0].Speed != got {
		t.Errorf("a replay takes another time when it is repeated: %v, %v", f.Trials[0].Speed, got)
	}
	if a := f.Values.Sequoia; a[0] < 0.5 || a[0] <= a[1] {
		t.Errorf("the draft agrees in 80%% of all places; its likeliest token is right in %v", a)
	}
	if said := f.String(); !strings.Contains(said, "| fuse.th | ") || !strings.Contains(said, "| kept |") {
		t.Errorf("the table is\n%s", said)
	}
}

// Regret is measured against the best method of each prompt, so that no single method is above it.
func TestRegretIsThatOfEveryPrompt(t *testing.T) {
	a := prompt{"r", "c", 0, "s", "1"}
	b := prompt{"r", "c", 0, "s", "2"}
	s := speeds{a: {}, b: {}}
	for _, m := range distinct(single, judged) {
		s[a][m], s[b][m] = 1, 1
	}
	s[a][single[0]], s[b][single[1]] = 4, 2
	s[a][judged[0]], s[b][judged[0]] = 2, 0.5
	r := s.regrets("r", "c")[0]
	if r.SpeedUp != 1 || r.Worst != 0.5 || r.Fixed != 2 || r.BestFixed != single[0].String() {
		t.Errorf("%+v", r)
	}
	if want := 0.3535533905932738; r.OfBest < want-1e-9 || r.OfBest > want+1e-9 { // √(2/4 · 0.5/2)
		t.Errorf("%v of the best of each prompt, want %v", r.OfBest, want)
	}
	out := report{Recordings: []string{"r"}, Prompts: 2, Regrets: []regret{r}}
	if said := out.String(); !strings.Contains(said, "| r | c | `salf, LM` | 1.00 | 0.35 | 0.50 | `pld` 2.00 |") {
		t.Errorf("the table is\n%s", said)
	}
	var text bytes.Buffer
	if err := show(&text, &out, true); err != nil || !json.Valid(text.Bytes()) {
		t.Errorf("%v: %s", err, text.Bytes())
	}
}
