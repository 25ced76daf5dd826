package safetensors_test

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/model/gguf/gguftest"
	"talf/model/safetensors"
)

// The lists of a tokenizer are read when a GGUF file is opened, and do not stay.
func TestAnOpenGGUFFileKeepsNoHeader(t *testing.T) {
	f := gguftest.Tiny(1)
	list := make([]string, 1<<17)
	for i := range list {
		list[i] = fmt.Sprint("token ", i)
	}
	f.Set("some.tokens", list)
	path := f.Write(t, "x.gguf")
	s, err := safetensors.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	// Around a page that is read the system maps up to 15 others.
	if n := mappedKiB(t, path); n > 128 {
		t.Errorf("%d KiB of the file are mapped after it was opened, want 128 at most", n)
	}
	for _, name := range s.Names() {
		x, _ := s.Tensor(name)
		if _, err := x.Float32s(); err != nil {
			t.Error(err)
		}
	}
}

// Tensors begin and end within pages that they share: when all are released, none of the file's
// pages are left.
func TestReleasedTensorsLeaveNoPages(t *testing.T) {
	var tensors []safetensors.Tensor
	for i, n := range []int{100, 9000, 7, 2000, 300} {
		tensors = append(tensors, safetensors.F32(fmt.Sprint("t", i), make([]float32, n), n))
	}
	path := filepath.Join(t.TempDir(), "x.safetensors")
	if err := safetensors.WriteFile(path, nil, tensors...); err != nil {
		t.Fatal(err)
	}
	s, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, name := range s.Names() {
		x, _ := s.Tensor(name)
		if _, err := x.Float32s(); err != nil {
			t.Fatal(err)
		}
	}
	if n := mappedKiB(t, path); n < 40 {
		t.Fatalf("%d KiB of the file are mapped after it was read, want 46", n)
	}
	for _, name := range s.Names() {
		x, _ := s.Describe(name)
		s.Release(name, 0, x.Size())
	}
	if n := mappedKiB(t, path); n != 0 {
		t.Errorf("%d KiB of the file are mapped after all tensors were released, want 0", n)
	}
}

// A large tensor is hashed in pieces, whose pages do not stay until its end.
func TestHashingTakesAPieceOfMemory(t *testing.T) {
	const n = 24 << 20
	path := filepath.Join(t.TempDir(), "x.safetensors")
	if err := safetensors.WriteFile(path, nil, safetensors.F32("t", make([]float32, n), n)); err != nil {
		t.Fatal(err)
	}
	s, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	done := make(chan string)
	go func() {
		h, err := s.SHA256(nil)
		if err != nil {
			h = err.Error()
		}
		done <- h
	}()
	for most := 0; ; {
		select {
		case <-done:
			if most > 16<<10 {
				t.Errorf("%d KiB of %d were mapped while it was hashed, want 16 MiB at most", most, 4*n>>10)
			}
			return
		default:
			most = max(most, mappedKiB(t, path))
		}
	}
}

// mappedKiB returns how much of a mapped file takes memory.
func mappedKiB(t *testing.T, path string) (kib int) {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for ours, lines := false, bufio.NewScanner(f); lines.Scan(); {
		switch key, rest, _ := strings.Cut(lines.Text(), " "); {
		case strings.Contains(key, "-"):
			ours = strings.HasSuffix(rest, " "+path)
		case ours && key == "Rss:":
			if _, err := fmt.Sscan(rest, &kib); err != nil {
				t.Fatal(err)
			}
			return kib
		}
	}
	t.Fatalf("%s is not mapped", path)
	return 0
}
