// Package remote has a server of OpenAI's API write the answers that preprocess labels.
package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"talf/data"
	"talf/internal/hint"
	"talf/model/sample"
	"talf/preprocess"
	"talf/preprocess/regenerate"
)

// KeyVariable is the environment variable with the key of the API, as OpenAI's own clients
// have it.
const KeyVariable = "OPENAI_API_KEY"

// A Config says who answers and how.
type Config struct {
	// URL is the base of the API, as clients of OpenAI take it: http://host:8000/v1. One without
	// a path gets /v1.
	URL   string
	Model string // "": the server's, if it has only one
	Key   string // sent as a bearer token; "": none, or with Run that of KeyVariable
	// Sample is how answers are drawn: temperature, top_p, and top_k, which is an addition of
	// vLLM's and others'.
	Sample sample.Params
	// Dir is where the answers are kept, in a file named by Part.
	Dir  string
	Part data.Stripe

	Connections int           // that are kept open
	Wait        time.Duration // before the second attempt; it doubles
	Timeout     time.Duration // of an attempt
}

// Default returns a configuration without a server. A long answer of a large model in a full queue
// takes minutes.
func Default() Config {
	return Config{Sample: sample.Greedy(), Part: data.Whole(), Connections: 16, Wait: time.Second, Timeout: 10 * time.Minute}
}

// A Client implements preprocess.Answerer. It keeps every answer in a file before it returns it, so
// that an interrupted run asks only for what was not answered.
type Client struct {
	c    Config
	base *url.URL
	http *http.Client

	mu   sync.Mutex
	kept *journal // nil until the first question, when the set is locked

	asked, answered atomic.Int64
	refused         atomic.Int64 // of the first mostRefused that were asked
}

var _ preprocess.Answerer = (*Client)(nil)

// Run is preprocess.Run with the answers of a server, which are kept in the set's directory. At most
// c.Prompts requests are open at a time.
func Run(ctx context.Context, c preprocess.Config, in preprocess.Inputs, server Config) (st preprocess.Stats, err error) {
	server.Dir, server.Part, server.Connections = c.Out, c.Stripe, c.Prompts
	if server.Key == "" {
		server.Key = os.Getenv(KeyVariable)
	}
	a, err := New(ctx, server)
	if err != nil {
		return st, err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	in.Answerer, in.Sampling = a, a.Describe()
	return preprocess.Run(ctx, c, in)
}

// New returns a client. It asks the server for its model if c names none.
func New(ctx context.Context, c Config) (*Client, error) {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		return nil, errors.New("the server's address is no URL, want one such as http://host:8000/v1") // err may quote a password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("the server's address is %q, want one such as http://host:8000/v1", u.Redacted())
	case u.User != nil:
		return nil, fmt.Errorf("the server's address is %q, want no name or password in it: a key is read from %s", u.Redacted(), KeyVariable)
	case u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("the server's address is %q, want no query in it", u.Redacted())
	}
	if strings.Trim(u.Path, "/") == "" {
		u = u.JoinPath("v1")
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = max(c.Connections, 1)
	a := &Client{c: c, base: u, http: &http.Client{
		Transport: transport,
		// A redirected POST becomes a GET, and a key is not for other servers.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if a.c.Model == "" {
		if a.c.Model, err = a.only(ctx); err != nil {
			a.http.CloseIdleConnections()
			return nil, err
		}
	}
	return a, nil
}

// maxModel bounds the name of a model that shards record, in bytes.
const maxModel = 256

// naming is the hint of a server that does not say which its model is.
const naming = "{regenerate-model} names it"

// only returns the name of the server's model.
func (a *Client) only(ctx context.Context) (string, error) {
	b, err := a.do(ctx, http.MethodGet, "models", nil, "the list of models")
	var status *statusError
	if errors.As(err, &status) && status.code == http.StatusNotFound {
		err = &hint.Error{Err: err, Hint: naming}
	}
	if err != nil {
		return "", err
	}
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal(b, &list); err != nil || len(list.Data) == 0 {
		return "", hint.Errorf(naming, "%s: no list of models", a.base.JoinPath("models"))
	}
	if len(list.Data) > 1 {
		var names []string
		for _, m := range list.Data[:min(len(list.Data), 8)] {
			names = append(names, fmt.Sprintf("%.100q", m.ID))
		}
		return "", hint.Errorf(naming, "%s: %d models (%s), want one", a.base.JoinPath("models"), len(list.Data), strings.Join(names, ", "))
	}
	if id := list.Data[0].ID; id != "" && len(id) <= maxModel && strings.IndexFunc(id, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return id, nil
	}
	return "", hint.Errorf(naming, "%s: the model's name is %.100q, want 1 to %d printable bytes", a.base.JoinPath("models"), list.Data[0].ID, maxModel)
}

// Describe returns the description of sampling that shards record. The address is not part of it: a
// run may be continued with another server of the same model.
func (a *Client) Describe() string {
	return regenerate.Describe(a.c.Sample) + ", by a server's " + a.c.Model
}

// Close makes all answers last and closes the file of answers.
func (a *Client) Close() error {
	a.http.CloseIdleConnections()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.kept == nil {
		return nil
	}
	err := a.kept.close()
	a.kept = nil
	return err
}

// journal opens the file of answers.
func (a *Client) journal() (*journal, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.kept == nil {
		name := "answers.jsonl"
		if p := a.c.Part; p != data.Whole() {
			name = fmt.Sprintf("answers-%05d-of-%05d.jsonl", p.Index, p.Count)
		}
		k, err := openJournal(filepath.Join(a.c.Dir, name))
		if err != nil {
			return nil, err
		}
		a.kept = k
	}
	return a.kept, nil
}

// mostRefused is how many of the first questions end the run if all of them are refused and none is
// answered: the server takes no question of this form. Later ones do not count, since refusals are faster
// than answers.
const mostRefused = 8

// Answer implements preprocess.Answerer.
func (a *Client) Answer(ctx context.Context, q *preprocess.Question) (preprocess.Answer, error) {
	path, body, err := a.request(q)
	if err != nil {
		return preprocess.Answer{}, fmt.Errorf("%s: %w", q.Place, err)
	}
	k, err := a.journal()
	if err != nil {
		return preprocess.Answer{}, err
	}
	key := keyOf(path, body)
	e, ok, err := k.find(key)
	if err != nil {
		return preprocess.Answer{}, err
	}
	if !ok {
		first := a.asked.Add(1) <= mostRefused
		e, err = a.ask(ctx, path, body, q.Place)
		if errors.Is(err, preprocess.ErrRefused) {
			if first {
				a.refused.Add(1)
			}
			if a.refused.Load() >= mostRefused && a.answered.Load() == 0 {
				err = fmt.Errorf("the first %d prompts are all refused: %s", mostRefused, err.Error()) // ends the run
			}
		}
		if err != nil {
			return preprocess.Answer{}, err
		}
		e.Key, e.Request = key, body
		if err := k.add(e); err != nil {
			return preprocess.Answer{}, err
		}
	}
	a.answered.Add(1)
	return preprocess.Answer{Text: e.Text, Reasoning: e.Reasoning, Cut: e.Finish == "length"}, nil
}
