package preprocess_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"talf/compute/cpu"
	"talf/data"
	"talf/model"
	"talf/model/modeltest"
	"talf/preprocess"
)

// A meddler is a tokenizer that changes a file before it encodes the first text: after the
// contents were hashed, and before they are read for the labels.
type meddler struct {
	numbers
	change func()
}

func (m *meddler) Encode(text string, special bool) ([]int32, error) {
	if m.change != nil {
		m.change()
		m.change = nil
	}
	return m.numbers.Encode(text, special)
}

func complete(t *testing.T, dir string) bool {
	t.Helper()
	s, err := data.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	return s.Complete()
}

// A set is of the text that its metadata identify: a file that changes between the looks at it is
// an error, and the set does not become complete, whatever the file holds later.
func TestAFileThatChangesIsNoticed(t *testing.T) {
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Config{Class: cpu.Default().Class, Threads: 1}, model.Default())
	before, after := problems(14, 97), problems(14, 90)
	run := func(ctx context.Context, c preprocess.Config, change func(), progress func(preprocess.Progress)) error {
		_, err := preprocess.Run(ctx, c, preprocess.Inputs{Target: m, Tokenizer: &meddler{change: change}, TokenizerHash: "n", Progress: progress})
		return err
	}
	rewrite := func(file, text string) func() {
		return func() {
			if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
				t.Error(err)
			}
		}
	}
	small := func(file string) preprocess.Config {
		c := config(t, file)
		c.Shard = 3
		return c
	}
	whole := write(t, "whole.jsonl", before)
	want := small(whole)
	if err := run(t.Context(), want, nil, nil); err != nil {
		t.Fatal(err)
	}

	file := write(t, "in.jsonl", before)
	c := small(file)
	err := run(t.Context(), c, rewrite(file, after), nil)
	if err == nil || !strings.Contains(err.Error(), file+": it changed while it was being labelled") {
		t.Fatalf("a file that changed before it was labelled: %v", err)
	}
	if complete(t, c.Out) {
		t.Error("the set is complete")
	}
	if err := run(t.Context(), c, nil, nil); err == nil || !strings.Contains(err.Error(), "source (hash of the texts") {
		t.Errorf("continued with the later text: %v", err)
	}
	rewrite(file, before)()
	if err := run(t.Context(), c, nil, nil); err == nil || !strings.Contains(err.Error(), "shard-00000.parquet was made of other text") {
		t.Errorf("continued with the former text: %v", err)
	}
	if complete(t, c.Out) {
		t.Error("the set is complete")
	}

	// A run that is interrupted in time does not notice, but the next one does.
	c = small(file)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err = run(ctx, c, rewrite(file, after), func(p preprocess.Progress) {
		if p.Shards == 2 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted: %v", err)
	}
	rewrite(file, before)()
	if err := run(t.Context(), c, nil, nil); err == nil || !strings.Contains(err.Error(), "shard-00000.parquet was made of other text") {
		t.Errorf("continued with the former text: %v", err)
	}

	// What is not read for the labels may have been there before, but not otherwise.
	for _, x := range []struct {
		name, text string
		ok         bool
	}{
		{"nothing", before, true},
		{"the end", before + "more\n", false},
		{"the beginning", " " + before, false},
		{"all", "", false},
	} {
		file := write(t, "limited.jsonl", before+strings.Repeat("{\"q\":\"1\",\"a\":\"2\"}\n", 20_000)) // more than is read ahead
		c := small(file)
		c.Load.Limit = 4
		tail := strings.TrimPrefix(read(t, file), before)
		err := run(t.Context(), c, rewrite(file, x.text+tail), nil)
		if (err == nil) != x.ok || complete(t, c.Out) != x.ok {
			t.Errorf("%s of a file that is read in part: %v", x.name, err)
		}
	}
	// Reading the text again changes nothing.
	c = small(whole)
	if err := run(t.Context(), c, nil, nil); err != nil {
		t.Fatal(err)
	}
	sameSet(t, c.Out, want.Out)
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
