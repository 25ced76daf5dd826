// Package write writes GGUF files: keys with values, and tensors of plain numbers. What it knows to
// write as one is a draft head, EAGLE-3's or a block drafter's, with its target's tokenizer, as llama.cpp reads it.
package write

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"talf/model/gguf"
	"talf/model/safetensors"
)

// Numbers of types of values (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
const (
	kindU32    = 4
	kindI32    = 5
	kindF32    = 6
	kindBool   = 7
	kindString = 8
	kindArray  = 9
)

// kinds are the numbers of the types of tensors that are written.
var kinds = map[string]uint32{"F32": 0, "F16": 1, "BF16": 30, "I64": 27}

// align is the alignment of tensors that a file has if it names none.
const align = 32

// Bounds of ggml.
const (
	maxName = 63 // bytes of a tensor's name
	maxDims = 4
)

// A File is what a GGUF file of version 3 says. Tensors have the names that they get in the file,
// and the length of a row comes last in their shapes.
type File struct {
	Keys    []gguf.Raw
	Tensors []safetensors.Tensor
}

// Write writes the file. It fails before the first byte if a key or tensor is there twice, or a
// tensor is not one that a file can hold.
func (f *File) Write(w io.Writer) error {
	head, err := f.header()
	if err != nil {
		return err
	}
	if _, err := w.Write(pad(head)); err != nil {
		return err
	}
	for _, t := range f.Tensors {
		if _, err := w.Write(t.Data); err != nil {
			return err
		}
		if _, err := w.Write(make([]byte, padding(len(t.Data)))); err != nil {
			return err
		}
	}
	return nil
}

// header returns what comes before the tensors' data.
func (f *File) header() ([]byte, error) {
	b := []byte("GGUF")
	b = binary.LittleEndian.AppendUint32(b, 3)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(f.Tensors)))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(f.Keys)))
	seen := make(map[string]bool)
	for _, k := range f.Keys {
		if k.Name == "" || seen[k.Name] {
			return nil, fmt.Errorf("GGUF key %q is there twice or has no name", k.Name)
		}
		seen[k.Name] = true
		b = text(b, k.Name)
		b = append(binary.LittleEndian.AppendUint32(b, k.Type), k.Value...)
	}
	clear(seen)
	at := 0
	for _, t := range f.Tensors {
		kind, ok := kinds[t.DType]
		switch {
		case !ok:
			return nil, fmt.Errorf("tensor %q is %s, want F32, F16, BF16 or I64", t.Name, t.DType)
		case t.Name == "" || len(t.Name) > maxName || seen[t.Name]:
			return nil, fmt.Errorf("tensor %q is there twice, or its name has not 1 to %d bytes", t.Name, maxName)
		case len(t.Shape) < 1 || len(t.Shape) > maxDims || slices.Contains(t.Shape, 0) || t.Size() != len(t.Data):
			return nil, fmt.Errorf("tensor %q has shape %v and %d bytes, want 1 to %d dimensions and %d bytes", t.Name, t.Shape, len(t.Data), maxDims, t.Size())
		}
		seen[t.Name] = true
		b = text(b, t.Name)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(t.Shape)))
		for _, d := range slices.Backward(t.Shape) {
			b = binary.LittleEndian.AppendUint64(b, uint64(d))
		}
		b = binary.LittleEndian.AppendUint32(b, kind)
		b = binary.LittleEndian.AppendUint64(b, uint64(at))
		at += len(t.Data) + padding(len(t.Data))
	}
	return b, nil
}

// padding returns how many bytes follow n bytes until the next multiple of align.
func padding(n int) int { return (align - n%align) % align }

func pad(b []byte) []byte { return append(b, make([]byte, padding(len(b)))...) }

// text appends a text: its length and its bytes.
func text(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// Text returns a key whose value is a text.
func Text(name, s string) gguf.Raw {
	return gguf.Raw{Name: name, Type: kindString, Value: text(nil, s)}
}

func number(name string, n int) gguf.Raw {
	return gguf.Raw{Name: name, Type: kindU32, Value: binary.LittleEndian.AppendUint32(nil, uint32(n))}
}

func float(name string, x float64) gguf.Raw {
	return gguf.Raw{Name: name, Type: kindF32, Value: binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(x)))}
}

func truth(name string, b bool) gguf.Raw {
	v := []byte{0}
	if b {
		v[0] = 1
	}
	return gguf.Raw{Name: name, Type: kindBool, Value: v}
}

// array returns a key whose value is an array of n elements of a type.
func array(name string, kind uint32, n int, elems []byte) gguf.Raw {
	v := binary.LittleEndian.AppendUint32(nil, kind)
	v = binary.LittleEndian.AppendUint64(v, uint64(n))
	return gguf.Raw{Name: name, Type: kindArray, Value: append(v, elems...)}
}

func texts(name string, all []string) gguf.Raw {
	var b []byte
	for _, s := range all {
		b = text(b, s)
	}
	return array(name, kindString, len(all), b)
}

func numbers(name string, all []int) gguf.Raw {
	var b []byte
	for _, n := range all {
		b = binary.LittleEndian.AppendUint32(b, uint32(int32(n)))
	}
	return array(name, kindI32, len(all), b)
}
