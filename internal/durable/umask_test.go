//go:build unix

package durable

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// What is written may be read by whom the umask allows.
func TestTheUmaskIsRespected(t *testing.T) {
	old := syscall.Umask(0o027)
	defer syscall.Umask(old)
	dir := t.TempDir()
	file, made := filepath.Join(dir, "file"), filepath.Join(dir, "made", "dir")
	d := newDir(t, made)
	if err := errors.Join(WriteFile(file, nil), d.Write("one", text("1")), d.Commit()); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{file: 0o640, filepath.Join(made, "one"): 0o640, made: 0o750, filepath.Dir(made): 0o750} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", path, st.Mode(), err, want)
		}
	}
}
