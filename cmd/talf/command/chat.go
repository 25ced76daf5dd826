package command

import (
	"github.com/spf13/cobra"

	"talf/infer"
	"talf/infer/decode"
	"talf/text/chat"
)

// A talkOptions holds chat's own flags.
type talkOptions struct {
	chatOptions
	system string
	raw    rawFlag
	stats  bool

	templated bool // a chat template writes the dialogue
}

// dialogue returns the empty dialogue of the model at path.
func (a *app) dialogue(o *talkOptions, path string) (d chat.Dialogue, err error) {
	if o.raw {
		return *chat.NewText(), nil
	}
	template, _, err := o.of(path)
	switch {
	case err != nil:
		return d, err
	case template == nil && o.system != "":
		return d, usagef("--system needs a chat template, and the model has none: give --chat-template")
	}
	if template == nil && o.file == "" {
		a.log.Warn("the model has no chat template: it continues the dialogue as plain text")
	}
	o.templated = template != nil
	return chat.Begin(template, o.system), nil
}

func newChat(a *app) *cobra.Command {
	var o decodeOptions
	var talk talkOptions
	c := &cobra.Command{
		Use:   "chat MODEL [--head CKPT]",
		Short: "Talk with a model",
		Long: `Chat reads a line, answers it and remembers the dialogue. The KV cache of earlier turns
is reused, except by methods that learn from the rows of prompts (such as goose,
unless harvest=rounds). The model's chat template writes the dialogue; without a
template it is plain text, "User: …" and "Assistant: …", and an answer ends where the
model begins another such line. --raw adds nothing to what you
write, for models that only continue text.

/reset starts a new dialogue; /quit or Ctrl-D ends the program. Ctrl-C ends an answer, and
between answers the program.`,
		Example: "  talf chat MODEL --head CKPT --temperature 0.7",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			if err := talk.check(); err != nil {
				return err
			}
			if err := talk.raw.check(cmd.Flags()); err != nil {
				return err
			}
			empty, err := a.dialogue(&talk, o.model)
			if err != nil {
				return err
			}
			if err := o.drawSeed(a.log, ""); err != nil {
				return err
			}
			d, err := o.open(cmd.Context(), a, 1, nil)
			if err != nil {
				return err
			}
			defer func() { d.close() }()
			c := console{In: a.in, Out: a.out, Err: a.err, Log: a.log, Answered: func(seq *infer.Sequence) {
				a.warnUndrafted(seq.Undrafted())
				if a.warnEmpty(d, seq, talk.templated); talk.stats {
					sum := seq.Stats().Summary()
					_ = a.printStats(&sum, d.parts.Model) // the stream remembers
				}
			}}
			return c.talk(cmd.Context(), decode.NewTalk(d.Decoder, empty, o.seed))
		},
	}
	f := c.Flags()
	o.flags(f)
	talk.chatOptions.flags(f)
	talk.today(f, "")
	f.StringVar(&talk.system, "system", "", "system message at the start of the dialogue")
	talk.raw.flag(f)
	f.BoolVar(&talk.stats, "stats", false, "print τ and speed after each answer")
	return c
}
