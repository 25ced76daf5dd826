package arch

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"talf/internal/limits/costtest"
)

func corpus(t testing.TB) [][]byte {
	t.Helper()
	return costtest.Files(t, "testdata/cost/*.json", func(name string, b []byte) error {
		_, err := Parse(name, b, nil)
		return err
	})
}

// exercise reads a configuration in every way that talf does.
func exercise(raw []byte) {
	for _, parse := range []func(string, []byte, []byte) (*Spec, error){Parse, ParseDraft} {
		s, err := parse("config.json", raw, raw)
		if err != nil {
			continue
		}
		for range s.Tensors() {
		}
	}
}

func TestLongListsAreRefusedInLinearTime(t *testing.T) {
	ids := make([]int, 400_000)
	types := make([]string, 400_000)
	for i := range ids {
		ids[i], types[i] = i, "full_attention"
	}
	for name, c := range map[string]struct {
		change m
		want   string
	}{
		"end tokens":  {m{"eos_token_id": ids, "vocab_size": 1 << 20}, "eos_token_id lists 400000 tokens, want at most 256"},
		"layer types": {m{"layer_types": types, "num_hidden_layers": len(types), "model_type": "qwen2", "num_key_value_heads": 2}, "num_hidden_layers"},
		"layers":      {m{"num_hidden_layers": 1 << 26, "model_type": "mistral", "num_key_value_heads": 2}, "num_hidden_layers"},
		"a long word": {m{"hidden_act": strings.Repeat("x", 1<<20)}, "hidden_act"},
		"a long name": {m{"model_type": strings.Repeat("x", 1<<20)}, "model_type"},
	} {
		raw := base(c.change)
		costtest.Check(t, name, costtest.Default, func(context.Context) {
			_, err := Parse("config.json", raw, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 1000 {
				t.Errorf("%s: %.200v, want a short error with %q", name, err, c.want)
			}
		})
	}
	// generation_config.json has its own list.
	gen := fmt.Appendf(nil, `{"eos_token_id":%s}`, strings.ReplaceAll(fmt.Sprint(ids), " ", ","))
	costtest.Check(t, "generation", costtest.Default, func(context.Context) {
		if _, err := Parse("config.json", base(nil), gen); err == nil || !strings.Contains(err.Error(), "generation_config.json: eos_token_id lists 400000") {
			t.Errorf("%.200v", err)
		}
	})
}

func TestMutatedConfigurationsAreCheap(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 500
	}
	i := 0
	for raw := range costtest.Mutations(2, corpus(t), n) {
		costtest.Check(t, fmt.Sprint("mutation ", i), costtest.Default, func(context.Context) { exercise(raw) })
		i++
	}
}

func FuzzConfigCost(f *testing.F) {
	for _, raw := range corpus(f) {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		costtest.Check(t, "file", costtest.Default, func(context.Context) { exercise(raw) })
	})
}
