package corpus

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"talf/internal/limits"
)

// spaces writes a file of n spaces.
func spaces(t *testing.T, name string, n int64, pack func(io.Writer) io.WriteCloser) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := pack(f)
	line := bytes.Repeat([]byte(" "), 1<<16)
	for ; n > 0; n -= int64(len(line)) {
		if _, err := w.Write(line[:min(n, int64(len(line)))]); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func gzipped(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }

type plain struct{ io.Writer }

func (plain) Close() error { return nil }

// A document is held whole, so its size is bounded, however small the file is.
func TestADocumentBeyondTheLimitIsRefused(t *testing.T) {
	for name, pack := range map[string]func(io.Writer) io.WriteCloser{
		"text.txt": func(w io.Writer) io.WriteCloser { return plain{w} }, "text.gz": gzipped,
	} {
		for size, refused := range map[int64]bool{1 << 20: false, 1<<20 + 1: true} {
			path := spaces(t, name, size, pack)
			l := loader{c: Config{Format: Document}, most: 1 << 20, yield: func(Doc, error) bool { return true }}
			err := l.file(path)
			if refused != errors.Is(err, limits.ErrTooLarge) || refused && !strings.Contains(err.Error(), "a document, which is read whole (paragraphs are not): more than 1048576 bytes") {
				t.Errorf("%s of %d bytes: %v", name, size, err)
			}
		}
	}
}

// zstd packs a repeated byte thirty thousand times, which no text needs. What gzip can
// pack is read.
func TestAFileThatUnpacksOutOfProportionIsRefused(t *testing.T) {
	const size = 3 * limits.UnpackFloor
	zstded := func(w io.Writer) io.WriteCloser {
		z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest))
		if err != nil {
			t.Fatal(err)
		}
		return z
	}
	for _, c := range []struct {
		name string
		pack func(io.Writer) io.WriteCloser
		bad  bool
	}{{"text.zst", zstded, true}, {"text.gz", gzipped, false}} {
		path := spaces(t, c.name, size, c.pack)
		for doc, err := range Load([]string{path}, Default(), nil) {
			if !c.bad || !errors.Is(err, limits.ErrTooLarge) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: %v, %v", c.name, doc, err)
			}
			c.bad = false
		}
		if c.bad {
			t.Errorf("%s is read", c.name)
		}
	}
}
