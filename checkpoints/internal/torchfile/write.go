package torchfile

import (
	"archive/zip"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"talf/model/safetensors"
)

// Write writes tensors as torch.save writes a state_dict. torch.load reads it, also
// with weights_only. Equal input gives equal bytes.
func Write(w io.Writer, tensors ...safetensors.Tensor) error {
	p, err := pickled(tensors)
	if err != nil {
		return err
	}
	return archiveOf(w, p, tensors...)
}

// archiveOf writes the archive of a pickle and the storages of its tensors.
func archiveOf(w io.Writer, pickle []byte, tensors ...safetensors.Tensor) error {
	c := &counter{w: w}
	z := zip.NewWriter(c)
	put := func(name string, data []byte) error {
		// torch starts every entry at a multiple of 64 bytes, so that it can be mapped.
		name = "archive/" + name
		if err := z.Flush(); err != nil {
			return err
		}
		const fixed = 30 + 4 // sizes of a local header and of the extra field that pads it
		fill := (64 - (int(c.n)+fixed+len(name))%64) % 64
		extra := binary.LittleEndian.AppendUint16([]byte("FB"), uint16(fill))
		h := &zip.FileHeader{
			Name: name, Method: zip.Store, CRC32: crc32.ChecksumIEEE(data),
			CompressedSize64: uint64(len(data)), UncompressedSize64: uint64(len(data)),
			Extra: append(extra, make([]byte, fill)...),
		}
		f, err := z.CreateRaw(h)
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		return err
	}
	if err := put("data.pkl", pickle); err != nil {
		return fmt.Errorf("write tensors: %w", err)
	}
	if err := put("byteorder", []byte("little")); err != nil {
		return fmt.Errorf("write tensors: %w", err)
	}
	for i, t := range tensors {
		if err := put(fmt.Sprintf("data/%d", i), t.Data); err != nil {
			return fmt.Errorf("write tensor %q: %w", t.Name, err)
		}
	}
	if err := put("version", []byte("3\n")); err != nil {
		return fmt.Errorf("write tensors: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("write tensors: %w", err)
	}
	return nil
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// pickled returns data.pkl: an OrderedDict of tensors, in protocol 2.
func pickled(tensors []safetensors.Tensor) ([]byte, error) {
	p := []byte("\x80\x02ccollections\nOrderedDict\n)R(")
	str := func(s string) { p = append(binary.LittleEndian.AppendUint32(append(p, 'X'), uint32(len(s))), s...) }
	num := func(x int) {
		if x == int(int32(x)) {
			p = binary.LittleEndian.AppendUint32(append(p, 'J'), uint32(int32(x)))
		} else {
			p = binary.LittleEndian.AppendUint64(append(p, '\x8a', 8), uint64(x))
		}
	}
	tuple := func(x []int) {
		p = append(p, '(')
		for _, v := range x {
			num(v)
		}
		p = append(p, 't')
	}
	for i := range tensors {
		t := &tensors[i]
		class := ""
		for name, el := range storages {
			if el.dtype == t.DType {
				class = name
			}
		}
		if class == "" {
			return nil, fmt.Errorf("write tensor %q: torch has no storage for %s", t.Name, t.DType)
		}
		stride, n := make([]int, len(t.Shape)), 1
		for d := len(t.Shape) - 1; d >= 0; d-- {
			stride[d] = n
			n *= max(t.Shape[d], 1)
		}
		str(t.Name)
		p = append(p, "ctorch._utils\n_rebuild_tensor_v2\n(("...)
		str("storage")
		p = append(p, "ctorch\n"+class+"\n"...)
		str(fmt.Sprint(i))
		str("cpu")
		num(t.Len())
		p = append(p, "tQ"...)
		num(0)
		tuple(t.Shape)
		tuple(stride)
		p = append(p, "\x89ccollections\nOrderedDict\n)RtR"...)
	}
	return append(p, "u."...), nil
}
