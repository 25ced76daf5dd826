package synth_test

import (
	"context"
	"math"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/model"
	"talf/model/arch"
	"talf/model/modeltest"
	"talf/model/safetensors"
	"talf/model/synth"
)

func TestDeepenedModelComputesTheSame(t *testing.T) {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for _, name := range arch.Supported() {
		t.Run(name, func(t *testing.T) {
			dir := modeltest.Random(t, modeltest.Of(name), 3)
			spec, err := arch.Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			set, err := safetensors.OpenDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer set.Close()
			if _, _, err := synth.Deepen(spec, set, spec.Layers-1); err == nil {
				t.Error("a model can be deepened to fewer layers")
			}
			deep, more, err := synth.Deepen(spec, set, 3*spec.Layers+1)
			if err != nil {
				t.Fatal(err)
			}
			for _, dt := range []compute.DType{compute.F32, compute.BF16, compute.Q8} {
				opt := model.Options{DType: dt, MaxRows: 64}
				a, err := model.New(spec, set, dev, opt)
				if err != nil {
					t.Fatal(err)
				}
				defer a.Close()
				b, err := model.New(deep, more, dev, opt)
				if err != nil {
					t.Fatal(err)
				}
				defer b.Close()
				if a.WeightBytes() >= b.WeightBytes() {
					t.Errorf("%v: %d bytes of weights, deepened %d", dt, a.WeightBytes(), b.WeightBytes())
				}
				ids := []int32{5, 3, 8, 1, 9, 2}
				got, want := logits(t, b, ids), logits(t, a, ids)
				for i := range want {
					if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
						t.Fatalf("%v: logit %d is %v deepened, %v before", dt, i, got[i], want[i])
					}
				}
			}
		})
	}
}

func logits(t *testing.T, m *model.Model, ids []int32) []float32 {
	t.Helper()
	s := m.NewSeq()
	defer s.Close()
	o, err := s.Append(context.Background(), ids, nil, model.WantAll)
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, len(ids)*m.Spec().Vocab)
	o.ReadLogits(x, 0)
	return x
}
