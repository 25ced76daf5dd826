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

// A family with one more tensor needs one more line in its inventory: here GPT-NeoX
// with a gate. Sizes, the memory plan, random weights and the loader, which packs and
// uses the tensor, all follow the line.
func TestATensorIsAddedToAFamilyByOneLine(t *testing.T) {
	plain := modeltest.Of("gpt_neox").Spec()
	gated := *plain
	gated.Terms = append(slices.Clone(plain.Terms), arch.Term{
		Role: arch.Gate, Name: "gpt_neox.layers.%d.mlp.gate", Rows: arch.FFNSize, Cols: arch.HiddenSize, Bias: arch.IfMLPBias,
	})
	more := plain.Layers * plain.FFN * (plain.Hidden + 1)
	if n := gated.Params() - plain.Params(); n != more {
		t.Errorf("sizes: %d parameters more, want %d", n, more)
	}
	opt := model.Default()
	planned := func(s *arch.Spec) int64 { return model.Plan(s, &limited{}, opt).Weights }
	if n := planned(&gated) - planned(plain); n != int64(4*plain.Layers*plain.FFN*plain.Hidden) {
		t.Errorf("memory plan: %d bytes more, want those of the gates", n)
	}
	dev := device(t, kern.Best(), 1)
	weights := modeltest.Tensors(&gated, false, 1)
	load := func(s *arch.Spec, ts []safetensors.Tensor) (*model.Model, error) {
		return model.New(s, safetensors.Of("weights", ts...), dev, opt)
	}
	without := slices.DeleteFunc(slices.Clone(weights), func(x safetensors.Tensor) bool { return strings.Contains(x.Name, "1.mlp.gate.") })
	if len(without) != len(weights)-2 {
		t.Fatalf("random weights: %d tensors of a gate, want 2", len(weights)-len(without))
	}
	if _, err := load(&gated, without); err == nil || !strings.Contains(err.Error(), `no tensor "gpt_neox.layers.1.mlp.gate.weight"`) {
		t.Errorf("without a gate it loads: %v", err)
	}
	ids := []int32{3, 1, 4, 1, 5}
	a, _ := run(t, must[*model.Model](t)(load(&gated, weights)), ids, len(ids))
	b, _ := run(t, must[*model.Model](t)(load(plain, weights)), ids, len(ids))
	if sameBits(a, b) == nil {
		t.Error("the gate is loaded and changes nothing")
	}
}

// A tensor that the network cannot use must not be ignored: the results would be
// another network's.
func TestAnUnusedTensorIsRefused(t *testing.T) {
	spec := *modeltest.Default().Spec()
	spec.Terms = append(slices.Clone(spec.Terms), arch.Term{Role: "router", Name: "model.layers.%d.mlp.router", Rows: arch.HeadSize, Cols: arch.HiddenSize})
	weights := modeltest.Tensors(&spec, false, 1)
	dev := device(t, kern.Best(), 1)
	for _, lazy := range []bool{false, true} {
		opt := model.Default()
		opt.Lazy = lazy
		_, err := model.New(&spec, safetensors.Of("weights", weights...), dev, opt)
		if err == nil || !strings.Contains(err.Error(), `tensor "model.layers.0.mlp.router.weight": a model with such a tensor (router) cannot be run`) {
			t.Errorf("lazy %v: %v", lazy, err)
		}
	}
}
