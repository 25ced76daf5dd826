package lint_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/internal/lint"
)

func TestFilesAreWrittenInOnePlace(t *testing.T) {
	looked := 0
	for _, name := range tracked(t) {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "/testdata/") {
			continue
		}
		looked++
		bad, err := lint.Changes(name, read(t, name))
		if err != nil {
			t.Error(err)
		}
		for _, b := range bad {
			t.Error(b)
		}
	}
	if looked < 100 {
		t.Fatalf("git names %d Go files", looked)
	}
	for dir := range lint.Writers {
		if !strings.Contains(strings.Join(tracked(t), "\n"), dir) {
			t.Errorf("lint.Writers names %s, which there is not", dir)
		}
	}
}

func TestWritingElsewhereIsFound(t *testing.T) {
	const text = `package p

import (
	"os"
	o "os/exec"
)

func f() {
	os.Open("a")
	os.Create("b")
	g := os.Remove
	o.Command("c")
}
`
	want := []string{
		"data/p.go:10:2: os.Create: files are written by internal/durable and internal/vfs alone",
		"data/p.go:11:7: os.Remove: files are written by internal/durable and internal/vfs alone",
	}
	got, err := lint.Changes("data/p.go", text)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("(-want +got) %v:\n%s", err, diff)
	}
	if got, err = lint.Changes("data/p.go", strings.ReplaceAll(strings.Replace(text, `"os"`, `sys "os"`, 1), "\tos.", "\tsys.")); len(got) != 1 || err != nil {
		t.Errorf("with another name of package os: %v, %q", err, got)
	}
	if got, err := lint.Changes("internal/vfs/p.go", text); len(got) > 0 || err != nil {
		t.Errorf("internal/vfs itself: %v, %q", err, got)
	}
}
