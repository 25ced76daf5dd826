package corpus

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"talf/internal/limits"
)

// textNames are the extensions of the files that Expand takes from a directory,
// after a compression's own extension is removed.
var textNames = []string{".json", ".jsonl", ".ndjson", ".txt"}

// Expand replaces directories by the text files in their trees: .txt, .json, .jsonl and
// .ndjson, optionally followed by .gz or .zst, in the order of their paths. Links to
// files are followed; hidden files and directories are skipped. A directory without any
// text file is an error.
func Expand(paths []string) ([]string, error) {
	var out []string
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, fmt.Errorf("data: %w", err)
		}
		if !info.IsDir() {
			out = append(out, p)
			continue
		}
		n := len(out)
		err = filepath.WalkDir(p, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case path != p && strings.HasPrefix(d.Name(), "."):
				if d.IsDir() {
					return filepath.SkipDir
				}
			case !d.IsDir() && slices.Contains(textNames, extension(path)):
				info, err := os.Stat(path) // follows links, of which download caches are full
				if err != nil {
					return err
				}
				if info.Mode().IsRegular() {
					out = append(out, path)
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("data: %w", err)
		}
		if len(out) == n {
			return nil, fmt.Errorf("data: %s: no file in it ends in %s", p, strings.Join(textNames, ", "))
		}
	}
	return out, nil
}

// extension returns the extension that describes a file's text, in lower case.
func extension(name string) string {
	name = strings.ToLower(name)
	for _, packed := range []string{".gz", ".zst", ".zstd"} {
		if s, ok := strings.CutSuffix(name, packed); ok {
			return filepath.Ext(s)
		}
	}
	return filepath.Ext(name)
}

// magics lists the first bytes of files that are not text.
var magics = []struct{ magic, name string }{
	{"\x1f\x8b", "gzip"},
	{"\x28\xb5\x2f\xfd", "zstd"},
	{"BZh", "bzip2"},
	{"\xfd7zXZ\x00", "xz"},
	{"PK\x03\x04", "zip"},
	{"PAR1", "Parquet"},
}

// maxWindow bounds the memory of a zstd stream. It is the largest window that zstd uses
// by default.
const maxWindow = 128 << 20

// unpack returns the text of a file, decompressed if its first bytes say that it is
// compressed, whatever its name.
func unpack(r io.Reader) (io.Reader, func(), error) {
	in := &limits.Counter{R: r}
	br := bufio.NewReaderSize(in, 1<<16)
	head, err := br.Peek(6)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	for _, m := range magics {
		if !bytes.HasPrefix(head, []byte(m.magic)) {
			continue
		}
		switch m.name {
		case "gzip":
			z, err := gzip.NewReader(br)
			if err != nil {
				return nil, nil, fmt.Errorf("gzip: %w", whole(err))
			}
			return &packed{r: limits.Unpacked(z, in, limits.UnpackBytes, "text"), kind: m.name}, func() {}, nil
		case "zstd":
			z, err := zstd.NewReader(br, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
			if err != nil {
				return nil, nil, fmt.Errorf("zstd: %w", err)
			}
			return &packed{r: limits.Unpacked(z, in, limits.UnpackBytes, "text"), kind: m.name}, z.Close, nil
		}
		if m.name == "bzip2" && !isBzip2(br) {
			break // a text that begins with the same bytes
		}
		return nil, nil, fmt.Errorf("a %s file: want text, as it is or packed by gzip or zstd", m.name)
	}
	return br, func() {}, nil
}

// isBzip2 distinguishes a bzip2 stream from a text that begins with BZh by the block
// size and the magic number of a block.
func isBzip2(br *bufio.Reader) bool {
	head, _ := br.Peek(10)
	return len(head) == 10 && head[3] >= '1' && head[3] <= '9' && string(head[4:]) == "1AY&SY"
}

// A packed is a compressed stream whose errors say where in the text decompression
// failed.
type packed struct {
	r    io.Reader
	kind string
	n    int64
}

func (p *packed) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.n += int64(n)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%s: after %d bytes of text: %w", p.kind, p.n, whole(err))
	}
	return n, err
}

// whole rewords the most common kind of damage.
func whole(err error) error {
	if err == io.ErrUnexpectedEOF || err == io.EOF {
		return fmt.Errorf("the file is truncated: %w", io.ErrUnexpectedEOF)
	}
	return err
}
