package limits_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"talf/internal/limits"
)

var update = flag.Bool("update", false, "rewrite the table of limits in docs/security.md")

// The limits that docs/security.md promises are those that hold.
func TestDocumentedLimitsHold(t *testing.T) {
	const file = "../../docs/security.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("| of | limit | most | why |\n|---|---|---|---|\n")
	for _, l := range limits.Table() {
		fmt.Fprintf(&want, "| %s | %s | %s | %s |\n", l.Of, l.What, amount(l), l.Why)
	}
	head, section, ok := strings.Cut(string(text), "\n## Limits\n")
	intro, table, found := strings.Cut(section, "\n\n|")
	if !ok || !found {
		t.Fatalf("%s has no table of limits", file)
	}
	if table = "|" + table; table == want.String() {
		return
	}
	if *update {
		if err := os.WriteFile(file, []byte(head+"\n## Limits\n"+intro+"\n\n"+want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s: its table of limits is\n%s\nwant, as -update writes it,\n%s", file, table, &want)
}

// amount writes a limit's value with its unit.
func amount(l limits.Limit) string {
	if l.Unit != "bytes" || strings.Contains(l.What, " per ") {
		return fmt.Sprintf("%s %s", grouped(l.Value), l.Unit)
	}
	for _, u := range []struct {
		size int64
		name string
	}{{limits.GiB, "GiB"}, {limits.MiB, "MiB"}, {limits.KiB, "KiB"}} {
		if l.Value%u.size == 0 {
			return fmt.Sprintf("%d %s", l.Value/u.size, u.name)
		}
	}
	return grouped(l.Value) + " bytes"
}

// grouped writes a number with commas between groups of three digits.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
