//go:build unix

package limits_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"talf/internal/limits"
)

// Opening a pipe waits for a writer, and some devices never end.
func TestPipesAndDevicesAreRefusedAtOnce(t *testing.T) {
	dir := t.TempDir()
	pipe, zero := filepath.Join(dir, "pipe"), filepath.Join(dir, "zero")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Skip("no pipes here: ", err)
	}
	if err := os.Symlink("/dev/zero", zero); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, zero} {
		if _, err := limits.ReadFile(path, 1<<20); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v, want it refused", path, err)
		}
	}
}
