package command

import (
	"context"
	"fmt"
	"time"

	"talf/infer/decode"

	"github.com/spf13/cobra"

	"talf/checkpoints"
	"talf/internal/cli"
	"talf/text/chat"
	"talf/text/tokenizer"
	"talf/text/transcode"
)

type tokenizeOptions struct {
	model, template, date string
	pre                   string // how the tokenizer splits texts
	noSpecial, decode     bool
	skipSpecial           bool
	messages, textOnly    bool
	control               bool // messages may hold special tokens
	threads               int
}

func newTokenize(a *app) *cobra.Command {
	var o tokenizeOptions
	c := &cobra.Command{
		Use:   "tokenize MODEL",
		Short: "Turn text into token ids, ids into text, or conversations into both",
		Long: `Tokenize reads one JSON object per line from standard input and writes one per line, in
the same order. Its results are those of Hugging Face tokenizers and transformers. A
directory with only a tokenizer's files is enough.

  {"text": "Hello"}   becomes  {"ids": [1, 15043]}
  {"ids": [1, 15043]} becomes  {"text": "<s> Hello"}  with --decode

With --messages a line holds what a chat template renders: "messages" and, as needed,
"tools", "add_generation_prompt" and any other variable of the template. It becomes
{"text": …, "ids": […], "spans": [[start, end], …]}. The ids lack the special tokens that
surround plain text, because templates write their own. What looks like a special token
in a message is text, unless --control-tokens-in-messages asks for what transformers
does. The spans are the bytes of the text that the assistant says: the template's {% generation %} blocks or, without
them, what rendering the messages step by step shows; null if that shows nothing. A
line that is wrong, or that the template refuses, becomes {"error": …}. Without
--messages a wrong line ends the command, after the answers to the lines before it.

Other fields and blank lines are ignored. Text must be UTF-8; half of a surrogate pair
("\ud800") is refused, too. Ids that the tokenizer does not know have no text.`,
		Example: `  echo '{"text":"Hello"}' | talf tokenize MODEL
  echo '{"ids":[1,2]}' | talf tokenize MODEL --decode --skip-special
  talf tokenize MODEL --messages < conversations.jsonl > tokens.jsonl
  talf tokenize --messages --chat-template chat_template.jinja --text-only < conversations.jsonl`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			f, err := o.work(cmd.Context(), a.warn)
			if err != nil {
				return err
			}
			failed, err := transcode.Each(cmd.Context(), "standard input", a.in, a.out, o.threads, f)
			if failed > 0 {
				a.log.Warn("lines became errors", "lines", failed)
			}
			return err
		},
	}
	f := c.Flags()
	modelVar(f, &o.model, ", or a directory with tokenizer.json or tokenizer.model")
	preVar(f, &o.pre)
	f.BoolVar(&o.noSpecial, "no-special", false, "leave out the special tokens around a text")
	f.BoolVar(&o.decode, "decode", false, "turn ids into text")
	f.BoolVar(&o.skipSpecial, "skip-special", false, "with --decode: leave out special tokens")
	f.BoolVar(&o.messages, "messages", false, "render conversations by the model's chat template")
	f.StringVar(&o.template, "chat-template", "", "with --messages: Jinja chat template (default: the model's own)")
	// In other commands --template says how fields make up a text.
	f.StringVar(&o.template, "template", "", "the same as --chat-template")
	f.Lookup("template").Hidden = true
	f.BoolVar(&o.textOnly, "text-only", false, "with --messages: write no ids, which needs no tokenizer")
	f.StringVar(&o.date, "date", "", "with --messages: date that templates write as today's, such as 2024-07-26 (default: today)")
	f.BoolVar(&o.control, controlFlag, false, "with --messages: take texts of special tokens in messages for these tokens, as transformers does")
	threadsVar(f, &o.threads)
	return c
}

// check finds contradictory flags.
func (o *tokenizeOptions) check(cmd *cobra.Command) error {
	switch {
	case o.messages && o.decode:
		return usagef("--messages and --decode exclude each other")
	case o.skipSpecial && !o.decode:
		return usagef("--skip-special is for --decode")
	case o.noSpecial && (o.decode || o.messages):
		return usagef("--no-special is for plain text")
	case !o.messages && (o.template != "" || o.textOnly || o.date != "" || o.control):
		return usagef("--chat-template, --text-only, --date and --" + controlFlag + " are for --messages")
	case o.textOnly && o.model == "" && o.template == "":
		return usagef("missing --model or --chat-template")
	case !o.textOnly:
		return cli.Need(cmd, "model")
	}
	return nil
}

// work loads what the options ask for.
func (o *tokenizeOptions) work(ctx context.Context, warn func(string)) (transcode.Func, error) {
	dir, err := checkpoints.FindTokenizer(o.model)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	var tok *tokenizer.Tokenizer
	if !o.textOnly {
		if tok, err = decode.Tokenizer(ctx, dir, o.pre, warn); err != nil {
			return nil, err
		}
	}
	switch {
	case o.messages:
		t, err := o.chatTemplate(dir)
		if err != nil {
			return nil, err
		}
		return transcode.Render(ctx, t, tok), nil
	case o.decode:
		return transcode.Decode(tok, o.skipSpecial), nil
	}
	return transcode.Encode(tok, !o.noSpecial), nil
}

func (o *tokenizeOptions) chatTemplate(dir string) (*chat.Template, error) {
	var t *chat.Template
	var err error
	if o.template == "" {
		t, err = chat.Load(dir)
	} else if t, err = chat.LoadFile(o.template); err == nil && dir != "" {
		t, err = t.WithTokens(dir)
	}
	if err == nil && o.control {
		t = t.WithControlTokens()
	}
	if err != nil || o.date == "" {
		return t, err
	}
	day, err := parseDay(o.date)
	return t.WithClock(func() time.Time { return day }), err
}
