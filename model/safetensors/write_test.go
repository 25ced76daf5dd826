package safetensors

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// Tensors streamed in the order of Write give the same bytes as Write; in another
// order, the file has the same tensors.
func TestAStreamGivesTheSameFile(t *testing.T) {
	a, b := F32("b", []float32{1, -2, 3, 4}, 2, 2), F32("a", make([]float32, 40000), 40000)
	c := Tensor{Name: "c", DType: "I8", Shape: []int{3}, Data: []byte{1, 2, 3}}
	for i := 0; i < len(b.Data); i += 4 {
		b.Data[i] = byte(i)
	}
	meta := map[string]string{"k": "v"}
	var want bytes.Buffer
	if err := Write(&want, meta, a, b, c); err != nil {
		t.Fatal(err)
	}
	stream := func(order ...Tensor) []byte {
		var got bytes.Buffer
		var bare []Tensor
		for _, x := range order {
			x.Data = nil
			bare = append(bare, x)
		}
		w, err := NewWriter(&got, meta, bare...)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range order {
			if x.DType == "F32" {
				f, err := x.Float32s()
				if err != nil {
					t.Fatal(err)
				}
				if err := w.Float32s(f); err != nil {
					t.Fatal(err)
				}
			} else if _, err := w.Write(x.Data); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return got.Bytes()
	}
	if !bytes.Equal(stream(b, a, c), want.Bytes()) {
		t.Error("streamed in the order of Write, the bytes differ")
	}
	set, err := Parse("other order", stream(c, a, b))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []Tensor{a, b, c} {
		if got, ok := set.Tensor(x.Name); !ok || !bytes.Equal(got.Data, x.Data) || !slices.Equal(got.Shape, x.Shape) {
			t.Errorf("tensor %q is not what was written", x.Name)
		}
	}
}

func TestAStreamMustMatchItsDeclaration(t *testing.T) {
	announced := Tensor{Name: "x", DType: "F32", Shape: []int{3}}
	for want, writes := range map[string][]int{ // numbers of elements
		"4 bytes are missing":               {2},
		"want at most the 0 that are left":  {3, 1},
		"want at most the 12 that are left": {4},
	} {
		w, err := NewWriter(new(bytes.Buffer), nil, announced)
		for _, n := range writes {
			if err == nil {
				err = w.Float32s(make([]float32, n))
			}
		}
		if err == nil {
			err = w.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in the error", err, want)
		}
	}
	for _, bad := range [][]Tensor{{announced, announced}, {{Name: "__metadata__", DType: "I8"}}, {{Name: "y", DType: "Q4"}}} {
		if _, err := NewWriter(new(bytes.Buffer), nil, bad...); err == nil || !strings.Contains(err.Error(), bad[0].Name) {
			t.Errorf("%v: %v, want an error that names the tensor", bad, err)
		}
	}
}
