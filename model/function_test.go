package model_test

import (
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/compute/cpu/kern"
	"talf/internal/golden"
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

// Earlier releases rounded Q6_K to q8 beside 4-bit weights and called that q4. What they made is not what a model computes whose
// Q6_K is kept; one without any is as it was.
func TestQ6KThatIsKeptIsAPartOfTheFunction(t *testing.T) {
	for name, want := range map[string]string{"llama3-Q4_K_M": "q4 with Q6_K", "qwen2-Q4_0": "q4"} {
		m := fourBit(t, golden.File(t, "gguf/"+name+".gguf"), kern.Best(), 1, 16, compute.Q4)
		f := m.Function()
		if f.Weights != want {
			t.Errorf("%s: weights are %q, want %q", name, f.Weights, want)
		}
		old := *f
		old.Weights = "q4"
		if same := f.Against(&old) == nil; same != (want == "q4") || same != (f.Hash() == old.Hash()) {
			t.Errorf("%s: passes for what an earlier release made as q4: %v", name, same)
		}
	}
}
