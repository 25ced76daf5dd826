// Package guide reads recipes from a Markdown page: which files to write, which to change, and
// the test that shows that they work. Its own test follows docs/adding.md word for word.
package guide

import (
	"fmt"
	"regexp"
	"strings"
)

// A Step writes a file or changes one.
type Step struct {
	File string // slash-separated, from the repository's root
	// Old is replaced by New; a Step without Old writes the file New.
	Old, New string
}

// A Test is a command "go test PACKAGE -run PATTERN" of the page.
type Test struct{ Package, Pattern string }

var (
	// A block belongs to the last file named before it, in a line such as "`a/b.go`:" or "In
	// `a/b.go`:".
	named   = regexp.MustCompile("^(?:In )?`([^`]+\\.go)`:$")
	command = regexp.MustCompile(`^    go test (\./\S+) -run '?([^'\s]+)'?$`)
)

// Parse returns the steps and the tests of a page, in its order.
func Parse(page string) ([]Step, []Test, error) {
	var steps []Step
	var tests []Test
	file, kind := "", ""
	var block []string
	for i, line := range strings.Split(page, "\n") {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && kind == "":
			if kind, block = fence, nil; kind != "go" && kind != "diff" || file == "" {
				return nil, nil, fmt.Errorf("line %d: a block of %q that belongs to file %q, want go or diff and a file", i+1, kind, file)
			}
		case isFence:
			s, err := step(file, kind, block)
			if err != nil {
				return nil, nil, fmt.Errorf("the block that ends in line %d: %w", i+1, err)
			}
			steps, kind = append(steps, s), ""
		case kind != "":
			block = append(block, line)
		default:
			if m := named.FindStringSubmatch(line); m != nil {
				file = m[1]
			} else if m := command.FindStringSubmatch(line); m != nil {
				tests = append(tests, Test{m[1], m[2]})
				file = ""
			}
		}
	}
	if kind != "" {
		return nil, nil, fmt.Errorf("a block of %s is not closed", file)
	}
	return steps, tests, nil
}

// step turns a block into a step: a whole file, or lines to keep (" "), to remove ("-") and to
// add ("+").
func step(file, kind string, block []string) (Step, error) {
	if kind == "go" {
		return Step{File: file, New: strings.Join(block, "\n") + "\n"}, nil
	}
	s := Step{File: file}
	for _, line := range block {
		if line == "" {
			line = " "
		}
		text := line[1:] + "\n"
		switch line[0] {
		case ' ':
			s.Old, s.New = s.Old+text, s.New+text
		case '-':
			s.Old += text
		case '+':
			s.New += text
		default:
			return s, fmt.Errorf("%s: a line of a diff starts with %q", file, line[0])
		}
	}
	if s.Old == "" {
		return s, fmt.Errorf("%s: the diff does not say where", file)
	}
	return s, nil
}

// Apply returns the files that steps write and change, given the existing ones.
func Apply(steps []Step, read func(file string) (string, error)) (map[string]string, error) {
	files := map[string]string{}
	for _, s := range steps {
		text, changed := files[s.File]
		if s.Old == "" {
			if _, err := read(s.File); changed || err == nil {
				return nil, fmt.Errorf("%s: there is such a file already", s.File)
			}
			files[s.File] = s.New
			continue
		}
		if !changed {
			var err error
			if text, err = read(s.File); err != nil {
				return nil, err
			}
		}
		if n := strings.Count(text, s.Old); n != 1 {
			return nil, fmt.Errorf("%s: these lines occur %d times, want once:\n%s", s.File, n, s.Old)
		}
		files[s.File] = strings.Replace(text, s.Old, s.New, 1)
	}
	return files, nil
}
