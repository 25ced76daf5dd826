// Package golden finds the reference inputs and outputs that tests compare with.
//
// [File] and [Read] return what this project generated: it is in testdata, and a missing file
// fails the test. [Shared] returns files published by others, which this repository does not
// distribute: a test that needs one skips without it. testdata/README.md describes both.
package golden

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// packed is the suffix of the name of a compressed file.
const packed = ".gz"

// File returns the path of a golden, a file or a whole directory below testdata,
// such as "hf/llama-gqa". Compressed files are unpacked to a directory that the
// test removes, so nothing may be written there. A missing golden fails the test.
func File(t testing.TB, name string) string {
	t.Helper()
	root, err := home()
	if err != nil {
		t.Fatal(err)
	}
	path, err := unpacked(filepath.Join(root, filepath.FromSlash(name)), t.TempDir)
	if err != nil {
		t.Fatalf("golden %s: %v", name, err)
	}
	return path
}

// Read returns the contents of a golden. A missing file fails the test.
func Read(t testing.TB, name string) []byte {
	t.Helper()
	root, err := home()
	if err != nil {
		t.Fatal(err)
	}
	b, err := read(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatalf("golden %s: %v", name, err)
	}
	return b
}

// Shared returns the path of a file published by others, below the directory $TALF_SHARED or
// ../shared beside the repository. If it is missing the test skips, or fails if it must exist
// because TALF_SHARED or CI is set.
func Shared(t testing.TB, name string) string {
	t.Helper()
	root := os.Getenv("TALF_SHARED")
	demanded := root != "" || os.Getenv("CI") == "true"
	if root == "" {
		repo, err := repository()
		if err != nil {
			t.Fatal(err)
		}
		root = filepath.Join(repo, "..", "shared")
	}
	p := filepath.Join(root, filepath.FromSlash(name))
	if _, err := os.Stat(p); err != nil {
		why := fmt.Sprintf("a published file is absent (internal/golden/testdata/README.md says where to get it): %s: %v", name, err)
		if demanded {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	return p
}

// home returns the directory of the goldens.
func home() (string, error) {
	root, err := repository()
	return filepath.Join(root, "internal", "golden", "testdata"), err
}

// repository returns the nearest directory above the working directory with this module's
// go.mod. Tests run in their package's directory, also with -trimpath, with which the binary
// does not know its sources.
func repository() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(b), "module talf\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("goldens: %s is not inside the repository talf", wd)
		}
	}
}

// unpacked returns path if nothing in it is compressed, otherwise a copy below temp().
func unpacked(path string, temp func() string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		b, err := read(path)
		if err != nil {
			return "", err
		}
		out := filepath.Join(temp(), filepath.Base(path))
		return out, os.WriteFile(out, b, 0o644)
	case err != nil:
		return "", err
	case !info.IsDir():
		return path, nil
	}
	var files []string
	compressed := false
	err = filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, strings.TrimSuffix(name, packed))
			compressed = compressed || strings.HasSuffix(name, packed)
		}
		return err
	})
	if err != nil || !compressed {
		return path, err
	}
	out := filepath.Join(temp(), filepath.Base(path))
	for _, name := range files {
		b, err := read(name)
		if err != nil {
			return "", err
		}
		rel, err := filepath.Rel(path, name)
		if err != nil {
			return "", err
		}
		to := filepath.Join(out, rel)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(to, b, 0o644); err != nil {
			return "", err
		}
	}
	return out, nil
}

// read returns the contents of the file at path, stored plain or compressed.
func read(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return b, err
	}
	f, zerr := os.Open(path + packed)
	if zerr != nil {
		return nil, err // names the file as the test does
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", f.Name(), err)
	}
	// The gzip trailer holds a checksum, so what is read here is what was packed.
	b, err = io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", f.Name(), err)
	}
	return b, nil
}
