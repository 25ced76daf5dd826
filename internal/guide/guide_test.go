package guide_test

import (
	"encoding/json"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"talf/internal/guide"
)

const root = "../.."

// Everything that docs/adding.md says to write and change compiles, and its tests pass. The
// files are laid over the tree for the build: nothing is written to it.
func TestAddingIsTrue(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "adding.md"))
	if err != nil {
		t.Fatal(err)
	}
	steps, tests, err := guide.Parse(strings.ReplaceAll(string(page), "\r\n", "\n"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := guide.Apply(steps, func(file string) (string, error) {
		b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		return strings.ReplaceAll(string(b), "\r\n", "\n"), err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if formatted, err := format.Source([]byte(text)); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if string(formatted) != text {
			t.Errorf("%s is not formatted:\n%s", name, formatted)
		}
	}
	if len(tests) != 7 || t.Failed() {
		t.Fatalf("%d recipes, want 7", len(tests))
	}
	if testing.Short() {
		t.Skip("compiles seven packages and their tests")
	}
	dir := t.TempDir()
	overlay := map[string]string{}
	for name, text := range files {
		real, err := filepath.Abs(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		replacement := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(replacement, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		overlay[real] = replacement
	}
	raw, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	// Vet looks for the directory of a package that exists only in the overlay.
	args := []string{"test", "-short", "-v", "-vet=off", "-overlay", list, "-run"}
	var patterns, packages []string
	for _, r := range tests {
		patterns, packages = append(patterns, r.Pattern), append(packages, r.Package)
	}
	cmd := exec.Command("go", append(append(args, strings.Join(patterns, "|")), packages...)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, p := range patterns {
		if name := strings.TrimSuffix(p, "$"); !strings.Contains(string(out), "--- PASS: "+name+" ") {
			t.Errorf("%s did not run:\n%s", name, out)
		}
	}
}

func TestRecipesThatDoNotFitAreFound(t *testing.T) {
	tree := map[string]string{"a/a.go": "one\ntwo\none\n"}
	read := func(file string) (string, error) {
		if s, ok := tree[file]; ok {
			return s, nil
		}
		return "", os.ErrNotExist
	}
	for name, c := range map[string]struct{ page, want string }{
		"a change":             {"In `a/a.go`:\n\n```diff\n-two\n+three\n```\n", ""},
		"two changes":          {"In `a/a.go`:\n\n```diff\n-two\n+three\n```\n\n```diff\n three\n+four\n```\n", ""},
		"a new file":           {"`b/b.go`:\n\n```go\npackage b\n```\n", ""},
		"lines that are gone":  {"In `a/a.go`:\n\n```diff\n-three\n+two\n```\n", "occur 0 times"},
		"lines that are twice": {"In `a/a.go`:\n\n```diff\n-one\n+two\n```\n", "occur 2 times"},
		"a file that is there": {"`a/a.go`:\n\n```go\npackage a\n```\n", "such a file already"},
		"a file written twice": {"`b/b.go`:\n\n```go\npackage b\n```\n\n```go\npackage b\n```\n", "such a file already"},
		"a file that is not":   {"In `c/c.go`:\n\n```diff\n-one\n+two\n```\n", "not exist"},
		"a block of no file":   {"```go\npackage b\n```\n", "belongs to file"},
		"an open block":        {"`b/b.go`:\n\n```go\npackage b\n", "not closed"},
		"no place":             {"In `a/a.go`:\n\n```diff\n+two\n```\n", "does not say where"},
		"no diff":              {"In `a/a.go`:\n\n```diff\ntwo\n```\n", "starts with"},
	} {
		steps, _, err := guide.Parse(c.page)
		if err == nil {
			_, err = guide.Apply(steps, read)
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
