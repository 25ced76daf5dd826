// Package transcode turns lines of JSON into tokens and back: texts into ids, ids into
// texts, and conversations into both.
package transcode

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"talf/internal/ijson"
	"talf/text/chat"
	"talf/text/tokenizer"
)

// A lineError is an error in one line of input.
type lineError struct{ err error }

func (e lineError) Error() string { return e.err.Error() }
func (e lineError) Unwrap() error { return e.err }

// A Func appends the answer to one line, whose number from 1 is at, to dst, without a
// line break. It may run in several goroutines. failed says that the answer is an
// error; a non-nil err stops the work.
type Func func(dst, line []byte, at int) (out []byte, failed bool, err error)

// Encode turns {"text": …} into {"ids": […]}. special adds the special tokens around a
// text.
func Encode(t *tokenizer.Tokenizer, special bool) Func {
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

// Decode turns {"ids": […]} into {"text": …}. skip omits special tokens.
func Decode(t *tokenizer.Tokenizer, skip bool) Func {
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

// Render turns a conversation into {"text": …, "ids": […], "spans": …} with a chat
// template, without ids if tok is nil. A fault in a conversation is its answer:
// {"error": …}.
func Render(ctx context.Context, t *chat.Template, tok *tokenizer.Tokenizer) Func {
	return func(dst, line []byte, at int) ([]byte, bool, error) {
		r, literal, err := renderLine(ctx, t, line, tok)
		if ctx.Err() != nil {
			return dst, false, ctx.Err()
		}
		if err != nil {
			// If the template refuses, the error that transformers would report.
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
			ids, err := tok.EncodeLiteral(r.Text, literal, false)
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

// renderLine renders a conversation with its spans and, if there is a tokenizer, the places where
// a message only looks like a special token. Arguments of calls that are texts become objects, as in
// whatever else renders conversations, unless the template refuses these.
func renderLine(ctx context.Context, t *chat.Template, line []byte, tok *tokenizer.Tokenizer) (*chat.Rendered, []int, error) {
	given, err := chat.ParseConversation(line)
	if err != nil {
		return nil, nil, err
	}
	c := given.WithObjectArguments()
	r, err := renderSpans(ctx, t, c)
	if err != nil {
		c = given
		r, err = renderSpans(ctx, t, c)
	}
	if err != nil || tok == nil {
		return r, nil, err
	}
	literal, err := t.Literal(ctx, c, r.Text, tok)
	return r, literal, err
}

// renderSpans renders a conversation. The spans are nil if they cannot be found with this template,
// which is not the conversation's fault.
func renderSpans(ctx context.Context, t *chat.Template, c *chat.Conversation) (*chat.Rendered, error) {
	r, err := t.RenderSpans(ctx, c)
	if err != nil {
		return t.Render(ctx, c)
	}
	if r.Spans == nil {
		r.Spans = []chat.Span{}
	}
	return r, nil
}

// readLine decodes a JSON object into the struct v.
func readLine(line []byte, v any) error {
	if err := ijson.Unmarshal(line, v); err != nil {
		return lineError{err}
	}
	return nil
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
