package model_test

import (
	"slices"
	"strings"
	"testing"

	"talf/compute/cpu/kern"
	"talf/model"
	"talf/model/arch"
	"talf/model/modeltest"
	"talf/model/safetensors"
)

// Every tensor that a model needs is missed by name, and one of another shape is
// refused with both shapes.
func TestEveryTensorIsNeeded(t *testing.T) {
	dev := device(t, kern.Best(), 1)
	for _, name := range arch.Supported() {
		spec := modeltest.Of(name).Spec()
		all := modeltest.Tensors(spec, false, 1)
		refused := func(want ...string) {
			t.Helper()
			_, err := model.New(spec, safetensors.Of("weights", all...), dev, model.Default())
			for _, w := range append(want, "weights: ") {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("%s: error %v, want %q in it", name, err, w)
				}
			}
		}
		for i, x := range all {
			all = slices.Delete(slices.Clone(all), i, i+1)
			refused("no tensor", x.Name)
			all = slices.Insert(all, i, x)
			wrong := safetensors.F32(x.Name, make([]float32, 3*7), 3, 7)
			all[i] = wrong
			refused(x.Name, "shape [3 7]", "from the configuration")
			all[i] = x
		}
		if _, err := model.New(spec, safetensors.Of("weights", all...), dev, model.Default()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Tensors that the published files have beside the weights change nothing.
func TestOtherTensorsAreIgnored(t *testing.T) {
	dev := device(t, kern.Best(), 1)
	spec := modeltest.Of("gpt_neox").Spec()
	all := modeltest.Tensors(spec, false, 1)
	more := append(slices.Clone(all),
		safetensors.F32("gpt_neox.layers.0.attention.rotary_emb.inv_freq", make([]float32, 2), 2),
		safetensors.F32("gpt_neox.layers.0.attention.masked_bias", make([]float32, 1)),
	)
	ids := []int32{3, 1, 4, 1, 5}
	var want []float32
	for _, ts := range [][]safetensors.Tensor{all, more} {
		m := must[*model.Model](t)(model.New(spec, safetensors.Of("weights", ts...), dev, model.Default()))
		got, _ := run(t, m, ids, len(ids))
		if want == nil {
			want = got
		}
		if err := sameBits(got, want); err != nil {
			t.Error(err)
		}
	}
}
