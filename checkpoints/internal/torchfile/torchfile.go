// Package torchfile reads and writes dictionaries of tensors as torch.save does
// (pytorch_model.bin): a zip archive with a pickle that names the tensors, and with
// their bytes.
//
// A pickle is a program: loaded by Python, it may do anything. None of it is executed
// here. First its opcodes are compared with the few that a dictionary of tensors needs,
// and every length in them is checked (scan.go). Then gopickle's machine, which knows
// no Python, builds the dictionary from the four names that are allowed (unpickle.go).
// Anything else that a file asks for is refused by name.
package torchfile

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"talf/internal/limits"
	"talf/model/safetensors"
)

// The limits keep a hostile file from taking memory out of proportion to its size.
const (
	maxPickle  = 1 << 20 // bytes of data.pkl; a tensor takes about 150
	maxEntries = 1 << 16
	maxDims    = 8
)

// storages maps torch's storage classes to their element types.
var storages = map[string]element{
	"FloatStorage": {"F32", 4}, "HalfStorage": {"F16", 2}, "BFloat16Storage": {"BF16", 2}, "DoubleStorage": {"F64", 8},
	"LongStorage": {"I64", 8}, "IntStorage": {"I32", 4}, "ShortStorage": {"I16", 2}, "CharStorage": {"I8", 1},
	"ByteStorage": {"U8", 1}, "BoolStorage": {"BOOL", 1},
}

// An element is a number type and its size in bytes.
type element struct {
	dtype string // as spelled in safetensors
	size  int
}

// Read returns the tensors of the file at path, in memory, in the order of the file.
func Read(path string) (ts []safetensors.Tensor, err error) {
	f, err := limits.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read tensors: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read tensors: %w", err)
	}
	return parse(path, f, info.Size())
}

// parse reads a file of the given size from r; name is used in errors.
func parse(name string, r io.ReaderAt, size int64) ([]safetensors.Tensor, error) {
	a, err := open(r, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	ts, err := a.tensors(size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return ts, nil
}

// An archive is an opened file.
type archive struct {
	r       io.ReaderAt
	size    int64
	prefix  string               // of all entries: "archive/"
	entries map[string]*zip.File // by name without the prefix
	loaded  map[string][]byte    // storages by key
	held    int64                // bytes of the loaded storages
}

func open(r io.ReaderAt, size int64) (*archive, error) {
	var magic [4]byte
	if n, _ := r.ReadAt(magic[:], 0); n == 4 && !bytes.Equal(magic[:], []byte("PK\x03\x04")) {
		return nil, errors.New("not a zip archive, which torch.save has written since PyTorch 1.6: load it there and save it again")
	}
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, fmt.Errorf("zip archive: %w: truncated?", err)
	}
	if len(z.File) > maxEntries {
		return nil, fmt.Errorf("%d entries, want at most %d", len(z.File), maxEntries)
	}
	a := &archive{r: r, size: size, entries: make(map[string]*zip.File), loaded: make(map[string][]byte)}
	for _, f := range z.File {
		if p, ok := strings.CutSuffix(f.Name, "data.pkl"); ok && (p == "" || strings.HasSuffix(p, "/")) {
			if a.entries["data.pkl"] != nil {
				return nil, errors.New("two entries data.pkl, want one")
			}
			a.prefix, a.entries["data.pkl"] = p, f
		}
	}
	if a.entries["data.pkl"] == nil {
		return nil, errors.New("no entry data.pkl: want a file of torch.save")
	}
	for _, f := range z.File {
		name, ok := strings.CutPrefix(f.Name, a.prefix)
		if !ok || name == "data.pkl" {
			continue
		}
		if name == "constants.pkl" {
			return nil, errors.New("a TorchScript program, want a dictionary of tensors")
		}
		if a.entries[name] != nil {
			return nil, fmt.Errorf("entry %q occurs twice", name)
		}
		a.entries[name] = f
	}
	if a.entries["byteorder"] != nil {
		b, err := a.bytes("byteorder", 16)
		if err != nil {
			return nil, err
		}
		if s := strings.TrimSpace(string(b)); s != "little" {
			return nil, fmt.Errorf("byteorder is %q, want \"little\"", s)
		}
	}
	return a, nil
}

// bytes reads an entry of at most the given size. torch never compresses entries.
func (a *archive) bytes(name string, most int64) ([]byte, error) {
	f := a.entries[name]
	if f == nil {
		return nil, fmt.Errorf("no entry %q", a.prefix+name)
	}
	if f.Method != zip.Store {
		return nil, fmt.Errorf("entry %q is compressed, want it stored as torch.save does", f.Name)
	}
	at, err := f.DataOffset()
	if err != nil {
		return nil, fmt.Errorf("entry %q: %w", f.Name, err)
	}
	n := f.UncompressedSize64
	if n > uint64(most) {
		return nil, fmt.Errorf("entry %q has %d bytes, want at most %d", f.Name, n, most)
	}
	if at < 0 || uint64(a.size-min(at, a.size)) < n {
		return nil, fmt.Errorf("entry %q ends past the end of the file: truncated?", f.Name)
	}
	b := make([]byte, n)
	if _, err := a.r.ReadAt(b, at); err != nil && !(errors.Is(err, io.EOF) && at+int64(n) == a.size) {
		return nil, fmt.Errorf("entry %q: %w", f.Name, err)
	}
	return b, nil
}

// storage returns the bytes of a storage of n elements.
func (a *archive) storage(s *storage) ([]byte, error) {
	b, ok := a.loaded[s.key]
	if !ok {
		var err error
		// Entries of a valid archive do not share bytes.
		if b, err = a.bytes("data/"+s.key, a.size-a.held); err != nil {
			return nil, err
		}
		a.loaded[s.key], a.held = b, a.held+int64(len(b))
	}
	if len(b) != s.n*s.el.size {
		return nil, fmt.Errorf("entry %q has %d bytes, want %d for %d elements of %s", a.prefix+"data/"+s.key, len(b), s.n*s.el.size, s.n, s.el.dtype)
	}
	return b, nil
}

// tensors reads the dictionary and the storages that it refers to.
func (a *archive) tensors(size int64) ([]safetensors.Tensor, error) {
	p, err := a.bytes("data.pkl", maxPickle)
	if err != nil {
		return nil, err
	}
	all, err := unpickle(p)
	if err != nil {
		return nil, fmt.Errorf("data.pkl: %w", err)
	}
	// Tensors may share a storage, as tied matrices do, but together they may not be
	// larger than twice the file.
	var total int64
	for _, t := range all {
		total += int64(t.len() * t.from.el.size)
		if total > 2*size {
			return nil, fmt.Errorf("tensors of more than %d bytes in a file of %d", total, size)
		}
	}
	var out []safetensors.Tensor
	for _, t := range all {
		b, err := a.storage(t.from)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.name, err)
		}
		out = append(out, safetensors.Tensor{Name: t.name, DType: t.from.el.dtype, Shape: t.shape, Data: t.gather(b)})
	}
	return out, nil
}
