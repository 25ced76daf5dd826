// Package leak finds goroutines that a package's tests leave running. A server that leaks one for
// each request ends for lack of memory.
package leak

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
)

// patience is how long goroutines have to end: one that is done still exists for a moment, and a
// context's end has to reach the others.
const patience = 5 * time.Second

// looks is how often they are looked for at least: on a busy machine they may not have run by then.
const looks = 1000

// Main is the body of TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(leak.Main(m.Run)) }
//
// It runs the tests and returns their exit code, or 1 if they succeed and leave goroutines, whose
// stacks it prints.
func Main(run func() int) int { return check(run, os.Stderr, patience, looks) }

func check(run func() int, w io.Writer, patience time.Duration, looks int) int {
	code := run()
	if code != 0 {
		return code
	}
	var left []string
	for begin, n := time.Now(), 1; ; n++ {
		if left = running(); len(left) == 0 {
			return 0
		}
		time.Sleep(time.Millisecond)
		if time.Since(begin) > patience && n >= looks {
			break
		}
	}
	_, _ = fmt.Fprintf(w, "%d goroutines are left:\n\n%s\n", len(left), strings.Join(left, "\n\n"))
	return 1
}

// running returns the stacks of all goroutines but the caller's and those that the standard
// library starts once for a process.
func running() (stacks []string) {
	b := make([]byte, 1<<20)
	for {
		n := runtime.Stack(b, true)
		if n < len(b) {
			b = b[:n]
			break
		}
		b = make([]byte, 2*len(b))
	}
	for i, s := range strings.Split(strings.TrimSpace(string(b)), "\n\n") {
		if i == 0 || ofProcess(s) { // the first is the caller's
			continue
		}
		stacks = append(stacks, s)
	}
	return stacks
}

// ofProcess reports whether a goroutine serves the process until it ends.
func ofProcess(stack string) bool {
	for _, by := range []string{
		"\ncreated by os/signal.Notify", "\ncreated by runtime.", "\ncreated by testing.runFuzz", "\ncreated by testing.(*M).startAlarm",
	} {
		if strings.Contains(stack, by) {
			return true
		}
	}
	return false
}
