package jinja_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// allocators are the files that make values, and charge for them; the others of notRun do
// their work before a rendering: its cost is bounded by the length of what they read.
var (
	allocators = []string{"alloc.go", "meter.go", "number.go", "text.go", "textcase.go", "value.go"}
	notRun     = []string{"lex.go", "parse.go", "parse_expr.go", "parsejson.go"}
)

// constantTime are the functions of other packages that need no charge: they take constant
// time and make next to nothing.
var constantTime = map[string]bool{
	"errors.As": true, "math/bits.Mul64": true, "unicode/utf8.DecodeRuneInString": true,
	"unicode/utf8.RuneLen": true, "unicode/utf8.ValidRune": true, "unicode/utf16.EncodeRune": true,
	"talf/internal/limits.NewMeter": true, "(context.Context).Err": true,
}

func isConstantTime(fn string) bool {
	pkg, _, _ := strings.Cut(fn, ".")
	return constantTime[fn] || pkg == "math" || pkg == "unicode" || strings.HasPrefix(fn, "(time.")
}

// messages are the functions of run.go that make the message of an error, with which a
// rendering ends: quote cuts the texts in it.
var messages = map[string]bool{"Error": true, "throw": true, "throwAt": true, "catch": true}

// boundedLoops are loops that need no charge, with the reason.
var boundedLoops = map[string]string{
	"init":        "before any rendering",
	"bind":        "more arguments than parameters are refused",
	"rangeGlobal": "there are at most three arguments",
}

// charging are the methods that charge whenever they are called, or whenever what they return is
// asked for more.
var charging = []string{"step", "work", "eval", "exec", "chars", "backwards", "parts", "lines", "left", "equalAt", "json", "repr"}

// The filters, methods, operators and statements make no values by themselves, and have no
// loops that charge nothing: a new one cannot be written so that it escapes the budgets.
func TestOnlyTheAllocatorMakesValues(t *testing.T) {
	fset := token.NewFileSet()
	files, names := parseFiles(t, fset)
	info := check(t, fset, files)
	for i, f := range files {
		if slices.Contains(allocators, names[i]) || slices.Contains(notRun, names[i]) {
			continue
		}
		for _, d := range f.Decls {
			name := ""
			if fn, ok := d.(*ast.FuncDecl); ok {
				name = fn.Name.Name
			}
			if messages[name] && names[i] == "run.go" {
				continue
			}
			for _, fault := range uncharged(info, d, name) {
				t.Errorf("%s: %s", fset.Position(fault.at), fault.what)
			}
		}
	}
	for name := range boundedLoops {
		if !usedLoops[name] {
			t.Errorf("boundedLoops names %s, which has no loop that needs it", name)
		}
	}
}

var usedLoops = map[string]bool{}

type fault struct {
	at   token.Pos
	what string
}

// uncharged returns what a declaration does that only the allocator may do.
func uncharged(info *types.Info, decl ast.Node, name string) (faults []fault) {
	add := func(n ast.Node, format string, a ...any) {
		faults = append(faults, fault{n.Pos(), fmt.Sprintf(format, a...)})
	}
	isText := func(e ast.Expr) bool {
		b, ok := info.TypeOf(e).Underlying().(*types.Basic)
		return ok && b.Info()&types.IsString != 0
	}
	isConst := func(e ast.Expr) bool { return info.Types[e].Value != nil }
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if n.Op == token.ADD && isText(n) && !isConst(n) {
				add(n, "texts are added: want joinTexts or a buf")
			}
		case *ast.AssignStmt:
			if n.Tok == token.ADD_ASSIGN && isText(n.Lhs[0]) {
				add(n, "texts are added: want joinTexts or a buf")
			}
		case *ast.CallExpr:
			if to := info.Types[n.Fun]; to.IsType() {
				from := info.TypeOf(n.Args[0])
				if !isConst(n.Args[0]) && copies(to.Type, from) {
					add(n, "a conversion from %s to %s makes a copy", from, to.Type)
				}
				return true
			}
			switch fn := callee(info, n).(type) {
			case *types.Builtin:
				if slices.Contains([]string{"make", "append", "new"}, fn.Name()) {
					add(n, "%s is for the allocator", fn.Name())
				}
			case *types.Func:
				if fn.Pkg() != nil && fn.Pkg().Name() != "jinja" && !isConstantTime(fn.FullName()) {
					add(n, "%s is for the allocator", fn.FullName())
				}
			}
		case *ast.RangeStmt:
			if !chargedLoop(info, n) && !fixed(info, n.X) {
				if boundedLoops[name] != "" {
					usedLoops[name] = true
				} else {
					add(n, "a loop that charges nothing: want r.step() or r.work")
				}
			}
		case *ast.ForStmt:
			if !chargedLoop(info, n) {
				if boundedLoops[name] != "" {
					usedLoops[name] = true
				} else {
					add(n, "a loop that charges nothing: want r.step() or r.work")
				}
			}
		}
		return true
	})
	return faults
}

// copies reports whether a conversion allocates.
func copies(to, from types.Type) bool {
	text := func(t types.Type) bool {
		b, ok := t.Underlying().(*types.Basic)
		return ok && b.Info()&types.IsString != 0
	}
	_, toSlice := to.Underlying().(*types.Slice)
	return text(to) != text(from) && (text(to) || text(from) && toSlice)
}

// callee returns what a call calls, if that has a name.
func callee(info *types.Info, c *ast.CallExpr) types.Object {
	switch f := ast.Unparen(c.Fun).(type) {
	case *ast.Ident:
		return info.Uses[f]
	case *ast.SelectorExpr:
		return info.Uses[f.Sel]
	}
	return nil
}

// chargedLoop reports whether each pass of a loop charges.
func chargedLoop(info *types.Info, loop ast.Node) bool {
	charged := false
	ast.Inspect(loop, func(n ast.Node) bool {
		if _, ok := n.(*ast.FuncLit); ok {
			return false // it need not be called
		}
		if c, ok := n.(*ast.CallExpr); ok {
			if fn, ok := callee(info, c).(*types.Func); ok && fn.Pkg() != nil && fn.Pkg().Name() == "jinja" {
				charged = charged || slices.Contains(charging, fn.Name())
			}
		}
		return !charged
	})
	return charged
}

// fixed reports whether the source says how often a range runs, and that is not often.
func fixed(info *types.Info, x ast.Expr) bool {
	if _, ok := ast.Unparen(x).(*ast.CompositeLit); ok {
		return true
	}
	if _, ok := info.TypeOf(x).Underlying().(*types.Array); ok {
		return true
	}
	v := info.Types[x].Value
	return v != nil && v.Kind() == constant.Int
}

// What the rules are for, they refuse.
func TestUnchargedCodeIsRefused(t *testing.T) {
	const source = `package jinja
import ("slices"; "strings")
type run struct{}
func (*run) step() {}
func made(n int) []int { return make([]int, n) }
func appended(l []int) []int { return append(l, 1) }
func added(s string) string { return s + s }
func addedTo(s string) string { s += "x"; return s }
func repeated(s string) string { return strings.Repeat(s, 9) }
func cloned(l []int) []int { return slices.Clone(l) }
func runes(s string) []rune { return []rune(s) }
func text(b []byte) string { return string(b) }
func ranged(s string) { for range s {} }
func looped(n int) { for n > 0 { n-- } }
func later(r *run, l []int) { for range l { _ = func() { r.step() } } }
func good(r *run, l []int) { for range l { r.step() }; for range 3 {}; for range []int{1} {} }
`
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "bad.go", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	info := check(t, fset, []*ast.File{f})
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		good := fn.Name.Name == "good" || fn.Name.Name == "step"
		if faults := uncharged(info, d, fn.Name.Name); (len(faults) == 0) != good {
			t.Errorf("%s: %v", fn.Name.Name, faults)
		}
	}
}

// parseFiles parses the package.
func parseFiles(t *testing.T, fset *token.FileSet) (files []*ast.File, names []string) {
	t.Helper()
	all, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files, names = append(files, f), append(names, name)
	}
	return files, names
}

// check returns the types in files. What they import comes from the build cache.
func check(t *testing.T, fset *token.FileSet, files []*ast.File) *types.Info {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export", ".")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	exports := map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", open)}
	if _, err := conf.Check("jinja", fset, files, info); err != nil {
		t.Fatal(err)
	}
	return info
}
