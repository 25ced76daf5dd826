package lint

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxProse is the length of a line of prose in the documentation, in characters. Longer lines make
// every change of a word a change of a paragraph, and nobody reads them in a terminal.
const MaxProse = 120

// LongProse returns one sentence for each line of a Markdown text that is longer than MaxProse. Rows of
// tables, code, and lines of a single word, such as an address, cannot be broken and may be longer.
func LongProse(name, text string) []string {
	var bad []string
	fenced, n := false, 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		switch {
		case fenced, strings.HasPrefix(strings.TrimLeft(line, " "), "|"), strings.HasPrefix(line, "    "), strings.HasPrefix(line, "<!--"):
		case !strings.Contains(strings.TrimSpace(line), " "):
		case utf8.RuneCountInString(line) > MaxProse:
			bad = append(bad, fmt.Sprintf("%s:%d has more than %d characters", name, n, MaxProse))
		}
	}
	return bad
}
