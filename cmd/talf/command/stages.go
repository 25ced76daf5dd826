package command

import (
	"fmt"
	"time"
)

// stageTools show the stages of a job.
type stageTools struct{ a *app }

func (q *stageTools) Begin(i, n int, doc string) {
	q.Tell(fmt.Sprintf("%d/%d %s", i, n, doc))
}

func (q *stageTools) End(took time.Duration) error {
	q.Tell("    done in " + took.Round(100*time.Millisecond).String())
	return nil
}

// Tell prints a line for the user.
func (q *stageTools) Tell(line string) {
	if !q.a.quiet {
		_, _ = fmt.Fprintln(q.a.err, line)
	}
}
