package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"talf/internal/durable"
	"talf/internal/limits"
)

// tuned are the constants of auto, as pointers to variables of float64 or int. Only a build with the files of
// overlay has them.
var tuned map[string]any

const chooserDir = "infer/draft/chooser" // from the root of the repository

// overlay writes sources of the chooser in which the constants of levers are variables, and overlay.json, with
// which the go command puts them in place of its own. So they can be varied by a program that is built
// once, and stay constants wherever text is decoded.
func overlay(root, dir string) error {
	if err := durable.MakeDirs(dir); err != nil {
		return err
	}
	paths, err := filepath.Glob(filepath.Join(root, chooserDir, "*.go"))
	if err != nil {
		return err
	}
	sources := map[string][]byte{}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		if sources[filepath.Base(path)], err = limits.ReadFile(path, 1<<20); err != nil {
			return err
		}
	}
	variables, err := release(sources, levers)
	if err != nil {
		return err
	}
	files := map[string][]byte{
		filepath.Join(chooserDir, "tuned.go"): variables,
		"internal/tune/set.go":                []byte("package main\n\nimport \"talf/infer/draft/chooser\"\n\nfunc init() { tuned = chooser.Tuned }\n"),
	}
	for name, b := range sources {
		files[filepath.Join(chooserDir, name)] = b
	}
	replace := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		from, err := filepath.Abs(filepath.Join(root, name))
		if err != nil {
			return err
		}
		to, err := filepath.Abs(filepath.Join(dir, filepath.Base(name)))
		if err != nil {
			return err
		}
		if err := durable.WriteFile(to, files[name]); err != nil {
			return err
		}
		replace[from] = to
	}
	b, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, "overlay.json"), append(b, '\n'))
}

// release takes the constants of levers out of the sources of a package and returns a file that declares them
// as variables, of the same values.
func release(sources map[string][]byte, levers []lever) ([]byte, error) {
	var vars, list strings.Builder
	left := map[string]lever{}
	for _, l := range levers {
		left[l.name] = l
	}
	var name string // of the package
	for _, file := range slices.Sorted(maps.Keys(sources)) {
		src := sources[file]
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, file, src, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		name = f.Name.Name
		at := func(p token.Pos) int { return files.Position(p).Offset }
		out := bytes.Clone(src)
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST || !g.Lparen.IsValid() {
				continue
			}
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				l, ok := left[v.Names[0].Name]
				if !ok {
					continue
				}
				if len(v.Names) != 1 || len(v.Values) != 1 {
					return nil, fmt.Errorf("%s: %s: want one constant with a value of its own", file, l.name)
				}
				delete(left, l.name)
				fmt.Fprintf(&vars, "%s %s = %s\n", l.name, l.of, src[at(v.Values[0].Pos()):at(v.Values[0].End())])
				fmt.Fprintf(&list, "%q: &%s,\n", l.name, l.name)
				for i := at(v.Pos()); i < at(v.End()); i++ {
					out[i] = ' '
				}
			}
		}
		sources[file] = out
	}
	if len(left) > 0 {
		return nil, fmt.Errorf("no constants %s in the sources", strings.Join(slices.Sorted(maps.Keys(left)), ", "))
	}
	return format.Source(fmt.Appendf(nil, "package %s\n\nvar (\n%s)\n\n// Tuned are variables in place of constants.\nvar Tuned = map[string]any{\n%s}\n", name, &vars, &list))
}

// A setting is a constant of auto that this build may vary.
type setting struct {
	lever
	at any // *float64 or *int
}

// settings returns the constants of levers that are named, all if none is.
func settings(named []string) ([]setting, error) {
	if tuned == nil {
		return nil, errors.New("auto varies constants, which needs variables in their place: go run ./internal/tune overlay DIR, then go run -overlay DIR/overlay.json ./internal/tune auto …")
	}
	for _, n := range named {
		if !slices.ContainsFunc(levers, func(l lever) bool { return l.name == n }) {
			return nil, fmt.Errorf("-only: auto has no constant %q", n)
		}
	}
	var out []setting
	for _, l := range levers {
		if len(named) > 0 && !slices.Contains(named, l.name) {
			continue
		}
		at := tuned[l.name]
		switch at.(type) {
		case *float64, *int:
		default:
			return nil, fmt.Errorf("this build has no variable %s: write the overlay again", l.name)
		}
		out = append(out, setting{l, at})
	}
	return out, nil
}

func (s *setting) value() float64 {
	if p, ok := s.at.(*int); ok {
		return float64(*p)
	}
	return *s.at.(*float64)
}

// set changes it.
func (s *setting) set(x float64) {
	if p, ok := s.at.(*int); ok {
		*p = int(x)
		return
	}
	*s.at.(*float64) = x
}
