package model_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cpu/kern"
	"talf/internal/golden"
	"talf/model"
	"talf/model/gguf/gguftest"
	"talf/model/safetensors"
)

// exactly is how far float32 is from the exact meaning of a file (data/gguf/README.md).
const exactly = 2e-5

// TestGGUFAgreesWithItsExactMeaning compares with transformers in float32 on the weights that the
// blocks of each file stand for.
func TestGGUFAgreesWithItsExactMeaning(t *testing.T) {
	for _, name := range []string{
		"gsm10m-Q4_K_M", "gsm10m-l0-Q4_0", "hf-llama-gqa-Q8_0", "hf-mistral-swa-BF16", "llama3-Q4_K_M", "spm-Q8_0",
		"qwen2-Q4_0", "qwen3-Q5_0", "mistral-Q4_1", "gptneox-F16",
	} {
		t.Run(name, func(t *testing.T) {
			path, want := stored(t, name+".gguf"), open(t, stored(t, name+".golden.safetensors"))
			for _, c := range classes() {
				agrees(t, load(t, path, device(t, c, 2), model.Default()), want)
			}
		})
	}
}

// stored is the path of a golden, which for gsm10m is a shared file.
func stored(t testing.TB, name string) string {
	t.Helper()
	if strings.HasPrefix(name, "gsm10m") {
		return golden.Shared(t, "data/gguf/"+name)
	}
	return golden.File(t, "gguf/"+name)
}

// agrees compares hidden states, rows and columns of logits, and a greedy continuation.
func agrees(t *testing.T, m *model.Model, want *safetensors.Set) {
	t.Helper()
	ids := ints(t, want, "input_ids")
	s := m.NewSeq()
	defer s.Close()
	o, err := s.Append(context.Background(), ids, nil, model.WantAll)
	if err != nil {
		t.Fatal(err)
	}
	h, v := m.Spec().Hidden, m.Spec().Vocab
	hidden, logits := make([]float32, len(ids)*h), make([]float32, len(ids)*v)
	o.ReadHidden(hidden, 0)
	o.ReadLogits(logits, 0)
	within(t, "hidden", hidden, floats(t, want, "hidden"), exactly)
	var rows, columns []float32
	for _, r := range ints(t, want, "rows") {
		rows = append(rows, logits[int(r)*v:][:v]...)
	}
	within(t, "rows of logits", rows, floats(t, want, "logits_rows"), exactly)
	if len(rows) < len(logits) {
		for r := range ids {
			for _, c := range ints(t, want, "cols") {
				columns = append(columns, logits[r*v+int(c)])
			}
		}
		within(t, "columns of logits", columns, floats(t, want, "logits_cols"), exactly)
	}
	if got, want := greedy(t, m, ints(t, want, "greedy_prompt"), 24), ints(t, want, "greedy_ids"); !slices.Equal(got, want) {
		t.Errorf("continues with %v, want %v", got, want)
	}
}

// The F16 and BF16 files of models with exact goldens compute what their directories compute.
func TestGGUFOfADirectoryComputesTheSame(t *testing.T) {
	for file, dir := range map[string]string{"hf-qwen2-F16": "hf/qwen2", "hf-qwen3-BF16": "hf/qwen3"} {
		t.Run(file, func(t *testing.T) {
			_, want := fixture(t, dir)
			m := load(t, stored(t, file+".gguf"), device(t, kern.Best(), 2), model.Default())
			ids := ints(t, want, "input_ids")
			s := m.NewSeq()
			defer s.Close()
			o, err := s.Append(context.Background(), ids, nil, model.WantAll)
			if err != nil {
				t.Fatal(err)
			}
			logits := make([]float32, len(ids)*m.Spec().Vocab)
			o.ReadLogits(logits, 0)
			within(t, "logits", logits, floats(t, want, "logits"), exactly)
			if got, want := greedy(t, m, ints(t, want, "greedy_prompt"), len(ints(t, want, "greedy_ids"))), ints(t, want, "greedy_ids"); !slices.Equal(got, want) {
				t.Errorf("continues with %v, want %v", got, want)
			}
		})
	}
}

// All classes of kernels have the same bits of q8 that is made of blocks. The logits are off by what
// activations of 16 bits cost (data/gguf/README.md), and by the rounding of a Q6_K embedding.
func TestGGUFAsQ8(t *testing.T) {
	opt := model.Default()
	opt.DType = compute.Q8
	for name, off := range map[string]float64{"gsm10m-l0-Q4_0": 0.2, "spm-Q8_0": 3e-3, "qwen3-Q5_0": 3e-3} {
		t.Run(name, func(t *testing.T) {
			path, want := stored(t, name+".gguf"), open(t, stored(t, name+".golden.safetensors"))
			ids := ints(t, want, "input_ids")
			var first []float32
			for _, c := range classes() {
				m := load(t, path, device(t, c, 2), opt)
				s := m.NewSeq()
				o, err := s.Append(context.Background(), ids, nil, model.WantAll)
				if err != nil {
					t.Fatal(err)
				}
				logits := make([]float32, len(ids)*m.Spec().Vocab)
				o.ReadLogits(logits, 0)
				s.Close()
				if first == nil {
					first = logits
					for i, r := range ints(t, want, "rows") {
						v := m.Spec().Vocab
						for j, x := range floats(t, want, "logits_rows")[i*v:][:v] {
							if d := math.Abs(float64(logits[int(r)*v+j] - x)); !(d <= off) {
								t.Fatalf("logit %d of row %d is %v, want %v ± %v", j, r, logits[int(r)*v+j], x, off)
							}
						}
					}
				}
				if err := sameBits(logits, first); err != nil {
					t.Errorf("%v: %v", c, err)
				}
				if got, want := greedy(t, m, ints(t, want, "greedy_prompt"), 24), ints(t, want, "greedy_ids"); !slices.Equal(got, want) {
					t.Errorf("%v continues with %v, want %v", c, got, want)
				}
			}
		})
	}
}

// gsm10mQ8 writes the Q8_0 file of gsm10m as llama-quantize does: keys and order of tensors are
// those of its Q4_K_M file.
func gsm10mQ8(t testing.TB) *gguftest.File {
	raw, err := os.ReadFile(golden.Shared(t, "data/gguf/gsm10m-Q4_K_M.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	f := gguftest.Read(raw)
	f.Set("general.file_type", uint32(7))
	set, err := safetensors.OpenDir(golden.Shared(t, "data/models/gsm10m"))
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	names := map[string]string{
		"token_embd": "model.embed_tokens", "output_norm": "model.norm", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
		"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
		"ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
	}
	for i := range f.Tensors {
		old := &f.Tensors[i]
		parts := strings.Split(old.Name, ".")
		name := names[parts[0]]
		if parts[0] == "blk" {
			name = "model.layers." + parts[1] + "." + names[parts[2]]
		}
		x := floats(t, set, name+".weight")
		switch {
		case strings.Contains(old.Name, "attn_q"):
			x = gguftest.Interleave(x, 4, 64)
		case strings.Contains(old.Name, "attn_k"):
			x = gguftest.Interleave(x, 2, 64)
		}
		if len(old.Dims) == 1 {
			*old = gguftest.F32(old.Name, x, old.Dims...)
		} else {
			*old = gguftest.Q8(old.Name, x, old.Dims...)
		}
	}
	return f
}

// The file is llama-quantize's own, byte for byte, and agrees with the goldens of that.
func TestGGUFOfGSM10MAsQ8_0(t *testing.T) {
	f := gsm10mQ8(t)
	var all map[string]struct{ SHA256 string }
	raw, err := os.ReadFile(golden.Shared(t, "data/gguf/golden.json"))
	if err == nil {
		err = json.Unmarshal(raw, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(f.Bytes())
	if got, want := hex.EncodeToString(sum[:]), all["gsm10m-Q8_0"].SHA256; got != want {
		t.Errorf("SHA-256 is %s, want %s", got, want)
	}
	want := open(t, golden.Shared(t, "data/gguf/gsm10m-Q8_0.golden.safetensors"))
	path := f.Write(t, "gsm10m-Q8_0.gguf")
	agrees(t, load(t, path, device(t, kern.Best(), 2), model.Default()), want)
}
