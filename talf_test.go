package talf_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"talf"
	"talf/infer"
	"talf/internal/e2e/talftest"
	"talf/internal/leak"
	"talf/model/gguf/gguftest"
	"talf/preprocess"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m.Run)) }

// open opens the model in dir until the test ends.
func open(t *testing.T, c talf.Config) *talf.Model {
	t.Helper()
	if c.Path == "" {
		c.Path = talftest.TinyModel(t, talftest.TinyConfig(), 1)
	}
	c.Threads = 1
	m, err := talf.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// What is drafted, and who else asks, decides how many passes an answer takes, not what it says: greedy and sampled.
func TestEveryMethodAndAnyCompanyGiveTheSameText(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	head := talftest.TinyHead(t, dir, 1)
	prompts := []string{"Once upon a time", "a time, a time, a time", "The"}
	options := []talf.Options{
		{MaxTokens: 30, IgnoreEOS: true},
		{MaxTokens: 30, IgnoreEOS: true, Temperature: 0.8, TopK: 40, TopP: 0.9, Seed: 7},
	}
	plain := open(t, talf.Config{Path: dir, Method: "ar"})
	want := map[string]string{}
	name := func(i, j int) string { return string(rune('a'+i)) + string(rune('0'+j)) }
	for i, p := range prompts {
		for j, o := range options {
			text, stats, err := talf.Collect(plain.Generate(t.Context(), p, o))
			if err != nil || text == "" || stats.Tokens != 30 || stats.Passes != 30 || stats.Tau() != 1 {
				t.Fatalf("%q, %+v, %v", text, stats, err)
			}
			want[name(i, j)] = text
		}
	}
	for _, c := range []talf.Config{
		{},
		{Method: "pld"},
		{Head: head},
		{Head: head, Method: "salf"},
		{Draft: dir, Method: "beam"},
		{Drafter: func() infer.Drafter { return new(echo) }},
	} {
		c.Path = dir
		m := open(t, c)
		var all sync.WaitGroup
		for i, p := range prompts {
			for j, o := range options {
				all.Go(func() {
					text, stats, err := talf.Collect(m.Generate(t.Context(), p, o))
					if err != nil || text != want[name(i, j)] || stats.Tokens != 30 {
						t.Errorf("%+v, %q: %q, %+v, %v, want %q", c, p, text, stats, err, want[name(i, j)])
					}
				})
			}
		}
		all.Wait()
	}
}

// A verifier that divides by the draft's probabilities takes what is drawn at the temperature of each answer.
func TestAVerifierIsOfSampledAnswers(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	m := open(t, talf.Config{Path: dir, Head: talftest.TinyHead(t, dir, 1), Method: "linear:draw=distinct", Verifier: "rrsw"})
	for _, temperature := range []float64{0, 1} {
		_, stats, err := talf.Collect(m.Generate(t.Context(), "Once", talf.Options{MaxTokens: 20, IgnoreEOS: true, Temperature: temperature}))
		if err != nil || stats.Tokens != 20 {
			t.Errorf("at %v: %+v, %v", temperature, stats, err)
		}
	}
}

// A stall drafts nothing, and waits in its third round.
type stall struct {
	echo
	rounds int
	over   chan struct{}
}

func (s *stall) Grow(*infer.Proposal, []infer.Row, infer.Chance) ([]int, error) {
	if s.rounds++; s.rounds == 3 {
		<-s.over
	}
	return nil, nil
}

// Whoever breaks out of the loop, or ends the context, ends the answer: the model is free for others.
func TestAnAnswerEndsWithItsReader(t *testing.T) {
	stalls := make(chan *stall, 3)
	m := open(t, talf.Config{Drafter: func() infer.Drafter {
		s := &stall{over: make(chan struct{})}
		stalls <- s
		return s
	}})
	long := talf.Options{MaxTokens: 200, IgnoreEOS: true}
	for p, err := range m.Generate(t.Context(), "Once", long) {
		if err != nil || p.Reason != "" {
			t.Errorf("%+v, %v", p, err)
		}
		break
	}
	close((<-stalls).over)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range m.Generate(ctx, "Once", long) {
		cancel()
		last = err
	}
	close((<-stalls).over)
	if !errors.Is(last, context.Canceled) {
		t.Errorf("the context ended, and the last error is %v", last)
	}
	if _, stats, err := talf.Collect(m.Generate(t.Context(), "Once", talf.Options{MaxTokens: 2, IgnoreEOS: true})); err != nil || stats.Tokens != 2 {
		t.Errorf("afterwards %+v, %v", stats, err)
	}
}

// The model's template writes a conversation; without one it is plain text, and the answer ends before the user's next turn.
func TestConversations(t *testing.T) {
	turns := []talf.Message{{Role: "user", Content: "Who are you?"}}
	for _, dir := range []string{talftest.ChatModel(t), talftest.TinyModel(t, talftest.TinyConfig(), 1)} {
		m := open(t, talf.Config{Path: dir})
		first, stats, err := talf.Collect(m.Chat(t.Context(), turns, talf.Options{MaxTokens: 8}))
		if err != nil || stats.Tokens == 0 {
			t.Fatalf("%q, %+v, %v", first, stats, err)
		}
		again := append(turns, talf.Message{Role: "assistant", Content: first}, talf.Message{Role: "user", Content: "And?"})
		if _, more, err := talf.Collect(m.Chat(t.Context(), again, talf.Options{MaxTokens: 8})); err != nil || more.Prompt <= stats.Prompt || more.Cached == 0 {
			t.Errorf("the second turn: %+v, %v; its prompt begins as the first did", more, err)
		}
	}
}

// Mistakes are named, whether they are in the configuration, the options or the prompt.
func TestMistakesAreNamed(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	for want, c := range map[string]talf.Config{
		"does not exist":            {Path: dir + "/no"},
		`Device is "gpu"`:           {Path: dir, Device: "gpu"},
		`DType is "f8"`:             {Path: dir, DType: "f8"},
		`KV is "q8"`:                {Path: dir, KV: "q8"},
		`method "salv"`:             {Path: dir, Method: "salv"},
		"salf asks a draft model":   {Path: dir, Method: "salf"},
		"both Head and Draft":       {Path: dir, Head: dir, Draft: dir},
		"is a language model":       {Path: dir, Head: dir},
		`verifier "best"`:           {Path: dir, Verifier: "best"},
		"not lossless with childre": {Path: dir, Verifier: "traversal", Drafter: func() infer.Drafter { return new(echo) }},
	} {
		m, err := talf.Open(t.Context(), c)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
		if m != nil {
			_ = m.Close()
		}
	}
	m := open(t, talf.Config{Path: dir})
	for want, o := range map[string]talf.Options{
		"max-tokens is -1": {MaxTokens: -1}, "temperature": {Temperature: -1}, "top-p": {TopP: 2}, "stop is empty": {Stop: []string{""}},
	} {
		if _, _, err := talf.Collect(m.Generate(t.Context(), "Once", o)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
	if _, _, err := talf.Collect(m.Generate(t.Context(), strings.Repeat("long ", 300), talf.Options{})); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("a long prompt: %v", err)
	}
}

// What reads the mapped files of a model says in an error that they changed, also of a caller that has no mapped.Guard.
func TestAFileThatChangesIsAnError(t *testing.T) {
	path := gguftest.Tiny(1).Write(t, "x.gguf")
	job := preprocess.Default()
	job.Files, job.Out = []string{talftest.TextFile(t, 1)}, t.TempDir()
	_, err := talf.Label(t.Context(), talf.Config{Path: path, Threads: 1, Log: slog.New(onceLoaded(func() {
		if err := os.Chtimes(path, time.Time{}, time.Unix(1, 0)); err != nil {
			t.Error(err)
		}
	}))}, job)
	if err == nil || !strings.Contains(err.Error(), path+": its bytes could not be read") {
		t.Errorf("%v, want an error that names the file", err)
	}
}

// onceLoaded is the handler of a log that calls a function when a model and its tokenizer are loaded.
type onceLoaded func()

func (f onceLoaded) Enabled(context.Context, slog.Level) bool { return true }
func (f onceLoaded) WithAttrs([]slog.Attr) slog.Handler       { return f }
func (f onceLoaded) WithGroup(string) slog.Handler            { return f }

func (f onceLoaded) Handle(_ context.Context, r slog.Record) error {
	for a := range r.Attrs {
		if r.Message == "loaded" && a.Value.String() == "weights and tokenizer" {
			f()
		}
	}
	return nil
}
