package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"talf/model/chat"
)

// A model without a chat template has dialogues of plain text.
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

// A dialogue is what was said, and how it becomes a prompt.
type dialogue struct {
	template *chat.Template // nil: plain text
	system   string
	raw      bool // what the user writes is the text itself
	text     string
	messages []chat.Message
}

// ask adds the user's turn and returns the prompt, and whether the tokenizer
// adds special tokens to it: templates write their own.
func (d *dialogue) ask(ctx context.Context, line string) (prompt string, special bool, err error) {
	switch {
	case d.raw:
		d.text += line
	case d.template == nil:
		d.text += dialogueTurn(line, d.text == "")
	default:
		if len(d.messages) == 0 && d.system != "" {
			d.messages = append(d.messages, chat.Message{Role: "system", Content: d.system})
		}
		d.messages = append(d.messages, chat.Message{Role: "user", Content: line})
		r, err := d.template.Render(ctx, chat.NewConversation(d.messages).WithGenerationPrompt(true))
		if err != nil {
			return "", false, err
		}
		return r.Text, false, nil
	}
	return d.text, true, nil
}

// answered adds the model's turn.
func (d *dialogue) answered(text string) {
	d.text += text
	if d.template != nil && !d.raw {
		d.messages = append(d.messages, chat.Message{Role: "assistant", Content: strings.TrimSpace(text)})
	}
}

func newChat(a *app) *cobra.Command {
	var o decodeOptions
	var template chatOptions
	var talk dialogue
	var stats bool
	c := &cobra.Command{
		Use:   "chat --model DIR [--head CKPT]",
		Short: "Talk with a model",
		Long: `Chat reads a line, answers it, and keeps the dialogue, whose keys and values are
computed only once (but for methods that learn from the rows of prompts, such as
goose unless harvest=rounds). The model's chat template writes the dialogue; for a model
without one it is plain text, "User: …" and "Assistant: …". --raw adds nothing to
what you write, for models that only continue text.

/reset begins a new dialogue, /quit or Ctrl-D ends.`,
		Example: "  talf chat --model DIR --head CKPT --temperature 0.7",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			if err := template.check(); err != nil {
				return err
			}
			for _, name := range []string{"system", "chat-template", "date"} {
				if talk.raw && cmd.Flags().Changed(name) {
					return usagef("--raw and --%s exclude each other: raw text has no template", name)
				}
			}
			dir, err := findModel(o.model)
			if err != nil {
				return err
			}
			if !talk.raw {
				if talk.template, _, err = template.load(dir); err != nil {
					return err
				}
			}
			switch {
			case talk.system != "" && talk.template == nil:
				return usagef("--system needs a chat template, and the model has none: give --chat-template")
			case !talk.raw && talk.template == nil:
				o.stop = append(o.stop, "\n"+strings.TrimSpace(userMark))
			}
			d, err := o.open(1)
			if err != nil {
				return err
			}
			defer func() { d.close() }()
			return a.chat(cmd.Context(), d, talk, stats)
		},
	}
	f := c.Flags()
	o.flags(f)
	template.flags(f)
	f.StringVar(&talk.system, "system", "", "the system's message, before the dialogue")
	f.BoolVar(&talk.raw, "raw", false, "continue the text as it is")
	f.BoolVar(&stats, "stats", false, "print τ and speed after each answer")
	return c
}

// maxTurn is the longest line that chat reads, in bytes.
const maxTurn = 1 << 20

// chat is the dialogue loop.
func (a *app) chat(ctx context.Context, d *decoder, talk dialogue, stats bool) error {
	lines := bufio.NewScanner(a.in)
	lines.Buffer(nil, maxTurn)
	empty := talk
	seed, unanswered := d.opt.seed, 0
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
		before, line := talk, lines.Text()
		switch line {
		case "":
			continue
		case "/quit":
			return nil
		case "/reset":
			talk = empty
			continue
		}
		prompt, special, err := talk.ask(ctx, line)
		if err != nil {
			return fmt.Errorf("write the dialogue: %w", err)
		}
		seq, err := d.answer(ctx, prompt, special, seed, func(text string) error {
			_, err := io.WriteString(a.out, text)
			return err
		})
		if seq != nil {
			a.printf("\n")
		}
		if errors.Is(err, errLongPrompt) {
			a.log.Warn("not answered: /reset begins a new dialogue", "why", err.Error())
			talk, unanswered = before, unanswered+1
			continue
		}
		if err != nil {
			return fmt.Errorf("answer: %w", err)
		}
		seed++
		talk.answered(seq.Text())
		if stats {
			line := newStats(seq.Stats())
			line.print(a.err)
		}
	}
}
