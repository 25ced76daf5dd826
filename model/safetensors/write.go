package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"talf/internal/durable"
)

// Layout returns tensors in the order in which Write lays them out: by descending
// element size, which aligns all of them, then by name.
func Layout(tensors []Tensor) []Tensor {
	order := slices.Clone(tensors)
	slices.SortStableFunc(order, func(a, b Tensor) int {
		if d := sizes[b.DType] - sizes[a.DType]; d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	return order
}

// Write writes tensors and metadata. Equal input gives equal bytes, regardless of the
// order of the tensors.
func Write(w io.Writer, meta map[string]string, tensors ...Tensor) error {
	order := Layout(tensors)
	for _, t := range order {
		if sizes[t.DType] == 0 || len(t.Data) != t.Size() {
			return fmt.Errorf("write tensor %q: %d bytes of %s %v", t.Name, len(t.Data), t.DType, t.Shape)
		}
	}
	out, err := NewWriter(w, meta, order...)
	if err != nil {
		return err
	}
	for _, t := range order {
		if _, err := out.Write(t.Data); err != nil {
			return fmt.Errorf("write tensor %q: %w", t.Name, err)
		}
	}
	return out.Close()
}

// A Writer writes tensors that are declared before their bytes are known, so they need
// not all be in memory together.
type Writer struct {
	w    io.Writer
	left int64  // bytes declared and not yet written
	buf  []byte // used by Float32s
}

// NewWriter writes the header of a file of tensors, ignoring their Data. Their bytes
// must follow in the order of tensors; for readers that map files, that should be the
// order of Layout.
func NewWriter(w io.Writer, meta map[string]string, tensors ...Tensor) (*Writer, error) {
	ends := make(map[string]int64, len(tensors))
	var at int64
	for _, t := range tensors {
		if sizes[t.DType] == 0 || t.Len() < 0 {
			return nil, fmt.Errorf("write tensor %q: %s %v", t.Name, t.DType, t.Shape)
		}
		if _, taken := ends[t.Name]; taken || t.Name == "__metadata__" {
			return nil, fmt.Errorf("write tensor %q: the name is taken", t.Name)
		}
		at += int64(t.Size())
		ends[t.Name] = at
	}
	var h bytes.Buffer
	h.WriteByte('{')
	field := func(key string, v any) error {
		if h.Len() > 1 {
			h.WriteByte(',')
		}
		k, err := json.Marshal(key)
		if err != nil {
			return err
		}
		b, err := json.Marshal(v)
		h.Write(k)
		h.WriteByte(':')
		h.Write(b)
		return err
	}
	if len(meta) > 0 {
		if err := field("__metadata__", meta); err != nil {
			return nil, fmt.Errorf("write metadata: %w", err)
		}
	}
	for _, t := range Layout(tensors) {
		shape := make([]int64, len(t.Shape))
		for i, d := range t.Shape {
			shape[i] = int64(d)
		}
		end := ends[t.Name]
		begin := end - int64(t.Size())
		if err := field(t.Name, info{t.DType, shape, []int64{begin, end}}); err != nil {
			return nil, fmt.Errorf("write tensor %q: %w", t.Name, err)
		}
	}
	h.WriteByte('}')
	for h.Len()%8 != 0 {
		h.WriteByte(' ')
	}
	for _, b := range [][]byte{binary.LittleEndian.AppendUint64(nil, uint64(h.Len())), h.Bytes()} {
		if _, err := w.Write(b); err != nil {
			return nil, fmt.Errorf("write tensors: %w", err)
		}
	}
	return &Writer{w: w, left: at}, nil
}

// Write appends bytes of the tensors.
func (w *Writer) Write(b []byte) (int, error) {
	if int64(len(b)) > w.left {
		return 0, fmt.Errorf("write tensors: %d more bytes, want at most the %d that are left", len(b), w.left)
	}
	n, err := w.w.Write(b)
	w.left -= int64(n)
	return n, err
}

// Float32s appends elements of F32 tensors.
func (w *Writer) Float32s(x []float32) error {
	for piece := range slices.Chunk(x, 1<<14) {
		w.buf = w.buf[:0]
		for _, v := range piece {
			w.buf = binary.LittleEndian.AppendUint32(w.buf, math.Float32bits(v))
		}
		if _, err := w.Write(w.buf); err != nil {
			return err
		}
	}
	return nil
}

// Close reports bytes that are missing. It does not close the underlying writer.
func (w *Writer) Close() error {
	if w.left != 0 {
		return fmt.Errorf("write tensors: %d bytes are missing", w.left)
	}
	return nil
}

// WriteFile writes the file at path, whole or not at all.
func WriteFile(path string, meta map[string]string, tensors ...Tensor) error {
	return durable.Write(path, func(w io.Writer) error { return Write(w, meta, tensors...) })
}
