package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"talf/internal/ijson"
	"talf/internal/limits"
	"talf/preprocess"
)

// request returns the path and the body of the request for an answer: a conversation goes to
// chat/completions, a text to completions.
func (a *Client) request(q *preprocess.Question) (path string, body []byte, err error) {
	r := map[string]any{"model": a.c.Model, "max_tokens": q.Max, "temperature": a.c.Sample.Temperature}
	if p := a.c.Sample; p.Temperature > 0 {
		r["seed"] = q.Seed >> 11 // 53 bits, which every reader of JSON keeps
		if p.TopP < 1 {
			r["top_p"] = p.TopP
		}
		if p.TopK > 0 {
			r["top_k"] = p.TopK
		}
	}
	path = "completions"
	if q.Conversation == nil {
		r["prompt"] = q.Text
	} else {
		path = "chat/completions"
		err = conversation(r, q.Conversation)
	}
	if err == nil {
		body, err = json.Marshal(r)
	}
	return path, body, err
}

// conversation adds a conversation to a request. What else a template is given than messages and
// tools has a place of vLLM's.
func conversation(r map[string]any, text []byte) error {
	var c map[string]json.RawMessage
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	var messages []map[string]json.RawMessage
	if err := json.Unmarshal(c["messages"], &messages); err != nil {
		return err
	}
	for _, m := range messages {
		delete(m, "weight") // is for training
	}
	r["messages"] = messages
	if tools, ok := c["tools"]; ok {
		r["tools"], r["tool_choice"] = tools, "none" // results of further calls would be missing
	}
	delete(c, "messages")
	delete(c, "tools")
	if len(c) > 0 {
		r["chat_template_kwargs"] = c
	}
	return nil
}

// A reply is what both kinds of response have in common.
type reply struct {
	Choices []struct {
		Text    *string `json:"text"`
		Message *struct {
			Content *string `json:"content"`
			// The first is DeepSeek's, SGLang's and llama.cpp's; the second is vLLM's.
			ReasoningContent string `json:"reasoning_content"`
			Reasoning        string `json:"reasoning"`
			// Some servers end an answer that only calls tools as any other.
			ToolCalls []json.RawMessage `json:"tool_calls"`
		} `json:"message"`
		Finish *string `json:"finish_reason"`
	} `json:"choices"`
}

// parse reads the response to a question. Refused says why there is no answer, if there is none.
func parse(b []byte) (e entry, refused string, err error) {
	var r reply
	if err := ijson.Unmarshal(b, &r); err != nil {
		return e, "", fmt.Errorf("the response is not what the API has: %w", err)
	}
	if len(r.Choices) != 1 {
		return e, "", fmt.Errorf("the response has %d choices, want 1", len(r.Choices))
	}
	c := &r.Choices[0]
	e.Finish = "stop"
	if c.Finish != nil {
		e.Finish = *c.Finish
	}
	switch {
	case c.Message != nil && c.Message.Content != nil:
		e.Text = *c.Message.Content
	case c.Message == nil && c.Text != nil:
		e.Text = *c.Text
	case c.Message == nil:
		return e, "", errors.New(`the response's choice has neither "message" nor "text"`)
	}
	if c.Message != nil {
		if e.Reasoning = c.Message.ReasoningContent; e.Reasoning == "" {
			e.Reasoning = c.Message.Reasoning
		}
	}
	if c.Message != nil && len(c.Message.ToolCalls) > 0 && strings.TrimSpace(e.Text) == "" {
		return e, "the answer calls tools and says nothing", nil
	}
	switch e.Finish {
	case "length":
		e.Text = strings.TrimRight(e.Text, "\uFFFD") // the first bytes of a character
	case "tool_calls", "function_call", "content_filter":
		refused = fmt.Sprintf("finish_reason is %q, want an answer", e.Finish)
	case "abort", "error", "insufficient_system_resource": // SGLang's and vLLM's, DeepSeek's
		return e, "", fmt.Errorf("finish_reason is %q: the answer was broken off", e.Finish)
	}
	return e, refused, nil
}

// A statusError is a response without success.
type statusError struct {
	code  int
	text  string // status and message
	after string // Retry-After
}

func (e *statusError) Error() string { return e.text }

// refusal reports whether the request itself is what the server does not take.
func (e *statusError) refusal() bool {
	return e.code == http.StatusBadRequest || e.code == http.StatusRequestEntityTooLarge || e.code == http.StatusUnprocessableEntity
}

// again reports whether the same request may succeed later.
func (e *statusError) again() bool {
	return e.code >= 500 && e.code != http.StatusNotImplemented || e.code == http.StatusTooManyRequests || e.code == http.StatusRequestTimeout
}

const (
	attempts = 8               // with Default, they end after about two minutes of waiting
	timeouts = 2               // of these; a server that says nothing for so long will not
	longest  = time.Minute     // wait between attempts
	patience = 5 * time.Minute // the longest that a server's Retry-After is followed
)

// ask asks until there is an answer or none can be expected. A server that does not answer this
// question returns an error that wraps preprocess.ErrRefused.
func (a *Client) ask(ctx context.Context, path string, body []byte, place string) (entry, error) {
	var failed error
	wait, late := a.c.Wait, 0
	for n := 1; ; n++ {
		began := time.Now()
		b, err := a.do(ctx, http.MethodPost, path, body, place)
		if err == nil {
			e, refused, bad := parse(b)
			switch {
			case bad == nil && refused == "":
				return e, nil
			case bad == nil:
				return entry{}, fmt.Errorf("%w: %s: %s", preprocess.ErrRefused, a.where(path, place), refused)
			}
			err = fmt.Errorf("%s: %w", a.where(path, place), bad)
		}
		if ctx.Err() != nil {
			return entry{}, ctx.Err()
		}
		var s *statusError
		status := errors.As(err, &s)
		if status && s.refusal() {
			return entry{}, fmt.Errorf("%w: %w", preprocess.ErrRefused, err)
		}
		// A connection that is not made in time has an error of this kind, too, long before.
		if errors.Is(err, context.DeadlineExceeded) && time.Since(began) >= a.c.Timeout {
			late++
		}
		failed = err
		if status && !s.again() || errors.Is(err, limits.ErrTooLarge) {
			return entry{}, failed
		}
		if n == attempts || late == timeouts {
			return entry{}, fmt.Errorf("%w (%d attempts)", failed, n)
		}
		pause := wait/2 + rand.N(wait/2+1) // so that not all come back at the same time
		if status {
			pause = max(pause, min(retryAfter(s.after, time.Now()), patience))
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return entry{}, ctx.Err()
		}
		wait = min(2*wait, longest)
	}
}

// retryAfter reads the header of that name: seconds, or a time.
func retryAfter(s string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(s); err == nil {
		return t.Sub(now)
	}
	return 0
}

// where names a request in errors.
func (a *Client) where(path, place string) string {
	return a.base.JoinPath(path).Redacted() + ": " + place
}

// do makes one attempt, and returns the body of a response with success.
func (a *Client) do(ctx context.Context, method, path string, body []byte, place string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, a.c.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, a.base.JoinPath(path).String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	if a.c.Key != "" {
		r.Header.Set("Authorization", "Bearer "+a.c.Key)
	}
	resp, err := a.http.Do(r)
	if err != nil {
		var named *url.Error
		if errors.As(err, &named) {
			err = named.Err // without the address, which stands before it
		}
		return nil, fmt.Errorf("%s: %w", a.where(path, place), err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	b, err := io.ReadAll(limits.Reader(resp.Body, limits.AnswerBytes, "the response"))
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %w", a.where(path, place), &statusError{
			code: resp.StatusCode, text: "status " + strconv.Itoa(resp.StatusCode) + message(b), after: resp.Header.Get("Retry-After"),
		})
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.where(path, place), err)
	}
	return b, nil
}

// mostMessage is how much of a server's message is shown, in bytes.
const mostMessage = 300

// message returns what a response without success says, for the end of an error: OpenAI's
// {"error":{"message":…}}, the "message" or "detail" of others, or the text.
func message(b []byte) string {
	var m struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	text := ""
	if json.Unmarshal(b, &m) == nil {
		var inner struct {
			Message string `json:"message"`
		}
		switch {
		case json.Unmarshal(m.Error, &inner) == nil && inner.Message != "":
			text = inner.Message
		case json.Unmarshal(m.Error, &text) == nil && text != "":
		case m.Message != "":
			text = m.Message
		case json.Unmarshal(m.Detail, &text) == nil && text != "":
		}
	}
	if text == "" {
		text = string(b[:min(len(b), 4*mostMessage)])
	}
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "\uFFFD"), func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
	if len(text) > mostMessage {
		text = strings.ToValidUTF8(text[:mostMessage], "") + "…"
	}
	if text == "" {
		return ""
	}
	return ": " + text
}
