package net_test

import (
	"context"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"talf/compute/cpu"
	"talf/model"
	"talf/model/arch"
	"talf/model/safetensors"
	"talf/train/internal/gg"
	"talf/train/net"
)

func device(t testing.TB) *cpu.Device {
	t.Helper()
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

func small(draft bool) *arch.Spec {
	s := arch.Llama()
	s.Vocab, s.Hidden, s.Layers, s.Heads, s.KVHeads, s.HeadDim, s.FFN, s.MaxPos = 12, 8, 2, 2, 1, 4, 6, 64
	if draft {
		return s.DraftFor(true)
	}
	return s
}

func tensors(p *net.Params) (ts []safetensors.Tensor) {
	for _, a := range p.Export(nil) {
		ts = append(ts, safetensors.F32(a.Name, a.Data, a.Shape...))
	}
	return ts
}

func TestWeightsSurviveACheckpoint(t *testing.T) {
	q := device(t).Queue()
	for _, draft := range []bool{false, true} {
		p, err := net.New(q, small(draft))
		if err != nil {
			t.Fatal(err)
		}
		p.Init(3)
		again, err := net.New(q, small(draft))
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Import(safetensors.Of("copy", tensors(p)...)); err != nil {
			t.Fatal(err)
		}
		for i, x := range p.Tensors() {
			for j, v := range x.Data {
				if again.Tensors()[i].Data[j] != v {
					t.Fatalf("draft %v: %s[%d] differs", draft, x.Name, j)
				}
			}
		}
	}
}

func TestFCHoldsTheEmbeddingHalfFirst(t *testing.T) {
	p, err := net.New(device(t).Queue(), small(true))
	if err != nil {
		t.Fatal(err)
	}
	p.Init(1)
	e, f, fc := p.Tensors()[0], p.Tensors()[1], p.Export(nil)[0]
	if fc.Name != "fc.weight" || fc.Data[0] != e.Data[0] || fc.Data[8] != f.Data[0] || fc.Data[16] != e.Data[8] {
		t.Errorf("%s begins %v, halves %v and %v", fc.Name, fc.Data[:17], e.Data[:9], f.Data[:1])
	}
}

func TestForeignWeightsAreRefusedByName(t *testing.T) {
	q := device(t).Queue()
	p, err := net.New(q, small(true))
	if err != nil {
		t.Fatal(err)
	}
	p.Init(1)
	all := tensors(p)
	bias := -1
	for i, x := range all {
		if x.Name == "fc.bias" {
			bias = i
		}
	}
	without := append(append([]safetensors.Tensor(nil), all[:bias]...), all[bias+1:]...)
	if err := p.Import(safetensors.Of("no bias", without...)); err != nil {
		t.Errorf("a missing fc.bias is zero: %v", err)
	}
	if err := p.Import(safetensors.Of("half", without[1:]...)); err == nil || !strings.Contains(err.Error(), "fc.weight") {
		t.Errorf("no fc.weight: %v", err)
	}
	odd := append([]safetensors.Tensor(nil), all...)
	odd[bias] = safetensors.F32("fc.bias", make([]float32, 3), 3)
	if err := p.Import(safetensors.Of("odd", odd...)); err == nil || !strings.Contains(err.Error(), "shape [3], want [8]") {
		t.Errorf("a short fc.bias: %v", err)
	}
	spec := *small(true)
	spec.FCBias = false
	plain, err := net.New(q, &spec)
	if err != nil {
		t.Fatal(err)
	}
	one := make([]float32, 8)
	odd[bias] = safetensors.F32("fc.bias", one, 8)
	if err := plain.Import(safetensors.Of("zero bias", odd...)); err != nil {
		t.Errorf("a zero bias for a head without: %v", err)
	}
	one[3] = 1
	odd[bias] = safetensors.F32("fc.bias", one, 8)
	if err := plain.Import(safetensors.Of("bias", odd...)); err == nil {
		t.Error("a bias that the head has no room for is dropped")
	}
	spec = *small(false)
	spec.QKVBias = true
	if _, err := net.New(q, &spec); err == nil || !strings.Contains(err.Error(), "attention_bias") {
		t.Errorf("attention biases: %v", err)
	}
}

// The language model's training graph and the decoder are the same network.
func TestTrainingAndDecodingAgreeOnALanguageModel(t *testing.T) {
	dir := filepath.Join("..", "..", "internal", "demo", "target")
	dev := device(t)
	m, err := model.Load(dir, dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	spec, q := m.Spec(), dev.Queue()
	p, err := net.New(q, spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Import(m.Tensors()); err != nil {
		t.Fatal(err)
	}
	g, err := gg.New(q)
	if err != nil {
		t.Fatal(err)
	}
	const n = 40
	rope := q.Abilities().Train.Host(spec.Rope.Table(spec.HeadDim, 0, n), n, spec.HeadDim)
	lm := net.NewLM(g, p, rope, 2*n)
	g.Keep(lm.Level.Out)
	if err := g.CompileForward(); err != nil {
		t.Fatal(err)
	}
	// Two sequences in one batch do not see each other.
	r := rand.New(rand.NewPCG(1, 1))
	lm.Level.Reset()
	var seqs [2][]int32
	for s := range seqs {
		first := int32(lm.Level.Rows.N)
		for i := range n - 7*s {
			id := int32(r.IntN(spec.Vocab))
			seqs[s] = append(seqs[s], id)
			lm.Level.Add(id, int32(i), first)
		}
	}
	if err := g.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	got := lm.Level.Out.Data()
	for i, ids := range seqs {
		seq := m.NewSeq()
		out, err := seq.Append(context.Background(), ids, nil, model.WantNone)
		if err != nil {
			t.Fatal(err)
		}
		want := make([]float32, len(ids)*spec.Hidden)
		out.ReadHidden(want, out.HiddenRow(0, 0))
		for j, w := range want {
			if math.Abs(float64(got[j]-w)) > 5e-5*max(1, math.Abs(float64(w))) {
				t.Fatalf("sequence %d, element %d: training %v, decoding %v", i, j, got[j], w)
			}
		}
		got = got[len(want):]
		seq.Close()
	}
}
