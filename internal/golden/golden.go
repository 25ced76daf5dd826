// Package golden finds the reference inputs and outputs that tests compare with.
package golden

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

// Shared returns the path of name below the shared folder: $TALF_SHARED, or
// ../shared beside the repository. It skips the test where that folder is
// absent, and fails it where the folder exists without the file.
func Shared(t testing.TB, name string) string {
	t.Helper()
	root := os.Getenv("TALF_SHARED")
	if root == "" {
		_, file, _, ok := runtime.Caller(0)
		if !ok {
			t.Skip("the location of the sources is not known: set TALF_SHARED")
		}
		root = filepath.Join(filepath.Dir(file), "..", "..", "..", "shared")
	}
	if _, err := os.Stat(root); err != nil {
		t.Skipf("no shared reference data at %s (set TALF_SHARED)", root)
	}
	p := filepath.Join(root, filepath.FromSlash(name))
	if _, err := os.Stat(p); err != nil {
		t.Fatalf("shared reference data: %v", err)
	}
	return p
}
