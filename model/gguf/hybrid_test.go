package gguf_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"talf/compute"
	"talf/internal/golden"
	"talf/model"
	"talf/model/gguf/gguftest"
	"talf/model/quantize"
	"talf/model/safetensors"
)

// asF32 returns a tensor of a directory in F32, with the dimensions of a file.
func asF32(t *testing.T, set *safetensors.Set, from, to string) gguftest.Tensor {
	t.Helper()
	x, err := set.Get(from)
	if err != nil {
		t.Fatal(err)
	}
	values, err := x.Float32s()
	if err != nil {
		t.Fatal(err)
	}
	return gguftest.F32(to, values, uint64(x.Shape[1]), uint64(x.Shape[0]))
}

// replace puts a tensor in the place of others of its block.
func replace(f *gguftest.File, to gguftest.Tensor, names ...string) {
	var all []gguftest.Tensor
	for _, x := range f.Tensors {
		if x.Name == names[0] {
			all = append(all, to)
		}
		keep := true
		for _, name := range names {
			keep = keep && x.Name != name
		}
		if keep {
			all = append(all, x)
		}
	}
	f.Tensors = all
}

// legacy makes of what the converter writes today what it wrote at first: DeepSeek's up-projections in one, and
// Qwen's projections of recurrent layers as they are published.
func legacy(t *testing.T, name string, f *gguftest.File) {
	set, err := safetensors.OpenDir(golden.File(t, "hf-more/"+name))
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	for i := range 4 {
		blk, layer := fmt.Sprintf("blk.%d.", i), fmt.Sprintf("model.layers.%d.", i)
		if name == "deepseek-v3" {
			replace(f, asF32(t, set, layer+"self_attn.kv_b_proj.weight", blk+"attn_kv_b.weight"), blk+"attn_k_b.weight", blk+"attn_v_b.weight")
		} else if i < 3 {
			replace(f, asF32(t, set, layer+"linear_attn.in_proj_qkvz.weight", blk+"ssm_in.weight"), blk+"attn_qkv.weight", blk+"attn_gate.weight")
		}
	}
	if name == "deepseek-v3" {
		const a = "deepseek2.attention."
		f.Set(a+"head_count_kv", uint32(4))
		f.Set(a+"key_length", f.Get(a+"key_length_mla"))
		f.Set(a+"value_length", f.Get(a+"value_length_mla"))
		f.Drop(a + "key_length_mla")
		f.Drop(a + "value_length_mla")
	} else {
		f.Drop("qwen3next.attention.recurrent_layers")
	}
}

// module adds a module that predicts a further token to a file of 4 blocks, as one more.
func module(f *gguftest.File) {
	arch := f.Get("general.architecture").(string)
	f.Set(arch+".block_count", uint32(5))
	f.Set(arch+".nextn_predict_layers", uint32(1))
	for _, x := range f.Tensors {
		if rest, ok := strings.CutPrefix(x.Name, "blk.3."); ok {
			x.Name = "blk.4." + rest
			f.Tensors = append(f.Tensors, x)
		}
	}
	const hidden = 64
	f.Tensors = append(f.Tensors,
		gguftest.F32("blk.4.nextn.eh_proj.weight", make([]float32, 2*hidden*hidden), 2*hidden, hidden),
		gguftest.F32("blk.4.nextn.enorm.weight", make([]float32, hidden), hidden),
		gguftest.F32("blk.4.nextn.hnorm.weight", make([]float32, hidden), hidden),
		gguftest.F32("blk.4.nextn.shared_head_norm.weight", make([]float32, hidden), hidden))
}

// Files of DeepSeek V3 and Qwen 3 Next come in several forms, all of which mean the directory, with every type
// of weights in memory, and so do the directories that talf quantize makes of them.
func TestFormsOfFilesOfDeepSeekAndQwen3Next(t *testing.T) {
	all, dev := families(t), device(t)
	tokens := []int32{5, 1, 80, 33, 7, 7, 60, 100, 2, 90, 17, 44}
	for _, name := range []string{"deepseek-v3", "qwen3-next"} {
		for form, change := range map[string]func(f *gguftest.File){
			"today":       func(*gguftest.File) {},
			"first":       func(f *gguftest.File) { legacy(t, name, f) },
			"with module": module,
		} {
			t.Run(name+" "+form, func(t *testing.T) {
				dir := golden.File(t, "hf-more/"+name)
				f := file(t, dir, all[name])
				change(f)
				path := f.Write(t, "x.gguf")
				for _, as := range []compute.DType{compute.F32, compute.BF16, compute.BF16DP, compute.Q8} {
					sameLogits(t, dev, path, dir, as, tokens)
				}
				q8 := filepath.Join(t.TempDir(), "q8")
				if _, err := quantize.Model(t.Context(), path, q8, compute.Q8, ""); err != nil {
					t.Fatal(err)
				}
				sameLogits(t, dev, q8, dir, compute.Q8, tokens)
			})
		}
	}
}

// What a file says of latent attention and recurrent layers is compared with its tensors, and what is not known is
// refused by name.
func TestBrokenFilesOfDeepSeekAndQwen3Next(t *testing.T) {
	all, dev := families(t), device(t)
	set := func(name string, value any) func(f *gguftest.File) {
		return func(f *gguftest.File) { f.Set(name, value) }
	}
	drop := func(name string) func(f *gguftest.File) { return func(f *gguftest.File) { f.Drop(name) } }
	rename := func(name string) func(f *gguftest.File) {
		return func(f *gguftest.File) { f.Tensor(name).Name = "x" }
	}
	const d, q = "deepseek-v3", "qwen3-next"
	for what, x := range map[string]struct {
		family string
		change func(f *gguftest.File)
		want   string
	}{
		"softmax":               {d, set("deepseek2.expert_gating_func", uint32(1)), "expert_gating_func"},
		"no gating function":    {d, drop("deepseek2.expert_gating_func"), "expert_gating_func"},
		"no rank":               {d, drop("deepseek2.attention.kv_lora_rank"), "kv_lora_rank"},
		"another rank":          {d, set("deepseek2.attention.kv_lora_rank", uint32(22)), "deepseek2.attention.key_length"},
		"no size of keys":       {d, drop("deepseek2.attention.key_length_mla"), "key_length_mla"},
		"rotated whole":         {d, set("deepseek2.attention.key_length_mla", uint32(16)), "key_length_mla"},
		"larger keys":           {d, set("deepseek2.attention.key_length_mla", uint32(30)), "q_b_proj"},
		"larger values":         {d, set("deepseek2.attention.value_length_mla", uint32(16)), "v_b_proj"},
		"values of the whole":   {d, set("deepseek2.attention.value_length", uint32(14)), "deepseek2.attention.value_length"},
		"queries in one":        {d, drop("deepseek2.attention.q_lora_rank"), "q_proj"},
		"a temperature":         {d, set("deepseek2.attention.temperature_scale", float32(.1)), "temperature_scale"},
		"one part":              {d, rename("blk.2.attn_v_b.weight"), "v_b_proj"},
		"transposed":            {d, func(f *gguftest.File) { f.Tensor("blk.1.attn_k_b.weight").Dims = []uint64{24, 12, 4} }, "k_b_proj"},
		"one head's":            {d, func(f *gguftest.File) { f.Tensor("blk.1.attn_k_b.weight").Dims = []uint64{12, 24, 2, 2} }, "k_b_proj"},
		"all layers dense":      {d, set("deepseek2.leading_dense_block_count", uint32(4)), "expert_count"},
		"only modules":          {d, set("deepseek2.nextn_predict_layers", uint32(4)), "nextn_predict_layers"},
		"no heads":              {q, set("qwen3next.ssm.time_step_rank", uint32(0)), "ssm.inner_size"},
		"heads of half numbers": {q, set("qwen3next.ssm.inner_size", uint32(47)), "ssm.inner_size"},
		"no state":              {q, drop("qwen3next.ssm.state_size"), "ssm.state_size"},
		"another kernel":        {q, set("qwen3next.ssm.conv_kernel", uint32(3)), "conv1d"},
		"a layer recurrent":     {q, set("qwen3next.attention.recurrent_layers", []bool{true, true, true, true}), "recurrent"},
		"too few layers":        {q, set("qwen3next.attention.recurrent_layers", []bool{true, true, true}), "recurrent_layers"},
		"layers as numbers":     {q, set("qwen3next.attention.recurrent_layers", []uint32{1, 1, 1, 0}), "recurrent_layers"},
		"attention elsewhere":   {q, set("qwen3next.attention.recurrent_layers", []bool{true, true, false, true}), "model.layers."},
		"every layer":           {q, set("qwen3next.full_attention_interval", uint32(0)), "full_attention_interval"},
		"millions of layers": {q, func(f *gguftest.File) {
			f.Drop("qwen3next.attention.recurrent_layers")
			f.Set("qwen3next.block_count", uint32(1<<26))
		}, "block_count"},
		"no decays":             {q, rename("blk.1.ssm_a"), "linear_attn.decay"},
		"decays called weights": {q, func(f *gguftest.File) { f.Tensor("blk.1.ssm_a").Name = "blk.1.ssm_a.bias.weight" }, "linear_attn.decay"},
		"no gates":              {q, rename("blk.0.attn_gate.weight"), "in_proj_z"},
		"two projections":       {q, rename("blk.0.attn_qkv.weight"), "in_proj_qkv"},
		"a router of rows":      {q, func(f *gguftest.File) { f.Tensor("blk.0.ffn_gate_inp_shexp.weight").Dims = []uint64{32, 2} }, "shared_expert_gate"},
		"scaled experts":        {q, set("qwen3next.expert_weights_scale", float32(2)), "expert_weights_scale"},
	} {
		t.Run(x.family+" "+what, func(t *testing.T) {
			f := file(t, golden.File(t, "hf-more/"+x.family), all[x.family])
			x.change(f)
			path := f.Write(t, "x.gguf")
			m, err := model.Load(path, dev, model.Default())
			if err == nil {
				m.Close()
				t.Fatal("it loads")
			}
			if !strings.Contains(err.Error(), x.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%v: want the file and %q", err, x.want)
			}
		})
	}
}
