package lint_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var namesFlag = regexp.MustCompile(`(^|[ (:'])--[a-z]`)

// What users of the library may read names no flags of the command line, which adds them (internal/hint).
func TestTheLibraryNamesNoFlags(t *testing.T) {
	texts := 0
	for _, dir := range []string{".", "data/...", "infer/...", "model/...", "preprocess/...", "serve/...", "text/...", "train/...", "tree/..."} {
		dir, deep := strings.CutSuffix(dir, "/...")
		top := filepath.Join("../..", filepath.FromSlash(dir))
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && path != top && !deep:
				return filepath.SkipDir
			case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING {
					if texts++; namesFlag.MatchString(s.Value[1:]) {
						t.Errorf("%s: %s names a flag", set.Position(s.Pos()), s.Value)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if texts < 1000 {
		t.Errorf("%d texts were read, want more than a thousand", texts)
	}
}
