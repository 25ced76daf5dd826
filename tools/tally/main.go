// Command tally runs go test with its arguments, prints what go test prints, and adds one line
// that says how many tests were skipped and why: go test itself is silent about skipped tests in
// packages that pass.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

func main() {
	cmd := exec.Command("go", append([]string{"test", "-json"}, os.Args[1:]...)...)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally: run go test:", err)
		os.Exit(1)
	}
	c, err := print(events, os.Stdout)
	if err != nil {
		// Let go test finish rather than stop on a closed pipe.
		_, _ = io.Copy(io.Discard, events)
		fmt.Fprintln(os.Stderr, "tally:", err)
	}
	status := cmd.Wait()
	fmt.Println(c)
	var exit *exec.ExitError
	switch {
	case errors.As(status, &exit):
		os.Exit(max(1, exit.ExitCode()))
	case status != nil || err != nil || c.tests == 0:
		os.Exit(1)
	}
}

// An event is a line of go test -json, which cmd/test2json describes.
type event struct {
	Action, Package, ImportPath, Test, Output string
}

// A count is how many tests finished, including subtests, and why some were skipped.
type count struct {
	tests   int
	skipped map[string]int // by reason
}

// String returns one line, with the most frequent reason first.
func (c count) String() string {
	if c.tests == 0 {
		return "no test ran"
	}
	total := 0
	reasons := slices.SortedFunc(maps.Keys(c.skipped), func(a, b string) int {
		if d := c.skipped[b] - c.skipped[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for i, r := range reasons {
		total += c.skipped[r]
		reasons[i] = fmt.Sprintf("%d: %s", c.skipped[r], r)
	}
	if total == 0 {
		return fmt.Sprintf("tests: %d, none skipped", c.tests)
	}
	return fmt.Sprintf("tests: %d, of which %d skipped: %s", c.tests, total, strings.Join(reasons, "; "))
}

// print writes the events of r as go test prints them: for a package that passes, its last line;
// for one that fails, also the output of the tests that failed.
func print(r io.Reader, w io.Writer) (count, error) {
	c := count{skipped: map[string]int{}}
	output := map[[2]string][]string{} // by package and test, while it runs
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<28)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(w, lines.Text()) // output of the go command itself
			continue
		}
		key := [2]string{e.Package, e.Test}
		switch e.Action {
		case "build-output":
			fmt.Fprint(w, e.Output)
		case "output":
			if e.Test != "" || e.Output != "PASS\n" {
				output[key] = append(output[key], e.Output)
			}
		case "pass", "skip", "fail":
			out := output[key]
			delete(output, key)
			if e.Test != "" {
				c.tests++
				if e.Action == "skip" {
					c.skipped[reason(out)]++
				}
				if e.Action != "fail" {
					continue
				}
			} else if e.Action == "fail" {
				// A panic, a time-out or an exit ends the package before its tests: no event
				// says that they failed, and theirs is the output that tells why.
				for _, k := range unfinished(output, e.Package) {
					c.tests++
					show(w, output[k])
					delete(output, k)
				}
			} else {
				out = out[max(0, len(out)-1):]
			}
			show(w, out)
		}
	}
	if err := lines.Err(); err != nil {
		return c, fmt.Errorf("read go test's events: %w", err)
	}
	return c, nil
}

// unfinished returns the tests of a package that have not ended, in the order of
// their names.
func unfinished(output map[[2]string][]string, pkg string) [][2]string {
	var keys [][2]string
	for k := range output {
		if k[0] == pkg && k[1] != "" {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b [2]string) int { return strings.Compare(a[1], b[1]) })
	return keys
}

// show prints the output of a test or a package.
func show(w io.Writer, out []string) {
	for _, s := range out {
		if !noise.MatchString(s) {
			fmt.Fprint(w, s)
		}
	}
}

var (
	// noise matches what -json adds to the output of a test that fails.
	noise = regexp.MustCompile(`^=== (RUN|PAUSE|CONT|NAME) `)
	at    = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)\n`)
)

// reason returns why a test was skipped: the text of its last message, up to ": ", which is
// followed by details that differ from test to test.
func reason(out []string) string {
	why := "no reason given"
	for _, s := range out {
		if m := at.FindStringSubmatch(s); m != nil {
			why, _, _ = strings.Cut(m[1], ": ")
		}
	}
	return why
}
