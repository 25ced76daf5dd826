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
	want.BOS = 1
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
