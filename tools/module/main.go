// Module sets the path of the module, wherever the repository names it: in the go.mod of all modules, in imports, in the
// rules of internal/lint, in flags of the linker, and in the code of documentation.
//
//	go run -C tools ./module github.com/you/talf
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "module:", err)
		os.Exit(1)
	}
}

// modulePath is what a module may be called: the host and the path of a repository.
var modulePath = regexp.MustCompile(`^[a-z0-9.-]+\.[a-z]+(/[A-Za-z0-9._~-]+)+$`)

func run(args []string) error {
	if len(args) != 1 || !modulePath.MatchString(args[0]) {
		return fmt.Errorf("%q, want one path such as github.com/you/talf", args)
	}
	root, err := output("git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	root = strings.TrimSpace(root)
	list, err := output("git", "-C", root, "ls-files", "-z")
	if err != nil {
		return err
	}
	files := strings.Split(strings.TrimRight(list, "\x00"), "\x00")
	r := renamer{to: args[0], packages: map[string]bool{}}
	gomod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(gomod), "\n")
	var ok bool
	if r.from, ok = strings.CutPrefix(first, "module "); !ok {
		return errors.New("go.mod does not begin with the module's path")
	}
	for _, f := range files {
		if path.Ext(f) == ".go" {
			for dir := path.Dir(f); dir != "."; dir = path.Dir(dir) {
				r.packages[dir] = true
			}
		}
	}
	r.compile()
	changed := 0
	for _, f := range files {
		name := filepath.Join(root, filepath.FromSlash(f))
		info, err := os.Lstat(name)
		if err != nil || !info.Mode().IsRegular() || info.Size() > 1<<20 {
			continue // no text of ours is so large
		}
		before, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		after := r.rename(f, before)
		if bytes.Equal(before, after) {
			continue
		}
		if err := os.WriteFile(name, after, info.Mode().Perm()); err != nil {
			return err
		}
		changed++
	}
	fmt.Printf("%s is now %s, in %d files\n", r.from, r.to, changed)
	return nil
}

// A renamer replaces the path from by to.
type renamer struct {
	from, to string
	packages map[string]bool // directories with Go files in or below them
	inside   *regexp.Regexp  // from, a slash and a path
	alone    *regexp.Regexp  // a line that imports the package at the root
	mod      *regexp.Regexp  // from as a word of go.mod
}

func (r *renamer) compile() {
	from := regexp.QuoteMeta(r.from)
	r.inside = regexp.MustCompile(`(^|[^\w./~-])` + from + `/([\w./-]+)`)
	r.alone = regexp.MustCompile(`(?m)^((?:\s*import)?[ \t]+)("` + from + `")$`)
	r.mod = regexp.MustCompile(`(?m)^(module |replace |[ \t]+)` + from + `(/\S+)?($| v| =>)`)
}

// rename returns the contents of a file with the new path.
func (r *renamer) rename(file string, text []byte) []byte {
	if path.Base(file) == "go.mod" {
		return r.mod.ReplaceAll(text, []byte("${1}"+r.to+"${2}${3}"))
	}
	text = r.inside.ReplaceAllFunc(text, func(m []byte) []byte {
		at := bytes.Index(m, []byte(r.from+"/"))
		dir := string(m[at+len(r.from)+1:])
		// A package, one that a recipe of docs/adding.md adds beside others, or a name in one, as the linker has it.
		dir, _, _ = strings.Cut(dir, ".")
		if !r.packages[dir] && !r.packages[path.Dir(dir)] {
			return m
		}
		return append(append(append([]byte{}, m[:at]...), r.to...), m[at+len(r.from):]...)
	})
	name := ""
	if path.Base(r.to) != "talf" { // the name of the package at the root
		name = "talf "
	}
	text = r.alone.ReplaceAll(text, []byte(`${1}`+name+`"`+r.to+`"`))
	if file == "internal/lint/lint.go" {
		text = bytes.Replace(text, []byte(`const Module = "`+r.from+`"`), []byte(`const Module = "`+r.to+`"`), 1)
	}
	return text
}

func output(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return "", fmt.Errorf("%s %v: %w", name, args, err)
	}
	return string(out), nil
}
