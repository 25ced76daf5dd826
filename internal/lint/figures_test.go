package lint_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// figure is a number that a table states: with decimals, with thousands, or alone.
var figure = regexp.MustCompile(`\d[\d,]*(?:\.\d+)?`)

// Every figure of the table in README.md stands in the page of measurements that its row links to.
func TestTheReadmeStatesWhatWasMeasured(t *testing.T) {
	raw, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\((docs/measurements/[a-z-]+\.md)\)`)
	_, after, found := strings.Cut(string(raw), "| what | on what | how much faster | table |\n|---|---|---|---|\n")
	if !found {
		t.Fatal("README.md: no table of how much faster")
	}
	summary, _, _ := strings.Cut(after, "\n\n")
	for _, row := range strings.Split(summary, "\n") {
		cells := strings.Split(row, "|")
		m := link.FindStringSubmatch(row)
		if m == nil || len(cells) != 6 {
			t.Errorf("want four cells and a link to a page of measurements: %s", row)
			continue
		}
		page, err := os.ReadFile(filepath.Join("../..", m[1]))
		if err != nil {
			t.Error(err)
			continue
		}
		stated, has := figure.FindAllString(cells[3], -1), figure.FindAllString(string(page), -1)
		if len(stated) == 0 {
			t.Errorf("no figure: %s", row)
		}
		for _, f := range stated {
			if !slices.Contains(has, f) {
				t.Errorf("%s is not in %s: %s", f, m[1], row)
			}
		}
	}
}
