package arch

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/internal/golden"
	"talf/model/safetensors"
)

// eagle3Base is the configuration of a head for a target of 97 tokens, with edits.
func eagle3Base(edits m) []byte {
	c := m{
		"architectures": []string{"LlamaForCausalLMEagle3"}, "model_type": "llama", "vocab_size": 97,
		"draft_vocab_size": 60, "hidden_size": 8, "intermediate_size": 20, "num_hidden_layers": 1, "num_attention_heads": 4,
		"num_key_value_heads": 2, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 5e5,
	}
	maps.Copy(c, edits)
	raw, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	return raw
}

func TestTapsAreReadAsBoundariesInBothConventions(t *testing.T) {
	ids := func(x ...int) m {
		return m{"eagle_config": m{"use_aux_hidden_state": true, "eagle_aux_hidden_state_layer_ids": x}}
	}
	for name, c := range map[string]struct {
		edits m
		want  []int
	}{
		"none":                               {nil, nil},
		"null":                               {m{"eagle_config": m{"eagle_aux_hidden_state_layer_ids": nil}}, nil},
		"boundaries":                         {ids(2, 18, 33), []int{2, 18, 33}},
		"SpecForge's outputs of blocks":      {ids(1, 17, 32), []int{2, 18, 33}},
		"two taps":                           {ids(3, 9), []int{3, 9}},
		"the top level is read alike":        {m{"eagle_aux_hidden_state_layer_ids": []int{1, 5, 9}}, []int{2, 6, 10}},
		"speculators writes boundaries only": {m{"speculators_model_type": "eagle3", "eagle_aux_hidden_state_layer_ids": []int{1, 5, 9}}, []int{1, 5, 9}},
		"the embedding is boundary 0":        {ids(0, 4), []int{0, 4}},
	} {
		s, err := ParseDraft("config.json", eagle3Base(c.edits), nil)
		if err != nil || !slices.Equal(s.Eagle3.Taps, c.want) {
			t.Errorf("%s: %v, %v, want %v", name, s, err, c.want)
		}
	}
}

func TestEagle3ConfigurationsSayWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		edits m
		want  string
	}{
		"another network":   {m{"model_type": "gpt_neox", "rotary_pct": 1}, "want a layer of Llama's shape"},
		"both norms":        {m{"fc_norm": true, "norm_before_fc": true}, "norm_before_fc and fc_norm are both set"},
		"flags that differ": {m{"norm_before_fc": false, "eagle_config": m{"norm_before_fc": true}}, "norm_before_fc is false, but eagle_config.norm_before_fc is true"},
		"a flag as text":    {m{"norm_output": "yes"}, `norm_output is "yes", want true or false`},
		"taps that differ": {
			m{"eagle_aux_hidden_state_layer_ids": []int{2, 3}, "eagle_config": m{"eagle_aux_hidden_state_layer_ids": []int{2, 4}}},
			"is [2 3], but eagle_config.eagle_aux_hidden_state_layer_ids is [2 4]",
		},
		"no taps":          {m{"eagle_aux_hidden_state_layer_ids": []int{}}, "has 0 entries"},
		"a tap twice":      {m{"eagle_aux_hidden_state_layer_ids": []int{2, 2}}, "want different numbers"},
		"a negative tap":   {m{"eagle_aux_hidden_state_layer_ids": []int{-1, 2}}, "want numbers from 0"},
		"no taps are read": {m{"eagle_config": m{"use_aux_hidden_state": false}}, "use_aux_hidden_state is false"},
		"a draft vocabulary larger than the target's": {m{"draft_vocab_size": 98}, "draft_vocab_size is 98"},
	} {
		if _, err := ParseDraft("config.json", eagle3Base(c.edits), nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestTapsOfATarget(t *testing.T) {
	target := Llama()
	target.Hidden, target.Layers = 8, 36
	head := func(edits m) *Spec {
		s, err := ParseDraft("config.json", eagle3Base(edits), nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if got, err := head(nil).TapsOf(target); err != nil || !slices.Equal(got, []int{2, 18, 33}) {
		t.Errorf("default taps %v, %v", got, err)
	}
	if got, err := target.DraftFor(false).TapsOf(target); err != nil || got != nil {
		t.Errorf("a head of EAGLE-1 reads %v, %v", got, err)
	}
	named := head(m{"eagle_aux_hidden_state_layer_ids": []int{2, 36}})
	if got, err := named.TapsOf(target); err != nil || !slices.Equal(got, []int{2, 36}) {
		t.Errorf("named taps %v, %v", got, err)
	}
	target.Layers = 6
	if _, err := head(nil).TapsOf(target); err == nil || !strings.Contains(err.Error(), "name the taps") {
		t.Errorf("six layers: %v", err)
	}
	if _, err := named.TapsOf(target); err == nil || !strings.Contains(err.Error(), "only 6 layers") {
		t.Errorf("a tap beyond the last layer: %v", err)
	}
	if _, err := head(m{"target_hidden_size": 16}).TapsOf(target); err == nil || !strings.Contains(err.Error(), "target_hidden_size is 16") {
		t.Errorf("another hidden size: %v", err)
	}
}

// The names and shapes of the tensors, as published files have them.
func TestEagle3Tensors(t *testing.T) {
	s, err := ParseDraft("config.json", eagle3Base(m{
		"num_hidden_layers": 2, "target_hidden_size": 6, "fc_norm": true,
		"eagle_aux_hidden_state_layer_ids": []int{3, 5},
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Adopt(func(name string) bool {
		return slices.Contains([]string{"midlayer.self_attn.q_norm.weight", "midlayer.self_attn.q_proj.bias", "lm_head.weight"}, name)
	})
	var got []string
	for _, x := range s.Tensors() {
		raw, err := json.Marshal(x.Shape())
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, x.Name+" "+string(raw))
		if name := s.named(x.Role, x.Layer, x.Name[strings.LastIndexByte(x.Name, '.'):]); name != x.Name {
			t.Errorf("%s in layer %d is called %s and %s", x.Role, x.Layer, x.Name, name)
		}
	}
	want := strings.Fields(`embed_tokens.weight [97,8] fc_norm.0.weight [6] fc_norm.1.weight [6] fc.weight [8,12]
		midlayer.hidden_norm.weight [8] midlayer.input_layernorm.weight [8]
		midlayer.self_attn.q_proj.weight [8,16] midlayer.self_attn.q_proj.bias [8]
		midlayer.self_attn.k_proj.weight [4,16] midlayer.self_attn.k_proj.bias [4]
		midlayer.self_attn.v_proj.weight [4,16] midlayer.self_attn.v_proj.bias [4]
		midlayer.self_attn.q_norm.weight [2] midlayer.self_attn.k_norm.weight [2]
		midlayer.self_attn.o_proj.weight [8,8] midlayer.post_attention_layernorm.weight [8]
		midlayer.mlp.gate_proj.weight [20,8] midlayer.mlp.up_proj.weight [20,8] midlayer.mlp.down_proj.weight [8,20]
		layers.1.input_layernorm.weight [8]
		layers.1.self_attn.q_proj.weight [8,8] layers.1.self_attn.q_proj.bias [8]
		layers.1.self_attn.k_proj.weight [4,8] layers.1.self_attn.k_proj.bias [4]
		layers.1.self_attn.v_proj.weight [4,8] layers.1.self_attn.v_proj.bias [4]
		layers.1.self_attn.q_norm.weight [2] layers.1.self_attn.k_norm.weight [2]
		layers.1.self_attn.o_proj.weight [8,8] layers.1.post_attention_layernorm.weight [8]
		layers.1.mlp.gate_proj.weight [20,8] layers.1.mlp.up_proj.weight [20,8] layers.1.mlp.down_proj.weight [8,20]
		norm.weight [8] lm_head.weight [60,8]`)
	var pairs []string
	for i := 0; i < len(want); i += 2 {
		pairs = append(pairs, want[i]+" "+want[i+1])
	}
	if d := cmp.Diff(pairs, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if w, n := s.FeatureSize(), s.TargetHidden(); w != 12 || n != 6 {
		t.Errorf("reads %d elements of hidden states of %d", w, n)
	}
}

// Every tensor of the reference heads is in the inventory, with its shape, and no other.
func TestEagle3InventoryIsThatOfTheReferenceHeads(t *testing.T) {
	for _, name := range []string{"plain", "norms", "targetlm", "narrow"} {
		dir := golden.File(t, "eagle3/"+name+"/eagle")
		s, err := LoadDraft(dir)
		if err != nil {
			t.Fatal(err)
		}
		set, err := safetensors.Open(filepath.Join(dir, "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		s.Adopt(func(name string) bool { _, ok := set.Tensor(name); return ok })
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		left := slices.DeleteFunc(set.Names(), func(n string) bool { return n == "d2t" || n == "t2d" })
		for _, want := range s.Tensors() {
			x, ok := set.Tensor(want.Name)
			if !ok && want.Optional {
				continue
			}
			if !ok || !slices.Equal(x.Shape, want.Shape()) {
				t.Errorf("%s: %s is %v, want %v", name, want.Name, x.Shape, want.Shape())
			}
			left = slices.DeleteFunc(left, func(n string) bool { return n == want.Name })
		}
		if len(left) > 0 {
			t.Errorf("%s: %v are not in the inventory", name, left)
		}
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A configuration that was written is read as it was.
func TestEagle3ConfigurationsSurviveWriting(t *testing.T) {
	for name, edits := range map[string]m{
		"default": nil,
		"all": {
			"eagle_aux_hidden_state_layer_ids": []int{3, 5, 9}, "target_hidden_size": 16, "norm_before_fc": true,
			"norm_before_residual": true, "norm_output": true,
		},
		"fc_norm, all tokens": {"fc_norm": true, "draft_vocab_size": 97, "eagle_config": m{"eagle_aux_hidden_state_layer_ids": []int{1, 4}}},
	} {
		s, err := ParseDraft("config.json", eagle3Base(edits), nil)
		if err != nil {
			t.Fatal(err)
		}
		c := m{}
		if err := json.Unmarshal(eagle3Base(nil), &c); err != nil {
			t.Fatal(err)
		}
		if err := s.SetEagle3(c); err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseDraft("config.json", raw, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(s, again); d != "" {
			t.Errorf("%s (-read +written and read)\n%s", name, d)
		}
	}
	s := Llama().Eagle3For([]int{1, 5}, 10)
	if err := s.SetEagle3(m{}); err == nil || !strings.Contains(err.Error(), "begins with 1") {
		t.Errorf("taps that begin with 1: %v", err)
	}
}
