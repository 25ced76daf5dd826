package command

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"talf/infer"
	"talf/infer/decode"
	"talf/internal/e2e/talftest"
	"talf/text/chat"
)

// newTalk begins a dialogue with a tiny model, whose answers have tokens tokens.
func newTalk(t *testing.T, tokens int) *decode.Talk {
	t.Helper()
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	m := talftest.OpenModel(t, dir)
	tok, err := decode.LoadTokenizer(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	o := decode.Default()
	o.MaxTokens, o.IgnoreEOS = tokens, true
	d, err := decode.New(decode.Config{Target: m, Tokenizer: tok, Options: o, Keep: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return decode.NewTalk(d, *chat.NewText(), 1)
}

// A screen is what a user sees.
type screen struct {
	console
	printed, said, logged bytes.Buffer
	answers               []string
}

func newScreen(in io.Reader) *screen {
	s := &screen{}
	s.console = console{In: in, Out: &s.printed, Err: &s.said, Log: slog.New(slog.NewTextHandler(&s.logged, nil)), Answered: func(q *infer.Sequence) {
		s.answers = append(s.answers, q.Text())
	}}
	return s
}

// Every line but an empty one and a command is a turn, whose answer is a line; a reset makes the same question the same again.
func TestLinesAreTurns(t *testing.T) {
	s := newScreen(strings.NewReader("Once upon\n\n a time\n/reset\nOnce upon\n/quit\nnever read\n"))
	if err := s.talk(t.Context(), newTalk(t, 3)); err != nil {
		t.Fatal(err)
	}
	if len(s.answers) != 3 || s.answers[0] != s.answers[2] || s.answers[0] == "" {
		t.Errorf("answers %q, want three, of which the last is the first again", s.answers)
	}
	if want := strings.Join(s.answers, "\n") + "\n"; s.printed.String() != want {
		t.Errorf("printed %q, want %q", s.printed.String(), want)
	}
	if s.said.Len()+s.logged.Len() > 0 {
		t.Errorf("said %q, logged %q: want no prompt where there is no terminal", s.said.String(), s.logged.String())
	}
}

// A turn that leaves no room for an answer is told of, the dialogue goes on without it, and the end says that there were such.
func TestATurnThatIsTooLongIsNotAnswered(t *testing.T) {
	long := strings.Repeat("one two three ", 1000)
	s := newScreen(strings.NewReader("Once\n" + long + "\n upon\n"))
	err := s.talk(t.Context(), newTalk(t, 2))
	if err == nil || err.Error() != "turns that were not answered: 1" {
		t.Errorf("ended with %v", err)
	}
	if len(s.answers) != 2 || !strings.Contains(s.logged.String(), "/reset begins a new dialogue") {
		t.Errorf("answers %q, logged %q", s.answers, s.logged.String())
	}
}

// What cannot be read is an error that says what was read.
func TestALineHasABound(t *testing.T) {
	s := newScreen(strings.NewReader(strings.Repeat("x", 1<<20+1)))
	if err := s.talk(t.Context(), newTalk(t, 2)); err == nil || err.Error() != "standard input: a line of more than 1048576 bytes" {
		t.Errorf("ended with %v", err)
	}
	broken := errors.New("no such terminal")
	s = newScreen(io.MultiReader(strings.NewReader("Once\n"), failing{broken}))
	if err := s.talk(t.Context(), newTalk(t, 2)); !errors.Is(err, broken) || len(s.answers) != 1 {
		t.Errorf("ended with %v after %q", err, s.answers)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// The end of the context ends the wait for a turn, and an answer in its middle.
func TestATalkEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	silent, never := io.Pipe()
	defer never.Close()
	cancel()
	if err := newScreen(silent).talk(ctx, newTalk(t, 2)); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for a turn ended with %v", err)
	}

	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	s := newScreen(strings.NewReader("Once\nupon\n"))
	s.Out = writer(func(b []byte) (int, error) {
		cancel()
		return s.printed.Write(b)
	})
	if err := s.talk(ctx, newTalk(t, 200)); !errors.Is(err, context.Canceled) || len(s.answers) > 0 {
		t.Errorf("an answer ended with %v, answered %q", err, s.answers)
	}
	if printed := s.printed.String(); !strings.HasSuffix(printed, "\n") || len(printed) < 2 {
		t.Errorf("printed %q, want the beginning of an answer as a line", printed)
	}
}

// An answer that cannot be printed ends the talk.
func TestALostAnswerEndsTheTalk(t *testing.T) {
	full := errors.New("no space")
	s := newScreen(strings.NewReader("Once\nupon\n"))
	s.Out = writer(func([]byte) (int, error) { return 0, full })
	if err := s.talk(t.Context(), newTalk(t, 2)); !errors.Is(err, full) || len(s.answers) > 0 {
		t.Errorf("ended with %v after %q", err, s.answers)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
