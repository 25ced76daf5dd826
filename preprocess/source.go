package preprocess

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"

	"talf/internal/vfs"
)

// inputFiles are the files of a run. They are read more than once, and a set must not be
// made of a text that is not the one its metadata identify: their contents are hashed
// first, and again while they are read for the last time.
type inputFiles struct {
	names []string
	sums  [][]byte // SHA-256 of each, before anything is made of them

	mu   sync.Mutex
	read []passage // what was read since
}

// A passage is the beginning of a file, as it was read.
type passage struct {
	name  string
	bytes int64
	sum   []byte
}

// hashFiles reads the files once.
func hashFiles(names []string) (*inputFiles, error) {
	in := &inputFiles{names: names}
	for _, name := range names {
		// A pipe can be read only once, and hashing would consume it.
		if st, err := os.Stat(name); err == nil && st.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0 {
			return nil, fmt.Errorf("preprocess: %s is a pipe: its text is read more than once, want a file", name)
		}
		f, err := vfs.OpenRead(name)
		if err != nil {
			return nil, fmt.Errorf("preprocess: %w", err)
		}
		h := sha256.New()
		_, err = io.Copy(h, f)
		_ = f.Close() // only read
		if err != nil {
			return nil, fmt.Errorf("preprocess: read %s: %w", name, err)
		}
		in.sums = append(in.sums, h.Sum(nil))
	}
	return in, nil
}

// fingerprint identifies the files' bytes, not their names, and the options that decide
// which sequences are made from them.
func (in *inputFiles) fingerprint(options []byte) string {
	h := sha256.New()
	h.Write(options)
	for _, s := range in.sums {
		h.Write(s)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// open opens a file whose contents are hashed as they are read.
func (in *inputFiles) open(name string) (io.ReadCloser, error) {
	f, err := vfs.OpenRead(name)
	if err != nil {
		return nil, err
	}
	return &hashedFile{File: f, in: in, name: name, sum: sha256.New()}, nil
}

// A hashedFile hashes what is read of it.
type hashedFile struct {
	*vfs.File
	in    *inputFiles
	name  string
	sum   hash.Hash
	bytes int64
}

func (f *hashedFile) Read(b []byte) (int, error) {
	n, err := f.File.Read(b)
	f.sum.Write(b[:n])
	f.bytes += int64(n)
	return n, err
}

// WriteTo hides that of the file, which would not be hashed.
func (f *hashedFile) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{f})
}

func (f *hashedFile) Close() error {
	f.in.mu.Lock()
	defer f.in.mu.Unlock()
	f.in.read = append(f.in.read, passage{f.name, f.bytes, f.sum.Sum(nil)})
	return f.File.Close()
}

// errChanged is wrapped by the error of a file that changed while it was read.
var errChanged = errors.New("it changed while it was being labelled")

// check refuses files of which something else was read than the contents that were
// hashed first. It reads the rest of a file that was not read to its end.
func (in *inputFiles) check() error {
	for _, p := range in.read {
		i := slices.Index(in.names, p.name)
		if slices.Equal(p.sum, in.sums[i]) {
			continue
		}
		if err := in.rest(p, in.sums[i]); err != nil {
			return fmt.Errorf("preprocess: %s: %w", p.name, err)
		}
	}
	return nil
}

// rest reads a file again: want must be the hash of all of it, and p its beginning.
func (in *inputFiles) rest(p passage, want []byte) error {
	f, err := vfs.OpenRead(p.name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	h := sha256.New()
	n, err := io.CopyN(h, f, p.bytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	same := n == p.bytes && slices.Equal(h.Sum(nil), p.sum)
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if !same || !slices.Equal(h.Sum(nil), want) {
		return fmt.Errorf("%w: delete the shards that were made of it, or the set, and start again when nothing writes the file", errChanged)
	}
	return nil
}

// A digest identifies sequences as they were read.
type digest struct {
	hash.Hash
	buf []byte
}

func newDigest() *digest { return &digest{Hash: sha256.New()} }

// add adds a sequence, before it is labelled: its tokens and which of them are learnt,
// the questions and answers after them, and why it is dropped.
func (d *digest) add(s *sequence) {
	b := binary.LittleEndian.AppendUint64(d.buf[:0], uint64(len(s.tokens)))
	for i, id := range s.tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
		learnt := byte(0)
		if i < len(s.answer) && s.answer[i] {
			learnt = 1
		}
		b = append(b, learnt)
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(len(s.turns)))
	for _, text := range s.turns {
		b = appendText(b, text)
	}
	b = appendText(appendText(b, s.drop), string(s.whole))
	d.Write(b)
	d.buf = b
}

func appendText(b []byte, text string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(text))), text...)
}

// text returns the hexadecimal digest of the sequences since the last call.
func (d *digest) text() string {
	t := hex.EncodeToString(d.Sum(nil))
	d.Reset()
	return t
}
