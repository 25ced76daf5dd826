//go:build gpu && linux && cgo

package e2e

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/compute/cuda"
	"talf/model"
	"talf/model/modeltest"
	"talf/tree"
)

// On a CUDA device, too, texts below and beyond the length at which longrope turns all positions otherwise share a pass: each
// has the bits that it has alone, and the CPU's logits.
func TestLongropeOnACUDADevice(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	conf := modeltest.Of("phi3")
	conf.Window, conf.Original = 0, 30
	dir := t.TempDir()
	if err := modeltest.Write(dir, conf, 3); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 8))
	ids := make([]int32, 45)
	for i := range ids {
		ids[i] = rng.Int32N(int32(conf.Vocab))
	}
	tr := tree.New(ids[0], 3)
	tr.Add(0, ids[1])
	tr.Add(0, ids[2])
	texts := []int{28, 45, 28} // the last as the beginning of a long one
	// logits returns those of all nodes below all texts, in one pass or in one for each.
	logits := func(dev compute.Device, together bool) (all []float32) {
		opt := model.Default()
		opt.Positions = 256
		m, err := model.Load(dir, dev, opt)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		var batch []model.Segment
		for i, n := range texts {
			s := m.NewSeqOf(n + 2 + i/2*conf.Original)
			defer s.Close()
			if s.Long() != (i > 0) {
				t.Fatalf("text %d of %d tokens: long is %v", i, n, s.Long())
			}
			if _, err := s.Append(t.Context(), ids[:n], nil, model.WantNone); err != nil {
				t.Fatal(err)
			}
			batch = append(batch, model.Segment{Rows: s.Branch(n), Tree: tr, Want: model.WantAll})
		}
		passes := [][]model.Segment{batch}
		if !together {
			passes = [][]model.Segment{batch[:1], batch[1:2], batch[2:]}
		}
		for _, p := range passes {
			o, err := m.Forward(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			row := make([]float32, len(p)*tr.Len()*conf.Vocab)
			o.ReadLogits(row, 0)
			all = append(all, row...)
		}
		return all
	}
	host, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	dev, err := cuda.New(cuda.Default())
	if err != nil {
		t.Fatal(err)
	}
	want, got, alone := logits(host, true), logits(dev, true), logits(dev, false)
	if err := errors.Join(dev.Close(), host.Close()); err != nil {
		t.Fatal(err)
	}
	n := tr.Len() * conf.Vocab
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(alone[i]) {
			t.Fatalf("text %d, logit %d: %g, alone %g", i/n, i%n, got[i], alone[i])
		}
		if math.Abs(float64(got[i]-want[i])) > 1e-5*max(1, math.Abs(float64(want[i]))) {
			t.Fatalf("text %d, logit %d: %g, on the CPU %g", i/n, i%n, got[i], want[i])
		}
	}
	if got[0] == got[2*n] {
		t.Error("a short text and the beginning of a long one have the same logits")
	}
}
