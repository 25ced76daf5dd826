package synth

import (
	"math"
	"testing"

	"talf/model/arch"
	"talf/model/modeltest"
)

func TestShapesAreFoundByName(t *testing.T) {
	for _, name := range Shapes.Names() {
		x, v, err := Shapes.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.make(v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []string{"7m", "110m:skew=1", "moe-225m:skew=-1", "moe-225m:top=9,experts=8"} {
		if _, _, err := Open(bad); err == nil {
			t.Errorf("%s is a shape", bad)
		}
	}
}

// A skewed router has rows of different norms; nothing else differs.
func TestSkewChangesRoutersAlone(t *testing.T) {
	spec := modeltest.Of("qwen3_moe").Spec()
	even, skewed := RandomWeights(spec, 1), RandomWeights(spec, 1)
	skew(spec, skewed, 2)
	for _, x := range spec.Tensors() {
		a, _ := even.Tensor(x.Name)
		b, _ := skewed.Tensor(x.Name)
		if same := string(a.Data) == string(b.Data); same == (x.Role == arch.Router) {
			t.Errorf("%s: the same with a skew: %v", x.Name, same)
		}
		if x.Role != arch.Router {
			continue
		}
		least, most := math.Inf(1), 0.0
		for row := range x.Rows {
			sum := 0.0
			for i := range x.Cols {
				v := float64(math.Float32frombits(uint32(b.Data[2*(row*x.Cols+i)])<<16 | uint32(b.Data[2*(row*x.Cols+i)+1])<<24))
				sum += v * v
			}
			least, most = min(least, sum), max(most, sum)
		}
		if most < 4*least {
			t.Errorf("%s: squared norms of %v to %v, want them to differ more", x.Name, least, most)
		}
	}
}
