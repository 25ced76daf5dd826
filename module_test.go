package talf_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"talf/cmd/talf/command"
	"talf/internal/e2e/talftest"
)

// Another module uses this one: the program of docs/library.md is built as it stands there, without a network, and writes
// what talf generate writes.
func TestTheProgramOfTheDocumentation(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a module that uses this one")
	}
	doc, err := os.ReadFile("docs/library.md")
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(doc), "```go\n")
	program, _, ok := strings.Cut(program, "```")
	if !ok {
		t.Fatal("docs/library.md has no program")
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	first, rest, _ := strings.Cut(string(mod), "\n")
	module := strings.TrimPrefix(first, "module ")
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.go": program,
		// The versions of what the module needs are those that its cache has.
		"go.mod": "module example.com/writer\n" + rest + "\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + root + "\n",
		"go.sum": string(sums),
	} {
		talftest.Write(t, filepath.Join(dir, name), text)
	}
	build := exec.Command("go", "build", "-o", "writer", ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "module lookup disabled by GOPROXY=off") {
			t.Skipf("the module cache lacks something: %s", out)
		}
		t.Fatalf("%v\n%s", err, out)
	}
	model := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	got, err := exec.Command(filepath.Join(dir, "writer"), model, "Once upon a time").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, got)
	}
	var want, errs bytes.Buffer
	if code := command.Run([]string{"generate", model, "Once upon a time", "--raw", "--max-tokens", "64"}, nil, &want, &errs); code != 0 {
		t.Fatalf("talf generate ends with code %d: %s", code, &errs)
	}
	if string(got)+"\n" != want.String() {
		t.Errorf("it writes %q, talf generate writes %q", got, &want)
	}
}
