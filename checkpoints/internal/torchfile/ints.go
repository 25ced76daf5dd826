package torchfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/nlpodyssey/gopickle/types"

	"talf/internal/limits"
	"talf/model/safetensors"
)

// ReadInts returns the integers in the file at path, written by torch.save from a list
// of integers or a tensor with one dimension.
func ReadInts(path string) (ids []int64, err error) {
	f, err := limits.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read numbers: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read numbers: %w", err)
	}
	if ids, err = parseInts(f, info.Size()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return ids, nil
}

// parseInts reads such a file of the given size from r.
func parseInts(r io.ReaderAt, size int64) ([]int64, error) {
	a, err := open(r, size)
	if err != nil {
		return nil, err
	}
	p, err := a.bytes("data.pkl", maxPickle)
	if err != nil {
		return nil, err
	}
	v, err := load(p)
	if err != nil {
		return nil, fmt.Errorf("data.pkl: %w", err)
	}
	switch v := v.(type) {
	case *types.List:
		ids := make([]int64, 0, v.Len())
		for i := range v.Len() {
			x, ok := v.Get(i).(int)
			if !ok {
				return nil, fmt.Errorf("data.pkl: element %d of the list is not an integer", i)
			}
			ids = append(ids, int64(x))
		}
		return ids, nil
	case *tensor:
		if len(v.shape) != 1 || v.from.el.dtype != "I64" && v.from.el.dtype != "I32" {
			return nil, fmt.Errorf("data.pkl: a tensor of %s %v, want integers [n]", v.from.el.dtype, v.shape)
		}
		b, err := a.storage(v.from)
		if err != nil {
			return nil, err
		}
		t := safetensors.Tensor{Name: "ids", DType: v.from.el.dtype, Shape: v.shape, Data: v.gather(b)}
		x, err := t.Int32s()
		if err != nil {
			return nil, err
		}
		ids := make([]int64, len(x))
		for i := range x {
			ids[i] = int64(x[i])
		}
		return ids, nil
	}
	return nil, errors.New("data.pkl: want a list of integers or a tensor of integers")
}

// WriteInts writes ids as torch.save writes a list of integers. torch.load reads it,
// also with weights_only.
func WriteInts(w io.Writer, ids []int32) error {
	p := []byte("\x80\x02](")
	for _, id := range ids {
		p = binary.LittleEndian.AppendUint32(append(p, 'J'), uint32(id))
	}
	return archiveOf(w, append(p, "e."...))
}
