package model_test

import (
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/compute/cpu/kern"
	"talf/model"
	"talf/model/modeltest"
)

// Whatever changes a bit of the results is a part of the function, and nothing else is.
func TestTheFunctionIsHowAModelIsComputed(t *testing.T) {
	dir := modeltest.Random(t, modeltest.Default(), 1)
	of := func(c cpu.Config, opt model.Options) *model.Model {
		dev, err := cpu.New(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dev.Close() })
		return load(t, dir, dev, opt)
	}
	with := func(change func(*model.Options)) model.Options {
		opt := model.Default()
		change(&opt)
		return opt
	}
	plain := cpu.Config{Class: kern.Portable, Threads: 1}
	base := of(plain, model.Default()).Function()
	for what, m := range map[string]*model.Model{
		"threads": of(cpu.Config{Class: kern.Portable, Threads: 2}, model.Default()),
		"class":   of(cpu.Config{Class: kern.Best(), Threads: 1}, model.Default()),
		"rows":    of(plain, with(func(o *model.Options) { o.MaxRows = 3 })),
		"8 bits of activations, of which f32 knows nothing": of(cpu.Config{Class: kern.Portable, Threads: 1, ActBits: 8}, model.Default()),
	} {
		if d := m.Function().Against(base); d != nil {
			t.Errorf("%s: %s", what, d.Since("it was made"))
		}
	}
	q8 := with(func(o *model.Options) { o.DType = compute.Q8 })
	for want, m := range map[string]*model.Model{
		"the type of keys and values is bf16, it was made with f32":                                                 of(plain, with(func(o *model.Options) { o.KV = compute.BF16 })),
		"the type of weights is bf16, it was made with f32":                                                         of(plain, with(func(o *model.Options) { o.DType = compute.BF16 })),
		"the type of weights is q8, it was made with f32; the type of activations in products is int16, not f32":    of(plain, q8),
		"the type of weights is bf16dp, it was made with f32; the type of activations in products is bf16, not f32": of(plain, with(func(o *model.Options) { o.DType = compute.BF16DP })),
		"the type of weights is q8, it was made with f32; the type of activations in products is int8, not f32":     of(cpu.Config{Class: kern.Portable, Threads: 1, ActBits: 8}, q8),
	} {
		if got := m.Function().Against(base).Since("it was made"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
