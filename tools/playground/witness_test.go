package playground

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// A reply is a streamed answer.
type reply struct {
	text   string
	nodes  []int // of the tree of each round
	rounds int
	tokens int
	tau    float64
}

// read reads a stream.
func read(t *testing.T, stream string) reply {
	t.Helper()
	var r reply
	for line := range strings.Lines(stream) {
		data, ok := strings.CutPrefix(line, "data: {")
		if !ok {
			continue
		}
		var chunk struct {
			Choices []struct {
				Text  string
				Delta struct{ Content string }
				Talf  struct {
					Round *struct {
						Nodes []any
						Kept  int
					}
					Rounds int
					Tau    float64
				}
			}
		}
		if err := json.Unmarshal([]byte("{"+data), &chunk); err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		for _, c := range chunk.Choices {
			r.text += c.Text + c.Delta.Content
			if x := c.Talf.Round; x != nil {
				r.nodes, r.tokens = append(r.nodes, len(x.Nodes)), r.tokens+x.Kept
			}
			if c.Talf.Rounds > 0 {
				r.rounds, r.tau = c.Talf.Rounds, c.Talf.Tau
			}
		}
	}
	if r.text == "" || len(r.nodes) != r.rounds {
		t.Fatalf("%+v", r)
	}
	return r
}

// A witness stands between the page and its server and keeps what they say: how large the trees
// of an answer are depends on the load, so that no second request could tell.
type witness struct {
	origin string
	mu     sync.Mutex
	said   map[string]*exchange // by method
}

// An exchange is the last request for a method, and its answer.
type exchange struct {
	path, asked string
	answer      bytes.Buffer
}

func listen(t *testing.T) *witness {
	t.Helper()
	to, err := url.Parse(served)
	if err != nil {
		t.Fatal(err)
	}
	w := &witness{said: map[string]*exchange{}}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ModifyResponse = func(resp *http.Response) error {
		if x, ok := resp.Request.Context().Value(w).(*exchange); ok {
			resp.Body = struct {
				io.Reader
				io.Closer
			}{io.TeeReader(resp.Body, &x.answer), resp.Body}
		}
		return nil
	}
	s := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			b, err := io.ReadAll(r.Body)
			var body struct{ Talf struct{ Method string } }
			if err := errors.Join(err, json.Unmarshal(b, &body)); err != nil {
				t.Error(err)
			}
			x := &exchange{path: r.URL.Path, asked: string(b)}
			w.mu.Lock()
			w.said[body.Talf.Method] = x
			w.mu.Unlock()
			r = r.WithContext(context.WithValue(r.Context(), w, x))
			r.Body = io.NopCloser(bytes.NewReader(b))
		}
		proxy.ServeHTTP(out, r)
	}))
	t.Cleanup(s.Close)
	w.origin = s.URL
	return w
}

// answer returns what the server answered with a method, once the page has all of it.
func (w *witness) answer(t *testing.T, method string) reply {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.said[method]
	if x == nil {
		t.Fatalf("the page did not ask for %s", method)
	}
	return read(t, x.answer.String())
}

// text returns the text that plain decoding has for a request, asked without the page.
func text(t *testing.T, path, body string) string {
	t.Helper()
	resp, err := http.Post(served+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got struct {
		Choices []struct {
			Text    string
			Message struct{ Content string }
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil || len(got.Choices) != 1 {
		t.Fatalf("%s: %v", resp.Status, err)
	}
	return got.Choices[0].Text + got.Choices[0].Message.Content
}
