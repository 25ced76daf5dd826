package command

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"talf/internal/cli"
	"talf/internal/e2e/talftest"
	"talf/model"
)

// An interrupt ends every command at the next piece of work of a load, whatever command it is and
// whatever it does: no more pieces are begun.
func TestAnInterruptEndsEveryLoad(t *testing.T) {
	w := talftest.NewWorld(t)
	tmp := t.TempDir()
	out := func(name string) string { return filepath.Join(tmp, name) }
	prompts := talftest.PromptFile(t, 2)
	for name, c := range map[string]struct {
		phase model.Phase
		args  []string
	}{
		"generate":             {model.Loading, []string{"generate", w.Model, "Once"}},
		"generate with a head": {model.Identifying, []string{"generate", w.Model, "Once", "--head", w.Head}},
		"generate a file":      {model.Identifying, []string{"generate", w.Model, "--prompts", prompts, "--out", out("answers.jsonl")}},
		"generate a trace":     {model.Identifying, []string{"generate", w.Model, "Once", "--trace", out("trace.jsonl")}},
		"chat":                 {model.Loading, []string{"chat", w.Model}},
		"score":                {model.Loading, []string{"score", w.Model, "--out", out("scores.safetensors")}},
		"serve":                {model.Loading, []string{"serve", w.Model, "--listen", "127.0.0.1:0"}},
		"serve, identified":    {model.Identifying, []string{"serve", w.Model, "--listen", "127.0.0.1:0"}},
		"bench":                {model.Loading, []string{"bench", w.Model, "--prompts", prompts, "--method", "pld"}},
		"bench with a log":     {model.Identifying, []string{"bench", w.Model, "--prompts", prompts, "--method", "pld", "--log", out("bench.jsonl")}},
		"bench perplexity":     {model.Loading, []string{"bench", "perplexity", w.Model, "--text", w.Text}},
		"preprocess":           {model.Loading, w.Preprocess(out("labels"))},
		"preprocess, labels":   {model.Identifying, w.Preprocess(out("labels"))},
		"train":                {model.Identifying, w.Train(out("head"))},
		"train online":         {model.Loading, []string{"train", w.Model, "--data", w.Text, "--online", "--steps", "2", "--out", out("online")}},
		"eval":                 {model.Loading, []string{"eval", "fig2b", w.Model, "--head", w.Head, "--prompts", prompts}},
		"import":               {model.Identifying, []string{"import", "--head", w.Head, "--model", w.Model, "--out", out("imported")}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, interrupt := context.WithCancelCause(t.Context())
			defer interrupt(nil)
			a := quietApp(t)
			var after atomic.Int64
			began := false
			a.told = func(p model.Phase, _, _ int64) { // calls do not overlap
				if began {
					after.Add(1)
				} else if p == c.phase {
					began = true
					interrupt(cli.ErrInterrupted)
				}
			}
			a.in = strings.NewReader(`{"ids":[1]}`)
			root := newRoot(a)
			root.SetArgs(append(c.args, "--quiet"))
			root.SetErr(io.Discard)
			err := root.ExecuteContext(ctx)
			if !began {
				t.Fatalf("there was no %s: %v", c.phase, err)
			}
			if !errors.Is(err, context.Canceled) {
				t.Errorf("it ended by %v, want the interrupt", err)
			}
			// Every other worker ends the piece that it has.
			if n := after.Load(); n >= int64(max(2, runtime.GOMAXPROCS(0))) {
				t.Errorf("%d pieces of work after the interrupt", n)
			}
		})
	}
	ctx, interrupt := context.WithCancelCause(t.Context())
	interrupt(cli.ErrInterrupted)
	for _, args := range [][]string{
		{"quantize", w.Model, "--out", out("q8")},
		{"quickstart", "--dir", out("quick")},
		{"tokenize", w.Model},
		{"inspect", w.Model},
		{"datastore", "build", w.Model, "--data", w.Text, "--out", out("store.idx")},
		{"export", "--head", w.Head, "--model", w.Model, "--format", "eagle", "--out", out("eagle")},
		{"import", "--head", w.Head, "--out", out("head")},
		{"inspect", "metrics", w.Labels},
		{"doctor"},
	} {
		root := newRoot(quietApp(t))
		root.SetArgs(args)
		root.SetErr(io.Discard)
		if err := root.ExecuteContext(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s, interrupted before it began: %v", args[0], err)
		}
	}
}
