package preprocess_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"talf/compute/cpu"
	"talf/model"
	"talf/model/modeltest"
	"talf/preprocess"
)

// slow is a parrot that waits before every answer except the first.
type slow struct{ calls *atomic.Int64 }

func (g slow) Generate(ctx context.Context, prompts []preprocess.Prompt) ([][]int32, error) {
	if g.calls.Add(1) > 1 {
		for range 1000 {
			runtime.Gosched()
		}
	}
	return parrot{}.Generate(ctx, prompts)
}

// However many copies of the target label, and however slow one of them is, the set is
// the same as with one copy: rows, dropped input, and the counts of every file.
func TestCopiesOfTheTargetMakeTheSameSetAsOne(t *testing.T) {
	dir := modeltest.Random(t, modeltest.Default(), 5)
	var copies []*model.Model
	for range 3 {
		copies = append(copies, target(t, dir, cpu.Config{Class: cpu.Default().Class, Threads: 1}, model.Default()))
	}
	answered := write(t, "in.jsonl", problems(60, 97))
	for name, change := range map[string]func(*preprocess.Config, *preprocess.Inputs){
		"answers of the text": func(*preprocess.Config, *preprocess.Inputs) {},
		"two files": func(c *preprocess.Config, _ *preprocess.Inputs) {
			c.Files = append(c.Files, write(t, "more.jsonl", problems(20, 90)))
		},
		"regenerated answers": func(c *preprocess.Config, in *preprocess.Inputs) {
			c.Load.Template, c.Load.AnswerField, c.Prompts = "{q}", "", 2
			var calls atomic.Int64
			in.Generator, in.Sampling = slow{&calls}, "slow"
			for i := range in.Beside {
				in.Beside[i].Generator = slow{&calls}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var first preprocess.Config
			for n := range copies {
				c := config(t, answered)
				c.Tokens, c.Shard = 50, 7
				in := preprocess.Inputs{Target: copies[0], Tokenizer: numbers{1}}
				for _, m := range copies[1 : n+1] {
					in.Beside = append(in.Beside, preprocess.Worker{Target: m})
				}
				change(&c, &in)
				if _, err := preprocess.Run(context.Background(), c, in); err != nil {
					t.Fatal(err)
				}
				for _, m := range copies {
					if used := m.KV().Used; used != 0 {
						t.Fatalf("%d KV blocks are still held", used)
					}
				}
				if n == 0 {
					first = c
				}
				sameSet(t, first.Out, c.Out)
			}
		})
	}
}

// A copy that fails stops the run with one error that names its device. Finished shards
// are kept, and without that device the run continues to the same bytes.
func TestACopyThatFailsEndsTheRun(t *testing.T) {
	dir := modeltest.Random(t, modeltest.Default(), 5)
	a, b := target(t, dir, cpu.Default(), model.Default()), target(t, dir, cpu.Default(), model.Default())
	asked := ""
	for range 40 {
		asked += `{"prompt":"10 11"}` + "\n"
	}
	c := config(t, write(t, "asked.jsonl", asked))
	c.Load.Template, c.Load.AnswerField = "", ""
	c.Load.Format, c.Shard, c.Prompts, c.MaxLen = "auto", 4, 2, 30
	var calls atomic.Int64
	in := preprocess.Inputs{Target: a, Tokenizer: numbers{1}, Generator: slow{&calls}, Sampling: "slow"}
	whole := c
	whole.Out = t.TempDir()
	if _, err := preprocess.Run(context.Background(), whole, in); err != nil {
		t.Fatal(err)
	}
	with := in
	with.Beside = []preprocess.Worker{{Target: b, Generator: parrot{errors.New("the device is lost")}}}
	_, err := preprocess.Run(context.Background(), c, with)
	if err == nil || !strings.HasPrefix(err.Error(), "preprocess: regenerate: the device is lost (cpu") {
		t.Fatalf("%v, want one that names the device", err)
	}
	for _, m := range []*model.Model{a, b} {
		if used := m.KV().Used; used != 0 {
			t.Fatalf("%d KV blocks are still held", used)
		}
	}
	if _, err := preprocess.Run(context.Background(), c, in); err != nil {
		t.Fatal(err)
	}
	sameSet(t, whole.Out, c.Out)
}

// A set is made with one arithmetic. Continuing it with another is refused, for the
// whole set and for a part of it.
func TestASetIsMadeWithOneArithmetic(t *testing.T) {
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Default(), model.Default())
	c := config(t, write(t, "in.jsonl", problems(20, 97)))
	in := preprocess.Inputs{Target: m, Tokenizer: numbers{1}}
	if _, err := preprocess.Run(context.Background(), c, in); err != nil {
		t.Fatal(err)
	}
	in.Arithmetic = "a device"
	if _, err := preprocess.Run(context.Background(), c, in); err == nil || !strings.Contains(err.Error(), "arithmetic: of the CPU, want of a device: ") {
		t.Errorf("%v", err)
	}
	c.Out = t.TempDir()
	if _, err := preprocess.Run(context.Background(), c, in); err != nil {
		t.Fatal(err)
	}
	if meta, _ := rows(t, c.Out); meta.Arithmetic != "a device" {
		t.Errorf("the set says %q", meta.Arithmetic)
	}
	in.Arithmetic = ""
	if _, err := preprocess.Run(context.Background(), c, in); err == nil || !strings.Contains(err.Error(), "arithmetic: of a device, want of the CPU: ") {
		t.Errorf("%v", err)
	}
}

// broken panics when it is called.
type broken struct{}

func (broken) Generate(context.Context, []preprocess.Prompt) ([][]int32, error) { panic("planted") }

// A panic in one goroutine is raised again where Run was called, after all others have
// stopped.
func TestAPanicReachesTheCaller(t *testing.T) {
	dir := modeltest.Random(t, modeltest.Default(), 5)
	a, b := target(t, dir, cpu.Default(), model.Default()), target(t, dir, cpu.Default(), model.Default())
	c := config(t, write(t, "asked.jsonl", strings.Repeat(`{"prompt":"10 11"}`+"\n", 40)))
	c.Load.Template, c.Load.AnswerField = "", ""
	c.Load.Format, c.Shard, c.Prompts, c.MaxLen = "auto", 4, 2, 30
	var calls atomic.Int64
	run := func(tok preprocess.Tokenizer, g preprocess.Generator) (bug any) {
		c.Out = t.TempDir()
		defer func() { bug = recover() }()
		defer ended(t, runtime.NumGoroutine())
		_, err := preprocess.Run(context.Background(), c, preprocess.Inputs{
			Target: a, Tokenizer: tok, Generator: slow{&calls}, Sampling: "slow",
			Beside: []preprocess.Worker{{Target: b, Generator: g}},
		})
		t.Errorf("it returned %v", err)
		return nil
	}
	if bug := fmt.Sprint(run(numbers{1}, broken{})); !strings.HasPrefix(bug, "planted") || !strings.Contains(bug, "broken.Generate") {
		t.Errorf("a worker: %s", bug)
	}
	late := &brokenTokens{numbers: numbers{1}, after: 60} // after the pass that only counts
	if bug := fmt.Sprint(run(late, slow{&calls})); !strings.HasPrefix(bug, "planted") || !strings.Contains(bug, "(*jobs).read") {
		t.Errorf("the reader: %s", bug)
	}
	for _, m := range []*model.Model{a, b} {
		if used := m.KV().Used; used != 0 {
			t.Errorf("%d KV blocks are still held", used)
		}
	}
}

// brokenTokens panics after some texts.
type brokenTokens struct {
	numbers
	after int
}

func (b *brokenTokens) Encode(text string, special bool) ([]int32, error) {
	if b.after--; b.after < 0 {
		panic("planted")
	}
	return b.numbers.Encode(text, special)
}
