package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
)

// changers are the functions of package os that change the file system. Only internal/vfs calls
// them: what goes past it, no test sees that loses power or fails operations.
var changers = map[string]bool{
	"Chmod": true, "Chown": true, "Chtimes": true, "CopyFS": true, "Create": true, "CreateTemp": true, "Link": true, "Mkdir": true,
	"MkdirAll": true, "MkdirTemp": true, "OpenFile": true, "OpenRoot": true, "Remove": true, "RemoveAll": true, "Rename": true,
	"Symlink": true, "Truncate": true, "WriteFile": true,
}

// Writers are the directories and files whose code may change the file system by itself, with the
// reason.
var Writers = map[string]string{
	"internal/vfs/":             "carries the operations out",
	"internal/cli/crash.go":     "gives the runtime a file for its last words, which needs to survive nothing but the process",
	"infer/bench/peak_linux.go": "writes to /proc, where there are no files",
	"compute/cuda/cudatest/":    "test support: builds a library",
	"internal/e2e/talftest/":    "test support: damages files",
	"internal/golden/":          "test support: writes testdata of a source tree",
	"internal/manpages/":        "run by hand, writes into a source tree",
	"model/modeltest/":          "test support: writes small models",
	"lab/":                      "a module of its own, for measuring",
	"tools/":                    "a module of its own, for building releases",
}

// Changes returns one sentence for each place where a Go file changes the file system by package os
// although it is none of Writers. name is slash-separated, from the repository's root.
func Changes(name, text string) ([]string, error) {
	for dir := range Writers {
		if name == dir || strings.HasSuffix(dir, "/") && strings.HasPrefix(name, dir) {
			return nil, nil
		}
	}
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	local := "" // the name of package os in this file
	for _, imp := range f.Imports {
		if path, err := strconv.Unquote(imp.Path.Value); err == nil && path == "os" {
			local = "os"
			if imp.Name != nil {
				local = imp.Name.Name
			}
		}
	}
	var bad []string
	ast.Inspect(f, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == local && changers[sel.Sel.Name] {
			bad = append(bad, fmt.Sprintf("%s: os.%s: files are written by internal/durable and internal/vfs alone", set.Position(sel.Pos()), sel.Sel.Name))
		}
		return true
	})
	return bad, nil
}
