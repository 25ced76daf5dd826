package durable

import (
	"os"
	"path/filepath"
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
		if st, err := os.Stat(path); err != nil || st.Mode().Perm()&0o444 != 0o444 {
			t.Errorf("%v, %v, want a file that all may read", st, err)
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

func TestWhatCannotBeWrittenIsRefusedEarly(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"":                              "",
		file:                            "",
		filepath.Join(dir, "new"):       "",
		dir:                             dir + " is a directory: want a file to write",
		filepath.Join(file, "x"):        filepath.Join(file, "x") + " cannot be written: " + file + " is a file, want a directory",
		filepath.Join(dir, "none", "x"): filepath.Join(dir, "none", "x") + " cannot be written: ",
	} {
		err := Writable(path)
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", path, err, want)
		}
	}
}
