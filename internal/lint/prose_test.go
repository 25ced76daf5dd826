package lint_test

import (
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/internal/lint"
)

func TestLinesOfProseAreShort(t *testing.T) {
	for _, name := range tracked(t) {
		if path.Ext(name) != ".md" || !strings.HasPrefix(name, "docs/") && strings.Contains(name, "/") || name == "CHANGELOG.md" {
			continue
		}
		for _, v := range lint.LongProse(name, read(t, name)) {
			t.Error(v)
		}
	}
}

func TestLongProseIsFound(t *testing.T) {
	long := strings.Repeat("word ", lint.MaxProse/5) + "s"
	text := strings.Join([]string{
		strings.Repeat("é", lint.MaxProse-2) + " x", // as many characters, more bytes
		long,
		"| " + long + " |",
		"    " + long,
		"- " + long,
		"```", long, "```",
		"https://example.org/" + strings.Repeat("x", lint.MaxProse),
	}, "\n")
	want := []string{"docs/x.md:2 has more than 120 characters", "docs/x.md:5 has more than 120 characters"}
	if d := cmp.Diff(want, lint.LongProse("docs/x.md", text)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
