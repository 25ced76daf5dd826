package lint_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/internal/lint"
)

const root = "../.."

func run(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("%s %v: %v\n%s", name, args, err, exit.Stderr)
		}
		t.Skipf("%s cannot run: %v", name, err)
	}
	return out
}

// tracked lists the files under version control, or skips the test if there is none.
func tracked(t *testing.T) []string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skip("not a git checkout")
	}
	var files []string
	for name := range strings.SplitSeq(string(run(t, "git", "ls-files", "-z")), "\x00") {
		if _, err := os.Stat(filepath.Join(root, name)); name != "" && err == nil {
			files = append(files, name)
		}
	}
	return files
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestImportsFollowTheArchitecture(t *testing.T) {
	dec := json.NewDecoder(bytes.NewReader(run(t, "go", "list", "-e", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")))
	var pkgs []lint.Package
	for {
		var p lint.Package
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
	if len(pkgs) < 5 {
		t.Fatalf("go list names %d packages", len(pkgs))
	}
	for _, v := range lint.Violations(pkgs) {
		t.Error(v)
	}
}

func TestRulesBite(t *testing.T) {
	planted := []lint.Package{
		{ImportPath: "talf/tree", Imports: []string{"fmt", "talf/model"}},
		{ImportPath: "talf/model", Imports: []string{"talf/compute", "talf/model/arch", "talf/compute/cpu"}},
		{ImportPath: "talf/train", Imports: []string{"talf/data", "gorgonia.org/gorgonia"}},
		{ImportPath: "talf/infer/draft", XTestImports: []string{"talf/train/net"}},
		{ImportPath: "talf/infer", Imports: []string{"talf/data"}},
		{ImportPath: "talf/infer/bench", Imports: []string{"talf/data"}},
		{ImportPath: "talf/train/internal/gg", Imports: []string{"gorgonia.org/tensor", "talf/compute"}},
		{ImportPath: lint.Module + "/surprise"},
		{ImportPath: "talf/cmd/talf/command", TestImports: []string{"talf/lab/papers"}},
	}
	want := []string{
		"cmd/talf/command imports lab/papers: the laboratory uses the product, never the other way round",
		"infer imports data",
		"infer/bench imports data",
		"infer/draft imports train/net: they must not know each other",
		"model imports compute/cpu",
		"surprise has no import rule: add one to internal/lint",
		"train imports gorgonia.org/gorgonia, which belongs to train/internal/gg/...",
		"tree imports model",
	}
	if diff := cmp.Diff(want, lint.Violations(planted)); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
}

// Direct requirements of go.mod and rows of the table of reasons are the same set.
func TestEveryDependencyHasAReason(t *testing.T) {
	const table = "docs/adr/0001-dependencies.md"
	var want, got []string
	inRequire := false
	for line := range strings.Lines(read(t, "go.mod")) {
		line = strings.TrimSpace(line)
		switch {
		case line == "require (":
			inRequire = true
		case line == ")":
			inRequire = false
		case inRequire && !strings.HasSuffix(line, "// indirect"):
			want = append(want, strings.Fields(line)[0])
		case strings.HasPrefix(line, "require ") && !strings.HasSuffix(line, "// indirect"):
			want = append(want, strings.Fields(line)[1])
		}
	}
	text, _, _ := strings.Cut(read(t, table), "\n## Tools")
	row := regexp.MustCompile("(?m)^\\| (`.+`) \\| (.+) \\|$")
	for _, m := range row.FindAllStringSubmatch(text, -1) {
		for name := range strings.SplitSeq(m[1], ", ") {
			got = append(got, strings.Trim(name, "`"))
		}
		if len(strings.Fields(m[2])) < 4 {
			t.Errorf("%s: %s has no reason", table, m[1])
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("go.mod (-) and %s (+) differ:\n%s", table, diff)
	}
}

// The laboratory tests the product with the versions that the product is released with.
func TestTheLaboratoryHasTheProductsVersions(t *testing.T) {
	of := func(name string) map[string]string {
		out := map[string]string{}
		for line := range strings.Lines(read(t, name)) {
			if f := strings.Fields(strings.TrimPrefix(line, "require ")); len(f) > 1 && strings.HasPrefix(f[1], "v") {
				out[f[0]] = f[1]
			}
		}
		return out
	}
	product, lab := of("go.mod"), of("lab/go.mod")
	shared := 0
	for module, version := range lab {
		if want, ok := product[module]; ok {
			if shared++; version != want {
				t.Errorf("lab/go.mod has %s %s, go.mod %s", module, version, want)
			}
		}
	}
	if shared < 10 {
		t.Errorf("%d modules are in both", shared)
	}
}

// Decisions are cited by their numbers.
func TestEveryDecisionHasANumberOfItsOwn(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(root, "docs/adr/*.md"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%d decisions: %v", len(names), err)
	}
	of := map[string]string{}
	for _, name := range names {
		name = filepath.Base(name)
		number, _, _ := strings.Cut(name, "-")
		if other, ok := of[number]; ok {
			t.Errorf("docs/adr: %s and %s have one number", other, name)
		}
		of[number] = name
		if want := "# " + strings.TrimLeft(number, "0") + ". "; !strings.HasPrefix(read(t, filepath.Join("docs/adr", name)), want) {
			t.Errorf("docs/adr/%s: its heading does not begin with %q", name, want)
		}
	}
}

// A path of the author's machine works nowhere else.
func TestNoFileNamesAMachinePath(t *testing.T) {
	private := regexp.MustCompile(`(^|[\s"'` + "`" + `(=:])/(` + strings.Join([]string{"work", "root", "home", "tmp", "Users"}, "|") + `)/\w`)
	for _, name := range tracked(t) {
		text := read(t, name)
		if strings.ContainsRune(text[:min(len(text), 8000)], 0) || strings.HasSuffix(name, "go.sum") {
			continue
		}
		n := 0
		for line := range strings.Lines(text) {
			n++
			if m := private.FindString(line); m != "" {
				t.Errorf("%s:%d names a path of one machine: %s", name, n, strings.TrimSpace(line))
			}
		}
	}
}
