package model_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cpu/kern"
	"talf/internal/limits/costtest"
	"talf/model"
	"talf/model/arch"
	"talf/model/modeltest"
	"talf/model/safetensors"
)

// dense is a random model with latent attention and no experts.
func dense() *arch.Spec {
	s := modeltest.Of("deepseek_v3").Spec()
	s.Mixture = arch.Mixture{}
	return s
}

// The account of memory says what the weights and a position of latent attention take.
func TestLatentAttentionIsAccountedFor(t *testing.T) {
	dev := device(t, kern.Best(), 1)
	s := dense()
	for _, as := range dtypes {
		for _, kv := range []compute.DType{compute.F32, compute.BF16} {
			opt := model.Default()
			opt.DType, opt.KV = as, kv
			m := must[*model.Model](t)(model.New(s, safetensors.Of("weights", modeltest.Tensors(s, false, 1)...), dev, opt))
			planner := dev.Abilities().Account
			f := model.Plan(s, planner, opt)
			embed, sums := planner.WeightBytes(as, compute.NotKept, s.Vocab, s.Hidden), planner.WeightBytes(compute.F32, compute.NotKept, 1, s.Vocab)
			if got := int64(m.WeightBytes()) + embed + sums; got != f.Weights {
				t.Errorf("%v: weights take %d bytes, the account says %d", as, got, f.Weights)
			}
			// A rotated key and the latent, which is also kept as values are read.
			if got, want := m.PositionBytes(), int64(s.Layers*(8+18+18)*kv.Size()); got != want {
				t.Errorf("%v: a position takes %d bytes, want %d", kv, got, want)
			} else if said := int64(s.Layers * s.KVElements() * kv.Size()); got != said {
				t.Errorf("%v: a position takes %d bytes, its %d numbers in a layer %d", kv, got, s.KVElements(), said)
			}
		}
	}
}

// A model without compressed queries has the results of one whose compression changes nothing: the
// identity, and a norm of what was normed to a mean square of 1.
func TestQueriesThatAreNotCompressed(t *testing.T) {
	direct, through := dense(), dense()
	direct.Latent.QRank, through.Latent.QRank = 0, through.Hidden
	weights := modeltest.Tensors(direct, false, 3)
	for i, x := range weights {
		if strings.HasSuffix(x.Name, ".input_layernorm.weight") {
			weights[i] = safetensors.F32(x.Name, ones(direct.Hidden), direct.Hidden)
		}
	}
	other := make([]safetensors.Tensor, 0, len(weights))
	for _, x := range weights {
		at := strings.TrimSuffix(x.Name, "q_proj.weight")
		if at == x.Name {
			other = append(other, x)
			continue
		}
		h := direct.Hidden
		identity := make([]float32, h*h)
		for i := range h {
			identity[i*h+i] = 1
		}
		x.Name = at + "q_b_proj.weight"
		other = append(other, x, safetensors.F32(at+"q_a_proj.weight", identity, h, h), safetensors.F32(at+"q_a_layernorm.weight", ones(h), h))
	}
	dev := device(t, kern.Best(), 2)
	ids := []int32{5, 9, 60, 31, 4, 4, 80, 2, 17}
	results := func(s *arch.Spec, ts []safetensors.Tensor) []float32 {
		m := must[*model.Model](t)(model.New(s, safetensors.Of("weights", ts...), dev, model.Default()))
		whole, _ := run(t, m, ids, len(ids))
		plain, _ := run(t, m, ids, 1)
		if err := sameBits(plain, whole); err != nil {
			t.Errorf("token by token: %v", err)
		}
		return whole
	}
	a, b := results(direct, weights), results(through, other)
	for i := range a {
		// The second norm divides by what the epsilon of the first leaves, and products round: 2e-5 in all.
		if math.Abs(float64(a[i]-b[i])) > 1e-4 {
			t.Fatalf("logit %d is %v without compressed queries and %v with a compression that changes nothing", i, a[i], b[i])
		}
	}
}

// Rows are put into another order only if the file has them: what config.json says of their number costs
// nothing.
func TestRowsThatAFileLacksAreNotOrdered(t *testing.T) {
	dev := device(t, kern.Best(), 1)
	latent, pairs := dense(), modeltest.Of("cohere2").Spec()
	weights := [][]safetensors.Tensor{modeltest.Tensors(latent, false, 1), modeltest.Tensors(pairs, false, 1)}
	latent.Heads, latent.KVHeads, latent.RotDim, latent.HeadDim = 1, 1, 1<<25, 1<<26
	latent.Latent.KVRank, latent.Latent.Nope = 1<<25, 1<<25
	pairs.HeadDim = 1 << 24
	for i, s := range []*arch.Spec{latent, pairs} {
		opt := model.Default()
		opt.Lazy = true // the account of memory refuses such a model, but only when it is packed
		costtest.Check(t, s.Arch, costtest.Bound{Yards: costtest.Default.Yards, Bytes: 64 << 20}, func(context.Context) {
			_, err := model.New(s, safetensors.Of("weights", weights[i]...), dev, opt)
			if err == nil || !strings.Contains(err.Error(), "want [67108864 40] from the configuration") {
				t.Errorf("%s: %v", s.Arch, err)
			}
		})
	}
}

func ones(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = 1
	}
	return x
}

// A device without the operations that latent attention needs is refused by its name.
func TestLatentAttentionNeedsItsOperations(t *testing.T) {
	dev := without{device(t, kern.Best(), 1)}
	s := dense()
	_, err := model.New(s, safetensors.Of("weights", modeltest.Tensors(s, false, 1)...), dev, model.Default())
	if err == nil || !strings.Contains(err.Error(), "deepseek_v3 models have multi-head latent attention, which "+dev.Name()+" does not have yet: use the CPU") {
		t.Errorf("on a device without latent attention: %v", err)
	}
}

// without is a device without latent attention.
type without struct{ compute.Device }

func (d without) Queue() compute.Queue { return plainQueue{d.Device.Queue()} }

type plainQueue struct{ compute.Queue }

func (q plainQueue) Abilities() compute.Abilities {
	can := q.Queue.Abilities()
	can.Latent = nil
	return can
}
