package preprocess_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"talf/compute/cpu"
	"talf/model"
	"talf/model/modeltest"
	"talf/preprocess"
)

// seeds is a parrot that records the seed of every prompt.
type seeds map[string]uint64

func (s seeds) Generate(ctx context.Context, prompts []preprocess.Prompt) ([][]int32, error) {
	for _, p := range prompts {
		s[fmt.Sprint(p.Tokens)] = p.Seed
	}
	out := make([][]int32, len(prompts))
	for i := range out {
		out[i] = []int32{3}
	}
	return out, nil
}

// Every turn of every prompt has a seed of its own, which depends neither on the batch
// nor on the shard that it is in.
func TestEveryAnswerHasASeedOfItsOwn(t *testing.T) {
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Default(), model.Default())
	var text strings.Builder
	const docs = 7
	for i := range docs {
		fmt.Fprintf(&text, `{"turns":["%d 6","7 8"]}`+"\n", 10+i)
	}
	file := write(t, "in.jsonl", text.String())
	ask := func(seed uint64, prompts, shard int) seeds {
		got := seeds{}
		c := preprocess.Default()
		c.Files, c.Out, c.MaxLen = []string{file}, t.TempDir(), 20
		c.Seed, c.Prompts, c.Shard = seed, prompts, shard
		if _, err := preprocess.Run(t.Context(), c, preprocess.Inputs{Target: m, Tokenizer: numbers{1}, Generator: got, Sampling: "seeds"}); err != nil {
			t.Fatal(err)
		}
		return got
	}
	one := ask(3, 1, 2)
	if many := ask(3, 5, 3); !maps.Equal(one, many) {
		t.Errorf("seeds %v in small batches, %v in large ones", one, many)
	}
	seen := map[uint64]bool{}
	for _, all := range []seeds{one, ask(4, 1, 2)} {
		for _, s := range all {
			seen[s] = true
		}
	}
	if len(one) != 2*docs || len(seen) != 2*2*docs {
		t.Errorf("%d prompts have seeds, and there are %d seeds; want %d and %d", len(one), len(seen), 2*docs, 2*2*docs)
	}
}
