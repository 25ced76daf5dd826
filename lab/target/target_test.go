package target_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"talf/lab/target"
)

var update = flag.Bool("update", false, "write the embedded files anew")

// embedded is where the program has them from.
var embedded = filepath.Join("..", "..", "internal", "demo", "target")

// The embedded files follow from the recipe; -update writes them again.
func TestEmbeddedTargetFollowsTheRecipe(t *testing.T) {
	if testing.Short() {
		t.Skip("trains a vocabulary")
	}
	dir := t.TempDir()
	if *update {
		dir = embedded
	}
	if err := target.Write(dir); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		want, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(embedded, f.Name()))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("target/%s is not what the recipe writes (%v): go test ./target -update", f.Name(), err)
		}
	}
}
