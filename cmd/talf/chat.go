package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Dialogues are plain text: chat templates of models are not read.
const (
	userMark   = "User: "
	answerMark = "\nAssistant:"
)

// dialogueTurn is what a user's turn adds to a dialogue.
func dialogueTurn(text string, first bool) string {
	if first {
		return userMark + text + answerMark
	}
	return "\n" + userMark + text + answerMark
}

func newChat(a *app) *cobra.Command {
	var o decodeOptions
	var raw, stats bool
	c := &cobra.Command{
		Use:   "chat --model DIR [--head CKPT]",
		Short: "Talk with a model",
		Long: `Chat reads a line, answers it, and keeps the dialogue, whose keys and values are
computed only once. The dialogue is plain text, "User: …" and "Assistant: …";
--raw adds nothing to what you write, for models that only continue text.

/reset begins a new dialogue, /quit or Ctrl-D ends.`,
		Example: "  talf chat --model DIR --head CKPT --temperature 0.7",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			if !raw {
				o.stop = append(o.stop, "\n"+strings.TrimSpace(userMark))
			}
			d, err := o.open(1)
			if err != nil {
				return err
			}
			defer func() { d.close() }()
			return a.chat(cmd.Context(), d, raw, stats)
		},
	}
	f := c.Flags()
	o.flags(f)
	f.BoolVar(&raw, "raw", false, "continue the text as it is")
	f.BoolVar(&stats, "stats", false, "print τ and speed after each answer")
	return c
}

// maxTurn is the longest line that chat reads, in bytes.
const maxTurn = 1 << 20

// chat is the dialogue loop.
func (a *app) chat(ctx context.Context, d *decoder, raw, stats bool) error {
	lines := bufio.NewScanner(a.in)
	lines.Buffer(nil, maxTurn)
	dialogue, seed, unanswered := "", d.opt.seed, 0
	for {
		if isTerminal(a.in) {
			_, _ = fmt.Fprint(a.err, "> ")
		}
		more, err := waitFor(ctx, func() (bool, error) { return lines.Scan(), lines.Err() })
		if errors.Is(err, bufio.ErrTooLong) {
			return fmt.Errorf("standard input: a line of more than %d bytes", maxTurn)
		}
		if err == nil && !more && unanswered > 0 {
			return fmt.Errorf("turns that were not answered: %d", unanswered)
		}
		if err != nil || !more {
			return err
		}
		before := dialogue
		switch line := lines.Text(); line {
		case "":
			continue
		case "/quit":
			return nil
		case "/reset":
			dialogue = ""
			continue
		default:
			if raw {
				dialogue += line
			} else {
				dialogue += dialogueTurn(line, dialogue == "")
			}
		}
		seq, err := d.answer(ctx, dialogue, seed, func(text string) error {
			_, err := io.WriteString(a.out, text)
			return err
		})
		if seq != nil {
			a.printf("\n")
		}
		if errors.Is(err, errLongPrompt) {
			a.log.Warn("not answered: /reset begins a new dialogue", "why", err.Error())
			dialogue, unanswered = before, unanswered+1
			continue
		}
		if err != nil {
			return fmt.Errorf("answer: %w", err)
		}
		seed++
		dialogue += seq.Text()
		if stats {
			line := newStats(seq.Stats())
			line.print(a.err)
		}
	}
}
