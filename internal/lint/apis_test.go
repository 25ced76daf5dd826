package lint

import (
	"bytes"
	"go/ast"
	"go/build"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What a package offers depends on no platform, nor on whether there is assembly: what imports it compiles for all if it
// compiles for one. .ci/run relies on that, and vets for the others only packages that have other files. The tags gpu and
// mpi add to what their own packages offer, and steps of their own compile all that uses them.
func TestPackagesOfferTheSameEverywhere(t *testing.T) {
	root := filepath.Join("..", "..")
	here := build.Default
	here.GOOS, here.GOARCH, here.CgoEnabled, here.BuildTags = "linux", "amd64", false, nil
	contexts := map[string]build.Context{}
	other := func(name string, change func(*build.Context)) {
		c := here
		change(&c)
		contexts[name] = c
	}
	other("purego", func(c *build.Context) { c.BuildTags = []string{"purego"} })
	other("linux/arm64", func(c *build.Context) { c.GOARCH = "arm64" })
	other("darwin/arm64", func(c *build.Context) { c.GOOS, c.GOARCH = "darwin", "arm64" })
	other("windows/amd64", func(c *build.Context) { c.GOOS = "windows" })
	packages := 0
	err := filepath.WalkDir(root, func(dir string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		if name := e.Name(); dir != root && (name == "testdata" || name == "lab" || name == "tools" || name == "main" || strings.HasPrefix(name, ".")) {
			return fs.SkipDir
		}
		want, n := offers(t, &here, dir)
		packages += n
		for name, c := range contexts {
			if got, _ := offers(t, &c, dir); !slices.Equal(got, want) {
				t.Errorf("%s offers another API with %s:\n%s\nwithout:\n%s", dir, name, strings.Join(missing(got, want), "\n"), strings.Join(missing(want, got), "\n"))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if packages < 100 {
		t.Errorf("%d packages in %s: where are the others?", packages, root)
	}
}

// missing returns what is in a alone.
func missing(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

// offers returns the exported declarations of the package in dir, in order: functions and methods without bodies and
// the names of their parameters, types, variables and constants. n is 1 if there is a package, main aside.
func offers(t *testing.T, c *build.Context, dir string) (all []string, n int) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		if ok, err := c.MatchFile(dir, filepath.Base(path)); err != nil {
			t.Fatal(err)
		} else if !ok {
			continue
		}
		f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if f.Name.Name != "main" {
			n = 1
		}
		for _, d := range f.Decls {
			all = append(all, declarations(t, set, d)...)
		}
	}
	slices.Sort(all)
	return all, n
}

// declarations returns what d exports.
func declarations(t *testing.T, set *token.FileSet, d ast.Decl) (all []string) {
	show := func(prefix string, n any) {
		var b bytes.Buffer
		if err := printer.Fprint(&b, set, n); err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.Join(strings.Fields(prefix+b.String()), " "))
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if !d.Name.IsExported() || d.Recv != nil && !ofExported(d.Recv.List[0].Type) {
			return nil
		}
		for _, list := range []*ast.FieldList{d.Recv, d.Type.Params, d.Type.Results} {
			if list == nil {
				continue
			}
			var fields []*ast.Field
			for _, f := range list.List {
				for range max(1, len(f.Names)) {
					fields = append(fields, &ast.Field{Type: f.Type})
				}
			}
			list.List = fields
		}
		show("", &ast.FuncDecl{Recv: d.Recv, Name: d.Name, Type: d.Type})
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					if fields, ok := s.Type.(*ast.StructType); ok { // others cannot see the rest
						fields.Fields.List = slices.DeleteFunc(fields.Fields.List, func(f *ast.Field) bool {
							return len(f.Names) > 0 && !slices.ContainsFunc(f.Names, (*ast.Ident).IsExported)
						})
					}
					show("type ", &ast.TypeSpec{Name: s.Name, TypeParams: s.TypeParams, Assign: s.Assign, Type: s.Type})
				}
			case *ast.ValueSpec:
				for _, name := range s.Names {
					if !name.IsExported() {
						continue
					}
					if s.Type == nil {
						show(d.Tok.String()+" ", name)
					} else {
						show(d.Tok.String()+" "+name.Name+" ", s.Type)
					}
				}
			}
		}
	}
	return all
}

// ofExported reports whether a receiver's type is exported.
func ofExported(x ast.Expr) bool {
	for {
		switch e := x.(type) {
		case *ast.StarExpr:
			x = e.X
		case *ast.IndexExpr:
			x = e.X
		case *ast.IndexListExpr:
			x = e.X
		case *ast.Ident:
			return e.IsExported()
		default:
			return false
		}
	}
}
