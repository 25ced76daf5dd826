package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A copy of the repository under another path still builds, and nothing in it imports the old one.
func TestTheModuleIsRenamed(t *testing.T) {
	root, err := output("git", "rev-parse", "--show-toplevel")
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	root = strings.TrimSpace(root)
	list, err := output("git", "-C", root, "ls-files", "-z")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for f := range strings.SplitSeq(strings.TrimRight(list, "\x00"), "\x00") {
		if top, _, _ := strings.Cut(f, "/"); strings.Contains(f, "testdata/") && top != "tools" || filepath.Ext(f) == ".safetensors" {
			continue // large, and without a path of ours
		}
		to := filepath.Join(dir, f)
		text, err := os.ReadFile(filepath.Join(root, f))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	in := func(dir, name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=-mod=mod", "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	in(dir, "git", "init", "-q")
	in(dir, "git", "add", "-A")
	if said := in(dir, "make", "module", "PATH=github.com/you/fork"); !strings.Contains(said, "talf is now github.com/you/fork") {
		t.Errorf("it says %q", said)
	}
	for _, module := range []string{".", "lab", "tools"} {
		in := func(args ...string) string { return in(filepath.Join(dir, module), "go", args...) }
		if path := strings.TrimSpace(in("list", "-m")); path != filepath.Join("github.com/you/fork", module) {
			t.Errorf("module %s is %s", module, path)
		}
		for line := range strings.Lines(in("list", "-e", "-f", "{{.ImportPath}}: {{range .Imports}}{{.}} {{end}}{{range .TestImports}}{{.}} {{end}}{{range .XTestImports}}{{.}} {{end}}", "./...")) {
			for _, imp := range strings.Fields(line)[1:] {
				if imp == "talf" || strings.HasPrefix(imp, "talf/") {
					t.Errorf("%s imports %s", strings.Fields(line)[0], imp)
				}
			}
		}
	}
	in(dir, "go", "vet", "./tree/...", "./internal/lint", "./text/grammar/...")
}

func TestAPathIsOfARepository(t *testing.T) {
	for _, args := range [][]string{{}, {"talf"}, {"github.com"}, {"github.com/you/talf", "x"}, {"https://github.com/you/talf"}, {"../talf"}} {
		if err := run(args); err == nil || !strings.Contains(err.Error(), "want one path") {
			t.Errorf("%q: %v", args, err)
		}
	}
}
