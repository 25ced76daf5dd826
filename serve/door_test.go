package serve_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"talf/serve"
)

// An address is taken before a model is loaded: requests are told what the load does, and after it
// the server answers there.
func TestADoorIsOpenWhileAModelLoads(t *testing.T) {
	l := serve.Listener{Address: "127.0.0.1:0", Grace: time.Minute}
	c := serve.Default()
	if err := l.Open(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	address := l.Bound()
	l.Tell("loading", 3, 4)
	for _, path := range []string{"/health", "/v1/models", "/v1/chat/completions", "/v1/messages", "/"} {
		status, header, body := ask(t, "http://"+address+path)
		var got struct {
			Type  string
			Error struct{ Message, Type, Code string }
			Talf  struct {
				Phase   string
				Percent int
			}
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatalf("%s: %v in %s", path, err, body)
		}
		if status != http.StatusServiceUnavailable || header.Get("Retry-After") == "" || header.Get("Content-Type") != "application/json" || !strings.Contains(got.Error.Message, "loading, 75%") {
			t.Errorf("%s: status %d, %v, %s", path, status, header, body)
		}
		if path == "/v1/messages" {
			if got.Type != "error" || got.Error.Type != "overloaded_error" && got.Error.Type != "api_error" {
				t.Errorf("%s: not in the shape of Anthropic's: %s", path, body)
			}
		} else if got.Error.Code != "loading" || got.Talf.Phase != "loading" || got.Talf.Percent != 75 {
			t.Errorf("%s: %s", path, body)
		}
	}
	taken := serve.Listener{Address: address}
	if err := taken.Open(t.Context(), c); err == nil || !strings.Contains(err.Error(), address) {
		t.Errorf("an address that is taken: %v, want an error that names %s", err, address)
	}
	if err := taken.Close(); err != nil {
		t.Errorf("a door that never opened: %v", err)
	}

	c.Names = []string{"m"}
	s, err := serve.New(&core{}, c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- s.Run(ctx, &l, func(a string) { ready <- a }) }()
	if a := <-ready; a != address {
		t.Errorf("the server is at %s, the door was at %s", a, address)
	}
	if status, _, body := ask(t, "http://"+address+"/health"); status != http.StatusOK {
		t.Errorf("status %d once the model is loaded: %s", status, body)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	// A load that fails gives the address back.
	l = serve.Listener{Address: address}
	if err := l.Open(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := taken.Open(t.Context(), c); err != nil {
		t.Error(err)
	}
	if err := taken.Close(); err != nil {
		t.Error(err)
	}
}

func ask(t *testing.T, url string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, r.Header, string(b)
}
