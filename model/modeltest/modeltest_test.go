package modeltest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

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
		}
		if !special[name] {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
