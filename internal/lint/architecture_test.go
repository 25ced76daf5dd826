package lint_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/internal/lint"
)

// mapRow is a row of the table of packages in docs/packages.md.
var mapRow = regexp.MustCompile("(?m)^\\| `([a-z0-9/.]+)` \\| (.+) \\|$")

// The map names every package once, in the order of their paths, and says what each one is for.
func TestMapNamesEveryPackage(t *testing.T) {
	var got []string
	for _, m := range mapRow.FindAllStringSubmatch(read(t, "docs/packages.md"), -1) {
		got = append(got, m[1])
	}
	var want []string
	for line := range strings.Lines(string(run(t, "go", "list", "-e", "./..."))) {
		name := strings.TrimPrefix(strings.TrimSpace(line), lint.Module+"/")
		if name == lint.Module {
			name = "."
		}
		want = append(want, name)
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("packages in docs/packages.md (-go list +table):\n%s", diff)
	}
}
