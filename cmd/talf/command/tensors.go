package command

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
)

// A tensorShape announces one float32 tensor.
type tensorShape struct {
	name  string
	shape []int
}

// A tensorWriter streams float32 tensors to a safetensors file in the order in
// which they were announced. The file has its name only once it is complete.
type tensorWriter struct {
	f    *os.File
	w    *bufio.Writer
	path string
	left int64 // elements not yet written
	done bool
}

func createTensors(path string, shapes []tensorShape) (*tensorWriter, error) {
	type entry struct {
		DType   string   `json:"dtype"`
		Shape   []int    `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	header := map[string]entry{}
	var off int64
	for _, s := range shapes {
		n := int64(4)
		for _, d := range s.shape {
			n *= int64(d)
		}
		header[s.name] = entry{"F32", s.shape, [2]int64{off, off + n}}
		off += n
	}
	text, err := json.Marshal(header)
	if err != nil {
		return nil, err
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return nil, err
	}
	t := &tensorWriter{f: f, w: bufio.NewWriterSize(f, 1<<20), path: path, left: off / 4}
	if _, err := t.w.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(text)))); err != nil {
		t.abort()
		return nil, err
	}
	if _, err := t.w.Write(text); err != nil {
		t.abort()
		return nil, err
	}
	return t, nil
}

// write appends x to the tensors.
func (t *tensorWriter) write(x []float32) error {
	t.left -= int64(len(x))
	var b [4]byte
	for _, v := range x {
		binary.LittleEndian.PutUint32(b[:], math.Float32bits(v))
		if _, err := t.w.Write(b[:]); err != nil {
			return fmt.Errorf("write %s: %w", t.path, err)
		}
	}
	return nil
}

// commit makes the file durable and gives it its name.
func (t *tensorWriter) commit() error {
	if t.left != 0 {
		return fmt.Errorf("write %s: %d announced values are missing", t.path, t.left)
	}
	if err := t.w.Flush(); err != nil {
		return fmt.Errorf("write %s: %w", t.path, err)
	}
	if err := t.f.Chmod(0o644); err != nil {
		return err
	}
	if err := t.f.Sync(); err != nil {
		return fmt.Errorf("write %s: %w", t.path, err)
	}
	if err := t.f.Close(); err != nil {
		return fmt.Errorf("write %s: %w", t.path, err)
	}
	if err := os.Rename(t.f.Name(), t.path); err != nil {
		return err
	}
	t.done = true
	return nil
}

// abort removes what was written unless commit succeeded.
func (t *tensorWriter) abort() {
	if t.done {
		return
	}
	_ = t.f.Close()
	_ = os.Remove(t.f.Name())
}
