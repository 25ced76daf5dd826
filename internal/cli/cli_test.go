package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// errStopped is a planted failure.
var errStopped = errors.New("stopped\nby the test")

func TestOutcomesBecomeExitCodesAndLines(t *testing.T) {
	for name, c := range map[string]struct {
		o     Outcome
		cause error // of the context's end
		code  int
		want  string
	}{
		"success":               {Outcome{}, nil, ExitOK, ""},
		"success in time":       {Outcome{}, ErrInterrupted, ExitOK, ""},
		"failure":               {Outcome{Err: errStopped, Resume: "again"}, nil, ExitFailure, "talf: stopped by the test\n"},
		"usage":                 {Outcome{Err: Usagef("want %d", 1), Command: "talf x"}, ErrInterrupted, ExitUsage, "talf: want 1\ntalf: see 'talf x --help'\n"},
		"unread":                {Outcome{Err: errStopped}, errUnread, ExitUnread, ""},
		"interrupted":           {Outcome{Err: errStopped, Resume: "again"}, ErrInterrupted, ExitInterrupted, "talf: interrupted\ntalf: again\n"},
		"nothing to resume":     {Outcome{Err: errStopped}, ErrInterrupted, ExitInterrupted, "talf: interrupted\n"},
		"interrupted elsewhere": {Outcome{Err: errors.Join(errStopped, ErrInterrupted)}, nil, ExitInterrupted, "talf: interrupted\n"},
		"foremost":              {Outcome{Err: errStopped, Foremost: true}, ErrInterrupted, ExitFailure, "talf: stopped by the test\n"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if c.cause != nil {
				cancel(c.cause)
			}
			var b bytes.Buffer
			if code := c.o.report(ctx, &b); code != c.code || b.String() != c.want {
				t.Errorf("exit %d, %q, want %d, %q", code, &b, c.code, c.want)
			}
		})
	}
}

func TestAPanicBecomesARequestToReport(t *testing.T) {
	var errb bytes.Buffer
	code := Run(io.Discard, &errb, nil, func(_ context.Context, _, stderr io.Writer) Outcome {
		Mute(stderr, true) // a bug is reported nevertheless
		panic("planted")
	})
	if code != ExitCrash || !strings.Contains(errb.String(), "internal error: planted\n") || !strings.Contains(errb.String(), "please report it") {
		t.Errorf("exit %d, stderr: %s", code, &errb)
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestLostOutputIsAFailure(t *testing.T) {
	var errb bytes.Buffer
	code := Run(full{}, &errb, nil, func(ctx context.Context, stdout, _ io.Writer) Outcome {
		_, _ = io.WriteString(stdout, "the result")
		return Outcome{Err: ctx.Err()}
	})
	if code != ExitFailure || errb.String() != "talf: no space\n" {
		t.Errorf("exit %d, %q, want the disk's error", code, &errb)
	}
}

func TestNobodyReadsAPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	var errb bytes.Buffer
	code := Run(w, &errb, nil, func(ctx context.Context, stdout, _ io.Writer) Outcome {
		_, _ = io.WriteString(stdout, "the result")
		<-ctx.Done()
		return Outcome{Err: ctx.Err()}
	})
	if code != ExitUnread || errb.Len() > 0 {
		t.Errorf("exit %d, %q, want %d and no word", code, &errb, ExitUnread)
	}
}

func TestAMutedStreamSaysNothing(t *testing.T) {
	var out bytes.Buffer
	Run(&out, io.Discard, nil, func(_ context.Context, stdout, _ io.Writer) Outcome {
		for _, muted := range []bool{false, true, false} {
			Mute(stdout, muted)
			if n, err := io.WriteString(stdout, "ab"); n != 2 || err != nil {
				t.Errorf("muted %v: wrote %d, %v", muted, n, err)
			}
		}
		return Outcome{}
	})
	if out.String() != "abab" {
		t.Errorf("%q, want what was written before and after", &out)
	}
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	if v, err := Wait(t.Context(), func() (int, error) { return 3, errStopped }); v != 3 || !errors.Is(err, errStopped) {
		t.Errorf("got %d, %v, want what the function returns", v, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	block := make(chan int)
	defer close(block)
	if _, err := Wait(ctx, func() (int, error) { return <-block, nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
	defer func() {
		if r := recover(); r != "planted" {
			t.Errorf("recovered %v, want the function's panic", r)
		}
	}()
	_, _ = Wait(t.Context(), func() (int, error) { panic("planted") })
}

func TestPlainProgressNamesRateAndRemainingTime(t *testing.T) {
	p := &Progress{what: "train", unit: "steps", base: 10, begun: time.Unix(0, 0)}
	got := p.line(30, 50, "loss 2.5", time.Unix(10, 0))
	if want := "train: 30/50 steps, 2 steps/s, 10s left, loss 2.5"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestProgressIsPrintedNowAndThen(t *testing.T) {
	for _, off := range []bool{false, true} {
		var b bytes.Buffer
		p := NewProgress(&b, "train", "steps", off)
		p.Set(1, 3, "")
		if b.Len() > 0 {
			t.Errorf("off %v: a line right at the beginning: %q", off, &b)
		}
		p.next = p.next.Add(-plainEvery)
		p.Set(2, 3, "")
		p.Set(3, 3, "")
		p.End()
		if lines := strings.Count(b.String(), "\n"); off != (lines == 0) || lines > 1 {
			t.Errorf("off %v: %q", off, &b)
		}
	}
}

// tree is a small program. ran are the arguments of the command that ran.
func tree(ran *[]string) *cobra.Command {
	run := func(cmd *cobra.Command, args []string) error {
		*ran = append([]string{cmd.Name()}, args...)
		return nil
	}
	root := &cobra.Command{Use: "talf"}
	show := &cobra.Command{Use: "show PATH", Args: cobra.ExactArgs(1), RunE: run}
	show.Flags().String("model", "", "")
	show.Flags().String("head", "", "")
	bench := &cobra.Command{Use: "bench", RunE: run}
	bench.AddCommand(&cobra.Command{Use: "decode", RunE: run})
	var n int
	var nums []float64
	CountVar(bench.Flags(), &n, "rows", 3, "")
	NumbersVar(bench.Flags(), &nums, "rates", []float64{0.5}, "")
	bench.Flags().Float64("t", 0, "")
	bench.Flags().Int("top", 0, "")
	bench.Flags().Uint64("seed", 0, "")
	bench.Flags().Bool("check", false, "")
	DurationVar(bench.Flags(), new(time.Duration), "wait", time.Minute, "")
	root.AddCommand(show, bench)
	return root
}

// execute returns what ran, what was printed, and the error, "usage: " before a mistake
// of the caller's.
func execute(args ...string) (ran []string, printed, wrong string) {
	root := tree(&ran)
	misspelt := Explain(root)
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err := root.Execute()
	if err == nil {
		err = misspelt()
	}
	var usage UsageError
	switch {
	case errors.As(err, &usage):
		wrong = "usage: " + err.Error()
	case err != nil:
		wrong = err.Error()
	}
	return ran, out.String(), wrong
}

func TestMistakesAreToldInPlainWords(t *testing.T) {
	for line, want := range map[string]string{
		"sho":                     `unknown command "sho": did you mean show?`,
		"sho --model x":           `unknown command "sho": did you mean show?`,
		"sho --help":              `unknown command "sho": did you mean show?`,
		"help sho":                `unknown command "sho": did you mean show?`,
		"frobnicate":              `unknown command "frobnicate"`,
		"bench decod":             `unknown command "decod": did you mean decode?`,
		"bench decod --help":      `unknown command "decod": did you mean decode?`,
		"bench decode now":        `unexpected argument "now": all that talf bench decode takes are flags`,
		"show":                    "missing PATH",
		"show a b":                `unexpected argument "b": want one PATH`,
		"show --model --head a b": "--model has no value: what follows it is --head",
		"show --nope":             "unknown flag: --nope",
		"bench --rows -1":         `--rows is "-1", want a whole number, 0 or more`,
		"bench --rates 1,inf":     `--rates is "1,inf", want numbers, separated by commas`,
		"bench --t hot":           `--t is "hot", want a number`,
		"bench --top 1.5":         `--top is "1.5", want a whole number`,
		"bench --top 1" + strings.Repeat("0", 20): `--top is "1` + strings.Repeat("0", 20) + `", want a whole number, not as large`,
		"bench --seed -1":                         `--seed is "-1", want a whole number, 0 or more`,
		"bench --wait 10":                         `--wait is "10", want a duration, 0 or more, such as 30s`,
		"bench --wait -1s":                        `--wait is "-1s", want a duration, 0 or more, such as 30s`,
		"bench --check=maybe":                     `--check is "maybe", want true or false`,
	} {
		ran, printed, wrong := execute(strings.Fields(line)...)
		if wrong != "usage: "+want || ran != nil || printed != "" {
			t.Errorf("%s: ran %q, printed %q, %s; want %s", line, ran, printed, wrong, want)
		}
	}
}

func TestRightCommandLinesRun(t *testing.T) {
	for line, want := range map[string][]string{
		"show a":         {"show", "a"},
		"bench --rows 0": {"bench"},
		"bench decode":   {"decode"},
	} {
		if ran, _, wrong := execute(strings.Fields(line)...); wrong != "" || !cmp.Equal(ran, want) {
			t.Errorf("%s: ran %q, %s, want %q", line, ran, wrong, want)
		}
	}
	for _, line := range []string{"", "help", "--help", "help bench", "bench --help"} {
		if ran, printed, wrong := execute(strings.Fields(line)...); wrong != "" || ran != nil || !strings.Contains(printed, "Usage:") {
			t.Errorf("%q: ran %q, printed %q, %s, want help", line, ran, printed, wrong)
		}
	}
}

func TestNeededFlagsAreNamedTogether(t *testing.T) {
	c := &cobra.Command{Use: "x"}
	var files Files
	c.Flags().String("model", "", "")
	c.Flags().Var(&files, "data", "")
	c.Flags().StringArray("url", nil, "")
	if err := Need(c, "model", "data", "url"); err == nil || err.Error() != "missing --model, --data, --url" {
		t.Errorf("%v, want all flags named", err)
	}
	if err := c.ParseFlags([]string{"--data", "a", "--data", "b", "--model", "m", "--url", "u"}); err != nil {
		t.Fatal(err)
	}
	if err := Need(c, "model", "data", "url"); err != nil || !cmp.Equal(files, Files{"a", "b"}) {
		t.Errorf("%v, files %q, want both", err, files)
	}
}

func TestNumbersReplaceTheirDefault(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []float64
		text string
	}{
		{nil, []float64{0.5}, "0.5"},
		{[]string{"--x", "1, 2", "--x", "3"}, []float64{1, 2, 3}, "1,2,3"},
	} {
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		var got []float64
		NumbersVar(f, &got, "x", []float64{0.5}, "")
		if err := f.Parse(c.args); err != nil || !cmp.Equal(got, c.want) || f.Lookup("x").Value.String() != c.text {
			t.Errorf("%q: %v, %v (%s), want %v", c.args, err, got, f.Lookup("x").Value, c.want)
		}
	}
}

func TestShellsAreOfferedWordsAndDirectories(t *testing.T) {
	var ran []string
	for line, want := range map[string]string{
		"show --model x": ":16\n", // directories alone
		"bench --top o":  "\none\ntwo\n:4\n",
	} {
		root := tree(&ran)
		Explain(root)
		Complete(root, map[string][]string{"top": {"one", "two"}}, "model")
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(io.Discard)
		root.SetArgs(append([]string{"__complete"}, strings.Fields(line)...))
		if err := root.Execute(); err != nil || !strings.HasSuffix("\n"+out.String(), want) {
			t.Errorf("%s: %v, %q, want %q at its end", line, err, &out, want)
		}
	}
}
