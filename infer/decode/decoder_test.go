package decode_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/infer"
	"talf/infer/decode"
	"talf/infer/draft"
	"talf/infer/loop"
	"talf/internal/e2e/talftest"
	"talf/text/chat"
)

// tiny returns a decoder of a random model.
func tiny(t *testing.T, o decode.Options) *decode.Decoder {
	t.Helper()
	return tinyWith(t, o, nil)
}

// tinyWith is tiny with a draft model.
func tinyWith(t *testing.T, o decode.Options, draft infer.Source) *decode.Decoder {
	t.Helper()
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	m := talftest.OpenModel(t, dir)
	tok, err := decode.LoadTokenizer(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	d, err := decode.New(decode.Config{Target: m, Tokenizer: tok, Options: o, Keep: 1, Source: draft})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func sampled() decode.Options {
	o := decode.Default()
	o.Sample.Temperature, o.MaxTokens, o.IgnoreEOS = 1, 6, true
	return o
}

// A run that is cancelled after any answer and then continued writes the same file as an
// uninterrupted run.
func TestAFileOfAnswersIsContinued(t *testing.T) {
	d := tiny(t, sampled())
	var tasks []decode.Task
	for i, text := range []string{"Once upon", "a time", "Once upon", strings.Repeat("long ", 300)} {
		tasks = append(tasks, decode.Task{Place: fmt.Sprintf("line %d", i+1), Key: text, Begin: func() *chat.Dialogue { return chat.NewText(text) }})
	}
	tasks[1].Begin = func() *chat.Dialogue { return chat.NewPlainDialogue("a time", "and then") }
	answer := func(ctx context.Context, path string, stop func(done int)) (decode.Report, error) {
		to, err := decode.OpenAnswers(path, tasks, settings("s"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = to.Close() }()
		return d.AnswerAll(ctx, tasks, to, decode.Batch{Seed: 3, Progress: func(done, _ int) { stop(done) }, Skipped: func(error) {}})
	}
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole")
	r, err := answer(t.Context(), whole, func(int) {})
	if err != nil || r.Answered != 3 || r.Skipped != 1 || !errors.Is(r.First, decode.ErrLongPrompt) || !strings.HasPrefix(r.First.Error(), "line 4 ") {
		t.Fatalf("%+v, %v", r, err)
	}
	text := read(whole)
	if lines := strings.Split(strings.TrimSpace(text), "\n"); len(lines) != 3 || strings.Count(text, `"turns":`) != 1 || !strings.Contains(lines[1], `"tokens":12,`) {
		t.Fatalf("answers:\n%s", text)
	}
	for after := range 3 {
		path := filepath.Join(dir, fmt.Sprint(after))
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := answer(ctx, path, func(done int) {
			if done == after {
				cancel()
			}
		}); !errors.Is(err, context.Canceled) {
			t.Fatalf("cancelled after %d: %v", after, err)
		}
		if n := strings.Count(read(path), "\n"); n != after {
			t.Errorf("cancelled after %d answers, kept %d", after, n)
		}
		if _, err := answer(t.Context(), path, func(int) {}); err != nil {
			t.Fatal(err)
		}
		if got := read(path); got != text {
			t.Errorf("cancelled after %d, and continued:\n%swant:\n%s", after, got, text)
		}
	}
}

// Requests that are decoded side by side get the same answers as alone.
func TestTogetherIsOneByOne(t *testing.T) {
	o := sampled()
	d := tiny(t, o)
	var reqs []infer.Request
	var want [][]int32
	for i, text := range []string{"Once", "Once", "The cat sat"} {
		ids, err := d.Encode(t.Context(), chat.Prompt{Text: text, Special: true})
		if err != nil {
			t.Fatal(err)
		}
		s, err := d.Answer(t.Context(), chat.Prompt{Text: text, Special: true}, uint64(i), nil)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, slices.Clone(s.Tokens()))
		r, err := o.Request(nil, nil, ids, uint64(i))
		if err != nil {
			t.Fatal(err)
		}
		reqs = append(reqs, r)
	}
	got, err := all(t, d, reqs)
	if err != nil || !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}

// all answers requests side by side with the decoder's engine.
func all(t *testing.T, d *decode.Decoder, reqs []infer.Request) (out [][]int32, err error) {
	t.Helper()
	l, err := loop.New(d.Engine(), loop.Offline())
	if err != nil {
		t.Fatal(err)
	}
	seqs, err := l.All(t.Context(), reqs)
	for _, s := range seqs {
		out = append(out, s.Tokens())
	}
	return out, err
}

func TestOptionsThatContradictAreRefused(t *testing.T) {
	for want, change := range map[string]func(o *decode.Options){
		"max-tokens is 0": func(o *decode.Options) { o.MaxTokens = 0 },
		"stop is empty":   func(o *decode.Options) { o.Stop = []string{"a", ""} },
		"magic":           func(o *decode.Options) { o.Verify = "magic" },
		"temperature":     func(o *decode.Options) { o.Sample.Temperature = -1 },
	} {
		o := decode.Default()
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
	for _, c := range []struct {
		method string
		given  bool
		want   string // in Others; "": it is accepted
	}{
		{"ar", false, ""},
		{"ar", true, ""},
		{"salf", true, ""},
		{"salf", false, "pld"},
		{"pld", false, ""},
		{"pld", true, "salf"},
	} {
		o := decode.Default()
		o.Method = c.method
		mk, _, err := o.Open(draft.Env{Source: c.given})
		var fits *decode.SourceError
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%+v: %v", c, err)
		case c.want != "" && (!errors.As(err, &fits) || fits.Given != c.given || !slices.Contains(fits.Others, c.want)):
			t.Errorf("%+v: %v", c, err)
		}
		if mk != nil {
			_ = mk.Close()
		}
	}
}

// Any number of dialogues side by side get the answers that they get one by one, with methods that
// learn from each other's rounds too.
func TestDialoguesSideBySideGetTheSameAnswers(t *testing.T) {
	for _, method := range []string{"ar", "pld", "goose:table=keep,harvest=rounds", "auto"} {
		o := sampled()
		o.Method, o.MaxTokens = method, 20
		d := tiny(t, o)
		var tasks []decode.Task
		for i := range 12 {
			key := fmt.Sprint("Once upon ", i%5)
			tasks = append(tasks, decode.Task{Key: key, Begin: func() *chat.Dialogue {
				if i%3 == 0 {
					return chat.NewPlainDialogue(key, "and then")
				}
				return chat.NewText(key)
			}})
		}
		answers := func(side int) []decode.Answer {
			path := filepath.Join(t.TempDir(), "out.jsonl")
			to, err := decode.OpenAnswers(path, tasks, settings("s"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = to.Close() }()
			r, err := d.AnswerAll(t.Context(), tasks, to, decode.Batch{Seed: 3, Side: side, Progress: func(int, int) {}, Skipped: func(error) {}})
			if err != nil || r.Answered != len(tasks) {
				t.Fatalf("%s, %d side by side: %d answers, %v", method, side, r.Answered, err)
			}
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			all := make([]decode.Answer, len(tasks))
			for line := range strings.Lines(string(b)) { // in the order in which they ended
				var x decode.Answer
				if err := json.Unmarshal([]byte(line), &x); err != nil {
					t.Fatal(err)
				}
				x.MadeWith = nil // the first line of a file has it
				all[x.Index] = x
			}
			return all
		}
		if d := cmp.Diff(answers(1), answers(5)); d != "" {
			t.Errorf("%s: one by one and side by side (-one +side):\n%s", method, d)
		}
	}
}
