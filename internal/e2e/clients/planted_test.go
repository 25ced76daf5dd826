package clients

import (
	"bytes"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var planted = flag.Bool("planted", false, "see which clients notice defects of a server, which takes minutes")

// A defect changes what the server says.
type defect struct {
	name  string
	plant func(r *http.Response, body string) string
	// notice are the clients that have to notice, each by a check that fails.
	notice []string
}

func rename(field string) func(*http.Response, string) string {
	return func(_ *http.Response, body string) string {
		return strings.ReplaceAll(body, `"`+field+`":`, `"other_`+field+`":`)
	}
}

var (
	finished = regexp.MustCompile(`"finish_reason":"[a-z]+"`)
	said     = regexp.MustCompile(`"(content|text|delta)":"[^"\\]`)
	chats    = []string{"openai (Python)", "openai (Node)", "@ai-sdk/openai-compatible", "openai-go", "go-openai"}
)

var defects = []defect{
	{"no finish_reason", func(_ *http.Response, body string) string {
		return finished.ReplaceAllString(body, `"finish_reason":null`)
	}, chats},
	{"no usage", rename("usage"), chats},
	{"no index", rename("index"), []string{"openai (Python)"}},
	{"no object", rename("object"), []string{"openai (Python)"}},
	{"no calls", rename("tool_calls"), []string{"openai (Python)", "openai (Node)", "@ai-sdk/openai-compatible"}},
	{"no arguments", rename("arguments"), []string{"openai (Python)", "openai (Node)", "@ai-sdk/openai-compatible"}},
	{"no input of a call", rename("input"), []string{"anthropic (Python)"}},
	{"no parts of an input", rename("partial_json"), []string{"anthropic (Python)"}},
	{"no logprobs", rename("logprobs"), []string{"openai (Python)", "openai (Node)", "openai-go", "go-openai"}},
	// No client misses it: they take the end of the connection for that of the stream.
	{"no [DONE]", func(_ *http.Response, body string) string { return strings.Replace(body, "data: [DONE]\n\n", "", 1) }, nil},
	{"a letter less", func(_ *http.Response, body string) string {
		return said.ReplaceAllStringFunc(body, func(s string) string { return s[:len(s)-1] })
	}, append(slices.Clone(chats), "anthropic (Python)", "llm")},
	{"errors without fields", func(r *http.Response, body string) string {
		if r.StatusCode >= 400 {
			return "{}"
		}
		return body
	}, append(slices.Clone(chats), "anthropic (Python)")},
	{"errors of status 500", func(r *http.Response, body string) string {
		if r.StatusCode >= 400 {
			r.StatusCode = 500
		}
		return body
	}, append(slices.Clone(chats), "anthropic (Python)")},
	{"events without their type", func(_ *http.Response, body string) string {
		return regexp.MustCompile(`(?m)^event: .*\n`).ReplaceAllString(body, "")
	}, []string{"anthropic (Python)"}},
	{"text for JSON", func(r *http.Response, body string) string {
		r.Header.Set("Content-Type", "text/plain")
		return body
	}, []string{"openai (Node)", "openai-go"}},
}

// The checks of clients fail if the server is wrong: planted defects are noticed.
func TestPlantedDefectsAreNoticed(t *testing.T) {
	there := present(t)
	if !*planted {
		t.Skip("defects are planted by hand, with -planted")
	}
	w := newWorld(t)
	for _, d := range defects {
		t.Run(d.name, func(t *testing.T) {
			p := w.plan
			p.Base = d.front(t, w.serve(t))
			p.Busy = d.front(t, w.crowd(t, w.serve(t, "--max-running", "1", "--max-queue", "1")))
			for _, c := range there {
				var failed []string
				for name, wrong := range c.run(t, &p) {
					if wrong != "" {
						failed = append(failed, name)
					}
				}
				slices.Sort(failed)
				t.Logf("%s: %d of %d checks fail: %s", c.name, len(failed), len(c.checks), strings.Join(failed, ", "))
				if len(failed) == 0 && slices.Contains(d.notice, c.name) {
					t.Errorf("%s does not notice it", c.name)
				}
			}
		})
	}
}

// front returns the URL of a server that answers as the one at to, but for the defect.
func (d *defect) front(t *testing.T, to string) string {
	t.Helper()
	u, err := url.Parse(strings.TrimSuffix(to, "/v1"))
	if err != nil {
		t.Fatal(err)
	}
	p := httputil.NewSingleHostReverseProxy(u)
	p.ModifyResponse = func(r *http.Response) error {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		_ = r.Body.Close()
		b = []byte(d.plant(r, string(b)))
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
		r.Header.Set("Content-Length", strconv.Itoa(len(b)))
		return nil
	}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	return s.URL + "/v1"
}
