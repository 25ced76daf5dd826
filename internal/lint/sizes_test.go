package lint_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/internal/lint"
)

func TestSizes(t *testing.T) {
	generated := regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	var files []lint.Source
	for _, name := range tracked(t) {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "/testdata/") {
			continue
		}
		if text := read(t, name); !generated.MatchString(text) {
			files = append(files, lint.Source{Path: name, Lines: strings.Count(text, "\n")})
		}
	}
	if len(files) < 100 {
		t.Fatalf("git names %d Go files", len(files))
	}
	for _, v := range lint.Oversized(files) {
		t.Error(v)
	}
}

func TestSizeBoundsBite(t *testing.T) {
	files := []lint.Source{
		{Path: "tree/tree.go", Lines: lint.MaxFile},
		{Path: "tree/long.go", Lines: lint.MaxFile + 1},
		{Path: "cmd/talf/main.go", Lines: lint.MaxCommandFile + 1},
	}
	want := []string{
		"cmd/talf/main.go has 301 lines, more than 300",
		"tree/long.go has 601 lines, more than 600",
	}
	if d := cmp.Diff(want, lint.Oversized(files)); d != "" {
		t.Errorf("oversized (-want +got):\n%s", d)
	}
}
