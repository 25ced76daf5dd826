package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"talf/checkpoints"
	"talf/model/chat"
	"talf/model/tokenizer"
)

type tokenizeOptions struct {
	model, template, date string
	noSpecial, decode     bool
	skipSpecial           bool
	messages, textOnly    bool
	threads               int
}

func newTokenize(a *app) *cobra.Command {
	var o tokenizeOptions
	c := &cobra.Command{
		Use:   "tokenize --model DIR",
		Short: "Turn text into token ids, ids into text, or conversations into both",
		Long: `Tokenize reads one JSON object a line from standard input and writes one a line,
in the same order: what Hugging Face tokenizers and transformers make of it. A
directory with only the files of a tokenizer will do.

  {"text": "Hello"}   becomes  {"ids": [1, 15043]}
  {"ids": [1, 15043]} becomes  {"text": "<s> Hello"}  with --decode

With --messages a line is what a chat template renders: "messages", and where
wanted "tools", "add_generation_prompt" and any other variable of the template.
It becomes {"text": …, "ids": […], "spans": [[start, end], …]}: ids without the
special tokens that surround a plain text, since templates write them
themselves, and the bytes of text that the assistant says: the template's
{% generation %} blocks, or what rendering the messages step by step shows, null
where that shows nothing. A line that the template refuses, or that is wrong,
becomes {"error": …}. Without --messages a wrong line ends the command; what
stands before it is written.

Other fields of a line, and blank lines, are passed over. Text must be UTF-8: half
of a surrogate pair ("\ud800") is wrong too. Ids that the tokenizer does not know
have no text.`,
		Example: `  echo '{"text":"Hello"}' | talf tokenize --model DIR
  echo '{"ids":[1,2]}' | talf tokenize --model DIR --decode --skip-special
  talf tokenize --model DIR --messages < conversations.jsonl > tokens.jsonl
  talf tokenize --messages --chat-template chat_template.jinja --text-only < conversations.jsonl`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			f, err := o.work(cmd.Context())
			if err != nil {
				return err
			}
			failed, err := eachLine(cmd.Context(), a.in, a.out, o.threads, f)
			if failed > 0 {
				a.log.Warn("lines became errors", "lines", failed)
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&o.model, "model", "", "directory with tokenizer.json or tokenizer.model")
	f.BoolVar(&o.noSpecial, "no-special", false, "leave out the special tokens around a text")
	f.BoolVar(&o.decode, "decode", false, "turn ids into text")
	f.BoolVar(&o.skipSpecial, "skip-special", false, "with --decode: leave out special tokens")
	f.BoolVar(&o.messages, "messages", false, "render conversations by the model's chat template")
	f.StringVar(&o.template, "chat-template", "", "with --messages: Jinja template of conversations (default: the model's own)")
	// Elsewhere --template says how fields make a text.
	f.StringVar(&o.template, "template", "", "the same as --chat-template")
	f.Lookup("template").Hidden = true
	f.BoolVar(&o.textOnly, "text-only", false, "with --messages: no ids, which takes no tokenizer")
	f.StringVar(&o.date, "date", "", "with --messages: the day that templates take for today, such as 2024-07-26 (default: today)")
	threadsVar(f, &o.threads)
	return c
}

// check finds contradictions.
func (o *tokenizeOptions) check(cmd *cobra.Command) error {
	switch {
	case o.messages && o.decode:
		return usagef("--messages and --decode exclude each other")
	case o.skipSpecial && !o.decode:
		return usagef("--skip-special is for --decode")
	case o.noSpecial && (o.decode || o.messages):
		return usagef("--no-special is for plain text")
	case !o.messages && (o.template != "" || o.textOnly || o.date != ""):
		return usagef("--chat-template, --text-only and --date are for --messages")
	case o.textOnly && o.model == "" && o.template == "":
		return usagef("missing --model or --chat-template")
	case !o.textOnly:
		return need(cmd, "model")
	}
	return nil
}

// A lineError is what is wrong with one line of input.
type lineError struct{ err error }

func (e lineError) Error() string { return e.err.Error() }
func (e lineError) Unwrap() error { return e.err }

// A lineFunc appends the answer to one line to dst, without a line break. It may
// run in several goroutines. What is wrong with the line is a lineError where it
// ends the work; failed says that the answer is an error.
type lineFunc func(dst, line []byte, at int) (out []byte, failed bool, err error)

// work loads what the options ask for.
func (o *tokenizeOptions) work(ctx context.Context) (lineFunc, error) {
	dir, err := tokenizerDir(o.model)
	if err != nil {
		return nil, err
	}
	var tok *tokenizer.Tokenizer
	if !o.textOnly {
		if tok, err = tokenizer.Load(dir); err != nil {
			return nil, err
		}
	}
	switch {
	case o.messages:
		t, err := o.chatTemplate(dir)
		if err != nil {
			return nil, err
		}
		return conversationLine(ctx, t, tok), nil
	case o.decode:
		return decodeLine(tok, o.skipSpecial), nil
	}
	return encodeLine(tok, !o.noSpecial), nil
}

// tokenizerDir returns the directory with the tokenizer that path means: itself,
// or else the newest checkpoint of what was trained there.
func tokenizerDir(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("model: %w", err)
	}
	for _, name := range []string{"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "chat_template.jinja"} {
		if _, err := os.Stat(filepath.Join(path, name)); err == nil {
			return path, nil
		}
	}
	if dir, err := checkpoints.Find(path); err == nil {
		return dir, nil
	}
	return path, nil // what is missing is told when it is looked for
}

func (o *tokenizeOptions) chatTemplate(dir string) (*chat.Template, error) {
	var t *chat.Template
	var err error
	if o.template == "" {
		t, err = chat.Load(dir)
	} else if t, err = chat.LoadFile(o.template); err == nil && dir != "" {
		t, err = t.WithTokens(dir)
	}
	if err != nil || o.date == "" {
		return t, err
	}
	day, err := time.Parse(time.DateOnly, o.date)
	if err != nil {
		return nil, usagef("--date %q, want a day like 2024-07-26", o.date)
	}
	return t.WithClock(func() time.Time { return day }), nil
}

func encodeLine(t *tokenizer.Tokenizer, special bool) lineFunc {
	return func(dst, line []byte, _ int) ([]byte, bool, error) {
		var in struct {
			Text *string `json:"text"`
		}
		if err := readLine(line, &in); err != nil {
			return dst, false, err
		}
		if in.Text == nil {
			return dst, false, lineError{errors.New(`no text, want {"text": …}`)}
		}
		ids, err := t.Encode(*in.Text, special)
		if err != nil {
			return dst, false, lineError{err}
		}
		return append(appendIDs(append(dst, `{"ids":`...), ids), '}'), false, nil
	}
}

func decodeLine(t *tokenizer.Tokenizer, skip bool) lineFunc {
	return func(dst, line []byte, _ int) ([]byte, bool, error) {
		var in struct {
			IDs *[]int32 `json:"ids"`
		}
		if err := readLine(line, &in); err != nil {
			return dst, false, err
		}
		if in.IDs == nil {
			return dst, false, lineError{errors.New(`no ids, want {"ids": […]}`)}
		}
		for i, id := range *in.IDs {
			if id < 0 {
				return dst, false, lineError{fmt.Errorf("ids[%d] is %d, want 0 or more", i, id)}
			}
		}
		dst, err := appendText(append(dst, `{"text":`...), t.Decode(*in.IDs, skip))
		return append(dst, '}'), false, err
	}
}

// conversationLine renders and, given a tokenizer, encodes. Every fault of a line
// is its answer.
func conversationLine(ctx context.Context, t *chat.Template, tok *tokenizer.Tokenizer) lineFunc {
	return func(dst, line []byte, at int) ([]byte, bool, error) {
		r, err := renderLine(ctx, t, line)
		if ctx.Err() != nil {
			return dst, false, ctx.Err()
		}
		if err != nil {
			// What transformers would say, where the template refuses.
			why := fmt.Sprintf("line %d: %v", at, err)
			var raised *chat.RaisedError
			var fault *chat.EvalError
			if errors.As(err, &raised) {
				why = raised.Error()
			} else if errors.As(err, &fault) {
				why = fault.Error()
			}
			dst, err := appendText(append(dst, `{"error":`...), why)
			return append(dst, '}'), true, err
		}
		if dst, err = appendText(append(dst, `{"text":`...), r.Text); err != nil {
			return dst, false, err
		}
		if tok != nil {
			ids, err := tok.Encode(r.Text, false)
			if err != nil {
				return dst, false, lineError{err}
			}
			dst = appendIDs(append(dst, `,"ids":`...), ids)
		}
		if r.Spans == nil {
			return append(dst, `,"spans":null}`...), false, nil
		}
		dst = append(dst, `,"spans":[`...)
		for i, s := range r.Spans {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, '[')
			dst = strconv.AppendInt(dst, int64(s.Start), 10)
			dst = append(dst, ',')
			dst = strconv.AppendInt(dst, int64(s.End), 10)
			dst = append(dst, ']')
		}
		return append(dst, "]}"...), false, nil
	}
}

// renderLine renders a conversation with its spans; nil ones if they cannot be
// told, which is no fault of the conversation.
func renderLine(ctx context.Context, t *chat.Template, line []byte) (*chat.Rendered, error) {
	c, err := chat.ParseConversation(line)
	if err != nil {
		return nil, err
	}
	r, err := t.RenderSpans(ctx, c)
	if err != nil {
		r, err = t.Render(ctx, c)
	} else if r.Spans == nil {
		r.Spans = []chat.Span{}
	}
	return r, err
}

// readLine decodes a JSON object into v, a struct.
func readLine(line []byte, v any) error {
	if err := json.Unmarshal(line, v); err != nil {
		return lineError{plainJSON(err)}
	}
	if line = bytes.TrimSpace(line); line[0] != '{' {
		return lineError{errors.New("null, want an object")}
	}
	// Decoding would put U+FFFD in the place of both.
	if !utf8.Valid(line) {
		return lineError{errors.New("not UTF-8")}
	}
	if halfSurrogate(line) {
		return lineError{errors.New("half of a surrogate pair, want UTF-8")}
	}
	return nil
}

// halfSurrogate reports whether a JSON text, which is valid, escapes half of a
// surrogate pair.
func halfSurrogate(b []byte) bool {
	unit := func() (uint64, bool) {
		if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
			return 0, false
		}
		u, err := strconv.ParseUint(string(b[2:6]), 16, 16)
		return u, err == nil
	}
	for {
		i := bytes.IndexByte(b, '\\')
		if i < 0 {
			return false
		}
		b = b[i:]
		u, ok := unit()
		if !ok {
			b = b[2:]
			continue
		}
		b = b[6:]
		switch {
		case u >= 0xDC00 && u < 0xE000:
			return true
		case u >= 0xD800 && u < 0xDC00:
			if low, ok := unit(); !ok || low < 0xDC00 || low >= 0xE000 {
				return true
			}
			b = b[6:]
		}
	}
}

func appendIDs(dst []byte, ids []int32) []byte {
	dst = append(dst, '[')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(id), 10)
	}
	return append(dst, ']')
}

// appendText appends s as a JSON string.
func appendText(dst []byte, s string) ([]byte, error) {
	b := bytes.NewBuffer(dst)
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return dst, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
