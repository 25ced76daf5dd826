package model_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cpu/kern"
	"talf/model"
	"talf/model/arch"
	"talf/model/modeltest"
	"talf/model/safetensors"
)

// A missing tensor is reported by name, and a tensor of the wrong shape by both shapes.
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

// Tensors that published files contain in addition to the weights change nothing.
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

// TestSmallWeightsOfEveryArchitecture packs the fixtures in each format. The logits
// must stay near those of F32, and a tree must have the bits of plain decoding.
func TestSmallWeightsOfEveryArchitecture(t *testing.T) {
	ctx := context.Background()
	dev := device(t, kern.Best(), 2)
	for _, name := range fixtures {
		dir, set := fixture(t, name)
		want, ids := floats(t, set, "logits"), ints(t, set, "input_ids")
		for _, dt := range dtypes[1:] {
			m := load(t, dir, dev, model.Options{DType: dt, MaxRows: 512})
			v := m.Spec().Vocab
			got, _ := run(t, m, ids, len(ids))
			var diff, size float64
			for i, w := range want {
				diff += (float64(got[i]) - float64(w)) * (float64(got[i]) - float64(w))
				size += float64(w) * float64(w)
			}
			// Weights are rounded to 8 bits: to 2⁻⁹ of their size for bfloat16, and to
			// 1/127 of a block's largest value for q8. The errors add up over the
			// layers, and so do those of bf16dp's activations. Random weights show this at its worst.
			if rel := math.Sqrt(diff / size); rel > map[compute.DType]float64{compute.BF16: 0.02, compute.BF16DP: 0.03, compute.Q8: 0.06}[dt] {
				t.Errorf("%s as %v: the logits' relative error is %.3f", name, dt, rel)
			}
			tr := randomTree(rand.New(rand.NewPCG(4, 4)), v, 12)
			s := m.NewSeq()
			must[*model.Output](t)(s.Append(ctx, ids, nil, model.WantNone))
			o := must[*model.Output](t)(m.Forward(ctx, []model.Segment{{Rows: s.Branch(s.Len()), Tree: tr, Want: model.WantAll}}))
			all := make([]float32, tr.Len()*v)
			o.ReadLogits(all, 0)
			s.Close()
			for n := range tr.Len() {
				path := slices.Clone(ids)
				for _, p := range tr.AppendPath(nil, n) {
					path = append(path, tr.Token(p))
				}
				plain, _ := run(t, m, path, 1)
				if err := sameBits(all[n*v:][:v], plain[len(plain)-v:]); err != nil {
					t.Fatalf("%s as %v, node %d: %v", name, dt, n, err)
				}
			}
		}
	}
}
