package lint

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Bounds in lines. Tests and generated files do not count.
const (
	MaxFile        = 600
	MaxCommandFile = 300  // a command parses, checks and prints
	MaxCommand     = 4650 // all of cmd/talf: 150 for each of its 31 commands
)

// A Source is a Go file written by hand that is not a test.
type Source struct {
	Path  string // slash-separated, from the repository's root
	Lines int
}

// Evaluator is the one package whose files may be longer than MaxFile: they
// follow the chapters of jinja2 and of Python.
const Evaluator = "text/chat/internal/jinja"

// Oversized returns one sentence for each file above its bound, and for cmd/talf as a whole. A package
// has no bound: it needs a reason to be one, not a number of lines.
func Oversized(files []Source) []string {
	var bad []string
	check := func(what string, lines, bound int) {
		if lines > bound {
			bad = append(bad, fmt.Sprintf("%s has %d lines, more than %d", what, lines, bound))
		}
	}
	commands := 0
	for _, f := range files {
		dir := path.Dir(f.Path)
		switch {
		case strings.HasPrefix(f.Path, "cmd/talf/"):
			commands += f.Lines
			check(f.Path, f.Lines, MaxCommandFile)
		case dir != Evaluator:
			check(f.Path, f.Lines, MaxFile)
		}
	}
	check("cmd/talf", commands, MaxCommand)
	slices.Sort(bad)
	return bad
}
