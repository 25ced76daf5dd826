package safetensors

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const stackedLayer = "model.layers.1"

// stackedSet is a set with a layer of two experts of 64 inputs and 32 features, in BF16 or MXFP4.
func stackedSet(mxfp4 bool) []Tensor {
	const e, h, f = 2, 64, 32
	n := 0
	plain := func(name string, shape ...int) Tensor {
		x := Tensor{Name: stackedLayer + name, DType: "BF16", Shape: shape}
		for range x.Len() {
			n = (n*31 + 7) % 251
			x.Data = append(x.Data, byte(n), 0x3f)
		}
		return x
	}
	u8 := func(name string, shape ...int) Tensor {
		x := Tensor{Name: stackedLayer + name, DType: "U8", Shape: shape}
		for range x.Len() {
			n = (n*31 + 7) % 251
			x.Data = append(x.Data, byte(n))
		}
		return x
	}
	out := []Tensor{plain(stackedGateUp+"_bias", e, 2*f), plain(stackedDown+"_bias", e, h), plain(".other", 3)}
	if mxfp4 {
		return append(out,
			u8(stackedGateUp+"_blocks", e, 2*f, h/32, 16), u8(stackedGateUp+"_scales", e, 2*f, h/32),
			u8(stackedDown+"_blocks", e, h, f/32, 16), u8(stackedDown+"_scales", e, h, f/32))
	}
	return append(out, plain(stackedGateUp, e, h, 2*f), plain(stackedDown, e, f, h))
}

// Every element of every expert is where the definitions of the two forms say.
func TestStackedExpertsAreTakenApart(t *testing.T) {
	fp4 := []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6}
	for _, mxfp4 := range []bool{false, true} {
		dir := t.TempDir()
		all := stackedSet(mxfp4)
		stored := Of("stored", all...)
		if err := WriteFile(filepath.Join(dir, "model.safetensors"), nil, all...); err != nil {
			t.Fatal(err)
		}
		s, err := OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if names := s.Names(); len(names) != 1+2*3*2 || !slices.Contains(names, stackedLayer+".other") || !slices.IsSorted(names) {
			t.Errorf("MXFP4 %v: tensors %v", mxfp4, names)
		}
		// at is element [e][out][in] of a stacked matrix.
		at := func(stack string, e, out, in int) float64 {
			if !mxfp4 {
				w, _ := stored.Tensor(stackedLayer + stack)
				x, _ := w.Float32s()
				return float64(x[(e*w.Shape[1]+in)*w.Shape[2]+out])
			}
			q, _ := stored.Tensor(stackedLayer + stack + "_blocks")
			d, _ := stored.Tensor(stackedLayer + stack + "_scales")
			row := (e*q.Shape[1]+out)*q.Shape[2] + in/32
			return math.Ldexp(fp4[q.Data[row*16+in%32/2]>>(in%2*4)&15], int(d.Data[row])-127)
		}
		for e := range 2 {
			for _, c := range []struct {
				name, stack string
				first, step int
				rows, cols  int
			}{
				{"gate_proj", stackedGateUp, 0, 2, 32, 64},
				{"up_proj", stackedGateUp, 1, 2, 32, 64},
				{"down_proj", stackedDown, 0, 1, 64, 32},
			} {
				name := fmt.Sprintf("%s.mlp.experts.%d.%s", stackedLayer, e, c.name)
				w, ok := s.Tensor(name + ".weight")
				d, _ := s.Describe(name + ".weight")
				if !ok || !slices.Equal(w.Shape, []int{c.rows, c.cols}) || len(w.Data) != w.Size() || d.Data != nil || d.Size() != w.Size() {
					t.Fatalf("%s: %v, %d bytes of %s %v", name, ok, len(w.Data), w.DType, w.Shape)
				}
				x, err := w.Float32s()
				if err != nil {
					t.Fatal(err)
				}
				for i, v := range x {
					if want := at(c.stack, e, c.first+i/c.cols*c.step, i%c.cols); float64(v) != float64(float32(want)) {
						t.Fatalf("%s: element %d is %v, want %v", name, i, v, want)
					}
				}
				b, _ := s.Tensor(name + ".bias")
				all, _ := stored.Tensor(stackedLayer + c.stack + "_bias")
				for i := range c.rows {
					if from := e*all.Shape[1] + c.first + i*c.step; !bytes.Equal(b.Data[2*i:][:2], all.Data[2*from:][:2]) {
						t.Fatalf("%s: bias %d differs", name, i)
					}
				}
				s.Release(name+".weight", 0, w.Size())
				if again, _ := s.Tensor(name + ".weight"); !bytes.Equal(again.Data, w.Data) {
					t.Errorf("%s differs after Release", name)
				}
			}
		}
	}
}

// A value that is not finite is found where the expert's matrix has it.
func TestStackedExpertsAreChecked(t *testing.T) {
	dir := t.TempDir()
	all := stackedSet(false)
	for i := range all {
		if all[i].Name == stackedLayer+stackedGateUp { // expert 1, input 5, output 7: up's row 3
			copy(all[i].Data[2*((1*64+5)*64+7):], []byte{0xc0, 0x7f})
		}
	}
	if err := WriteFile(filepath.Join(dir, "model.safetensors"), nil, all...); err != nil {
		t.Fatal(err)
	}
	s, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Finite(stackedLayer+".mlp.experts.1.gate_proj.weight", float32(math.Inf(1))); err != nil {
		t.Error(err)
	}
	err = s.Finite(stackedLayer+".mlp.experts.1.up_proj.weight", float32(math.Inf(1)))
	if err == nil || !strings.Contains(err.Error(), "element [3 5] is NaN") {
		t.Errorf("error %v, want one of element [3 5]", err)
	}
}

func TestStackedExpertsOfOtherShapesAreRefused(t *testing.T) {
	edit := func(mxfp4 bool, name string, change func(*Tensor)) []Tensor {
		all := stackedSet(mxfp4)
		i := slices.IndexFunc(all, func(x Tensor) bool { return x.Name == stackedLayer+name })
		change(&all[i])
		return all
	}
	shape := func(d ...int) func(*Tensor) { return func(x *Tensor) { x.Shape = d } }
	rename := func(x *Tensor) { x.Name += "_of_another" }
	for _, c := range []struct {
		what string
		all  []Tensor
		want string
	}{
		{"a bias of one dimension", edit(false, stackedGateUp+"_bias", shape(128)), "want floating-point numbers of [experts][outputs]"},
		{"an odd number of outputs", edit(false, stackedGateUp+"_bias", shape(128, 1)), "an even number of outputs"},
		{"other experts than the bias", edit(false, stackedGateUp, shape(4, 32, 64)), "want floating-point numbers of [2][inputs][64]"},
		{"outputs first", edit(false, stackedDown, shape(2, 64, 32)), "want floating-point numbers of [2][inputs][64]"},
		{"blocks of another size", edit(true, stackedDown+"_blocks", shape(2, 64, 2, 8)), "want U8 of [2][64][blocks][16]"},
		{"scales of another number", edit(true, stackedDown+"_scales", shape(64, 2)), "want U8 of [2 64 1]"},
		{"no weights", edit(false, stackedDown, rename), `no tensor "model.layers.1.mlp.experts.down_proj" or "model.layers.1.mlp.experts.down_proj_blocks", want the weights`},
		{"no scales", edit(true, stackedDown+"_scales", rename), `no tensor "model.layers.1.mlp.experts.down_proj_scales", want U8 of [2 64 1]`},
		{
			"an expert beside the stack", append(stackedSet(false), F32(stackedLayer+".mlp.experts.0.up_proj.weight", []float32{1}, 1)),
			`experts.0.up_proj.weight" is there beside`,
		},
	} {
		dir := t.TempDir()
		if err := WriteFile(filepath.Join(dir, "model.safetensors"), nil, c.all...); err != nil {
			t.Fatal(err)
		}
		_, err := OpenDir(dir)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(strings.Replace(err.Error(), "no tensor", "tensor", 1), "model.safetensors: tensor ") {
			t.Errorf("%s: error %v, want %q in it", c.what, err, c.want)
		}
	}
	// Tensors without elements cost nothing in a file, whatever their number.
	dir := t.TempDir()
	raw := file(fmt.Sprintf(`{"%s":{"dtype":"F32","shape":[2000000000,0],"data_offsets":[0,0]}}`, stackedLayer+stackedDown+"_bias"), 0)
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), raw, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDir(dir); err == nil || !strings.Contains(err.Error(), "at most 131072 tensors") {
		t.Errorf("two billion experts: %v", err)
	}
}

// Matrices in blocks of 4-bit integers get their names and types, and what is not such blocks is refused.
func TestBlocksThatQ4KeepsAreStored(t *testing.T) {
	open := func(ts ...Tensor) (*Set, error) {
		dir := t.TempDir()
		if err := WriteFile(filepath.Join(dir, "model.safetensors"), nil, ts...); err != nil {
			t.Fatal(err)
		}
		return OpenDir(dir)
	}
	u8 := func(name string, rows, cols int) Tensor {
		return Tensor{Name: name, DType: "U8", Shape: []int{rows, cols}, Data: make([]byte, rows*cols)}
	}
	s, err := open(u8("a.weight_q4_k", 3, 288), u8("b.weight_q4_0", 2, 54), u8("c.weight_q6_k", 5, 420))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, want := range map[string]string{"a.weight": "Q4_K [3 512]", "b.weight": "Q4_0 [2 96]", "c.weight": "Q6_K [5 512]"} {
		x, ok := s.Tensor(name)
		if got := fmt.Sprint(x.DType, " ", x.Shape); !ok || got != want || len(x.Data) != x.Size() {
			t.Errorf("%s is %s of %d bytes, want %s", name, got, len(x.Data), want)
		}
	}
	if len(s.Names()) != 3 {
		t.Errorf("names are %v", s.Names())
	}
	for want, ts := range map[string][]Tensor{
		"whole blocks of 144 bytes":        {u8("a.weight_q4_k", 3, 280)},
		"whole blocks of 210 bytes":        {u8("a.weight_q6_k", 3, 209)},
		"which has the same weights":       {u8("a.weight_q6_k", 3, 210), u8("a.weight_q4_k", 3, 144)},
		`"a.weight" is there beside`:       {u8("a.weight_q4_0", 3, 18), F32("a.weight", make([]float32, 96), 3, 32)},
		`"a.weight_q4_0" is F32 of shape`:  {F32("a.weight_q4_0", make([]float32, 54), 3, 18)},
		"want U8 of [rows][bytes], whole ": {{Name: "a.weight_q4_0", DType: "U8", Shape: []int{36}, Data: make([]byte, 36)}},
	} {
		if s, err := open(ts...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
			if s != nil {
				s.Close()
			}
		}
	}
}
