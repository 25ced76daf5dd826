package micro

import (
	"math"
	"testing"

	"talf/model/arch"
	"talf/model/modeltest"
	"talf/model/synth"
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
	for _, bad := range []string{"7m", "110m:spread=2", "moe-225m:spread=0", "moe-225m:top=9,experts=8"} {
		if _, _, err := OpenShape(bad); err == nil {
			t.Errorf("%s is a shape", bad)
		}
	}
}

func TestSpreadScalesTheEmbeddingAlone(t *testing.T) {
	spec := modeltest.Of("qwen3_moe").Spec()
	one, four := synth.RandomWeights(spec, 1), synth.RandomWeights(spec, 1)
	spread(spec, four, 4)
	for _, x := range spec.Tensors() {
		a, _ := one.Tensor(x.Name)
		b, _ := four.Tensor(x.Name)
		if x.Role != arch.Embed {
			if string(a.Data) != string(b.Data) {
				t.Errorf("%s differs", x.Name)
			}
			continue
		}
		for i := 0; i < len(a.Data); i += 2 {
			v := 4 * bf16(a.Data[i:])
			if w := bf16(b.Data[i:]); v != w {
				t.Fatalf("%s: weight %d is %v, want %v", x.Name, i/2, w, v)
			}
		}
	}
}

func bf16(b []byte) float32 { return math.Float32frombits(uint32(b[0])<<16 | uint32(b[1])<<24) }
