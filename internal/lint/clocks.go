package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
)

// Clocks are the test files that read a clock, or wait for one, outside a bubble of testing/synctest, with
// the reason why no machine's speed decides what they say.
var Clocks = map[string]string{
	"cmd/talf/command/generate_test.go":    "today's date; the day may change meanwhile",
	"cmd/talf/command/serve_date_test.go":  "today's date; the day may change meanwhile",
	"cmd/talf/command/serve_test.go":       "pauses between looks at a process",
	"compute/cpu/pool_test.go":             "pauses let helpers park, or keep them busy: either is right",
	"lab/load/load_test.go":                "a server that bubbles call",
	"lab/micro/timed_internal_test.go":     "a device that a bubble uses",
	"serve/bodies_test.go":                 "whether a deadline lies ahead; it is a minute or more",
	"serve/equal_trial_test.go":            "pauses between requests",
	"serve/framing_test.go":                "a client that bubbles use",
	"serve/hostile_trial_test.go":          "a limit of minutes for servers that hang",
	"serve/overload_trial_test.go":         "times are printed; -trial-time is how long to go on",
	"serve/run_test.go":                    "a certificate is valid for an hour",
	"internal/cli/crash_test.go":           "the age of a file",
	"internal/cli/signal_test.go":          "what must not come has a while to come",
	"internal/e2e/clients/clients_test.go": "times are printed; a limit of minutes for clients that hang",
	"internal/e2e/faults_test.go":          "pauses between looks at a process",
	"internal/e2e/gpubundle_test.go":       "measures a GPU for a report",
	"internal/e2e/mpi_test.go":             "pauses between looks at processes",
	"internal/e2e/serve_test.go":           "pauses between looks at a process",
	"preprocess/kill_test.go":              "when a process is killed is chance",
	"preprocess/remote/kill_test.go":       "a limit of minutes for a process that hangs",
	"tools/playground/browser_test.go":     "a limit of minutes for a browser that hangs",
	"train/cuda_test.go":                   "pauses between looks at a file",
	"train/kill_test.go":                   "when a process is killed is chance",
}

// clocks are the functions that read a clock or wait for one.
var clocks = map[string]bool{
	"time.Now": true, "time.Since": true, "time.Until": true, "time.After": true, "time.AfterFunc": true, "time.Sleep": true,
	"time.NewTimer": true, "time.NewTicker": true, "time.Tick": true, "context.WithTimeout": true, "context.WithDeadline": true,
	"testing.Benchmark": true, "syscall.Getrusage": true, "unix.Getrusage": true,
}

// Timed returns one sentence for each call in a test file that reads a clock or waits for one: the speed of
// the machine would decide whether the test passes. Functions that are given to synctest.Test have a clock
// of their own, benchmarks measure, and files of Clocks have a reason; used is called with those. name is
// slash-separated, from the repository's root.
func Timed(name, text string, used func(entry string)) ([]string, error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var bad []string
	ast.Inspect(f, func(n ast.Node) bool {
		if decl, ok := n.(*ast.FuncDecl); ok {
			return !measures(decl)
		}
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		switch of := callee(call); {
		case of == "synctest.Test":
			return false
		case !clocks[of]:
		case Clocks[name] != "":
			used(name)
		default:
			bad = append(bad, fmt.Sprintf("%s: %s in a test: wait with await.Until, use testing/synctest, or give a reason in lint.Clocks", set.Position(n.Pos()), of))
		}
		return true
	})
	return bad, nil
}

// measures reports whether a function has a benchmark among its parameters.
func measures(decl *ast.FuncDecl) bool {
	for _, p := range decl.Type.Params.List {
		if star, ok := p.Type.(*ast.StarExpr); ok {
			if s, ok := star.X.(*ast.SelectorExpr); ok && s.Sel.Name == "B" {
				return true
			}
		}
	}
	return false
}

// callee returns what a call of a package's function calls, such as "time.Now".
func callee(call *ast.CallExpr) string {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	x, ok := s.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return x.Name + "." + s.Sel.Name
}
