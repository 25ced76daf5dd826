package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
)

// Goroutines are the functions that start goroutines without a recover of their own, as "file:
// function", with what keeps a panic there from ending the process, or why it may.
var Goroutines = map[string]string{
	"compute/cpu/pool.go: newPool":            "pool.guarded hands a panic to whoever runs the job",
	"compute/cuda/device.go: New":             "caught and perform make a panic the device's failure",
	"compute/cuda/join.go: device.Join":       "joined.do makes a panic its caller's error",
	"compute/cuda/rate.go: Roomiest":          "calls the driver alone, before there is any work to lose",
	"compute/cuda/weight.go: packing.run":     "mapped.Group hands a panic to Wait",
	"infer/loop/loop.go: Loop.Submit":         "context and timer end a request: it changes lists, and calls nobody",
	"serve/door.go: Listener.Open":            "net/http recovers from panics of handlers",
	"serve/generate.go: Server.generate":      "report adds counts and writes to the log",
	"serve/run.go: Server.serve":              "net/http recovers from panics of handlers",
	"internal/cli/run.go: watch":              "waits for signals",
	"internal/mapped/mapped.go: Group.Go":     "sets a flag of the goroutine, and then recovers",
	"model/safetensors/finite.go: Set.Finite": "mapped.Group hands a panic to Wait",
	"text/transcode/each.go: Each":            "batch.run recovers",
	"train/linear.go: headTask.initLinear":    "solves equations before there is any work to lose",
	"train/dist/local.go: Together":           "a run with checkpoints: a panic of one rank ends it with its stack, as a panic of a run with one rank does",
	"train/dist/local.go: round.inPieces":     "adds and copies slices whose lengths join has compared",
	"train/dist/peers.go: Peers.patiently":    "waits for time and asks which ranks have ended",
}

// testSupport are directories whose goroutines end a test if they panic, as they should.
var testSupport = []string{
	"compute/computetest/", "compute/cuda/cudatest/", "internal/e2e/", "internal/limits/costtest/", "lab/", "tools/",
}

// Unguarded returns one sentence for each goroutine that a Go file starts without recovering from
// its panics, unless the function that starts it is one of Goroutines; used is called with those
// entries. A panic that nothing recovers ends the process, and with it what others are doing. name
// is slash-separated, from the repository's root.
func Unguarded(name, text string, used func(entry string)) ([]string, error) {
	for _, dir := range testSupport {
		if strings.HasPrefix(name, dir) {
			return nil, nil
		}
	}
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var bad []string
	for _, d := range f.Decls {
		decl, ok := d.(*ast.FuncDecl)
		if !ok || decl.Body == nil {
			continue
		}
		entry := name + ": " + funcName(decl)
		ast.Inspect(decl.Body, func(n ast.Node) bool {
			run, ok := started(n)
			if !ok || recovers(run) {
				return true
			}
			if _, ok := Goroutines[entry]; ok {
				used(entry)
				return true
			}
			bad = append(bad, fmt.Sprintf("%s: %s starts a goroutine that does not recover from panics, and lint.Goroutines has no reason", set.Position(n.Pos()), funcName(decl)))
			return true
		})
	}
	return bad, nil
}

// started returns what a node runs on a goroutine of its own: by go, by the method Go of a group,
// or by a timer or a context.
func started(n ast.Node) (run ast.Expr, ok bool) {
	switch n := n.(type) {
	case *ast.GoStmt:
		return n.Call.Fun, true
	case *ast.CallExpr:
		sel, isMethod := n.Fun.(*ast.SelectorExpr)
		if isMethod && len(n.Args) > 0 && (sel.Sel.Name == "Go" || sel.Sel.Name == "AfterFunc") {
			return n.Args[len(n.Args)-1], true
		}
	}
	return nil, false
}

// recovers reports whether a function literal defers, before anything else but other defers and
// declarations, a function literal that calls recover.
func recovers(run ast.Expr) bool {
	lit, ok := run.(*ast.FuncLit)
	if !ok {
		return false
	}
	for _, s := range lit.Body.List {
		switch s := s.(type) {
		case *ast.DeclStmt:
		case *ast.DeferStmt:
			inner, ok := s.Call.Fun.(*ast.FuncLit)
			if !ok {
				continue
			}
			found := false
			ast.Inspect(inner.Body, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if id, ok := call.Fun.(*ast.Ident); ok && id.Name == "recover" {
						found = true
					}
				}
				return !found
			})
			if found {
				return true
			}
		default:
			return false
		}
	}
	return false
}

// funcName returns a function's name, after its receiver's type if it has one.
func funcName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.Ident:
			return x.Name + "." + d.Name.Name
		default:
			return d.Name.Name
		}
	}
}
