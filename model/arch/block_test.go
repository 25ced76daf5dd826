package arch

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/internal/golden"
	"talf/internal/limits/costtest"
	"talf/model/safetensors"
)

// The heads are as the authors' code saves them.
func TestBlockDraftersOfTheAuthorsHaveTheirTensors(t *testing.T) {
	for name, want := range map[string]Block{
		"dflash/a":   {Size: 8, Taps: []int{1, 3, 4}, Mask: 255},
		"dflash/b":   {Size: 4, Taps: []int{3}, Mask: 257},
		"dflash/swa": {Size: 5, Taps: []int{2, 4}, Mask: 255, Causal: []bool{true, false}},
		"dflash2/a":  {Size: 6, Taps: []int{2, 4}, Mask: 255, Group: 16, SelectorRank: 12, SelectorTop: 8},
		"dspark/a": {
			Size: 7, Taps: []int{0, 2, 4}, Mask: 255, Shift: true, Markov: VanillaMarkov, Rank: 16,
			Confidence: true, ConfidenceMarkov: true, OwnLMHead: true,
		},
		"dspark/b": {
			Size: 5, Taps: []int{1, 3}, Mask: 257, Shift: true, Markov: GatedMarkov, Rank: 12, Confidence: true, OwnLMHead: true,
		},
		"jetspec/a": {Size: 8, Taps: []int{1, 3, 4}, Mask: 255, Causal: []bool{true, true}},
		"jetspec/b": {Size: 5, Taps: []int{1, 3}, Mask: 257, Causal: []bool{true}},
	} {
		dir := golden.Shared(t, "data/block/"+name+"/head")
		s, err := LoadDraft(dir)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		set, err := safetensors.Open(filepath.Join(dir, "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		s.Adopt(func(name string) bool { _, ok := set.Describe(name); return ok })
		want.On = true
		if d := cmp.Diff(want, s.Block); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		names := set.Names()
		for _, x := range s.Tensors() {
			stored, ok := set.Describe(x.Name)
			if !ok && x.Optional {
				continue
			}
			if !ok || !slices.Equal(stored.Shape, x.Shape()) {
				t.Errorf("%s: %s has shape %v, want %v", name, x.Name, stored.Shape, x.Shape())
			}
			names = slices.DeleteFunc(names, func(n string) bool { return n == x.Name })
		}
		if len(names) > 0 {
			t.Errorf("%s: the inventory lacks %v", name, names)
		}
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A recurrent Markov head has no fixture: names and shapes are deepseek-ai's markov_head.py.
func TestARecurrentMarkovHeadReadsStateEmbeddingAndHiddenState(t *testing.T) {
	s := Llama()
	s.Vocab, s.Hidden, s.Layers, s.Heads, s.KVHeads, s.HeadDim, s.FFN, s.MaxPos = 50, 8, 9, 4, 2, 4, 20, 64
	d := s.BlockFor(Block{Size: 4, Taps: []int{2, 5}, Shift: true, Markov: RNNMarkov, Rank: 3}, 1, 20)
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	got := map[string][]int{}
	for _, x := range d.Tensors() {
		if strings.HasPrefix(x.Name, "markov_head.") || x.Name == "fc.weight" {
			got[x.Name] = x.Shape()
		}
	}
	want := map[string][]int{
		"fc.weight": {8, 16}, "markov_head.markov_w1.weight": {50, 3}, "markov_head.markov_w2.weight": {20, 3},
		"markov_head.joint_proj.weight": {9, 14}, "markov_head.joint_proj.bias": {9},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A linear block has a map for each row and neither layers nor a final norm.
func TestALinearBlockHasMapsForLayers(t *testing.T) {
	s := Llama()
	s.Vocab, s.Hidden, s.Layers, s.Heads, s.KVHeads, s.HeadDim, s.FFN, s.MaxPos = 50, 8, 9, 4, 2, 4, 20, 64
	b := Block{Size: 2, Taps: []int{4, 9}, Shift: true, Linear: true, Markov: VanillaMarkov, Rank: 3}
	d := s.BlockFor(b, 0, 0)
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, x := range d.Tensors() {
		got = append(got, fmt.Sprint(x.Name, x.Shape()))
	}
	want := []string{
		"embed_tokens.weight[50 8]", "fc.weight[8 16]", "hidden_norm.weight[8]", "rows.0.weight[8 16]", "rows.1.weight[8 16]",
		"markov_head.markov_w1.weight[50 3]", "markov_head.markov_w2.weight[50 3]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := d.TapsOf(s); err != nil {
		t.Error(err)
	}
	for name, x := range map[string]struct {
		edit func(d *Spec)
		want string
	}{
		"layers":           {func(d *Spec) { d.Layers = 1 }, "num_hidden_layers is 1 and linear_rows is true, want layers or linear rows"},
		"neither":          {func(d *Spec) { d.Block.Linear = false }, "num_hidden_layers is 0, want 1"},
		"rows at place":    {func(d *Spec) { d.Block.Shift, d.Block.Size = false, 3 }, "linear_rows is true, want rows that predict the next token"},
		"with convolution": {func(d *Spec) { d.Block.Group = 2 }, "linear_rows is true, want rows that predict the next token"},
	} {
		d := s.BlockFor(b, 0, 0)
		x.edit(d)
		if err := d.Validate(); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", name, err, x.want)
		}
	}
	s.Layers = 8
	if _, err := d.TapsOf(s); err == nil || !strings.Contains(err.Error(), "the input of the target's layer 9, want at most 8") {
		t.Errorf("a target of 8 layers: %v", err)
	}
}

// blockBase is the configuration of a DFlash head with edits, of which those named in.KEY are in dflash_config.
func blockBase(t *testing.T, edits m) []byte {
	raw, err := os.ReadFile(filepath.Join(golden.Shared(t, "data/block/dflash/a/head"), "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var c m
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	in := c["dflash_config"].(map[string]any)
	for key, v := range edits {
		dst := map[string]any(c)
		if rest, ok := strings.CutPrefix(key, "in."); ok {
			dst, key = in, rest
		}
		if dst[key] = v; v == nil {
			delete(dst, key)
		}
	}
	if raw, err = json.Marshal(c); err != nil {
		t.Fatal(err)
	}
	return raw
}

// speculated is blockBase in the layout of the speculators library.
func speculated(t *testing.T, kind string, edits m) []byte {
	var layer map[string]any
	if err := json.Unmarshal(blockBase(t, nil), &layer); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"architectures", "dflash_config", "block_size", "num_target_layers"} {
		delete(layer, key)
	}
	c := m{
		"architectures": []string{"SomeSpeculator"}, "speculators_model_type": kind, "transformer_layer_config": layer, "draft_vocab_size": 100,
		"block_size": 6, "aux_hidden_state_layer_ids": []int{1, 3}, "mask_token_id": 9, "sliding_window_non_causal": false,
	}
	maps.Copy(c, edits)
	raw, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestTheQuirksOfBlockFamiliesAreRead(t *testing.T) {
	sliding := m{"layer_types": []string{"sliding_attention", "full_attention"}, "use_sliding_window": true, "sliding_window": 6}
	with := func(edits m) m {
		out := maps.Clone(sliding)
		maps.Copy(out, edits)
		return out
	}
	dspark := m{"architectures": []string{"DSparkDraftModel"}, "in.markov_rank": 4, "in.markov_head_type": "rnn", "in.projector_type": "dspark"}
	for name, c := range map[string]struct {
		raw  []byte
		want Block
	}{
		"the embedding is layer -1":        {blockBase(t, m{"in.target_layer_ids": []int{-1, 2}}), Block{Size: 8, Taps: []int{0, 3}, Mask: 255}},
		"default taps":                     {blockBase(t, m{"in.target_layer_ids": nil, "num_target_layers": 36}), Block{Size: 8, Taps: []int{2, 34}, Mask: 255}},
		"the size in dflash_config":        {blockBase(t, m{"block_size": nil, "in.block_size": 5}), Block{Size: 5, Taps: []int{1, 3, 4}, Mask: 255}},
		"windows are causal":               {blockBase(t, sliding), Block{Size: 8, Taps: []int{1, 3, 4}, Mask: 255, Causal: []bool{true, false}}},
		"unless is_causal is false":        {blockBase(t, with(m{"is_causal": false, "in.causal": true})), Block{Size: 8, Taps: []int{1, 3, 4}, Mask: 255}},
		"or causal":                        {blockBase(t, with(m{"in.causal": false})), Block{Size: 8, Taps: []int{1, 3, 4}, Mask: 255}},
		"causal overrides full attention":  {blockBase(t, m{"in.causal": true}), Block{Size: 8, Taps: []int{1, 3, 4}, Mask: 255, Causal: []bool{true, true}}},
		"SpecForge's DSpark is shifted":    {blockBase(t, dspark), Block{Size: 8, Taps: []int{1, 3, 4}, Mask: 255, Shift: true, Markov: RNNMarkov, Rank: 4}},
		"speculators count layers' inputs": {speculated(t, "dflash", nil), Block{Size: 6, Taps: []int{1, 3}, Mask: 9}},
		"speculators' DSpark is shifted": {
			speculated(t, "dspark", m{"markov_rank": 4}), Block{Size: 6, Taps: []int{1, 3}, Mask: 9, Shift: true, Markov: VanillaMarkov, Rank: 4},
		},
		"unless it says so": {speculated(t, "dspark", m{"sample_from_anchor": false}), Block{Size: 6, Taps: []int{1, 3}, Mask: 9}},
	} {
		s, err := ParseDraft("config.json", c.raw, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		c.want.On = true
		if d := cmp.Diff(c.want, s.Block); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

func TestBlockConfigurationsSayWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"no mask":                   {blockBase(t, m{"in.mask_token_id": nil}), "mask_token_id is missing, want a token"},
		"no size":                   {blockBase(t, m{"block_size": nil}), "block_size is missing"},
		"one row":                   {blockBase(t, m{"block_size": 1}), "block_size is 1, want"},
		"sizes that differ":         {blockBase(t, m{"in.block_size": 5}), "block_size is 8, but dflash_config.block_size is 5"},
		"the last layer":            {blockBase(t, m{"in.target_layer_ids": []int{4}}), "the output of the target's layer 4, want layers before its last, 4 (target_layer_ids, num_target_layers)"},
		"a layer that is not there": {blockBase(t, m{"in.target_layer_ids": []int{0, 9}}), "the output of the target's layer 9, want layers before its last, 4"},
		"a layer before the first":  {blockBase(t, m{"in.target_layer_ids": []int{-2}}), "dflash_config.target_layer_ids is [-2], want layers, or -1"},
		"a layer twice":             {blockBase(t, m{"in.target_layer_ids": []int{2, 2}}), "target_layer_ids read the target at the inputs of layers [3 3], want different"},
		"no layers":                 {blockBase(t, m{"in.target_layer_ids": []int{}}), "target_layer_ids has 0 entries, want 1 to 256"},
		"a mask that is no token":   {blockBase(t, m{"in.mask_token_id": 256}), "mask_token_id is 256, want a token below vocab_size, 256"},
		"a negative mask":           {blockBase(t, m{"in.mask_token_id": -1}), "dflash_config.mask_token_id is -1, want an integer from 0"},
		"a mask in words":           {blockBase(t, m{"in.mask_token_id": "mask"}), `dflash_config.mask_token_id is "mask", want a number`},
		"no rows":                   {blockBase(t, m{"block_size": 0}), "block_size is 0, want an integer from 1"},
		"half a row":                {blockBase(t, m{"block_size": 7.5}), "block_size is 7.5, want an integer"},
		"too many rows":             {blockBase(t, m{"block_size": 65}), "block_size is 65, want at most 64 rows"},
		"an unknown class":          {blockBase(t, m{"architectures": []string{"Dash"}}), `architectures is ["Dash"], want one of ["DFlash2DraftModel" "DFlashDraftModel"`},
		"a Markov head without one": {blockBase(t, m{"in.markov_head_type": "vanilla", "in.markov_rank": -1}), "markov_rank is -1, want an integer from 0"},
		"no layers named":           {blockBase(t, m{"in.target_layer_ids": nil, "num_target_layers": nil}), "target_layer_ids is missing"},
		"another network":           {blockBase(t, m{"model_type": "llama"}), `want "qwen3"`},
		"Domino":                    {blockBase(t, m{"in.projector_type": "domino"}), `projector_type is "domino", want ["dflash" "dspark"]`},
		"an unknown Markov head":    {blockBase(t, m{"in.markov_rank": 4, "in.markov_head_type": "lstm"}), `markov_head_type is "lstm"`},
		"confidence without Markov": {
			blockBase(t, m{"in.enable_confidence_head": true, "in.confidence_head_with_markov": true}), "want a confidence head and a markov_rank",
		},
		"a wide convolution": {blockBase(t, m{"in.conv_group_size": 16, "in.conv_kernel_size": 3}), "conv_kernel_size is 3, want 2"},
		"a selector and confidence": {
			blockBase(t, m{"in.selector_rank": 4, "in.selector_top_k": 4, "in.enable_confidence_head": true}), "want none with a selector",
		},
		"uneven groups":  {blockBase(t, m{"in.conv_group_size": 7}), "conv_group_size is 7, want a divisor"},
		"a wider target": {speculated(t, "dflash", m{"target_hidden_size": 128}), "target_hidden_size is 128, want hidden_size, 64"},
		"no layer":       {speculated(t, "dflash", m{"transformer_layer_config": nil}), "transformer_layer_config is missing"},
	} {
		if _, err := ParseDraft("config.json", c.raw, nil); err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "config.json: ") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestLongListsOfTapsAreRefusedInLinearTime(t *testing.T) {
	ids := make([]int, 400_000)
	for i := range ids {
		ids[i] = i % maxLayers
	}
	for name, edits := range map[string]m{
		"named":    {"in.target_layer_ids": ids, "num_target_layers": nil},
		"implied":  {"in.target_layer_ids": nil, "num_target_layers": 1 << 26, "num_hidden_layers": maxLayers, "layer_types": nil},
		"boundary": {"in.target_layer_ids": nil, "aux_hidden_state_layer_ids": ids, "num_target_layers": nil},
	} {
		raw := blockBase(t, edits)
		costtest.Check(t, name, costtest.Default, func(context.Context) {
			if _, err := ParseDraft("config.json", raw, nil); err == nil || !strings.Contains(err.Error(), "entries, want 1 to 256") {
				t.Errorf("%s: %.200v", name, err)
			}
		})
	}
}

func TestABlockDrafterRefusesATargetWithTooFewLayers(t *testing.T) {
	s, err := LoadDraft(golden.Shared(t, "data/block/dflash/a/head"))
	if err != nil {
		t.Fatal(err)
	}
	target, err := Load(golden.Shared(t, "data/block/targets/qwen3"))
	if err != nil {
		t.Fatal(err)
	}
	if taps, err := s.TapsOf(target); err != nil || !slices.Equal(taps, []int{1, 3, 4}) {
		t.Errorf("%v, %v", taps, err)
	}
	target.Layers = 4
	if _, err := s.TapsOf(target); err == nil || !strings.Contains(err.Error(), "the output of the target's layer 3, want layers before its last, 3 (target_layer_ids)") {
		t.Errorf("4 layers: %v", err)
	}
}

func TestDefaultBlockTapsAreZLabs(t *testing.T) {
	// build_target_layer_ids(36, 5) and (28, 3), (8, 2), (4, 1), each plus 1.
	for _, c := range []struct {
		n, layers int
		want      []int
	}{{36, 5, []int{2, 10, 18, 26, 34}}, {28, 3, []int{2, 14, 26}}, {9, 3, []int{2, 4, 7}}, {11, 3, []int{2, 6, 9}}, {4, 1, []int{3}}} {
		if got, err := DefaultBlockTaps(c.n, c.layers); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%d layers of %d: %v, %v, want %v", c.layers, c.n, got, err, c.want)
		}
	}
	if _, err := DefaultBlockTaps(4, 2); err == nil {
		t.Error("two of 4 layers are accepted")
	}
}
