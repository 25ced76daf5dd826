package mapped_test

import (
	"os"
	"path/filepath"
	"testing"

	"talf/internal/mapped"
)

func TestFilesAreReadWhereTheyLie(t *testing.T) {
	dir := t.TempDir()
	for _, want := range []string{"", "x", "some text"} {
		path := filepath.Join(dir, "file")
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		b, done, err := mapped.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(b) != want {
			t.Errorf("read %q, want %q", b, want)
		}
		if err := done(); err != nil {
			t.Error(err)
		}
	}
}

func TestWhatIsNoFileIsRefused(t *testing.T) {
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
		if _, _, err := mapped.Open(path); err == nil {
			t.Errorf("%s opens", path)
		}
	}
}
