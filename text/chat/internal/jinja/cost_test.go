package jinja

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"math"
	"os"
	"path/filepath"
	"runtime/metrics"
	"strconv"
	"strings"
	"testing"
	"time"

	"talf/internal/limits"
	"talf/internal/limits/costtest"
)

// Parts of the budgets: the costs that they bound are in proportion, so that a template can be
// tried in milliseconds, and one that is charged too little is found with less effort.
const parts = 16

var budget = limits.Budget{Steps: limits.TemplateSteps / parts, Bytes: limits.TemplateMade / parts}

// What a template may cost: its source and the budget for rendering it.
const (
	sourceBytes = 300 // made for each byte of source
	fixedBytes  = 256 << 10
)

// conversation is what the templates render.
const conversation = `{"messages": [{"role": "system", "content": "Be terse."}, {"role": "user", "content": "Hi, Ünïcödé Σας?"},
	{"role": "assistant", "content": "<think>\nhm\n</think>\n\nHo", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1.5, "b": [1, null, true]}}}]},
	{"role": "tool", "content": "12345678901234567890"}, {"role": "user", "content": [{"type": "text", "text": "a\nb\tc"}]}],
	"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}}],
	"add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>", "n": 1000000, "big": 1267650600228229401496703205376}`

func variables(t testing.TB) *Dict {
	v, err := ParseJSON([]byte(conversation))
	if err != nil {
		t.Fatal(err)
	}
	return v.(*Dict)
}

// checkCost fails if a template costs more than a part of what costtest allows.
func checkCost(t testing.TB, source string, vars *Dict) {
	t.Helper()
	const made = 256<<20/parts + fixedBytes
	bytes := uint64(math.MaxUint64) // the least, if something else disturbed the others
	bound := costtest.Bound{Yards: costtest.Default.Yards / parts, Look: costtest.Default.Yards / parts, Bytes: costtest.Default.Bytes}
	costtest.Check(t, "template", bound, func(ctx context.Context) {
		before := allocated()
		err := renderOnce(ctx, source, vars)
		bytes = min(bytes, allocated()-before)
		var e *Error
		if errors.As(err, &e) && e.Kind == "InternalError" {
			t.Error(err)
		}
	})
	if most := made + sourceBytes*uint64(len(source)); bytes > most {
		t.Errorf("%d KiB, want at most %d", bytes>>10, most>>10)
	}
	if t.Failed() {
		t.Fatalf("in %.2000q", source)
	}
}

func renderOnce(ctx context.Context, source string, vars *Dict) error {
	t, err := Parse(source)
	if err != nil {
		return err
	}
	_, err = t.renderWithin(ctx, vars, Options{Now: func() time.Time { return time.Unix(1e9, 0).UTC() }}, budget)
	return err
}

// allocated returns the bytes that were ever allocated.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// corpus returns templates to mutate: those that transformers was compared with, and those
// committed for FuzzTemplateCost, and published ones if they are there.
func corpus(t testing.TB) (all [][]byte) {
	t.Helper()
	b, err := os.ReadFile("../../testdata/cases.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		var c struct{ Template string }
		if err := json.Unmarshal(line, &c); err != nil {
			t.Fatal(err)
		}
		if c.Template != "" {
			all = append(all, []byte(c.Template))
		}
	}
	for _, source := range seeds(t) {
		all = append(all, source)
	}
	if shared := os.Getenv("TALF_SHARED"); shared != "" {
		published, err := filepath.Glob(filepath.Join(shared, "data/chat/*.jinja"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range published {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b)
		}
	}
	return all
}

// seeds returns what is committed for FuzzTemplateCost, by file, in the order of their names.
func seeds(t testing.TB) iter.Seq2[string, []byte] {
	t.Helper()
	names, err := filepath.Glob("testdata/fuzz/FuzzTemplateCost/*")
	if err != nil || len(names) == 0 {
		t.Fatalf("no seeds: %v", err)
	}
	return func(yield func(string, []byte) bool) {
		for _, name := range names {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			source, ok := seed(b)
			if !ok {
				t.Fatalf("%s: not a seed of one string", name)
			}
			if !yield(name, source) {
				return
			}
		}
	}
}

// seed reads a file of the corpus: a line with its version, then a string as Go writes it.
func seed(file []byte) ([]byte, bool) {
	_, text, _ := strings.Cut(string(file), "\n")
	text, ok := strings.CutPrefix(strings.TrimSpace(text), "string(")
	text, ok2 := strings.CutSuffix(text, ")")
	source, err := strconv.Unquote(text)
	return []byte(source), ok && ok2 && err == nil
}

// FuzzTemplateCost fails if parsing and rendering a template takes more time or memory than
// the budgets stand for, or goes on for long without a look at its context.
func FuzzTemplateCost(f *testing.F) {
	if costtest.RaceDetector {
		f.Skip("the bounds on processor time are those of a build without the race detector")
	}
	for _, source := range corpus(f) {
		f.Add(string(source))
	}
	vars := variables(f)
	f.Fuzz(func(t *testing.T, source string) { checkCost(t, source, vars) })
}

// A seed that is refused shows the fuzzer no more than the refusal.
func TestNoSeedIsRefused(t *testing.T) {
	vars := variables(t)
	for name, source := range seeds(t) {
		if err := renderOnce(t.Context(), string(source), vars); err != nil && strings.HasSuffix(err.Error(), " is not supported") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMutatedTemplatesAreCheap(t *testing.T) {
	if costtest.RaceDetector {
		t.Skip("the bounds on processor time are those of a build without the race detector")
	}
	n := 10000
	if testing.Short() {
		n = 500
	}
	vars := variables(t)
	for source := range costtest.Mutations(1, corpus(t), n) {
		checkCost(t, string(source), vars)
	}
}
