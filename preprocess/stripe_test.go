package preprocess_test

import (
	"context"
	"errors"
	"testing"

	"talf/compute/cpu"
	"talf/data"
	"talf/data/corpus"
	"talf/model"
	"talf/model/modeltest"
	"talf/preprocess"
)

// Two runs, three, or more than there are shards, in any order, some of them lost and
// restarted, give the same set as a single run. Bad lines and dropped texts are counted
// once, and regenerated answers have the same seeds.
func TestSeveralRunsMakeTheSameSetAsOne(t *testing.T) {
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Default(), model.Default())
	answered := write(t, "in.jsonl", problems(40, 97))
	asked := write(t, "asked.jsonl", "{\"prompt\":\"5 6\"}\n{\"turns\":[\"7\",\"8 9\"]}\nno object\n{\"prompt\":\"10 11 12\"}\n{\"prompt\":\"4\"}\n")
	for _, x := range []struct {
		name   string
		file   string
		in     preprocess.Inputs
		change func(*preprocess.Config)
		orders [][]int
	}{
		{"answers of the text", answered, preprocess.Inputs{Target: m, Tokenizer: numbers{1}}, func(c *preprocess.Config) { c.Tokens = 60 }, [][]int{{0, 1}, {2, 0, 1}}},
		// The last shard is full, and the lines after it are bad, which gives a shard
		// without rows.
		{"nothing but bad lines at the end", write(t, "end.jsonl", "{\"q\":\"5 6\",\"a\":\"7\"}\n{\"q\":\"5 6\",\"a\":\"8\"}\n{\"q\": }\n"), preprocess.Inputs{Target: m, Tokenizer: numbers{1}}, func(c *preprocess.Config) { c.Shard = 2 }, [][]int{{1, 0}, {3, 2, 1, 0}}},
		{"regenerated answers", asked, preprocess.Inputs{Target: m, Tokenizer: numbers{1}, Generator: parrot{}, Sampling: "parrot"}, func(c *preprocess.Config) {
			c.Load, c.Shard, c.MaxLen, c.Seed = corpus.Default(), 1, 30, 3
		}, [][]int{{1, 0}}},
	} {
		t.Run(x.name, func(t *testing.T) {
			alone := config(t, x.file)
			x.change(&alone)
			whole, err := preprocess.Run(context.Background(), alone, x.in)
			if err != nil {
				t.Fatal(err)
			}
			for _, order := range x.orders {
				c := config(t, x.file)
				x.change(&c)
				for i, index := range order {
					c.Stripe = data.Stripe{Index: index, Count: len(order)}
					if i == 0 { // it is lost as soon as it has done anything
						ctx, cancel := context.WithCancel(context.Background())
						in := x.in
						in.Progress = func(preprocess.Progress) { cancel() }
						if _, err := preprocess.Run(ctx, c, in); err != nil && !errors.Is(err, context.Canceled) {
							t.Fatal(err)
						}
						cancel()
					}
					in, last := x.in, preprocess.Progress{}
					in.Progress = func(p preprocess.Progress) { last = p }
					st, err := preprocess.Run(context.Background(), c, in)
					if err != nil {
						t.Fatal(err)
					}
					if last.Sequences > last.AllSequences {
						t.Errorf("index %d: %d of %d sequences done", index, last.Sequences, last.AllSequences)
					}
					if st.Merged != (i == len(order)-1) {
						t.Errorf("%v: merged %v after index %d", order, st.Merged, index)
					}
				}
				sameSet(t, alone.Out, c.Out)
				again, err := preprocess.Run(context.Background(), c, x.in)
				if err != nil || again.Sequences != whole.Sequences || again.Tokens != whole.Tokens || !again.Merged {
					t.Errorf("%v again: %+v, %v; want %+v", order, again, err, whole)
				}
			}
		})
	}
}
