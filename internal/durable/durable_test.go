package durable

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestWriteFileReplacesOrLeavesAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, text := range []string{"one", "another"} {
		if err := WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("the file holds %q, %v, want %q", got, err, text)
		}
	}
	if err := WriteFile(filepath.Join(dir, "none", "file"), nil); err == nil {
		t.Error("a file was written to a directory that does not exist")
	}
	taken := filepath.Join(dir, "taken")
	if err := os.Mkdir(taken, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(taken, []byte("x")); err == nil {
		t.Error("a directory was replaced by a file")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("%v are left, %v, want the file and the directory alone", left, err)
	}
}

func TestALockIsHeldByOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	a, b := open(), open()
	if err := Lock(a); err != nil {
		t.Fatal(err)
	}
	if err := Lock(b); err == nil {
		t.Error("two hold the lock")
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Lock(b); err != nil {
		t.Errorf("the lock outlives its file: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestANewDirectoryIsFilledOrLeftEmpty(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	text := func(s string) func(io.Writer) error {
		return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
	}
	left := func() (names []string) {
		es, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range es {
			names = append(names, e.Name())
		}
		return names
	}
	d, err := NewDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Write("one", text("1")); err != nil {
		t.Fatal(err)
	}
	full := errors.New("disk full")
	err = d.Write("two", func(w io.Writer) error { return errors.Join(text("2")(w), full) })
	if !errors.Is(err, full) || !strings.Contains(err.Error(), filepath.Join(dir, "two")) {
		t.Errorf("%v, want what failed and the file", err)
	}
	if n := left(); len(n) > 0 || len(d.Names()) > 0 {
		t.Errorf("%v are left, %v are told of", n, d.Names())
	}
	if d, err = NewDir(dir); err != nil { // empty again
		t.Fatal(err)
	}
	if err := errors.Join(d.Write("one", text("1")), d.Write("two", text("2"))); err != nil {
		t.Fatal(err)
	}
	if n := left(); !slices.Equal(n, d.Names()) || !slices.Equal(n, []string{"one", "two"}) {
		t.Errorf("%v, told of %v", n, d.Names())
	}
	if _, err := NewDir(dir); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a full directory is new: %v", err)
	}
	if d.Discard(); len(left()) > 0 {
		t.Errorf("%v are left", left())
	}
}
