package checkpoints

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/checkpoints/internal/torchfile"
	"talf/compute/cpu"
	"talf/internal/spec"
	"talf/model"
	"talf/model/arch"
	"talf/model/head"
	"talf/model/identity"
	"talf/model/modeltest"
	"talf/model/safetensors"
)

// target writes a random model and loads it.
func target(t testing.TB, c modeltest.Config) (string, *model.Model) {
	t.Helper()
	dir := t.TempDir()
	if err := modeltest.Write(dir, c, 1); err != nil {
		t.Fatal(err)
	}
	dev, err := cpu.New(cpu.Config{Class: cpu.Default().Class, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	m, err := model.Load(dir, dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return dir, m
}

// embedOf returns a model's embedding under a head's name for it.
func embedOf(t testing.TB, m *model.Model) safetensors.Tensor {
	t.Helper()
	e, err := m.Tensors().Get(m.Spec().Weight(arch.Embed, 0))
	if err != nil {
		t.Fatal(err)
	}
	e.Name = "embed_tokens.weight"
	return e
}

// writeHead writes a random head of m; change may alter its spec.
func writeHead(t testing.TB, m *model.Model, change func(*arch.Spec), more ...safetensors.Tensor) string {
	t.Helper()
	s := m.Spec().DraftFor(false)
	if change != nil {
		change(s)
	}
	dir := t.TempDir()
	ts := head.Random(s, 3)
	for i := range ts { // biases of 0 would hide that they are read
		if strings.HasSuffix(ts[i].Name, ".bias") {
			binary.LittleEndian.PutUint32(ts[i].Data, math.Float32bits(0.25))
		}
	}
	if err := head.Write(t.Context(), dir, s, identity.To(m.Identity()), append(ts, more...)...); err != nil {
		t.Fatal(err)
	}
	return dir
}

func openDraft(t testing.TB, dir string) *Draft {
	t.Helper()
	d, err := OpenDraft(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func export(t testing.TB, d *Draft, c ExportConfig) (string, *Exported) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	r, err := d.Export(t.Context(), out, c)
	if err != nil {
		t.Fatal(err)
	}
	return out, r
}

func config(t testing.TB, dir string) map[string]any {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func putConfig(t testing.TB, dir string, v map[string]any) {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ConfigFile), b, 0o666); err != nil {
		t.Fatal(err)
	}
}

func names(ts []safetensors.Tensor) []string {
	var out []string
	for _, t := range ts {
		out = append(out, t.Name)
	}
	return out
}

// Every format, in both kinds of files, is imported again as the same head: the same
// tensors byte for byte, the same network, the same target.
func TestEveryFormatRoundTrips(t *testing.T) {
	dir, m := target(t, modeltest.Default())
	d := openDraft(t, writeHead(t, m, nil, embedOf(t, m)))
	for _, f := range Formats() {
		if f.file != nil || f.block != nil { // only of EAGLE-3 or block heads
			continue
		}
		for _, torch := range []bool{false, true} {
			c := DefaultExport()
			c.Format, c.Torch, c.TargetName, c.Target = f.Name, torch, dir, m.Spec()
			out, r := export(t, d, c)
			if torch {
				if err := os.Remove(filepath.Join(out, WeightsFile)); err != nil {
					t.Fatal(err)
				}
			}
			for _, p := range r.Problems {
				if p.Grade != Note {
					t.Errorf("%s: %s", f.Name, p)
				}
			}
			back := openDraft(t, out)
			want := d.Tensors
			if f.Name == "speculators" {
				want = slices.DeleteFunc(slices.Clone(want), func(x safetensors.Tensor) bool { return x.Name == "embed_tokens.weight" })
			}
			if diff := cmp.Diff(want, back.Tensors); diff != "" {
				t.Errorf("%s: tensors: %s", f.Name, diff)
			}
			if diff := cmp.Diff(d.Spec, back.Spec); diff != "" {
				t.Errorf("%s: spec: %s", f.Name, diff)
			}
			if !torch && !cmp.Equal(back.Target, identity.To(m.Identity())) {
				t.Errorf("%s: target %v", f.Name, back.Target)
			}
			again := filepath.Join(t.TempDir(), "again")
			if err := back.SaveHead(t.Context(), again, identity.To(m.Identity())); err != nil {
				t.Fatal(err)
			}
			h, err := LoadHead(again, m, head.Default())
			if err != nil {
				t.Fatalf("%s: %v", f.Name, err)
			}
			h.Close()
		}
	}
}

func TestTheTableOfFormatsIsValid(t *testing.T) {
	if err := (spec.Table[Format]{Kind: "format", Lines: Formats()}).Check(); err != nil {
		t.Error(err)
	}
	c := DefaultExport()
	c.Format = "vlm"
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), `"vlm"`) || !strings.Contains(err.Error(), "eagle, sglang, vllm, speculators") {
		t.Errorf("%v, want the list of formats", err)
	}
}

func TestFormatsMeetTheirReadersRequirements(t *testing.T) {
	_, m := target(t, modeltest.Default())
	e := embedOf(t, m)
	d := openDraft(t, writeHead(t, m, nil)) // without an embedding
	c := DefaultExport()
	c.Embed, c.Target, c.TargetName, c.TargetClasses = &e, m.Spec(), "org/model", []string{"LlamaForCausalLM"}
	tensors := func(dir string) []string {
		s, err := safetensors.OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return s.Names()
	}
	layer := []string{
		"layers.0.mlp.down_proj.weight", "layers.0.mlp.gate_proj.weight", "layers.0.mlp.up_proj.weight", "layers.0.post_attention_layernorm.weight",
		"layers.0.self_attn.k_proj.weight", "layers.0.self_attn.o_proj.weight", "layers.0.self_attn.q_proj.weight", "layers.0.self_attn.v_proj.weight",
	}
	with := func(names ...string) []string { return slices.Sorted(slices.Values(append(names, layer...))) }

	out, _ := export(t, d, c)
	conf := config(t, out)
	if conf["bias"] != false || !cmp.Equal(conf["architectures"], []any{"LlamaForCausalLM"}) || conf["torch_dtype"] != "float32" {
		t.Errorf("eagle: %v", conf)
	}
	if diff := cmp.Diff(with("embed_tokens.weight", "fc.weight"), tensors(out)); diff != "" {
		t.Error(diff)
	}

	c.Format = "sglang"
	out, _ = export(t, d, c)
	conf = config(t, out)
	if conf["bias"] != false || !cmp.Equal(conf["architectures"], []any{"LlamaForCausalLMEagle"}) {
		t.Errorf("sglang: %v", conf)
	}
	if diff := cmp.Diff(with("embed_tokens.weight", "fc.bias", "fc.weight"), tensors(out)); diff != "" {
		t.Error(diff)
	}

	c.Format, c.DType = "vllm", "BF16"
	out, _ = export(t, d, c)
	conf = config(t, out)
	if conf["bias"] != false || conf["torch_dtype"] != "bfloat16" {
		t.Errorf("vllm: %v", conf)
	}
	if diff := cmp.Diff(with("embed_tokens.weight", "fc.weight"), tensors(out)); diff != "" {
		t.Error(diff)
	}

	c.Format = "speculators"
	out, _ = export(t, d, c)
	conf = config(t, out)
	use, inner := conf["speculators_config"].(map[string]any), conf["transformer_layer_config"].(map[string]any)
	if conf["speculators_model_type"] != "eagle" || conf["fusion_bias"] != false || conf["layernorms"] != false || inner["model_type"] != "llama" ||
		!cmp.Equal(use["verifier"], map[string]any{"name_or_path": "org/model", "architectures": []any{"LlamaForCausalLM"}}) {
		t.Errorf("speculators: %v", conf)
	}
	var want []string
	for _, n := range with("fc.weight") {
		want = append(want, strings.NewReplacer("layers.0.", "transformer.", "fc.", "fusion_fc.").Replace(n))
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), tensors(out)); diff != "" {
		t.Error(diff)
	}
}

func TestARefusalIsPredictedAndExplained(t *testing.T) {
	base := modeltest.Default()
	_, m := target(t, base)
	e := embedOf(t, m)
	llama3 := func(s *arch.Spec) {
		s.Rope = arch.Rope{Theta: 500000, Type: "llama3", Factor: 8, LowFreq: 1, HighFreq: 4, Original: 256}
	}
	for name, c := range map[string]struct {
		format string
		change func(*arch.Spec)
		embed  bool
		grade  Grade
		want   string
	}{
		"llama3 scaling in EAGLE":          {"eagle", llama3, true, Refuses, "EAGLE's loader would refuse it: rope_scaling has type llama3"},
		"llama3 scaling in SGLang":         {"sglang", llama3, true, "", ""},
		"llama3 scaling in vLLM":           {"vllm", llama3, true, "", ""},
		"the verifier's rope":              {"speculators", llama3, true, Misreads, "theta 10000 unscaled, but this head was trained with theta 500000 scaled by llama3 8"},
		"linear scaling and another theta": {"eagle", func(s *arch.Spec) { s.Rope = arch.Rope{Theta: 5e5, Type: "linear", Factor: 2} }, true, Misreads, "ignores rope_theta"},
		"linear scaling":                   {"eagle", func(s *arch.Spec) { s.Rope = arch.Rope{Theta: 1e4, Type: "linear", Factor: 2} }, true, "", ""},
		"heads of another size":            {"eagle", func(s *arch.Spec) { s.HeadDim = 6 }, true, Refuses, "4 heads of 6 are not hidden_size = 40"},
		"no embedding":                     {"eagle", nil, false, Refuses, "embed_tokens.weight is missing"},
		"no embedding in vLLM":             {"vllm", nil, false, "", ""},
		"a bias of fc in EAGLE":            {"eagle", func(s *arch.Spec) { s.FCBias = true }, true, "", ""},
		"a bias of fc in SGLang":           {"sglang", func(s *arch.Spec) { s.FCBias = true }, true, "", ""},
		"a bias of fc in vLLM":             {"vllm", func(s *arch.Spec) { s.FCBias = true }, true, Misreads, "its fc has no bias"},
		"a bias of fc in speculators":      {"speculators", func(s *arch.Spec) { s.FCBias = true }, true, "", ""},
		"biases of the feed-forward":       {"sglang", func(s *arch.Spec) { s.MLPBias = true }, true, Refuses, "no biases in the feed-forward network"},
		"two layers":                       {"speculators", func(s *arch.Spec) { s.Layers = 2 }, true, Refuses, "builds a single layer, and this head has 2"},
		"two layers in EAGLE":              {"eagle", func(s *arch.Spec) { s.Layers = 2 }, true, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := openDraft(t, writeHead(t, m, c.change))
			conf := DefaultExport()
			conf.Format, conf.Target, conf.TargetName = c.format, m.Spec(), "org/model"
			if c.embed {
				conf.Embed = &e
			}
			problems, err := d.Problems(conf)
			if err != nil {
				t.Fatal(err)
			}
			found := slices.ContainsFunc(problems, func(p Problem) bool { return p.Grade == c.grade && strings.Contains(p.String(), c.want) })
			if c.want != "" && !found {
				t.Errorf("predicted %v, want %s: %q", problems, c.grade, c.want)
			}
			out := filepath.Join(t.TempDir(), "out")
			if _, err := d.Export(t.Context(), out, conf); (err == nil) != (c.grade == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("export: %v", err)
			}
			if c.grade == "" {
				back := openDraft(t, out)
				if diff := cmp.Diff(d.Spec, back.Spec); diff != "" {
					t.Error(diff)
				}
				return
			}
			if _, err := os.Stat(out); err == nil {
				t.Error("something was written anyway")
			}
			conf.Force = true
			if _, err := d.Export(t.Context(), out, conf); err != nil {
				t.Errorf("forced: %v", err)
			}
		})
	}
}

// EAGLE's EConfig requires two fields and a number with a decimal point.
func TestLinearScalingIsWrittenAsEAGLERequires(t *testing.T) {
	_, m := target(t, modeltest.Default())
	e := embedOf(t, m)
	d := openDraft(t, writeHead(t, m, func(s *arch.Spec) { s.Rope = arch.Rope{Theta: 1e4, Type: "linear", Factor: 2} }, e))
	out, _ := export(t, d, DefaultExport())
	raw, err := os.ReadFile(filepath.Join(out, ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	if s := strings.Join(strings.Fields(string(raw)), ""); !strings.Contains(s, `"rope_scaling":{"factor":2.0,"type":"linear"}`) {
		t.Errorf("%s", raw)
	}
}

func TestUnreadableHeadsAreNamed(t *testing.T) {
	_, m := target(t, modeltest.Default())
	weights := func(dir string, change func(map[string]safetensors.Tensor)) {
		s, err := safetensors.Open(filepath.Join(dir, WeightsFile))
		if err != nil {
			t.Fatal(err)
		}
		all := make(map[string]safetensors.Tensor)
		for _, n := range s.Names() {
			x, _ := s.Tensor(n)
			x.Data = slices.Clone(x.Data)
			all[n] = x
		}
		s.Close()
		change(all)
		if err := safetensors.WriteFile(filepath.Join(dir, WeightsFile), nil, slices.Collect(maps.Values(all))...); err != nil {
			t.Fatal(err)
		}
	}
	edit := func(dir string, change func(map[string]any)) {
		v := config(t, dir)
		change(v)
		putConfig(t, dir, v)
	}
	for name, c := range map[string]struct {
		damage func(dir string)
		want   string
	}{
		"no configuration":    {func(d string) { os.Remove(filepath.Join(d, ConfigFile)) }, ConfigFile},
		"null":                {func(d string) { os.WriteFile(filepath.Join(d, ConfigFile), []byte("null"), 0o666) }, "want a JSON object"},
		"half of it":          {func(d string) { os.WriteFile(filepath.Join(d, ConfigFile), []byte("{"), 0o666) }, "want a JSON object"},
		"no weights":          {func(d string) { os.Remove(filepath.Join(d, WeightsFile)) }, "neither model.safetensors nor pytorch_model.bin"},
		"truncated weights":   {func(d string) { os.Truncate(filepath.Join(d, WeightsFile), 5000) }, "truncated?"},
		"another family":      {func(d string) { edit(d, func(v map[string]any) { v["model_type"] = "gpt2" }) }, `"gpt2"`},
		"another algorithm":   {func(d string) { edit(d, func(v map[string]any) { v["speculators_model_type"] = "mlp" }) }, `"mlp"`},
		"nested nothing":      {func(d string) { edit(d, func(v map[string]any) { v["speculators_model_type"] = "eagle" }) }, "transformer_layer_config is missing"},
		"vLLM's nested list":  {func(d string) { edit(d, func(v map[string]any) { v["model_type"], v["model"] = "eagle", []int{1} }) }, "model is not an object"},
		"another hidden size": {func(d string) { edit(d, func(v map[string]any) { v["hidden_size"] = 44 }) }, "from the configuration"},
		"a tensor missing": {func(d string) {
			weights(d, func(all map[string]safetensors.Tensor) { delete(all, "layers.0.mlp.up_proj.weight") })
		}, `no tensor "layers.0.mlp.up_proj.weight"`},
		"no fc": {func(d string) {
			weights(d, func(all map[string]safetensors.Tensor) { delete(all, "fc.weight") })
		}, "not a draft head"},
		"a tensor too many": {func(d string) {
			weights(d, func(all map[string]safetensors.Tensor) {
				all["head.weight"] = safetensors.F32("head.weight", []float32{1}, 1)
			})
		}, `"head.weight" is not part of an`},
		"whole numbers": {func(d string) {
			weights(d, func(all map[string]safetensors.Tensor) {
				x := all["fc.weight"]
				x.DType = "I32"
				all["fc.weight"] = x
			})
		}, `"fc.weight" is I32`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := writeHead(t, m, nil)
			c.damage(dir)
			if d, err := OpenDraft(dir); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%v, %v; want %q and the directory in it", d, err, c.want)
			}
		})
	}
	// Tensors that change nothing are skipped, with a note.
	dir := writeHead(t, m, nil)
	weights(dir, func(all map[string]safetensors.Tensor) {
		for _, n := range []string{"layers.0.self_attn.rotary_emb.inv_freq", "lm_head.weight"} {
			all[n] = safetensors.F32(n, []float32{1}, 1)
		}
		all["fc.bias"] = safetensors.F32("fc.bias", append(make([]float32, 39), float32(math.Copysign(0, -1))), 40)
	})
	edit(dir, func(v map[string]any) { v["bias"] = true })
	d := openDraft(t, dir)
	if d.Spec.FCBias || len(d.Tensors) != 9 || len(d.Notes) != 2 {
		t.Errorf("bias %v, tensors %v, notes %q", d.Spec.FCBias, names(d.Tensors), d.Notes)
	}
	// vLLM keeps a head's own configuration in a nested object.
	edit(dir, func(v map[string]any) {
		inner := maps.Clone(v)
		clear(v)
		v["model_type"], v["architectures"], v["model"] = "eagle", []string{"EAGLEModel"}, inner
	})
	if w := openDraft(t, dir); !cmp.Equal(w.Spec, d.Spec) {
		t.Errorf("spec %v, want %v", w.Spec, d.Spec)
	}
}

// A file that makes Python run something is refused by talf.
func TestAHostilePickleIsRefused(t *testing.T) {
	_, m := target(t, modeltest.Default())
	dir := writeHead(t, m, nil)
	b, err := os.ReadFile("internal/torchfile/testdata/hostile.bin")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, WeightsFile)), os.WriteFile(filepath.Join(dir, torchFile), b, 0o666)); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDraft(dir); err == nil || !strings.Contains(err.Error(), "refused") || !strings.Contains(err.Error(), torchFile) {
		t.Errorf("got %v", err)
	}
	if _, err := LoadHead(dir, m, head.Default()); !errors.Is(err, ErrForeign) {
		t.Errorf("loaded without an import: %v", err)
	}
	if !IsForeign(dir) || IsForeign(writeHead(t, m, nil)) {
		t.Error("a foreign head is not distinguished from talf's own")
	}
}

// eagle3 writes a random EAGLE-3 head in SpecForge's layout: 60 of 97 tokens.
func eagle3Dir(t testing.TB, change func(conf map[string]any, all map[string]safetensors.Tensor)) string {
	t.Helper()
	const h, q, kv, ffn, vocab, draft = 40, 40, 20, 72, 97, 60
	all := make(map[string]safetensors.Tensor)
	add := func(name string, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(i%7) - 3
		}
		all[name] = safetensors.F32(name, x, shape...)
	}
	add("fc.weight", h, 3*h)
	for _, n := range []string{"hidden_norm", "input_layernorm", "post_attention_layernorm"} {
		add("midlayer."+n+".weight", h)
	}
	add("midlayer.self_attn.q_proj.weight", q, 2*h)
	add("midlayer.self_attn.k_proj.weight", kv, 2*h)
	add("midlayer.self_attn.v_proj.weight", kv, 2*h)
	add("midlayer.self_attn.o_proj.weight", h, q)
	add("midlayer.mlp.gate_proj.weight", ffn, h)
	add("midlayer.mlp.up_proj.weight", ffn, h)
	add("midlayer.mlp.down_proj.weight", h, ffn)
	add("norm.weight", h)
	add("lm_head.weight", draft, h)
	var d2t []byte
	t2d := make([]byte, vocab)
	for i := range draft {
		offset := i / 2
		d2t = binary.LittleEndian.AppendUint64(d2t, uint64(offset))
		t2d[i+offset] = 1
	}
	all["d2t"] = safetensors.Tensor{Name: "d2t", DType: "I64", Shape: []int{draft}, Data: d2t}
	all["t2d"] = safetensors.Tensor{Name: "t2d", DType: "BOOL", Shape: []int{vocab}, Data: t2d}
	conf := map[string]any{
		"architectures": []string{"LlamaForCausalLMEagle3"}, "model_type": "llama", "vocab_size": vocab, "draft_vocab_size": draft,
		"hidden_size": h, "intermediate_size": ffn, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
		"max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 500000,
		"eagle_config": map[string]any{"use_aux_hidden_state": true, "eagle_aux_hidden_state_layer_ids": []int{1, 9, 17}},
	}
	if change != nil {
		change(conf, all)
	}
	dir := t.TempDir()
	putConfig(t, dir, conf)
	if err := safetensors.WriteFile(filepath.Join(dir, WeightsFile), nil, slices.Collect(maps.Values(all))...); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAnInconsistentEagle3HeadIsRefused(t *testing.T) {
	type tensors = map[string]safetensors.Tensor
	for name, c := range map[string]struct {
		change func(conf map[string]any, all tensors)
		want   string
	}{
		"a token twice":         {func(_ map[string]any, all tensors) { all["d2t"].Data[8] = 0xff; fill(all["d2t"].Data[8:16], 0xff) }, "draft tokens 0 and 1 are tokens 0 and 0"},
		"beyond the vocabulary": {func(_ map[string]any, all tensors) { all["d2t"].Data[8*59] = 60 }, "draft token 59 is token 119"},
		"other marks":           {func(_ map[string]any, all tensors) { all["t2d"].Data[96] = 1 }, "differ at token 96"},
		"no map":                {func(_ map[string]any, all tensors) { delete(all, "d2t") }, `no tensor "d2t"`},
		"no norm":               {func(_ map[string]any, all tensors) { delete(all, "norm.weight") }, `no tensor "norm.weight"`},
		"another vocabulary":    {func(conf map[string]any, _ tensors) { conf["draft_vocab_size"] = 61 }, `"d2t" has shape [60], want [61]`},
		"a vocabulary of text":  {func(conf map[string]any, _ tensors) { conf["draft_vocab_size"] = "many" }, "want a positive integer"},
		"negative taps": {func(conf map[string]any, _ tensors) {
			conf["eagle_config"] = map[string]any{"eagle_aux_hidden_state_layer_ids": []int{-1}}
		}, "want numbers from 0"},
		"integers for weights": {func(_ map[string]any, all tensors) {
			x := all["fc.weight"]
			x.DType = "I32"
			all["fc.weight"] = x
		}, `tensor "fc.weight" is I32, want F32`},
		"five taps": {func(conf map[string]any, _ tensors) {
			conf["eagle_config"] = map[string]any{"eagle_aux_hidden_state_layer_ids": []int{1, 2, 3, 4, 5}}
		}, `"fc.weight" has shape`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := OpenDraft(eagle3Dir(t, c.change)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q in it", err, c.want)
			}
		})
	}
}

func fill(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}

// For any config.json, opening a head gives an error or a head, and an opened head can
// be checked for every format.
func FuzzOpenDraft(f *testing.F) {
	_, m := target(f, modeltest.Default())
	base := writeHead(f, m, nil)
	three := eagle3Dir(f, nil)
	for _, dir := range []string{base, three} {
		b, err := os.ReadFile(filepath.Join(dir, ConfigFile))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, dir == three)
	}
	f.Add([]byte(`{"speculators_model_type":"eagle","transformer_layer_config":{}}`), false)
	f.Add([]byte(`{"model_type":"eagle","model":{"hidden_size":40}}`), true)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, conf []byte, third bool) {
		from := base
		if third {
			from = three
		}
		w, err := os.ReadFile(filepath.Join(from, WeightsFile))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(filepath.Join(dir, WeightsFile), w, 0o666), os.WriteFile(filepath.Join(dir, ConfigFile), conf, 0o666)); err != nil {
			t.Fatal(err)
		}
		d, err := OpenDraft(dir)
		if err != nil {
			return
		}
		defer d.Close()
		for _, x := range Formats() {
			c := DefaultExport()
			c.Format, c.Force = x.Name, true
			if _, err := d.Problems(c); err != nil {
				t.Error(err)
			}
			_, _ = d.Export(t.Context(), filepath.Join(t.TempDir(), "out"), c) // an error or not, no panic
		}
	})
}

// talf wrote the torch files of this test; testdata/make.py wrote PyTorch's.
func TestTorchFilesHaveTheSameTensors(t *testing.T) {
	_, m := target(t, modeltest.Default())
	d := openDraft(t, writeHead(t, m, func(s *arch.Spec) { s.FCBias = true }, embedOf(t, m)))
	c := DefaultExport()
	c.Torch, c.DType = true, "BF16"
	out, r := export(t, d, c)
	if !slices.Equal(r.Files, []string{WeightsFile, torchFile, cardFile, ConfigFile}) {
		t.Errorf("files %v", r.Files)
	}
	ts, err := torchfile.Read(filepath.Join(out, torchFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range ts {
		want, ok := openDraft(t, out).Tensor(x.Name)
		if !ok || !cmp.Equal(x, want) || x.DType != "BF16" {
			t.Errorf("tensor %q of type %s differs", x.Name, x.DType)
		}
	}
	if len(ts) != len(d.Tensors) {
		t.Errorf("%d tensors, want %d", len(ts), len(d.Tensors))
	}
}

// An embedding that cannot be converted to the file's type is refused: readers would
// misread its bytes, or lack it.
func TestAnEmbeddingOfIntegersIsRefused(t *testing.T) {
	_, m := target(t, modeltest.Default())
	e := embedOf(t, m)
	e.DType = "I8"
	c := DefaultExport()
	c.DType, c.Embed, c.Target, c.TargetName, c.TargetClasses = "BF16", &e, m.Spec(), "org/model", []string{"LlamaForCausalLM"}
	if _, err := openDraft(t, writeHead(t, m, nil)).Export(t.Context(), filepath.Join(t.TempDir(), "out"), c); err == nil || !strings.Contains(err.Error(), "embedding") {
		t.Errorf("error %v, want one about the embedding", err)
	}
}
