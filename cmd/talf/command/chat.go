package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"talf/checkpoints"
	"talf/infer/decode"
	"talf/internal/cli"
	"talf/model/chat"
)

// A talkOptions holds chat's own flags.
type talkOptions struct {
	chatOptions
	system string
	raw    bool
	stats  bool
}

// dialogue returns the empty dialogue of a model, with the texts at which its answers stop.
func (o *talkOptions) dialogue(dir string) (d chat.Dialogue, stop []string, err error) {
	if o.raw {
		return *chat.NewText(), nil, nil
	}
	template, _, err := o.load(dir)
	switch {
	case err != nil:
		return d, nil, err
	case template == nil && o.system != "":
		return d, nil, usagef("--system needs a chat template, and the model has none: give --chat-template")
	}
	d, stop = chat.Begin(template, o.system)
	return d, stop, nil
}

func newChat(a *app) *cobra.Command {
	var o decodeOptions
	var talk talkOptions
	c := &cobra.Command{
		Use:   "chat --model DIR [--head CKPT]",
		Short: "Talk with a model",
		Long: `Chat reads a line, answers it and remembers the dialogue. The KV cache of earlier turns
is reused, except by methods that learn from the rows of prompts (such as goose,
unless harvest=rounds). The model's chat template writes the dialogue; without a
template it is plain text, "User: …" and "Assistant: …". --raw adds nothing to what you
write, for models that only continue text.

/reset starts a new dialogue; /quit or Ctrl-D ends the program.`,
		Example: "  talf chat --model DIR --head CKPT --temperature 0.7",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			if err := talk.check(); err != nil {
				return err
			}
			for _, name := range []string{"system", "chat-template", "date", controlFlag} {
				if talk.raw && cmd.Flags().Changed(name) {
					return usagef("--raw and --%s exclude each other: raw text has no template", name)
				}
			}
			dir, err := checkpoints.FindModel(o.model)
			if err != nil {
				return err
			}
			empty, stop, err := talk.dialogue(dir)
			if err != nil {
				return err
			}
			o.Stop = append(o.Stop, stop...)
			if err := o.drawSeed(a.log, ""); err != nil {
				return err
			}
			d, err := o.open(a.log, 1, nil)
			if err != nil {
				return err
			}
			defer func() { d.close() }()
			return a.chat(cmd.Context(), d.Decoder, empty, o.seed, talk.stats)
		},
	}
	f := c.Flags()
	o.flags(f)
	talk.chatOptions.flags(f)
	f.StringVar(&talk.system, "system", "", "system message at the start of the dialogue")
	f.BoolVar(&talk.raw, "raw", false, "continue the text as it stands")
	f.BoolVar(&talk.stats, "stats", false, "print τ and speed after each answer")
	return c
}

// maxTurn is the longest line that chat reads, in bytes.
const maxTurn = 1 << 20

// chat reads turns and answers them. An empty dialogue is what it begins with.
func (a *app) chat(ctx context.Context, d *decode.Decoder, empty chat.Dialogue, seed uint64, stats bool) error {
	lines := bufio.NewScanner(a.in)
	lines.Buffer(nil, maxTurn)
	talk := decode.NewTalk(d, empty, seed)
	unanswered := 0
	for {
		if cli.IsTerminal(a.in) {
			_, _ = fmt.Fprint(a.err, "> ")
		}
		more, err := cli.Wait(ctx, func() (bool, error) { return lines.Scan(), lines.Err() })
		if errors.Is(err, bufio.ErrTooLong) {
			return fmt.Errorf("standard input: a line of more than %d bytes", maxTurn)
		}
		if err == nil && !more && unanswered > 0 {
			return fmt.Errorf("turns that were not answered: %d", unanswered)
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
		seq, err := talk.Say(ctx, line, func(text string) error {
			_, err := io.WriteString(a.out, text)
			return err
		})
		if seq != nil {
			a.printf("\n")
		}
		if errors.Is(err, decode.ErrLongPrompt) {
			a.log.Warn("not answered: /reset begins a new dialogue", "why", err.Error())
			unanswered++
			continue
		}
		if err != nil {
			return err
		}
		a.warnUndrafted(seq.Undrafted())
		if stats {
			sum := seq.Stats().Summary()
			_ = sum.Print(a.err) // the stream remembers
		}
	}
}
