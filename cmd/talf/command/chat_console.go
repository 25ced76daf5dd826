package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"talf/infer"
	"talf/infer/decode"
	"talf/internal/cli"
)

// maxTurn is the longest line that chat reads, in bytes.
const maxTurn = 1 << 20

// A console is where a user talks with a model.
type console struct {
	In       io.Reader // a line is a turn
	Out, Err io.Writer // answers, and what is said beside them
	Log      *slog.Logger
	Answered func(*infer.Sequence) // called after each answer that was not interrupted
}

// talk reads turns and answers them until In ends, the user leaves, or ctx ends. At a terminal,
// Ctrl-C during an answer ends that alone.
func (c *console) talk(ctx context.Context, talk *decode.Talk) error {
	lines := bufio.NewScanner(c.In)
	lines.Buffer(nil, maxTurn)
	terminal := cli.IsTerminal(c.In)
	unanswered := 0
	for {
		if terminal {
			_, _ = fmt.Fprint(c.Err, "> ")
		}
		more, err := cli.Wait(ctx, func() (bool, error) { return lines.Scan(), lines.Err() })
		if errors.Is(err, bufio.ErrTooLong) {
			return fmt.Errorf("standard input: a line of more than %d bytes", maxTurn)
		}
		if err == nil && !more && unanswered > 0 {
			return fmt.Errorf("turns that were not answered: %d", unanswered)
		}
		if err == nil && !more && terminal {
			_, _ = fmt.Fprintln(c.Err) // Ctrl-D leaves the cursor behind the prompt
		}
		if err != nil || !more {
			return err
		}
		line := lines.Text()
		switch line {
		case "":
			continue
		case "/quit":
			return nil
		case "/reset":
			talk.Reset()
			continue
		}
		turn, release := ctx, func() {}
		if terminal {
			turn, release = cli.Interruptible(ctx)
		}
		seq, err := talk.Say(turn, line, func(text string) error {
			_, err := io.WriteString(c.Out, text)
			return err
		})
		stopped := turn.Err() != nil && ctx.Err() == nil
		release()
		if seq != nil {
			_, _ = io.WriteString(c.Out, "\n") // the stream remembers
		}
		if errors.Is(err, decode.ErrLongPrompt) {
			c.Log.Warn("not answered: /reset begins a new dialogue", "why", err.Error())
			unanswered++
			continue
		}
		if stopped {
			continue
		}
		if err != nil {
			return err
		}
		c.Answered(seq)
	}
}
