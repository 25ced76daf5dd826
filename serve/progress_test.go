package serve_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"talf/infer"
	"talf/internal/e2e/talftest"
	"talf/internal/wire"
	"talf/serve"
)

// serveWired serves c where time stands still, with a log in JSON.
func serveWired(t *testing.T, lan *wire.Net, c serve.Core, log io.Writer) (client *http.Client, url string) {
	t.Helper()
	conf := serve.Default()
	conf.Names = []string{"tiny"}
	conf.Log = slog.New(slog.NewJSONHandler(log, nil))
	s, err := serve.New(c, conf)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: lan.Dial}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}, lan.Serve(t, s)
}

// How far a long prompt has been read is in the log and, as comments, in streams of every dialect. So nobody takes the server for
// dead while it reads.
func TestPromptsThatAreReadReportProgress(t *testing.T) {
	prompt := strings.TrimSpace(strings.Repeat("a ", 40))
	chat := `"messages":[{"role":"user","content":"a"}]`
	for _, x := range []struct {
		path, body string
		of         int // tokens, of all answers
		rate       int // tokens that are read in a second
	}{
		{"/v1/completions", fmt.Sprintf(`{"prompt":%q,"stream":true}`, prompt), 40, 2},
		{"/v1/completions", fmt.Sprintf(`{"prompt":%q,"stream":true,"n":3}`, prompt), 120, 2},
		{"/v1/completions", fmt.Sprintf(`{"prompt":%q}`, prompt), 40, 2},
		{"/v1/completions", fmt.Sprintf(`{"prompt":%q,"stream":true}`, prompt), 40, 0}, // in the queue
		{"/v1/chat/completions", `{"stream":true,` + chat + `}`, 3, 0},
		{"/v1/responses", `{"model":"tiny","stream":true,"input":"a"}`, 3, 0},
		{"/v1/messages", `{"model":"tiny","max_tokens":9,"stream":true,` + chat + `}`, 3, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var lan wire.Net
			begin := time.Now()
			c := &core{words: []string{"Hello"}, end: infer.EOS, hold: make(chan struct{})}
			c.prefix = func() int { return int(time.Since(begin).Seconds()) * x.rate }
			log := &talftest.Log{}
			client, url := serveWired(t, &lan, c, log)
			time.AfterFunc(17*time.Second, func() { close(c.hold) })
			resp, err := client.Post(url+x.path, "application/json", strings.NewReader(x.body))
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != 200 || !strings.Contains(string(b), "Hello") {
				t.Fatalf("%s: %d, %v: %s", x.path, resp.StatusCode, err, b)
			}
			var comments, want, lines, logged []string
			for line := range strings.Lines(string(b)) {
				if strings.HasPrefix(line, ":") {
					comments = append(comments, strings.TrimSpace(line))
				}
			}
			for i := range 3 {
				at := 5 * (i + 1) * x.rate * (x.of / min(x.of, 40))
				if strings.Contains(x.body, "stream") {
					want = append(want, fmt.Sprintf(": prompt %d/%d", at, x.of))
				}
				if at > 0 {
					logged = append(logged, fmt.Sprintf(`"tokens":%d,"of":%d}`, at, x.of))
				}
			}
			if !slices.Equal(comments, want) {
				t.Errorf("%s: the stream has %q, want %q", x.path, comments, want)
			}
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, `"msg":"reading the prompt","id":"req-`) {
					lines = append(lines, line[strings.Index(line, `"tokens"`):len(line)-1])
				}
			}
			if !slices.Equal(lines, logged) {
				t.Errorf("%s: the log has %q, want %q", x.path, lines, logged)
			}
		})
	}
}
