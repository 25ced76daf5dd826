package inspect

import (
	"fmt"

	"talf/model/safetensors"
)

// Tensors lists a safetensors file.
type Tensors struct {
	Kind     string            `json:"kind"` // "tensors"
	Path     string            `json:"path"`
	Metadata map[string]string `json:"metadata,omitempty"`
	Tensors  []Tensor          `json:"tensors"`
}

// A Tensor is one of them.
type Tensor struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
}

// openTensors lists the safetensors file at path.
func openTensors(path string) (*Tensors, error) {
	set, err := safetensors.Open(path)
	if err != nil {
		return nil, err
	}
	defer set.Close()
	f := &Tensors{Kind: "tensors", Path: path, Metadata: set.Metadata()}
	for _, name := range set.Names() {
		t, _ := set.Tensor(name)
		f.Tensors = append(f.Tensors, Tensor{t.Name, t.DType, t.Shape})
	}
	return f, nil
}

func (f *Tensors) String() string {
	var p page
	p.printf("tensors       %d in %s\n", len(f.Tensors), f.Path)
	for _, t := range f.Tensors {
		p.printf("%-5s %-16s %s\n", t.DType, fmt.Sprint(t.Shape), t.Name)
	}
	return p.String()
}
