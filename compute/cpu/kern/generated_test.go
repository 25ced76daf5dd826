package kern

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The assembly must come from the generator as it is: its header carries the hash
// of the generator's source. Bytes are compared by "make generate".
func TestAssemblyIsOfTheGeneratorAsItIs(t *testing.T) {
	files, err := filepath.Glob("../../../tools/avogen/*.go") // sorted by name
	if err != nil || len(files) == 0 {
		t.Skip("the generator's source is not here")
	}
	h := sha256.New()
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		h.Write(b)
	}
	want := fmt.Sprintf("// Source: sha256 %x\n", h.Sum(nil))
	for _, name := range []string{"avx2_amd64.s", "avx2stub_amd64.go", "avx512_amd64.s", "avx512stub_amd64.go"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), want) {
			t.Errorf("%s is not of the present source of tools/avogen (want %q): run make generate", name, want)
		}
	}
}
