package serve_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"talf/infer"
	"talf/internal/wire"
	"talf/serve"
)

// speak writes text to a connection of its own, whole or a byte each pause, and returns the responses that come, until the server
// closes it or is silent for ten minutes, and when the first began.
func speak(t *testing.T, lan *wire.Net, url, text string, pause time.Duration) (got []string, first time.Duration, closed bool) {
	t.Helper()
	conn, err := lan.Dial(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = conn.Close()
		time.Sleep(pause) // the writer ends
	}()
	begin := time.Now()
	go func() {
		if pause == 0 {
			_, _ = io.WriteString(conn, text) // which may be closed before all is read
			return
		}
		for i := range len(text) {
			if _, err := io.WriteString(conn, text[i:i+1]); err != nil {
				return
			}
			time.Sleep(pause)
		}
	}()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Minute))
	in := bufio.NewReader(conn)
	for {
		resp, err := http.ReadResponse(in, nil)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return got, first, true
		} else if err != nil {
			return got, first, false
		}
		if first == 0 {
			first = time.Since(begin)
		}
		b, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(resp.StatusCode, " ", string(b)))
	}
}

// Two lengths of one body are how requests are smuggled past proxies: what one server takes for the body, another takes for the next
// request. RFC 9112, section 6.1: the connection ends with the response. net/http drops the header that loses, so that the
// connection ends wherever it may have done so.
func TestConnectionsWithAmbiguousLengthsAreClosed(t *testing.T) {
	const body = `{"prompt":"a"}`
	const smuggled = "GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
	chunked := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	for _, x := range []struct {
		what, request string
		responses     int // with what follows
		closed        bool
	}{
		{"a length", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n" + body, 2, false},
		{"chunks", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked, 1, true},
		{"chunks and a length", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked, 1, true},
		{"chunks and the length of less", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked, 1, true},
		{"chunks of a path that is not there", "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked, 1, true},
		{"chunks in HTTP/1.0", "POST /v1/completions HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 14\r\nTransfer-Encoding: chunked\r\n\r\n" + body, 1, true},
		{"two lengths", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\nContent-Length: 3\r\n\r\n" + body, 1, true},
		{"another encoding", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n" + chunked, 1, true},
		{"a length with a sign", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: +14\r\n\r\n" + body, 1, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			var lan wire.Net
			_, url := serveWired(t, &lan, &core{words: []string{"Hello"}, end: infer.EOS}, io.Discard)
			got, _, closed := speak(t, &lan, url, x.request+smuggled, 0)
			if len(got) != x.responses || closed != x.closed {
				t.Errorf("%s: closed %v, %d responses, want %v, %d: %q", x.what, closed, len(got), x.closed, x.responses, got)
			}
		})
	}
}

// A client that sends two bytes a second is told so after a minute, whatever it asks for, and its connection ends. One whose body takes
// half a minute is answered, for as long as the answer takes.
func TestSlowBodiesEnd(t *testing.T) {
	for _, path := range []string{
		"/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens", "/tokenize", "/detokenize", "/nowhere", "/health",
	} {
		for _, header := range []string{"Content-Length: 500\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n1f4\r\n"} {
			synctest.Test(t, func(t *testing.T) {
				var lan wire.Net
				_, url := serveWired(t, &lan, &core{words: []string{"Hello"}, end: infer.EOS}, io.Discard)
				text := "POST " + path + " HTTP/1.1\r\nHost: x\r\n" + header
				got, first, closed := speak(t, &lan, url, text+strings.Repeat(" ", 500), 500*time.Millisecond)
				first -= time.Duration(len(text)) * 500 * time.Millisecond
				refused := path == "/nowhere" || path == "/health" // without reading the body
				if !closed || first > time.Minute || !refused && (len(got) != 1 || !strings.HasPrefix(got[0], "408 ")) {
					t.Errorf("%s, %q: closed %v after %v: %q", path, header, closed, first, got)
				}
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var lan wire.Net
		c := &core{words: []string{"Hello", "x"}, end: infer.EOS, hold: make(chan struct{})}
		_, url := serveWired(t, &lan, c, io.Discard)
		time.AfterFunc(5*time.Minute, func() { close(c.hold) })
		text := "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 28\r\n\r\n" + `{"prompt":"a","stream":true}`
		got, _, _ := speak(t, &lan, url, text, time.Second)
		if len(got) != 1 || !strings.HasSuffix(got[0], "[DONE]\n\n") {
			t.Errorf("a long answer: %q", got)
		}
	})
}

// Headers that do not come end the connection.
func TestSlowHeadersEnd(t *testing.T) {
	address, stop := run(t, &core{}, serve.Listener{}, func(c *serve.Config) { c.HeaderTime = 20 * time.Millisecond })
	for _, text := range []string{"", "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, text); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(conn); err != nil { // until the server closes it
			t.Error(err)
		}
		_ = conn.Close()
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// A body that is too large is refused before it has come, if its length says so, and as soon as it is too large if not.
func TestLargeBodiesAreRefused(t *testing.T) {
	_, url := start(t, &core{}, func(conf *serve.Config) { conf.MaxBody = 1000 })
	for _, length := range []int64{1 << 40, -1} {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := http.NewRequestWithContext(ctx, "POST", url+"/v1/completions", io.MultiReader(strings.NewReader(strings.Repeat(" ", 20_000)), blocked{ctx}))
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = length
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if resp.StatusCode != 413 || err != nil || !strings.Contains(string(b), "larger than 1000 bytes") {
			t.Errorf("length %d: %d, %v: %s", length, resp.StatusCode, err, b)
		}
		cancel()
		_ = resp.Body.Close()
	}
}

// blocked is a text of which nothing comes before ctx ends.
type blocked struct{ ctx context.Context }

func (b blocked) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, io.EOF
}
