// Package safetensors reads and writes the safetensors format: eight bytes of
// header length, a JSON header, then the tensors' bytes, little endian
// (https://github.com/huggingface/safetensors).
//
// Files are memory-mapped where the system supports it, so opening a large model costs
// nothing until its tensors are read. Headers are checked in full before any tensor is
// returned: a damaged file gives an error, never a wrong slice.
package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"talf/internal/ijson"
	"talf/internal/limits"
	"talf/internal/mapped"
	"talf/model/ggml"
	"talf/model/gguf"
)

// maxDims bounds the dimensions of a tensor, as NumPy does.
const maxDims = 64

// maxHeader is the size in bytes of the largest header accepted, as in the reference
// implementation.
const maxHeader = 100_000_000

// sizes maps a dtype to the bytes of one element.
var sizes = map[string]int{
	"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1,
	"U16": 2, "I16": 2, "F16": 2, "BF16": 2,
	"U32": 4, "I32": 4, "F32": 4,
	"U64": 8, "I64": 8, "F64": 8,
}

// A Tensor is one named array. Data is little endian, row-major; it may be a read-only
// mapping that is valid until its Set is closed.
type Tensor struct {
	Name string
	// DType is as spelled in the format: "F32", "BF16", "I64"; or, from a GGUF file, the name of
	// a type of package ggml whose elements share blocks, such as "Q4_K". Then rows are whole blocks.
	DType string
	Shape []int
	Data  []byte
}

// Len returns the number of elements.
func (t *Tensor) Len() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Size returns the size in bytes of Data, whether or not Data is set.
func (t *Tensor) Size() int {
	if b := ggml.Blocks(t.DType); b != nil {
		return t.Len() / b.Elems * b.Size
	}
	return t.Len() * sizes[t.DType]
}

// Rows returns rows [from, to) of a matrix, or of the first dimension of any other tensor.
func (t *Tensor) Rows(from, to int) Tensor {
	size := len(t.Data) / max(t.Shape[0], 1)
	shape := append([]int{to - from}, t.Shape[1:]...)
	return Tensor{Name: t.Name, DType: t.DType, Shape: shape, Data: t.Data[from*size : to*size]}
}

// Float32s returns the elements of an F32, F16, BF16 or F64 tensor, or of one in blocks.
func (t *Tensor) Float32s() ([]float32, error) {
	out := make([]float32, t.Len())
	if b := ggml.Blocks(t.DType); b != nil {
		b.Float32s(out, t.Data)
		return out, nil
	}
	switch t.DType {
	case "F32":
		for i := range out {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
		}
	case "BF16":
		for i := range out {
			out[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(t.Data[2*i:])) << 16)
		}
	case "F16":
		for i := range out {
			out[i] = half(binary.LittleEndian.Uint16(t.Data[2*i:]))
		}
	case "F64":
		for i := range out {
			out[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(t.Data[8*i:])))
		}
	default:
		return nil, fmt.Errorf("tensor %q is %s, want F32, F16, BF16 or F64", t.Name, t.DType)
	}
	return out, nil
}

// half converts an IEEE 754 binary16 number.
func half(h uint16) float32 {
	sign := uint32(h>>15) << 31
	exp, frac := uint32(h>>10)&31, uint32(h)&1023
	switch {
	case exp == 31:
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	case exp == 0: // zero or subnormal: frac · 2^-24, exact
		f := float32(frac) * 0x1p-24
		return math.Float32frombits(sign | math.Float32bits(f))
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

// Int32s returns the elements of an I32 or I64 tensor; a value that does not fit 32
// bits is an error.
func (t *Tensor) Int32s() ([]int32, error) {
	out := make([]int32, t.Len())
	for i := range out {
		switch t.DType {
		case "I32":
			out[i] = int32(binary.LittleEndian.Uint32(t.Data[4*i:]))
		case "I64":
			v := int64(binary.LittleEndian.Uint64(t.Data[8*i:]))
			if v != int64(int32(v)) {
				return nil, fmt.Errorf("tensor %q: element %d is %d, want 32 bits", t.Name, i, v)
			}
			out[i] = int32(v)
		default:
			return nil, fmt.Errorf("tensor %q is %s, want I32 or I64", t.Name, t.DType)
		}
	}
	return out, nil
}

// F32 returns an F32 tensor with a copy of data. It panics if shape does not match the
// length of data.
func F32(name string, data []float32, shape ...int) Tensor {
	t := Tensor{Name: name, DType: "F32", Shape: shape, Data: make([]byte, 0, 4*len(data))}
	if t.Len() != len(data) {
		panic(fmt.Sprintf("safetensors: %d elements for tensor %q of shape %v", len(data), name, shape))
	}
	for _, x := range data {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(x))
	}
	return t
}

// BF16 is F32 with the elements rounded to the nearest bfloat16, ties to even.
func BF16(name string, data []float32, shape ...int) Tensor {
	t := Tensor{Name: name, DType: "BF16", Shape: shape, Data: make([]byte, 0, 2*len(data))}
	if t.Len() != len(data) {
		panic(fmt.Sprintf("safetensors: %d elements for tensor %q of shape %v", len(data), name, shape))
	}
	for _, x := range data {
		b := math.Float32bits(x)
		if x != x {
			b |= 1 << 22 // a NaN must not round to infinity
		} else {
			b += 0x7fff + b>>16&1
		}
		t.Data = binary.LittleEndian.AppendUint16(t.Data, uint16(b>>16))
	}
	return t
}

// A Set is a collection of tensors: one file, several shards, or memory. It is
// safe for concurrent use until Close.
type Set struct {
	// Name says where the tensors come from, for errors.
	Name    string
	meta    map[string]string
	names   []string // sorted
	tensors map[string]Tensor
	files   map[string]string // of several shards: that of each tensor
	order   map[string][]int  // of a GGUF file: which of its rows each row of a tensor is
	views   map[string]view   // tensors that are parts of others
	mapped  bool              // tensors are mapped from files
	unmap   []func() error
}

// Of returns a set of the given tensors in memory. It panics if two have the same name
// or if a tensor's data does not match its shape.
func Of(name string, tensors ...Tensor) *Set {
	s := &Set{Name: name, tensors: make(map[string]Tensor, len(tensors))}
	for _, t := range tensors {
		if _, dup := s.tensors[t.Name]; dup || len(t.Data) != t.Size() {
			panic(fmt.Sprintf("safetensors: tensor %q of %s: %d bytes of %s %v, or twice", t.Name, name, len(t.Data), t.DType, t.Shape))
		}
		s.tensors[t.Name] = t
	}
	s.names = slices.Sorted(maps.Keys(s.tensors))
	return s
}

// With returns a set of the given tensors, which are in memory or parts of s's, with the
// name and metadata of s. It takes over the files of s, which must not be used afterwards.
func (s *Set) With(tensors ...Tensor) *Set {
	w := Of(s.Name, tensors...)
	w.meta, w.unmap = s.meta, s.unmap
	s.unmap = nil
	return w
}

// Names returns the tensors' names, sorted. The slice belongs to the set.
func (s *Set) Names() []string { return s.names }

// Metadata returns the header's __metadata__ strings of a single file.
func (s *Set) Metadata() map[string]string { return s.meta }

// Tensor returns the named tensor. One whose rows are in another order in a GGUF file is copied, and
// so is one of an expert that is stored with the others.
func (s *Set) Tensor(name string) (Tensor, bool) {
	t, ok := s.tensors[name]
	if v, made := s.views[name]; made {
		t.Data = v.make()
	}
	if order := s.order[name]; order != nil {
		t.Data = gather(t.Data, order)
	}
	return t, ok
}

// Describe returns the named tensor without its Data, and reads nothing.
func (s *Set) Describe(name string) (Tensor, bool) {
	t, ok := s.tensors[name]
	t.Data = nil
	return t, ok
}

// Get is Tensor, but returns an error that names the set and the tensor.
func (s *Set) Get(name string) (Tensor, error) {
	t, ok := s.Tensor(name)
	if !ok {
		return t, fmt.Errorf("%s: no tensor %q", s.Name, name)
	}
	return t, nil
}

// Release tells the system that bytes [lo,hi) of a tensor's data are not needed for
// now, so that a model is not in memory twice while it is loaded: whole pages, and for
// all of a tensor also those at its ends. They stay readable: the next read takes them
// from the file again.
func (s *Set) Release(name string, lo, hi int) {
	t, ok := s.tensors[name]
	if v, made := s.views[name]; made {
		if s.mapped && lo == 0 && hi == t.Size() {
			for _, from := range v.from {
				release(from, false)
			}
		}
		return
	}
	if ok && s.mapped && lo < hi {
		release(t.Data[lo:hi], lo == 0 && hi == len(t.Data))
	}
}

// Size returns the bytes of the named tensor, 0 if there is none.
func (s *Set) Size(name string) int {
	t, _ := s.Describe(name)
	return t.Size()
}

// ReleaseAll releases the pages of all tensors. Around a page that is read the system maps others, which may have been
// released before.
func (s *Set) ReleaseAll() {
	for _, name := range s.names {
		s.Release(name, 0, s.Size(name))
	}
}

// Close unmaps the files. Tensors must not be used afterwards.
func (s *Set) Close() error {
	var errs []error
	for _, f := range s.unmap {
		errs = append(errs, f())
	}
	s.unmap, s.tensors, s.names, s.views = nil, nil, nil, nil
	return errors.Join(errs...)
}

// Open maps one file. If the file shrinks while the set is open, reading a page that no
// longer exists faults; the rule of package mapped says what to do about it.
func Open(path string) (*Set, error) {
	data, unmap, err := mapped.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open tensors: %w", err)
	}
	s, err := parse(path, data)
	if err != nil {
		return nil, errors.Join(err, unmap())
	}
	s.unmap, s.mapped = append(s.unmap, unmap), canRelease
	return s, nil
}

// parse is Parse of mapped bytes.
func parse(path string, data []byte) (s *Set, err error) {
	defer mapped.Guard(&err)()
	return Parse(path, data)
}

// OpenDir opens the weights of a Hugging Face directory: model.safetensors, or
// the shards that model.safetensors.index.json lists. It also opens a GGUF file, as the tensors that
// the directory had from which it was converted.
func OpenDir(dir string) (*Set, error) {
	if gguf.Is(dir) {
		return openGGUF(dir)
	}
	single := filepath.Join(dir, "model.safetensors")
	index := single + ".index.json"
	if _, err := os.Stat(single); err == nil {
		s, err := Open(single)
		if err != nil {
			return nil, err
		}
		return s.apart()
	}
	raw, err := limits.ReadFile(index, limits.IndexBytes)
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(dir, "pytorch_model.bin")); err == nil {
			return nil, fmt.Errorf("%s: only pytorch_model.bin, want model.safetensors: convert it first", dir)
		}
		return nil, fmt.Errorf("%s: neither model.safetensors nor model.safetensors.index.json", dir)
	} else if err != nil {
		return nil, fmt.Errorf("open tensors: %w", err)
	}
	var idx struct {
		Map map[string]string `json:"weight_map"`
	}
	if err := ijson.Unmarshal(raw, &idx); err != nil {
		return nil, fmt.Errorf("%s: %w", index, err)
	}
	if len(idx.Map) == 0 {
		return nil, fmt.Errorf("%s: weight_map is empty, want tensor names and their files", index)
	}
	all := &Set{Name: dir, tensors: make(map[string]Tensor), files: make(map[string]string), mapped: canRelease}
	shards := make(map[string]*Set)
	fail := func(err error) (*Set, error) { return nil, errors.Join(err, all.Close()) }
	for _, name := range slices.Sorted(maps.Keys(idx.Map)) {
		file := idx.Map[name]
		if !filepath.IsLocal(file) {
			return fail(fmt.Errorf("%s: weight_map: tensor %q is in %q, want a file in the index's directory", index, name, file))
		}
		file = filepath.Clean(file) // one spelling, so that no file is opened twice
		sh := shards[file]
		if sh == nil {
			if sh, err = Open(filepath.Join(dir, file)); err != nil {
				return fail(err)
			}
			shards[file] = sh
			all.unmap = append(all.unmap, sh.Close)
		}
		t, err := sh.Get(name)
		if err != nil {
			return fail(fmt.Errorf("%w, though %s says so", err, filepath.Base(index)))
		}
		all.tensors[name], all.files[name] = t, sh.Name
	}
	all.names = slices.Sorted(maps.Keys(all.tensors))
	return all.apart()
}

// info is one entry of the header.
type info struct {
	DType   string  `json:"dtype"`
	Shape   []int64 `json:"shape"`
	Offsets []int64 `json:"data_offsets"`
}

// Parse reads a whole file from memory; name is used in errors. The tensors share data.
// As in the reference implementation, every byte of data must belong to exactly one
// tensor.
func Parse(name string, data []byte) (*Set, error) {
	fail := func(format string, args ...any) (*Set, error) {
		return nil, fmt.Errorf("%s: %w", name, fmt.Errorf(format, args...))
	}
	if len(data) < 8 {
		return fail("%d bytes, want at least the 8 of the header length", len(data))
	}
	n := binary.LittleEndian.Uint64(data)
	if n > maxHeader {
		return fail("header of %d bytes, want at most %d: not a safetensors file?", n, maxHeader)
	}
	if n > uint64(len(data)-8) {
		return fail("header of %d bytes, but only %d follow: truncated?", n, len(data)-8)
	}
	header, body := data[8:8+n], data[8+n:]

	s := &Set{Name: name, tensors: make(map[string]Tensor)}
	type place struct {
		name       string
		begin, end int64
	}
	var places []place
	err := entries(header, func(key string, decode func(v any) error) error {
		if key == "__metadata__" {
			if err := decode(&s.meta); err != nil {
				return fmt.Errorf("__metadata__: want strings: %w", err)
			}
			return nil
		}
		var e info
		if err := decode(&e); err != nil {
			return fmt.Errorf("tensor %q: %w", key, err)
		}
		size, ok := sizes[e.DType]
		if !ok {
			return fmt.Errorf("tensor %q: unknown dtype %.100q", key, e.DType)
		}
		if len(e.Offsets) != 2 {
			return fmt.Errorf("tensor %q: data_offsets of %d numbers, want 2", key, len(e.Offsets))
		}
		if len(e.Shape) > maxDims {
			return fmt.Errorf("tensor %q: shape of %d dimensions, want at most %d", key, len(e.Shape), maxDims)
		}
		shape, want := make([]int, len(e.Shape)), int64(size)
		for i, d := range e.Shape {
			if d < 0 || d > math.MaxInt32 || d > 0 && want > math.MaxInt64/d {
				return fmt.Errorf("tensor %q: shape %v, want sizes from 0 to %d", key, e.Shape, math.MaxInt32)
			}
			shape[i] = int(d)
			want *= d
		}
		b, end := e.Offsets[0], e.Offsets[1]
		switch {
		case b < 0 || end < b:
			return fmt.Errorf("tensor %q: data_offsets [%d, %d], want 0 ≤ begin ≤ end", key, b, end)
		case end-b != want:
			return fmt.Errorf("tensor %q: %d bytes, want %d for %s %v", key, end-b, want, e.DType, e.Shape)
		case end > int64(len(body)):
			return fmt.Errorf("tensor %q ends at byte %d of the data, but there are %d: truncated?", key, end, len(body))
		}
		s.tensors[key] = Tensor{Name: key, DType: e.DType, Shape: shape, Data: body[b:end:end]}
		places = append(places, place{key, b, end})
		return nil
	})
	if err != nil {
		return fail("%w", err)
	}
	sort.Slice(places, func(i, j int) bool {
		a, b := places[i], places[j]
		if a.begin != b.begin {
			return a.begin < b.begin
		}
		return a.end < b.end
	})
	var at int64
	for _, p := range places {
		if p.begin < at {
			return fail("tensor %q begins at byte %d, inside the tensor before it, which ends at %d", p.name, p.begin, at)
		}
		if p.begin > at {
			return fail("tensor %q begins at byte %d, want %d: a gap", p.name, p.begin, at)
		}
		at = p.end
	}
	if at != int64(len(body)) {
		return fail("%d bytes of data, want %d as the tensors say", len(body), at)
	}
	s.names = slices.Sorted(maps.Keys(s.tensors))
	return s, nil
}

// entries calls f for each key of a JSON object in order. White space and zeros may follow it.
func entries(raw []byte, f func(key string, decode func(v any) error) error) error {
	// Every tensor has this member. They are counted before they take memory.
	if n := bytes.Count(raw, []byte(`"data_offsets"`)); n > limits.Tensors {
		return fmt.Errorf("header: %d tensors, want at most %d: %w", n, limits.Tensors, limits.ErrTooLarge)
	}
	list, err := ijson.Members(bytes.TrimRight(raw, " \t\r\n\x00"))
	if err != nil {
		return fmt.Errorf("header: want a JSON object: %w", err)
	}
	for _, m := range list {
		if err := f(m.Key, m.Decode); err != nil {
			return err
		}
	}
	return nil
}
