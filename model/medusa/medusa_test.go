package medusa

import (
	"testing"

	"talf/compute/cpu"
	"talf/model"
	"talf/model/modeltest"
	"talf/model/safetensors"
)

// An LM head that heads share, as vLLM's may, is in memory once.
func TestASharedLMHeadIsPackedOnce(t *testing.T) {
	dev, err := cpu.New(cpu.Config{Class: cpu.Default().Class, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	conf := modeltest.Default()
	target, err := model.Load(modeltest.Random(t, conf, 1), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer target.Close()
	s := Spec{Heads: 3, Layers: 1, Hidden: conf.Hidden, Vocab: conf.Vocab}
	lm := safetensors.F32("", make([]float32, s.Vocab*s.Hidden), s.Vocab, s.Hidden)
	var ts []safetensors.Tensor
	for h := range s.Heads {
		ts = append(ts, safetensors.F32(s.Weight(h, 0), make([]float32, s.Hidden*s.Hidden), s.Hidden, s.Hidden))
		if lm.Name = s.LMHead(h); h == 2 {
			lm = safetensors.F32(lm.Name, make([]float32, s.Vocab*s.Hidden), s.Vocab, s.Hidden)
		}
		ts = append(ts, lm)
	}
	h, err := New(s, safetensors.Of("shared", ts...), target)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if a, b, other := h.heads[0].lm.W, h.heads[1].lm.W, h.heads[2].lm.W; a != b || a == other {
		t.Error("LM heads of the same memory are not one weight, or others are")
	}
	if h.heads[0].blocks[0].W == h.heads[1].blocks[0].W {
		t.Error("blocks of their own are one weight")
	}
}
