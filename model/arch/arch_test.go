package arch

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/compute"
	"talf/internal/golden"
)

// base is a small valid configuration; edits change or (nil) remove fields.
func base(edits map[string]any) []byte {
	c := map[string]any{
		"model_type": "llama", "architectures": []string{"LlamaForCausalLM"}, "vocab_size": 100, "hidden_size": 64,
		"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "rope_theta": 10000.0,
	}
	for k, v := range edits {
		if v == nil {
			delete(c, k)
		} else {
			c[k] = v
		}
	}
	raw, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	return raw
}

type m = map[string]any

func TestBothSpellingsAndDefaults(t *testing.T) {
	def := Spec{
		Arch: "llama", Vocab: 100, Hidden: 64, Layers: 2, Heads: 4, KVHeads: 4, HeadDim: 16, FFN: 128, MaxPos: 2048,
		NormEps: 1e-6, Rope: Rope{Theta: 10000, Type: "default"}, BOS: -1, Terms: llamaTerms, Act: compute.SiLU,
	}
	llama3 := m{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
	with := func(extra string, v any) m {
		out := m{extra: v}
		for k, x := range llama3 {
			out[k] = x
		}
		return out
	}
	for _, c := range []struct {
		name  string
		edits m
		gen   string
		want  func(*Spec)
	}{
		{"missing keys have Llama's defaults", nil, "", func(s *Spec) {}},
		{"the class replaces a missing model_type", m{"model_type": nil}, "", func(s *Spec) {}},
		{
			"null counts as missing",
			m{"num_key_value_heads": json.RawMessage("null"), "rope_scaling": json.RawMessage("null"), "eos_token_id": json.RawMessage("null")},
			"",
			func(s *Spec) {},
		},
		{
			"explicit sizes",
			m{"num_key_value_heads": 2, "head_dim": 24, "max_position_embeddings": 77, "rms_norm_eps": 1e-5},
			"",
			func(s *Spec) { s.KVHeads, s.HeadDim, s.MaxPos, s.NormEps = 2, 24, 77, 1e-5 },
		},
		{
			"flags",
			m{"tie_word_embeddings": true, "attention_bias": true, "mlp_bias": true},
			"",
			func(s *Spec) { s.Tied, s.QKVBias, s.OBias, s.MLPBias = true, true, true, true },
		},
		{
			"end tokens of both files",
			m{"bos_token_id": 1, "eos_token_id": 2},
			`{"eos_token_id":[3,2,4]}`,
			func(s *Spec) { s.BOS, s.EOS = 1, []int32{2, 3, 4} },
		},
		{
			"llama3 scaling, published",
			m{"rope_theta": 5e5, "rope_scaling": llama3},
			"",
			func(s *Spec) {
				s.Rope = Rope{Theta: 5e5, Type: "llama3", Factor: 8, LowFreq: 1, HighFreq: 4, Original: 64}
			},
		},
		{
			"llama3 scaling, transformers 5",
			m{"rope_theta": nil, "rope_parameters": with("rope_theta", 5e5)},
			"",
			func(s *Spec) {
				s.Rope = Rope{Theta: 5e5, Type: "llama3", Factor: 8, LowFreq: 1, HighFreq: 4, Original: 64}
			},
		},
		{
			"linear scaling with the old key",
			m{"rope_scaling": m{"type": "linear", "factor": 4}},
			"",
			func(s *Spec) { s.Rope = Rope{Theta: 10000, Type: "linear", Factor: 4} },
		},
		{"both spellings that agree", m{"rope_parameters": m{"rope_type": "default", "rope_theta": 10000}}, "", func(s *Spec) {}},
	} {
		want := def
		c.want(&want)
		var gen []byte
		if c.gen != "" {
			gen = []byte(c.gen)
		}
		got, err := Parse("config.json", base(c.edits), gen)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if d := cmp.Diff(&want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

func TestErrorsNameFileFieldAndExpectation(t *testing.T) {
	for _, c := range []struct {
		edits m
		want  []string
	}{
		{m{"model_type": "mamba"}, []string{`"mamba"`, "supported: llama"}},
		{m{"model_type": nil, "architectures": []string{"MambaForCausalLM"}}, []string{"MambaForCausalLM", "supported: llama"}},
		{m{"model_type": nil, "architectures": nil}, []string{"model_type", "supported: llama"}},
		{m{"hidden_size": nil}, []string{"hidden_size is missing", "positive integer"}},
		{m{"hidden_size": "64"}, []string{"hidden_size", `"64"`, "positive integer"}},
		{m{"hidden_size": 64.5}, []string{"hidden_size", "64.5", "integer"}},
		{m{"vocab_size": 0}, []string{"vocab_size"}},
		{m{"vocab_size": 1e12}, []string{"vocab_size"}},
		{m{"hidden_size": 66}, []string{"hidden_size", "num_attention_heads", "head_dim"}},
		{m{"num_key_value_heads": 3}, []string{"num_attention_heads", "multiple", "num_key_value_heads"}},
		{m{"head_dim": 15}, []string{"head_dim", "even"}},
		{m{"hidden_act": "gelu"}, []string{"hidden_act", `"gelu"`, `"silu"`}},
		{m{"rms_norm_eps": -1}, []string{"rms_norm_eps"}},
		{m{"tie_word_embeddings": 1}, []string{"tie_word_embeddings", "true or false"}},
		{m{"eos_token_id": "x"}, []string{"eos_token_id"}},
		{m{"eos_token_id": 100}, []string{"eos_token_id", "100", "vocab_size"}},
		{m{"quantization_config": m{}}, []string{"quantization_config"}},
		{m{"rope_theta": 0}, []string{"rope_theta"}},
		{m{"rope_scaling": m{"rope_type": "dynamic", "factor": 2}}, []string{`"dynamic"`, "supported: default, linear, llama3, yarn"}},
		{m{"rope_scaling": m{"rope_type": "yarn", "factor": 2}}, []string{"rope_scaling.original_max_position_embeddings is missing"}},
		{m{"rope_scaling": m{"type": "linear"}}, []string{"rope_scaling.factor is missing"}},
		{m{"rope_scaling": m{"type": "linear", "factor": 0.5}}, []string{"factor", "at least 1"}},
		{
			m{"rope_scaling": m{"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1, "original_max_position_embeddings": 8}},
			[]string{"low_freq_factor", "high_freq_factor"},
		},
		{m{"rope_scaling": 3}, []string{"rope_scaling", "object"}},
		{m{"rope_parameters": m{"rope_theta": 500000}}, []string{"rope_parameters", "contradicts"}},
		{m{"partial_rotary_factor": 0.5}, []string{"partial_rotary_factor"}},
	} {
		_, err := Parse("dir/config.json", base(c.edits), nil)
		if err == nil || !strings.HasPrefix(err.Error(), "dir/config.json: ") {
			t.Errorf("%v: error %v, want one that begins with the file", c.edits, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%v: error %q, want %q in it", c.edits, err, w)
			}
		}
	}
	for _, raw := range []string{"", "[]", "{", "null"} {
		if _, err := Parse("config.json", []byte(raw), nil); err == nil {
			t.Errorf("%q: no error", raw)
		}
	}
	if _, err := Parse("d/config.json", base(nil), []byte("{")); err == nil || !strings.Contains(err.Error(), "generation_config.json") {
		t.Errorf("broken generation_config.json: %v", err)
	}
	dir := t.TempDir()
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "config.json") || strings.Contains(err.Error(), "GGUF") {
		t.Errorf("no config.json: %v", err)
	}
	file := filepath.Join(dir, "model.Q4_K_M.gguf")
	if err := os.WriteFile(file, []byte("GGUF"), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{dir: "such as " + file, file: "truncated"} {
		if _, err := Load(path); err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// Of two equal keys, one reader takes the first and another the last.
func TestAKeyThatOccursTwiceIsRefused(t *testing.T) {
	for in, field := range map[string]string{
		`{"model_type":"llama","rope_theta":1e4,"rope_theta":5e5}`:                    "rope_theta",
		`{"model_type":"llama","rope_scaling":{"factor":2,"factor":4,"type":"yarn"}}`: "rope_scaling.factor",
	} {
		_, err := Parse("dir/config.json", []byte(in), nil)
		if err == nil || !strings.HasPrefix(err.Error(), "dir/config.json: ") || !strings.Contains(err.Error(), fmt.Sprintf("field %q: it occurs twice", field)) {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestDraftHeads(t *testing.T) {
	for _, c := range []struct {
		edits m
		bias  bool
	}{{nil, true}, {m{"bias": true}, true}, {m{"bias": false}, false}} {
		s, err := ParseDraft("config.json", base(c.edits), nil)
		if err != nil {
			t.Fatal(err)
		}
		if s.FCBias != c.bias || !s.Draft || s.Weight(Embed, 0) != "embed_tokens.weight" || s.Weight(Q, 0) != "layers.0.self_attn.q_proj.weight" {
			t.Errorf("%v: %+v", c.edits, s)
		}
	}
	if _, err := ParseDraft("config.json", base(m{"bias": "no"}), nil); err == nil || !strings.Contains(err.Error(), "bias") {
		t.Errorf("bias as a string: %v", err)
	}
}

func TestFixtures(t *testing.T) {
	for dir, want := range map[string]string{
		"llama-gqa": "llama", "llama-llama3rope": "llama", "mistral-swa": "mistral",
		"qwen2": "qwen2", "qwen3": "qwen3", "gpt-neox-parallel": "gpt_neox", "gpt-neox-sequential": "gpt_neox",
	} {
		s, err := Load(golden.File(t, "hf/"+dir))
		switch {
		case err != nil:
			t.Error(err)
		case s.Arch != want || s.Validate() != nil:
			t.Errorf("%s: %+v", dir, s)
		}
	}
}

func TestFrequencies(t *testing.T) {
	// By hand: headDim 4 and theta 10000 give 1 and 0.01 radians per position.
	plain := Rope{Theta: 10000, Type: "default"}
	linear := Rope{Theta: 10000, Type: "linear", Factor: 4}
	// Wavelengths are 6.28 and 628 positions. With 64 original positions the first is
	// below 64/4 = 16 and stays; the second is above 64/1 and is divided.
	llama3 := Rope{Theta: 10000, Type: "llama3", Factor: 8, LowFreq: 1, HighFreq: 4, Original: 64}
	// With 1000 original positions the second lies between 250 and 1000: mix =
	// (1000/628.3185 − 1)/3 = 0.197183, f = 0.01·(0.802817/8 + 0.197183) = 0.00297535.
	mixed := Rope{Theta: 10000, Type: "llama3", Factor: 8, LowFreq: 1, HighFreq: 4, Original: 1000}
	for _, c := range []struct {
		r    Rope
		want [2]float64
	}{{plain, [2]float64{1, 0.01}}, {linear, [2]float64{0.25, 0.0025}}, {llama3, [2]float64{1, 0.00125}}, {mixed, [2]float64{1, 0.00297535}}} {
		got := c.r.Frequencies(4)
		for i, w := range c.want {
			if math.Abs(float64(got[i])-w) > 1e-5*w {
				t.Errorf("%+v: %v, want %v", c.r, got, c.want)
			}
		}
	}
	tab := plain.Table(4, 3, 5)
	want := []float64{math.Cos(3), math.Cos(.03), math.Sin(3), math.Sin(.03), math.Cos(4), math.Cos(.04), math.Sin(4), math.Sin(.04)}
	for i, w := range want {
		if math.Abs(float64(tab[i])-w) > 1e-7 { // float32 angles and values
			t.Errorf("table %v, want %v", tab, want)
			break
		}
	}
	if d := cmp.Diff(plain.Table(4, 0, 9)[3*4:5*4], tab); d != "" {
		t.Errorf("rows depend on the range (-whole +part):\n%s", d)
	}
}

// TestFrequenciesHaveTheReferencesBits compares with those of PyTorch, which models
// were trained with, for theta 10000 and 64 elements.
func TestFrequenciesHaveTheReferencesBits(t *testing.T) {
	want := []uint32{
		0x3f800000, 0x3f3ff911, 0x3f0ff59a, 0x3ed7e89b, 0x3ea1e89b, 0x3e72d423, 0x3e361887, 0x3e088d77,
		0x3dcccccd, 0x3d99940d, 0x3d6655c2, 0x3d2cba15, 0x3d0186e3, 0x3cc2434f, 0x3c91ad39, 0x3c5a7bf2,
		0x3c23d70a, 0x3bf5b9b0, 0x3bb8449c, 0x3b8a2e77, 0x3b4f3e38, 0x3b1b690d, 0x3ae91528, 0x3aaec98e,
		0x3a83126f, 0x3a44948c, 0x3a136a16, 0x39dd1725, 0x39a5cb60, 0x3978a815, 0x393a7753, 0x390bd472,
	}
	r := Rope{Theta: 10000, Type: "default"}
	for i, f := range r.Frequencies(64) {
		if got := math.Float32bits(f); got != want[i] {
			t.Errorf("angle %d is %v (%#x), want %v", i, f, got, math.Float32frombits(want[i]))
		}
	}
}

// FuzzParse: any configuration gives a spec that passes Validate or an error that names
// the file.
func FuzzParse(f *testing.F) {
	f.Add(base(nil), []byte(`{"eos_token_id":[1]}`))
	f.Add(base(m{"rope_scaling": m{"type": "linear", "factor": 2}, "head_dim": 2}), []byte(`{}`))
	f.Add(base(m{"rope_parameters": m{"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8}}), []byte(`null`))
	for _, typ := range Supported() {
		f.Add([]byte(fmt.Sprintf(`{"model_type":%q}`, typ)), []byte(`{}`))
		f.Add([]byte(fmt.Sprintf(`{"model_type":%q,"num_hidden_layers":-3,"sliding_window":5,"use_sliding_window":true}`, typ)), []byte(`{}`))
		f.Add(family(typ, m{"num_key_value_heads": 2, "sliding_window": 3, "use_sliding_window": true, "max_window_layers": 2}), []byte(`{}`))
	}
	f.Add(family("qwen2", m{
		"num_key_value_heads": 2, "layer_types": []string{"full_attention", "full_attention", "sliding_attention", "full_attention"},
		"use_sliding_window": true, "rope_scaling": m{"type": "yarn", "factor": 4, "original_max_position_embeddings": 8},
	}), []byte(`{}`))
	f.Fuzz(func(t *testing.T, raw, gen []byte) {
		for _, parse := range []func(string, []byte, []byte) (*Spec, error){Parse, ParseDraft} {
			s, err := parse("config.json", raw, gen)
			if err != nil {
				if !strings.Contains(err.Error(), "config.json: ") {
					t.Fatalf("error without the file: %v", err)
				}
				continue
			}
			if err := s.Validate(); err != nil {
				t.Fatal(err)
			}
			if n := s.Rotated(); n < 1<<12 {
				top := float32(1)
				if s.Rope.Type == "yarn" {
					top = float32(s.Rope.Scale)
				}
				for _, x := range s.Rope.Table(n, 0, 2) {
					if !(x >= -top && x <= top) {
						t.Fatalf("rotary table holds %v for %+v", x, s.Rope)
					}
				}
			}
		}
	})
}

func TestDocumentedArchitecturesMatchTheTable(t *testing.T) {
	doc, err := os.ReadFile("../../docs/models.md")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	_, table, _ := strings.Cut(string(doc), "\n| `model_type`")
	for line := range strings.Lines(table) {
		if line == "\n" {
			break
		}
		if rest, ok := strings.CutPrefix(line, "| `"); ok {
			name, _, _ := strings.Cut(rest, "`")
			got = append(got, name)
		}
	}
	if d := cmp.Diff(Supported(), got); d != "" {
		t.Errorf("docs/models.md (-want +got):\n%s", d)
	}
}
