package lint

import (
	"fmt"
	"slices"
	"strings"
)

// Bounds in lines. Tests and generated files do not count.
const (
	MaxFile        = 600
	MaxCommandFile = 300 // a command parses, checks and prints
)

// A Source is a Go file written by hand that is not a test.
type Source struct {
	Path  string // slash-separated, from the repository's root
	Lines int
}

// Oversized returns one sentence for each file above its bound. A package has no bound: it needs a reason
// to be one, not a number of lines.
func Oversized(files []Source) []string {
	var bad []string
	for _, f := range files {
		bound := MaxFile
		if strings.HasPrefix(f.Path, "cmd/talf/") {
			bound = MaxCommandFile
		}
		if f.Lines > bound {
			bad = append(bad, fmt.Sprintf("%s has %d lines, more than %d", f.Path, f.Lines, bound))
		}
	}
	slices.Sort(bad)
	return bad
}
