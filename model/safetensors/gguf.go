package safetensors

import (
	"maps"
	"slices"

	"talf/model/ggml"
	"talf/model/gguf"
)

// The metadata that says which format a set comes from.
const (
	MetaFormat = "format"
	FormatGGUF = "gguf"
)

// openGGUF opens the tensors of a GGUF file, or of all parts of one, by the names that they have in
// a Hugging Face directory. They stay in the file's types and are mapped, not copied, but for those
// whose rows the file has in another order: these are copied each time that they are asked for.
func openGGUF(path string) (*Set, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	list, err := f.Tensors()
	if err != nil {
		_ = f.Close() // read only
		return nil, err
	}
	s := &Set{
		Name: path, meta: map[string]string{MetaFormat: FormatGGUF}, tensors: make(map[string]Tensor, len(list)), order: make(map[string][]int), files: make(map[string]string),
		mapped: canRelease, unmap: []func() error{f.Close},
	}
	maps.Copy(s.meta, f.Texts("talf."))
	for _, t := range list {
		s.tensors[t.Name] = Tensor{Name: t.Name, DType: t.Type.Name, Shape: t.Shape, Data: t.Data}
		if t.Order != nil {
			s.order[t.Name] = t.Order
		}
		if t.File != path {
			s.files[t.Name] = t.File
		}
	}
	s.names = slices.Sorted(maps.Keys(s.tensors))
	for _, head := range f.Headers() {
		if canRelease {
			release(head, false)
		}
	}
	return s, nil
}

// Plain returns t for a safetensors file, which has no blocks: as float32 if it is in blocks of a GGUF
// file, which changes no value, and otherwise as it is.
func (t Tensor) Plain() (Tensor, error) {
	if ggml.Blocks(t.DType) == nil {
		return t, nil
	}
	x, err := t.Float32s()
	if err != nil {
		return t, err
	}
	return F32(t.Name, x, t.Shape...), nil
}

// gather copies the rows of data in an order: row i of the copy is row order[i] of data.
func gather(data []byte, order []int) []byte {
	size := len(data) / len(order)
	out := make([]byte, 0, len(data))
	for _, row := range order {
		out = append(out, data[row*size:][:size]...)
	}
	return out
}
