package kern

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// generated lists what the generator writes: the classes with their own assembly, and those of a
// package of the models'.
var generated = []struct {
	class, dir string
	flags      []string
}{
	{"avx2", ".", nil},
	{"avxvnni", ".", nil},
	{"avx512", ".", nil},
	{"avx512vnni", ".", nil},
	{"avx512bf16", ".", nil},
	{"amx", ".", nil},
	{"avx2", "../../../model/internal/probs", []string{"-package", "probs"}},
	{"avx512", "../../../model/internal/probs", []string{"-package", "probs"}},
}

// The assembly must come from the current generator: its header has the hash of the generator's
// source.
func TestGeneratedAssemblyIsOfTheGeneratorAsItIs(t *testing.T) {
	files, err := filepath.Glob("../../../tools/avogen/*.go") // sorted by name
	if err != nil || len(files) == 0 {
		t.Skip("the generator's source is not here")
	}
	tiles, err := filepath.Glob("../../../tools/avogen/tile/*.go")
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	for _, name := range append(files, tiles...) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		h.Write(b)
	}
	want := fmt.Sprintf("// Source: sha256 %x\n", h.Sum(nil))
	for _, g := range generated {
		for _, name := range []string{g.class + "_amd64.s", g.class + "stub_amd64.go"} {
			name = filepath.Join(g.dir, name)
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(b), want) {
				t.Errorf("%s is not of the present source of tools/avogen (want %q): run make generate", name, want)
			}
		}
	}
}

// The same for arm64, whose generator has no dependencies: its output is compared byte for byte.
func TestGeneratedAssemblyOfARM64(t *testing.T) {
	const dir = "../../../tools/neongen"
	files, err := filepath.Glob(dir + "/*.go") // sorted by name
	if err != nil || len(files) == 0 {
		t.Skip("the generator's source is not here")
	}
	h := sha256.New()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		h.Write(b)
	}
	want := fmt.Sprintf("// Source: sha256 %x\n", h.Sum(nil))
	names := []string{"neon_arm64.s", "neonstub_arm64.go"}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), want) {
			t.Errorf("%s is not of the present source of tools/neongen (want %q): run make generate", name, want)
		}
	}
	if testing.Short() {
		return
	}
	out := t.TempDir()
	cmd := exec.Command("go", "run", "./neongen", "-dir", out)
	cmd.Dir = "../../../tools"
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("the tools' modules are not here: %v\n%s", err, b)
	}
	compareFiles(t, out, ".", names, "tools/neongen")
}

// compareFiles compares files of two directories.
func compareFiles(t *testing.T, want, got string, names []string, generator string) {
	t.Helper()
	for _, name := range names {
		w, err := os.ReadFile(filepath.Join(want, name))
		if err != nil {
			t.Fatal(err)
		}
		name = filepath.Join(got, name)
		g, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(g, w) {
			t.Errorf("%s differs from what %s writes: run make generate", name, generator)
		}
	}
}

// If the generator can be built without the network, its output is compared byte for byte.
func TestGeneratedAssemblyIsWhatTheGeneratorWrites(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the generator")
	}
	t.Parallel() // it waits for processes
	dir := t.TempDir()
	gen := filepath.Join(dir, "avogen.exe")
	cmd := exec.Command("go", "build", "-o", gen, "./avogen")
	cmd.Dir = "../../../tools"
	cmd.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("the generator's modules are not here: %v\n%s", err, out)
	}
	for _, g := range generated {
		if out, err := exec.Command(gen, append(g.flags, "-class", g.class, "-dir", dir)...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		compareFiles(t, dir, g.dir, []string{g.class + "_amd64.s", g.class + "stub_amd64.go"}, "tools/avogen")
	}
}
