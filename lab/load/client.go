package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"talf/internal/limits"
)

// Bounds on what a server may send.
const (
	maxBody = 64 * limits.MiB
	maxLine = 4 * limits.MiB
)

// A client asks one server.
type client struct {
	Server
	http    *http.Client
	timeout time.Duration
}

// dial finds out which model a server has, which shows that it can be reached.
func dial(ctx context.Context, s Server, c *Config) (*client, error) {
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("URL is %q, want http://HOST:PORT/v1", s.URL)
	}
	s.URL = strings.TrimSuffix(s.URL, "/")
	cl := &client{Server: s, http: c.newHTTP(), timeout: c.Timeout}
	if s.Model != "" {
		return cl, nil
	}
	b, err := cl.get(ctx, cl.URL+"/models")
	if err != nil {
		return nil, fmt.Errorf("list the models: %w", err)
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(b, &list); err != nil || len(list.Data) == 0 {
		return nil, fmt.Errorf("%s/models lists no model: name one", cl.URL)
	}
	cl.Model = list.Data[0].ID
	return cl, nil
}

func (c *client) get(ctx context.Context, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	c.sign(req)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() // it was read only
	b, err := io.ReadAll(limits.Reader(resp.Body, maxBody, address))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", address, resp.Status)
	}
	return b, err
}

func (c *client) sign(req *http.Request) {
	if c.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.Key)
	}
}

// A request is one request of a run.
type request struct {
	Prompt
	MaxTokens   int
	Temperature float64
	Seed        int64
	IgnoreEOS   bool
}

func (r *request) body(model string) ([]byte, error) {
	b := map[string]any{
		"model": model, "max_tokens": r.MaxTokens, "temperature": r.Temperature, "seed": r.Seed,
		"stream": true, "stream_options": map[string]bool{"include_usage": true},
	}
	if r.IgnoreEOS {
		b["ignore_eos"] = true
	}
	if r.Messages != nil {
		b["messages"] = r.Messages
	} else {
		b["prompt"] = r.Text
	}
	return json.Marshal(b)
}

// An answer is what became of a request. Times are since it was sent.
type answer struct {
	problem string // kind of failure; "" if the answer is whole
	first   time.Duration
	last    time.Duration // the end of the text
	gaps    []time.Duration
	prompt  int // tokens
	tokens  int
	cached  int
}

// Kinds of failure that are no status of HTTP.
const (
	timedOut  = "timeout"
	noConnect = "connection"
	cutOff    = "cut off"   // the stream ended before the answer did
	badStream = "malformed" // what came is no stream of OpenAI's API
)

// ask sends a request and reads the stream of its answer.
func (c *client) ask(ctx context.Context, r request) (a answer) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err := c.stream(ctx, &r, &a)
	var status statusError
	var refused *net.OpError
	switch {
	case err == nil:
	case errors.As(err, &status):
		a.problem = strconv.Itoa(int(status))
	case ctx.Err() != nil:
		a.problem = timedOut
	case errors.Is(err, errMalformed) || errors.Is(err, limits.ErrTooLarge):
		a.problem = badStream
	case errors.As(err, &refused) && refused.Op == "dial":
		a.problem = noConnect
	default:
		a.problem = cutOff
	}
	return a
}

type statusError int

func (e statusError) Error() string { return http.StatusText(int(e)) }

var errMalformed = errors.New("no stream of OpenAI's API")

func (c *client) stream(ctx context.Context, r *request, a *answer) error {
	body, err := r.body(c.Model)
	if err != nil {
		return err
	}
	path := "/completions"
	if r.Messages != nil {
		path = "/chat/completions"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	c.sign(req)
	sent := time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // it was read only
	if resp.StatusCode != http.StatusOK {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, limits.MiB)) // so that the connection can be used again
		return statusError(resp.StatusCode)
	}
	return a.read(resp.Body, func() time.Duration { return time.Since(sent) })
}

// read reads a stream up to its [DONE]. since is the time since the request was sent.
func (a *answer) read(r io.Reader, since func() time.Duration) error {
	in := bufio.NewReader(limits.Reader(r, maxBody, "the stream"))
	for {
		line, err := limits.ReadLine(in, maxLine)
		if err != nil {
			return err // also at the end: [DONE] comes before it
		}
		data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data:"))
		if !ok {
			continue // an empty line, a comment or a field that says nothing
		}
		if data = bytes.TrimSpace(data); string(data) == "[DONE]" {
			return nil
		}
		if err := a.chunk(data, since()); err != nil {
			return err
		}
	}
}

// chunk takes one event of a stream into account.
func (a *answer) chunk(data []byte, at time.Duration) error {
	var c struct {
		Choices []struct {
			Text  string `json:"text"`
			Delta struct {
				Content   string `json:"content"`
				Reasoning string `json:"reasoning_content"`
			} `json:"delta"`
		} `json:"choices"`
		Usage *struct {
			Prompt  int `json:"prompt_tokens"`
			Answer  int `json:"completion_tokens"`
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	if len(c.Error) > 0 && string(c.Error) != "null" {
		return statusError(http.StatusInternalServerError)
	}
	if u := c.Usage; u != nil {
		if min(u.Prompt, u.Answer, u.Details.Cached) < 0 || max(u.Prompt, u.Answer, u.Details.Cached) > math.MaxInt32 {
			return fmt.Errorf("%w: the usage is %+v, want numbers of tokens", errMalformed, *u)
		}
		a.prompt, a.tokens, a.cached = u.Prompt, u.Answer, u.Details.Cached
	}
	for _, x := range c.Choices {
		if x.Text+x.Delta.Content+x.Delta.Reasoning == "" {
			continue
		}
		if a.first == 0 {
			a.first = at
		} else {
			a.gaps = append(a.gaps, at-a.last)
		}
		a.last = at
		if c.Usage == nil {
			a.tokens++ // a server that gives no usage: one token per event
		}
	}
	return nil
}
