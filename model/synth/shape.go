package synth

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"talf/model/arch"
	"talf/model/safetensors"
)

// A Shape is the architecture of a model with random weights. The cost of a pass does
// not depend on the values of the weights.
type Shape struct {
	Name, Doc string
	Spec      func() *arch.Spec
}

// Shapes returns the shapes, smallest first.
func Shapes() []Shape {
	llama := func(vocab, hidden, layers, heads, kvHeads, ffn int) func() *arch.Spec {
		return func() *arch.Spec {
			s := arch.Llama()
			s.Vocab, s.Hidden, s.Layers, s.Heads, s.KVHeads = vocab, hidden, layers, heads, kvHeads
			s.HeadDim, s.FFN, s.MaxPos, s.Tied = hidden/heads, ffn, 4096, true
			return s
		}
	}
	return []Shape{
		{"10m", "hidden 256, 12 layers, 8 heads, vocabulary 4096", llama(4096, 256, 12, 8, 8, 688)},
		{"110m", "hidden 768, 12 layers, 12 heads, vocabulary 32000", llama(32000, 768, 12, 12, 12, 2048)},
		{"1b", "hidden 2048, 16 layers, 32 heads of which 8 for keys, vocabulary 128256, as Llama 3.2 1B", llama(128256, 2048, 16, 32, 8, 8192)},
	}
}

// FindShape returns the shape with the given name.
func FindShape(name string) (Shape, error) {
	var names []string
	for _, s := range Shapes() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return Shape{}, fmt.Errorf("no shape %q: want one of %s", name, strings.Join(names, ", "))
}

// RandomWeights returns bfloat16 weights for a Llama, scaled so that hidden states
// neither vanish nor explode.
func RandomWeights(s *arch.Spec, seed uint64) *safetensors.Set {
	var out []safetensors.Tensor
	add := func(name string, mean, std float64, shape ...int) {
		r := rand.New(rand.NewPCG(seed, uint64(len(out))))
		t := safetensors.Tensor{Name: name, DType: "BF16", Shape: shape}
		n := t.Len()
		t.Data = make([]byte, 0, 2*n)
		for range n {
			x := float32(mean + std*math.Sqrt(12)*(r.Float64()-0.5))
			t.Data = binary.LittleEndian.AppendUint16(t.Data, uint16(math.Float32bits(x)>>16))
		}
		out = append(out, t)
	}
	// The random streams are numbered in this order, which determines the weights'
	// bits: tensors outside layers first, and norms first in each layer.
	ts := s.Tensors()
	slices.SortStableFunc(ts, func(a, b arch.Tensor) int {
		if d := cmp.Compare(a.Layer, b.Layer); d != 0 || a.Layer < 0 {
			return d
		}
		return cmp.Compare(min(a.Cols, 1), min(b.Cols, 1))
	})
	for _, t := range ts {
		if t.Cols == 0 {
			add(t.Name, 1, 0.1, t.Rows)
		} else {
			add(t.Name, 0, 1/math.Sqrt(float64(t.Cols)), t.Rows, t.Cols)
		}
	}
	return safetensors.Of("random weights", out...)
}

// ShapeNames lists the shapes with what they are, for help.
func ShapeNames() string {
	var names []string
	for _, s := range Shapes() {
		names = append(names, s.Name+" ("+s.Doc+")")
	}
	return strings.Join(names, "; ")
}
