package modeltest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/compute"
	"talf/model/arch"
	"talf/model/safetensors"
)

func TestRandomIsAModelDirectory(t *testing.T) {
	c := Default()
	c.MLPBias, c.AttnBias, c.BF16 = true, true, true
	dir := Random(t, c, 7)
	s, err := arch.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := c.Spec()
	if d := cmp.Diff(want, s); d != "" {
		t.Errorf("spec (-want +got):\n%s", d)
	}
	a, err := safetensors.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for _, w := range Tensors(want, true, 7) {
		if got, _ := a.Tensor(w.Name); string(got.Data) != string(w.Data) {
			t.Errorf("%s differs between equal seeds", w.Name)
		}
	}
}

// Of knows every architecture and its special features.
func TestOfCoversTheArchitectures(t *testing.T) {
	for _, name := range arch.Supported() {
		s := Of(name).Spec()
		if s.Arch != name {
			t.Errorf("%s: made a %s", name, s.Arch)
		}
		special := map[string]bool{
			"llama": s.Windows == nil, "mistral": s.Window(0) > 0, "qwen2": s.QKVBias && s.Window(0) == 0 && s.Window(1) > 0,
			"qwen3": s.Has(arch.QNorm), "gpt_neox": s.LayerNorm && s.Parallel && s.RotDim == 4 && !s.Has(arch.Gate),
			"gemma2":      s.AttnCap > 0 && s.LogitCap > 0 && s.NormOffset && s.EmbedScale > 0 && s.Has(arch.FFNOutNorm) && s.Window(0) > 0 && s.Window(1) == 0,
			"gemma3_text": s.LocalRope.Theta > 0 && s.Rope.Type == "linear" && s.Has(arch.QNorm) && s.Window(0) > 0 && s.Window(1) == 0,
			"phi3":        s.Has(arch.QKVRows) && s.Has(arch.GateUp) && s.Window(1) > 0,
			"olmo2":       s.Has(arch.AttnOutNorm) && !s.Has(arch.InputNorm) && !s.NormsHeads(),
			"granite":     s.EmbedScale > 0 && s.ResidScale > 0 && s.AttnScale > 0 && s.LogitScale > 0,
			"smollm3":     s.RotatedIn(0) > 0 && s.RotatedIn(1) == 0,
			"starcoder2":  s.LayerNorm && s.MLPBias && s.Act == compute.GELUTanh && s.Window(0) > 0,
			"mixtral":     s.Mixture.Experts == 5 && s.Mixture.Renorm && s.Mixture.Sparse(0),
			"qwen2_moe":   s.Mixture.Shared == 36 && s.Mixture.Gated && s.QKVBias && !s.Mixture.Sparse(0) && s.Mixture.Sparse(1),
			"qwen3_moe":   s.Mixture.Experts == 7 && s.Has(arch.QNorm),
			"qwen3_next":  s.Delta.On(0) && !s.Delta.On(1) && s.Delta.KeyHeads == 2 && s.NormOffset && s.Rotated() == 4 && s.Mixture.Shared == 36 && s.Mixture.Gated,
			"glm4_moe":    s.Mixture.Sigmoid && s.Mixture.Groups == 3 && s.HeadNorms && s.Rotated() == 4 && !s.Mixture.Sparse(0) && s.Mixture.Sparse(1),
			"deepseek_v3": s.Latent.On() && s.Latent.QRank > 0 && s.AttnScale > 0 && s.RopePairs && s.Mixture.Groups == 3,
			"gpt_oss":     s.Has(arch.Sinks) && s.Act == compute.ClampedSwiGLU && s.ActLimit == 0.75 && s.Window(0) > 0 && s.Window(1) == 0 && !s.Rope.Truncate,
			"cohere2":     s.Parallel && s.RopePairs && !s.Has(arch.PostNorm) && s.LogitScale > 0 && s.RotatedIn(1) == 0,
		}
		if !special[name] {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
