package micro

import (
	"math"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/model"
	"talf/model/arch"
	"talf/model/modeltest"
	"talf/model/synth"
)

// Matrices have four bits and about the deviation of the others, and nothing else changes.
func TestFourBitWeightsAreAsLargeAsTheOthers(t *testing.T) {
	spec := modeltest.Of("qwen3_moe").Spec()
	spec.Vocab, spec.Hidden = 64, 64
	set := synth.RandomWeights(spec, 1)
	four := FourBit(spec, set)
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	stored := model.Kept(four, dev)
	if len(stored) == 0 {
		t.Fatal("no matrix has four bits")
	}
	for _, x := range spec.Tensors() {
		before, _ := set.Tensor(x.Name)
		after, ok := four.Tensor(x.Name)
		if want := x.Cols > 0 && x.Cols%32 == 0 && x.Role != arch.Router; !ok || (stored[x.Name] != compute.NotKept) != want {
			t.Fatalf("%s: four bits: %v, want %v", x.Name, stored[x.Name], want)
		}
		if stored[x.Name] == compute.NotKept {
			if after.DType != before.DType || string(after.Data) != string(before.Data) {
				t.Errorf("%s changed", x.Name)
			}
			continue
		}
		v, err := after.Float32s()
		if err != nil {
			t.Fatal(err)
		}
		sum, square := 0.0, 0.0
		for _, f := range v {
			sum, square = sum+float64(f), square+float64(f)*float64(f)
		}
		n := float64(len(v))
		deviation := math.Sqrt(square/n-(sum/n)*(sum/n)) * math.Sqrt(float64(x.Cols))
		if deviation < 0.65 || deviation > 1.5 {
			t.Errorf("%s: a deviation of %.2f of the others'", x.Name, deviation)
		}
	}
}
