package servetest

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// An Answer is a response, or what it should be.
type Answer struct {
	Choices []Choice
	Counted bool // it has the numbers of tokens
	Prompt  int  // tokens
	Cached  int  // of these
	Tokens  int  // of all choices
	Refused int  // of a prediction, which Tokens includes
	Whole   bool // it came to its end
	ID      string
}

// A Choice is one text.
type Choice struct {
	Text   string
	Finish string
	Tokens []Token // with log probabilities; nil if none were asked for
	Draft  *Draft
	Rounds []string // of a trace: JSON, with the tree, what was accepted and all probabilities
}

// A Token is a token with its log probability and the likeliest ones at its place, by text.
type Token struct {
	Text    string
	LogProb float64
	Top     map[string]float64
}

// A Draft is the "talf" object of a choice.
type Draft struct {
	Method   string
	Rounds   int
	Drafted  int
	Accepted int
	Tau      float64
	Fallback string
}

// A Refusal is a response that is no answer.
type Refusal struct {
	Status int
	Header http.Header
	Body   string
}

func (r *Refusal) Error() string { return fmt.Sprintf("status %d: %s", r.Status, r.Body) }

// Shape reports what is wrong with a refusal, "" if it has the shape of OpenAI's API.
func (r *Refusal) Shape() string {
	var e struct {
		Error *struct {
			Message, Type string
			Param, Code   *string
		}
	}
	d := json.NewDecoder(strings.NewReader(r.Body))
	d.DisallowUnknownFields()
	switch err := d.Decode(&e); {
	case err != nil:
		return fmt.Sprintf("status %d with the body %q: %v", r.Status, r.Body, err)
	case e.Error == nil || e.Error.Message == "" || e.Error.Type == "":
		return fmt.Sprintf("status %d with the body %q: want an error with a message and a type", r.Status, r.Body)
	case (r.Status == http.StatusTooManyRequests || r.Status == http.StatusServiceUnavailable) && r.Header.Get("Retry-After") == "":
		return fmt.Sprintf("status %d without Retry-After", r.Status)
	}
	return ""
}

// A StreamError is an error that ended a stream in place of [DONE].
type StreamError struct{ Message string }

func (e *StreamError) Error() string { return "the stream ended with an error: " + e.Message }

// Ask asks a question. A client that quits gets the part that it read, without an error.
func Ask(ctx context.Context, client *http.Client, url string, q *Question, w Way) (*Answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+q.Path(), bytes.NewReader(q.Body(&w)))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	if w.Key != "" {
		r.Header.Set("Authorization", "Bearer "+w.Key)
	}
	a := &Answer{Choices: make([]Choice, q.N)}
	if w.Quit > 0 && !w.Stream {
		defer time.AfterFunc(time.Duration(w.Quit)*time.Millisecond, cancel).Stop()
	}
	resp, err := client.Do(r)
	if w.Quit > 0 && errors.Is(err, context.Canceled) {
		return a, nil
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body := io.Reader(resp.Body)
	if w.Quit > 0 && w.Stream {
		body = &quitter{resp.Body, w.Quit, cancel}
	}
	switch {
	case resp.StatusCode != http.StatusOK:
		b, err := io.ReadAll(body)
		if err != nil {
			return nil, err
		}
		return nil, &Refusal{resp.StatusCode, resp.Header, string(b)}
	case w.Stream:
		err = a.stream(body, q)
	default:
		var b []byte
		if b, err = io.ReadAll(body); err == nil {
			a.Whole, err = true, a.take(b, q, "chat.completion", "message")
		}
	}
	if w.Quit > 0 && (errors.Is(err, errQuit) || errors.Is(err, context.Canceled)) {
		err = nil
	}
	return a, err
}

var errQuit = errors.New("servetest: the client has gone")

// A quitter goes away after some reads.
type quitter struct {
	io.Reader
	left int
	away func()
}

func (x *quitter) Read(b []byte) (int, error) {
	if x.left--; x.left < 0 {
		x.away()
		return 0, errQuit
	}
	return x.Reader.Read(b[:min(len(b), 512)])
}

// stream reads events up to [DONE], and what else there is.
func (a *Answer) stream(r io.Reader, q *Question) error {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		switch data, ok := strings.CutPrefix(line, "data: "); {
		case errors.Is(err, io.EOF) && line == "" && a.Whole:
			return nil
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		case a.Whole && line != "\n":
			return fmt.Errorf("%q comes after [DONE]", line)
		case ok && data == "[DONE]\n":
			a.Whole = true
		case ok:
			if err := a.take([]byte(data), q, "chat.completion.chunk", "delta"); err != nil {
				return err
			}
		case line != "\n" && !strings.HasPrefix(line, ":"):
			return fmt.Errorf("%q is no line of an event", line)
		}
	}
}

// A chatToken is a token of the logprobs of a chat.
type chatToken struct {
	Token   string
	LogProb float64
	Bytes   []int
	Top     *[]chatToken `json:"top_logprobs"`
}

// take adds a response, or a part of one.
func (a *Answer) take(b []byte, q *Question, object, message string) error {
	var r struct {
		ID, Object, Model string
		Choices           []struct {
			Index          int
			Message, Delta *struct{ Content *string }
			Text           *string
			Logprobs       *struct {
				Content []chatToken
				Tokens  []string
				Values  []float64            `json:"token_logprobs"`
				Top     []map[string]float64 `json:"top_logprobs"`
				Offsets []int                `json:"text_offset"`
			}
			Finish *string `json:"finish_reason"`
			Talf   *struct {
				Draft
				Number int
				Round  json.RawMessage
			}
		}
		Usage *struct {
			Prompt  int `json:"prompt_tokens"`
			Answer  int `json:"completion_tokens"`
			Total   int `json:"total_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
			Predicted *struct {
				Accepted int `json:"accepted_prediction_tokens"`
				Rejected int `json:"rejected_prediction_tokens"`
			} `json:"completion_tokens_details"`
		}
		Error *struct{ Message string }
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return fmt.Errorf("%s: %w", b, err)
	}
	if r.Error != nil {
		return &StreamError{r.Error.Message}
	}
	if !q.Chat {
		object = "text_completion"
	}
	if r.Object != object || r.Model != "tiny" || a.ID != "" && r.ID != a.ID {
		return fmt.Errorf("the object, model or id are wrong: %s", b)
	}
	a.ID = r.ID
	if u := r.Usage; u != nil {
		if a.Counted || u.Total != u.Prompt+u.Answer || u.Details.Cached < 0 || u.Details.Cached > u.Prompt {
			return fmt.Errorf("the usage does not add up: %s", b)
		}
		a.Counted, a.Prompt, a.Tokens, a.Cached = true, u.Prompt, u.Answer, u.Details.Cached
		if p := u.Predicted; p != nil {
			if a.Refused = p.Rejected; min(p.Accepted, p.Rejected) < 0 || p.Accepted+p.Rejected > u.Answer {
				return fmt.Errorf("the prediction's tokens do not add up: %s", b)
			}
		}
	}
	for _, x := range r.Choices {
		if x.Index < 0 || x.Index >= len(a.Choices) || a.Choices[x.Index].Finish != "" {
			return fmt.Errorf("choice %d does not exist or has ended: %s", x.Index, b)
		}
		c := &a.Choices[x.Index]
		if l := x.Logprobs; l != nil {
			if c.Tokens == nil {
				c.Tokens = []Token{}
			}
			if q.Chat && l.Content == nil || !q.Chat && (l.Tokens == nil || len(l.Values) != len(l.Tokens) || len(l.Top) != len(l.Tokens) || len(l.Offsets) != len(l.Tokens)) {
				return fmt.Errorf("the logprobs have the wrong shape: %s", b)
			}
			for _, x := range l.Content {
				if x.Top == nil || !slices.IsSortedFunc(*x.Top, func(a, b chatToken) int { return cmp.Compare(b.LogProb, a.LogProb) }) {
					return fmt.Errorf("no top_logprobs, or not the likeliest first: %s", b)
				}
				top := map[string]float64{}
				for _, y := range *x.Top {
					keep(top, y.Token, y.LogProb)
				}
				c.Tokens = append(c.Tokens, Token{x.Token, x.LogProb, top})
			}
			for i, text := range l.Tokens {
				c.Tokens = append(c.Tokens, Token{text, l.Values[i], l.Top[i]})
			}
		}
		said := x.Message
		if message == "delta" {
			said = x.Delta
		}
		switch {
		case x.Finish == nil && x.Talf != nil: // a round
		case q.Chat && said == nil, !q.Chat && x.Text == nil:
			return fmt.Errorf("choice %d has no %s: %s", x.Index, message, b)
		case q.Chat && said.Content != nil:
			c.Text += *said.Content
		case !q.Chat:
			c.Text += *x.Text
		}
		if x.Finish != nil {
			if c.Finish = *x.Finish; x.Talf != nil {
				c.Draft = &x.Talf.Draft
			}
		} else if x.Talf != nil {
			if c.Rounds = append(c.Rounds, string(x.Talf.Round)); x.Talf.Number != len(c.Rounds) {
				return fmt.Errorf("round %d comes after %d others: %s", x.Talf.Number, len(c.Rounds)-1, b)
			}
		}
	}
	return nil
}

// Differ says how an answer differs from what it should be, "" if it does not. Of an answer that
// was not read to its end, each text has to begin as it should.
func Differ(got, want *Answer, w *Way) string {
	for i := range want.Choices {
		g, x := &got.Choices[i], &want.Choices[i]
		if !got.Whole && g.Finish == "" {
			if !strings.HasPrefix(x.Text, g.Text) || len(g.Tokens) > len(x.Tokens) || !slices.EqualFunc(g.Tokens, x.Tokens[:len(g.Tokens)], Token.equal) {
				return fmt.Sprintf("choice %d begins with %q %v, want the beginning of %q %v", i, g.Text, g.Tokens, x.Text, x.Tokens)
			}
			continue
		}
		switch {
		case g.Text != x.Text:
			return fmt.Sprintf("choice %d is %q, want %q", i, g.Text, x.Text)
		case g.Finish != x.Finish:
			return fmt.Sprintf("choice %d ended with %q, want %q", i, g.Finish, x.Finish)
		case (g.Tokens == nil) != (x.Tokens == nil) || !slices.EqualFunc(g.Tokens, x.Tokens, Token.equal):
			return fmt.Sprintf("choice %d has the log probabilities %v, want %v", i, g.Tokens, x.Tokens)
		case g.Draft == nil:
			return fmt.Sprintf("choice %d does not say what was done", i)
		case w.Off && (g.Draft.Method != "ar" || g.Draft.Drafted+g.Draft.Accepted > 0), w.Method != "" && !w.Off && g.Draft.Method != w.Method:
			return fmt.Sprintf("choice %d was drafted with %+v, want method %q", i, *g.Draft, w.Method)
		case g.Draft.Accepted > g.Draft.Drafted || w.Nodes > 0 && g.Draft.Drafted > g.Draft.Rounds*(w.Nodes-1):
			return fmt.Sprintf("choice %d has %+v with trees of %d nodes", i, *g.Draft, w.Nodes)
		}
	}
	if !got.Whole || w.Stream && !w.Usage {
		return ""
	}
	rounds := 0
	for _, c := range got.Choices {
		rounds += c.Draft.Rounds + c.Draft.Accepted
	}
	switch {
	case !got.Counted || got.Prompt != want.Prompt || got.Tokens-got.Refused != want.Tokens:
		return fmt.Sprintf("%d and %d tokens are counted, want %d and %d", got.Prompt, got.Tokens-got.Refused, want.Prompt, want.Tokens)
	case w.Predict == "" && got.Refused > 0:
		return fmt.Sprintf("%d tokens of no prediction are counted", got.Refused)
	case rounds < want.Tokens || rounds > want.Tokens+len(got.Choices): // the last round may end at a token that was drafted
		return fmt.Sprintf("rounds and accepted tokens make %d, but the answers have %d tokens", rounds, want.Tokens)
	}
	return ""
}

func (t Token) equal(o Token) bool {
	return t.Text == o.Text && t.LogProb == o.LogProb && maps.Equal(t.Top, o.Top)
}
