package arch

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/compute"
)

// family returns a small valid configuration of an architecture, with edits.
func family(typ string, edits m) []byte {
	c := m{
		"model_type": typ, "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 8,
		"intermediate_size": 128,
	}
	for k, v := range edits {
		c[k] = v
	}
	raw, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	return raw
}

var null = json.RawMessage("null")

// TestFamiliesReadBothSpellings compares every key of the families with how
// transformers 5.23 reads it, including the defaults of missing keys.
func TestFamiliesReadBothSpellings(t *testing.T) {
	common := Spec{
		Vocab: 100, Hidden: 64, Layers: 4, Heads: 8, KVHeads: 8, HeadDim: 8, FFN: 128, NormEps: 1e-6,
		Rope: Rope{Theta: 10000, Type: "default"}, BOS: -1, Act: compute.SiLU, Terms: llamaTerms,
	}
	mistral, qwen2, qwen3, neox := common, common, common, common
	mistral.Arch, mistral.MaxPos, mistral.Windows = "mistral", 131072, []int{4096, 4096, 4096, 4096}
	qwen2.Arch, qwen2.MaxPos, qwen2.QKVBias = "qwen2", 32768, true
	qwen3.Arch, qwen3.MaxPos, qwen3.HeadDim, qwen3.Terms = "qwen3", 32768, 128, qwen3Terms
	neox.Arch, neox.MaxPos, neox.NormEps, neox.LayerNorm, neox.RotDim = "gpt_neox", 2048, 1e-5, true, 2
	neox.Act, neox.Parallel, neox.Terms = compute.GELU, true, gptNeoXTerms
	neox.QKVBias, neox.OBias, neox.MLPBias = true, true, true
	specs := map[string]Spec{"mistral": mistral, "qwen2": qwen2, "qwen3": qwen3, "gpt_neox": neox}
	eight := m{"num_key_value_heads": 8}
	kv := func(edits m) m {
		edits["num_key_value_heads"] = 8
		return edits
	}
	for _, c := range []struct {
		typ, name string
		edits     m
		want      func(*Spec)
	}{
		{"mistral", "missing keys", nil, func(*Spec) {}},
		{"mistral", "no window", m{"sliding_window": null, "head_dim": 16}, func(s *Spec) { s.Windows, s.HeadDim = nil, 16 }},
		{
			"mistral", "grouped heads, as published",
			m{"num_key_value_heads": 2, "sliding_window": 16, "rope_theta": 1e6, "max_position_embeddings": 32768, "head_dim": null},
			func(s *Spec) {
				s.KVHeads, s.Windows, s.Rope.Theta, s.MaxPos = 2, []int{16, 16, 16, 16}, 1e6, 32768
			},
		},
		{
			"mistral", "transformers 5",
			m{"rope_parameters": m{"rope_type": "default", "rope_theta": 1e6}, "sliding_window": 8, "num_key_value_heads": null},
			func(s *Spec) { s.Rope.Theta, s.Windows = 1e6, []int{8, 8, 8, 8} },
		},
		{"qwen2", "a window that is not used", kv(m{"sliding_window": 16, "max_window_layers": 1, "use_sliding_window": false}), func(*Spec) {}},
		{"qwen2", "as many key heads as heads", m{"num_key_value_heads": null, "tie_word_embeddings": true}, func(s *Spec) { s.Tied = true }},
		{
			"qwen2", "windows in the upper layers",
			kv(m{"sliding_window": 16, "max_window_layers": 1, "use_sliding_window": true}),
			func(s *Spec) { s.Windows = []int{0, 16, 16, 16} },
		},
		{"qwen2", "windows beyond the last layer", kv(m{"sliding_window": 16, "use_sliding_window": true}), func(*Spec) {}},
		{
			"qwen2", "windows by layer, transformers 5",
			kv(m{
				"sliding_window": 16, "max_window_layers": 1, "use_sliding_window": true,
				"layer_types": []string{"sliding_attention", "full_attention", "full_attention", "sliding_attention"},
			}),
			func(s *Spec) { s.Windows = []int{16, 0, 0, 16} },
		},
		{
			"qwen2", "YaRN, as in the model card",
			kv(m{"rope_theta": 1e6, "rope_scaling": m{"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}}),
			func(s *Spec) {
				s.MaxPos = 131072
				s.Rope = Rope{
					Theta: 1e6, Type: "yarn", Factor: 4, Original: 32768, BetaFast: 32, BetaSlow: 1, Truncate: true,
					Scale: 0.1*math.Log(4) + 1,
				}
			},
		},
		{"qwen3", "missing keys", eight, func(*Spec) {}},
		{
			"qwen3", "biases and a head size, transformers 5",
			kv(m{
				"attention_bias": true, "head_dim": 24, "rope_parameters": m{"rope_type": "default", "rope_theta": 1e6},
				"layer_types": []string{"full_attention", "full_attention", "full_attention", "full_attention"}, "sliding_window": null,
			}),
			func(s *Spec) { s.QKVBias, s.OBias, s.HeadDim, s.Rope.Theta = true, true, 24, 1e6 },
		},
		{"gpt_neox", "missing keys", nil, func(*Spec) {}},
		{
			"gpt_neox", "as published",
			m{"rotary_pct": 0.5, "rotary_emb_base": 20000, "layer_norm_eps": 1e-3, "use_parallel_residual": false, "hidden_act": "gelu"},
			func(s *Spec) { s.RotDim, s.Rope.Theta, s.NormEps, s.Parallel = 4, 20000, 1e-3, false },
		},
		{
			"gpt_neox", "transformers 4.4x writes both names",
			m{"rotary_pct": 1, "rotary_emb_base": 20000, "partial_rotary_factor": 1, "rope_theta": 20000, "attention_bias": false},
			func(s *Spec) { s.RotDim, s.Rope.Theta, s.QKVBias, s.OBias = 8, 20000, false, false },
		},
		{
			"gpt_neox", "transformers 5",
			m{"rope_parameters": m{"rope_type": "linear", "factor": 2, "rope_theta": 20000, "partial_rotary_factor": 0.5}, "tie_word_embeddings": true},
			func(s *Spec) {
				s.RotDim, s.Rope, s.Tied = 4, Rope{Theta: 20000, Type: "linear", Factor: 2}, true
			},
		},
	} {
		want := specs[c.typ]
		c.want(&want)
		got, err := Parse("config.json", family(c.typ, c.edits), nil)
		if err != nil {
			t.Errorf("%s, %s: %v", c.typ, c.name, err)
			continue
		}
		// The reference's logarithm and Go's may differ in the last place.
		if math.Abs(got.Rope.Scale-want.Rope.Scale) < 1e-15 {
			got.Rope.Scale = want.Rope.Scale
		}
		if d := cmp.Diff(&want, got); d != "" {
			t.Errorf("%s, %s (-want +got):\n%s", c.typ, c.name, d)
		}
	}
}

func TestFamiliesRefuseByName(t *testing.T) {
	for _, c := range []struct {
		typ   string
		edits m
		want  []string
	}{
		{"mistral", m{"sliding_window": 0}, []string{"sliding_window"}},
		{"mistral", m{"sliding_window": "all"}, []string{"sliding_window"}},
		{"mistral", m{"attention_bias": true}, []string{"attention_bias is true, want false for mistral"}},
		{"mistral", m{"hidden_act": "gelu"}, []string{"hidden_act", `"gelu"`, `"silu"`}},
		{
			"mistral",
			m{"layer_types": []string{"sliding_attention", "full_attention", "sliding_attention", "full_attention"}},
			[]string{"layer_types[1]", `"full_attention"`, "sliding_window 4096"},
		},
		{"qwen2", m{"attention_bias": false}, []string{"attention_bias is false, want true for qwen2"}},
		{"qwen2", m{"use_sliding_window": true, "max_window_layers": -1}, []string{"max_window_layers", "from 0"}},
		{"qwen2", m{"layer_types": []string{"full_attention"}}, []string{"layer_types has 1 entries", "num_hidden_layers = 4"}},
		{
			"qwen2",
			m{"layer_types": []string{"full_attention", "chunked_attention", "full_attention", "full_attention"}},
			[]string{"layer_types[1]", `"chunked_attention"`, `"sliding_attention"`},
		},
		{
			"qwen3",
			m{"sliding_window": 16, "layer_types": []string{"full_attention", "full_attention", "sliding_attention", "full_attention"}},
			[]string{"layer_types[2]", "use_sliding_window"},
		},
		{"qwen3", m{"rope_scaling": m{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 64, "attn_factor": 0.9}}, []string{"attn_factor"}},
		{"qwen3", m{"rope_scaling": m{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 64, "beta_fast": 0.5}}, []string{"beta_fast"}},
		{"qwen3", m{"rope_scaling": m{"rope_type": "dynamic"}}, []string{`"dynamic"`, "supported"}},
		{"gpt_neox", m{"hidden_act": "gelu_fast"}, []string{"hidden_act", `"gelu_fast"`, `"gelu"`}},
		{"gpt_neox", m{"hidden_act": "gelu_new"}, []string{`"gelu_new"`}},
		{"gpt_neox", m{"rotary_pct": 0.4}, []string{"rotary_pct is 0.4", "even"}},
		{"gpt_neox", m{"rotary_pct": 1.5}, []string{"rotary_pct is 1.5"}},
		{"gpt_neox", m{"rotary_pct": 0.01}, []string{"rotary_pct"}},
		{"gpt_neox", m{"rotary_pct": 0.25, "partial_rotary_factor": 0.5}, []string{"rotary_pct is 0.25 and partial_rotary_factor is 0.5"}},
		{"gpt_neox", m{"rotary_emb_base": 10, "rope_theta": 20}, []string{"rotary_emb_base is 10 and rope_theta is 20"}},
		{"gpt_neox", m{"rotary_pct": 0.5, "rope_parameters": m{"partial_rotary_factor": 0.25}}, []string{"rope_parameters", "contradicts"}},
		{"gpt_neox", m{"layer_norm_eps": 2}, []string{"layer_norm_eps is 2"}},
		{"gpt_neox", m{"hidden_size": 60}, []string{"hidden_size is 60", "num_attention_heads"}},
		{"gpt_neox", m{"rope_scaling": m{"type": "dynamic", "factor": 2}}, []string{`"dynamic"`}},
	} {
		if c.typ != "gpt_neox" {
			c.edits["num_key_value_heads"] = 8
		}
		_, err := Parse("dir/config.json", family(c.typ, c.edits), nil)
		if err == nil || !strings.HasPrefix(err.Error(), "dir/config.json: ") {
			t.Errorf("%s %v: error %v, want one that begins with the file", c.typ, c.edits, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s %v: error %q, want %q in it", c.typ, c.edits, err, w)
			}
		}
	}
}

// A head is Llama's layer, whatever its target's architecture.
func TestDraftHeadsOfEveryFamily(t *testing.T) {
	for _, typ := range Supported() {
		edits := m{"num_key_value_heads": 2, "head_dim": 24, "sliding_window": 16, "rope_theta": 2e4, "eos_token_id": 3}
		if typ == "gpt_neox" {
			edits = m{"rotary_emb_base": 2e4, "eos_token_id": 3}
		}
		if typ == "deepseek_v3" { // a key for each head, whose size has keys of its own
			edits["num_key_value_heads"] = 8
		}
		s, err := Parse("config.json", family(typ, edits), nil)
		if err != nil {
			t.Errorf("%s: %v", typ, err)
			continue
		}
		want := Llama()
		want.Vocab, want.Hidden, want.Layers, want.Heads, want.FFN = 100, 64, 1, 8, 128
		want.KVHeads, want.HeadDim, want.MaxPos, want.NormEps = s.KVHeads, s.HeadDim, s.MaxPos, s.NormEps
		want.Rope.Theta, want.EOS, want.Draft, want.FCBias, want.Terms = 2e4, []int32{3}, true, true, eagleTerms
		got := s.DraftFor(true)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", typ, d)
		}
		if err := got.Validate(); err != nil {
			t.Errorf("%s: %v", typ, err)
		}
	}
	if _, err := ParseDraft("config.json", family("gpt_neox", nil), nil); err == nil || !strings.Contains(err.Error(), `want "llama"`) {
		t.Errorf("a draft head of another shape: %v", err)
	}
}

// TestYaRNAgreesWithTransformers compares angles and factors with those of transformers
// 5.23.
func TestYaRNAgreesWithTransformers(t *testing.T) {
	for _, c := range []struct {
		theta   float64
		scaling m
		dim     int
		scale   float64
		want    map[int]float64 // by index
	}{
		{
			1e6,
			m{"factor": 4.0, "original_max_position_embeddings": 32768},
			128, 1.138629436111989,
			map[int]float64{
				0: 1, 1: 0.805842221, 22: 0.00865964312, 23: 0.00697830599, 24: 0.00537532149, 28: 0.00184827659,
				32: 0.000602941145, 39: 6.4903943e-05, 40: 4.44569851e-05, 41: 3.58253164e-05, 63: 3.10234441e-07,
			},
		},
		{
			1e4,
			m{"factor": 2.5, "original_max_position_embeddings": 64, "beta_fast": 8.0, "beta_slow": 2.0, "truncate": false},
			16, 1.0916290731874154,
			map[int]float64{0: 1, 1: 0.19171688, 2: 0.0399999991, 3: 0.0126491114, 4: 0.00400000019, 7: 0.000126491112},
		},
		{
			1e4,
			m{"factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 0.707, "mscale_all_dim": 1.0},
			16, 0.9210423553163399,
			map[int]float64{0: 1, 1: 0.316227764, 2: 0.100000001, 3: 0.0239147246, 4: 0.00512499968, 5: 0.000849862176, 6: 2.49999994e-05, 7: 7.90569447e-06},
		},
		{
			1e6,
			m{"factor": 4.0, "original_max_position_embeddings": 32768, "attention_factor": 0.9},
			32, 0.9,
			map[int]float64{5: 0.0133352149, 6: 0.00477990136, 8: 0.000549999997, 10: 4.44569851e-05, 15: 5.92843435e-07},
		},
	} {
		c.scaling["rope_type"], c.scaling["rope_theta"] = "yarn", c.theta
		s, err := Parse("config.json", family("qwen3", m{"num_key_value_heads": 8, "head_dim": c.dim, "rope_parameters": c.scaling}), nil)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(s.Rope.Scale/c.scale-1) > 1e-15 {
			t.Errorf("%v: cosines are multiplied by %v, want %v", c.scaling, s.Rope.Scale, c.scale)
		}
		got := s.Rope.Frequencies(c.dim)
		for i, w := range c.want {
			if math.Abs(float64(got[i])/w-1) > 1.2e-7 { // powers differ in the last place of a float32
				t.Errorf("%v: angle %d is %v, want %v", c.scaling, i, got[i], w)
			}
		}
		row := s.Rope.Table(c.dim, 5, 6)
		if w := math.Cos(5) * c.scale; math.Abs(float64(row[0])-w) > 1e-6 {
			t.Errorf("%v: first cosine at position 5 is %v, want %v", c.scaling, row[0], w)
		}
	}
}
