package serve_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"talf/internal/demo"
	"talf/internal/e2e/servetest"
)

// An attack is what a hostile client sends, and what it may get.
type attack struct {
	name string
	send []string // one after the other; half closes the sending half
	// want are the statuses of the responses. A status of 0 is the end of the connection, which
	// may also come after any of them.
	want []int
	say  string // in the last response
	slow bool   // the rest never comes: the server has to lose patience
}

const half = "\x00half\x00"

// either is a status of 200, or of 499: net/http takes a client that closes its sending half for one
// that has gone, which ends an answer that is not ready by then.
const either = -1

// post returns a request with a body.
func post(path, body string, headers ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n%s",
		path, len(body), strings.Join(append(headers, ""), "\r\n"), body)
}

// raw returns a request with these headers and this rest.
func raw(line, headers, rest string) string {
	return line + "\r\nHost: x\r\n" + headers + "\r\n" + rest
}

const (
	completions = "/v1/completions"
	chats       = "/v1/chat/completions"
	good        = `{"prompt":"Once","max_tokens":2,"temperature":0}`
)

// hostileFrames are attacks on HTTP.
func hostileFrames() []attack {
	line := "POST " + completions + " HTTP/1.1"
	length := fmt.Sprintf("Content-Length: %d\r\n", len(good))
	chunk := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(good), good)
	health := "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
	long := strings.Repeat("a", 1<<20)
	return []attack{
		{name: "length and chunks: the chunks count", send: []string{raw(line, "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", chunk)}, want: []int{200}},
		{name: "length and chunks: what follows is no request", send: []string{raw(line, length+"Transfer-Encoding: chunked\r\n", "0\r\n\r\n"+good)}, want: []int{400}},
		{name: "two lengths", send: []string{raw(line, length+"Content-Length: 3\r\n", good)}, want: []int{400}},
		{name: "one length twice", send: []string{raw(line, length+length, good)}, want: []int{200}},
		{name: "a list of lengths", send: []string{raw(line, fmt.Sprintf("Content-Length: %d, %d\r\n", len(good), len(good)), good)}, want: []int{400}},
		{name: "a signed length", send: []string{raw(line, fmt.Sprintf("Content-Length: +%d\r\n", len(good)), good)}, want: []int{400}},
		{name: "a negative length", send: []string{raw(line, "Content-Length: -1\r\n", good)}, want: []int{400}},
		{name: "a hexadecimal length", send: []string{raw(line, "Content-Length: 0x20\r\n", good)}, want: []int{400}},
		{name: "a length beyond 64 bits", send: []string{raw(line, "Content-Length: 99999999999999999999\r\n", good)}, want: []int{400}},
		{name: "a length of terabytes", send: []string{raw(line, "Content-Length: 9999999999999\r\n", good)}, want: []int{413}, say: "larger than"},
		{name: "a space before the colon", send: []string{raw(line, fmt.Sprintf("Content-Length : %d\r\n", len(good)), good)}, want: []int{400}},
		{name: "chunked twice", send: []string{raw(line, "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", chunk)}, want: []int{501}},
		{name: "chunked in a list", send: []string{raw(line, "Transfer-Encoding: gzip, chunked\r\n", chunk)}, want: []int{501}},
		{name: "identity", send: []string{raw(line, "Transfer-Encoding: identity\r\n", chunk)}, want: []int{501}},
		{name: "an unknown encoding", send: []string{raw(line, "Transfer-Encoding: xchunked\r\n", chunk)}, want: []int{501}},
		{name: "a vertical tab before chunked", send: []string{raw(line, "Transfer-Encoding: \x0bchunked\r\n", chunk)}, want: []int{400}},
		{name: "a folded header", send: []string{raw(line, "X-A: a\r\n b\r\n"+length, good)}, want: []int{200}},
		{name: "a header that begins folded", send: []string{line + "\r\n Host: x\r\n" + length + "\r\n" + good}, want: []int{400}},
		{name: "line feeds alone", send: []string{strings.ReplaceAll(raw(line, length, ""), "\r\n", "\n") + good}, want: []int{200}},
		{name: "a carriage return in a header", send: []string{raw(line, "X-A: a\rX-B: b\r\n"+length, good)}, want: []int{400}},
		{name: "a null in a header", send: []string{raw(line, "X-A: a\x00b\r\n"+length, good)}, want: []int{400}},
		{name: "a header without a colon", send: []string{raw(line, "X-A\r\n"+length, good)}, want: []int{400}},
		{name: "a header without a name", send: []string{raw(line, ": a\r\n"+length, good)}, want: []int{400}},
		{name: "no host", send: []string{line + "\r\n" + length + "\r\n" + good}, want: []int{400}},
		{name: "two hosts", send: []string{raw(line, "Host: y\r\n"+length, good)}, want: []int{400}},
		{name: "a host of control characters", send: []string{line + "\r\nHost: a\x7fb\r\n" + length + "\r\n" + good}, want: []int{400}},
		{name: "a path of a megabyte", send: []string{raw("GET /"+long+" HTTP/1.1", "", "")}, want: []int{431}},
		{name: "a header of a megabyte", send: []string{raw(line, "X-A: "+long+"\r\n", "")}, want: []int{431}},
		{name: "a hundred thousand headers", send: []string{raw(line, strings.Repeat("X-A: a\r\n", 100_000), "")}, want: []int{431}},
		{name: "a request id of control characters", send: []string{post(completions, good, "X-Request-Id: a\tb")}, want: []int{200}},
		{name: "a request id of ten kilobytes", send: []string{post(completions, good, "X-Request-Id: "+long[:10_000])}, want: []int{200}},
		{name: "a method that is none", send: []string{raw("P<ST "+completions+" HTTP/1.1", length, good)}, want: []int{400}},
		{name: "a method in lower case", send: []string{raw("post "+completions+" HTTP/1.1", length, good)}, want: []int{405}, say: "not allowed"},
		{name: "TRACE", send: []string{raw("TRACE /health HTTP/1.1", "", "")}, want: []int{405}, say: "not allowed"},
		{name: "CONNECT", send: []string{"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n"}, want: []int{404}, say: "no route"},
		{name: "OPTIONS of everything", send: []string{raw("OPTIONS * HTTP/1.1", "", "")}, want: []int{200}},
		{name: "another host's URL", send: []string{raw("GET http://evil.example/v1/models HTTP/1.1", "", "")}, want: []int{200}},
		{name: "HTTP 0.9", send: []string{"GET /health\r\n\r\n"}, want: []int{400}},
		{name: "HTTP 3", send: []string{raw("GET /health HTTP/3.0", "", "")}, want: []int{505}},
		{name: "HTTP 1.1 with letters", send: []string{raw("GET /health HTTP/1.x", "", "")}, want: []int{400}},
		{name: "HTTP 2 without asking", send: []string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"}, want: []int{404}},
		{name: "HTTP 2 by upgrade", send: []string{raw("GET /health HTTP/1.1", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n", "")}, want: []int{200}},
		{name: "a websocket", send: []string{raw("GET "+chats+" HTTP/1.1", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n", "")}, want: []int{405}, say: "not allowed"},
		{name: "TLS to a port without", send: []string{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + long[:200]}, want: []int{400}},
		{name: "noise", send: []string{"\x00\xff\xfe" + long[:4096] + "\r\n\r\n"}, want: []int{400}},
		{name: "nothing", send: []string{half}, want: []int{0}},
		{name: "an expectation of more", send: []string{post(completions, good, "Expect: 200-ok")}, want: []int{417}},
		{name: "a continuation that is asked for", send: []string{post(completions, good, "Expect: 100-continue")}, want: []int{100, 200}},
		{name: "a chunk of no number", send: []string{raw(line, "Transfer-Encoding: chunked\r\n", "zz\r\n")}, want: []int{400}},
		{name: "a negative chunk", send: []string{raw(line, "Transfer-Encoding: chunked\r\n", "-5\r\nabcde\r\n0\r\n\r\n")}, want: []int{400}},
		{name: "a chunk beyond 64 bits", send: []string{raw(line, "Transfer-Encoding: chunked\r\n", "fffffffffffffffff\r\nabc")}, want: []int{400}},
		{name: "a chunk longer than it says", send: []string{raw(line, "Transfer-Encoding: chunked\r\n", "3\r\n"+good+"\r\n0\r\n\r\n")}, want: []int{400}},
		{name: "a chunk's extension of a megabyte", send: []string{raw(line, "Transfer-Encoding: chunked\r\n", "3;"+long+"\r\nabc\r\n0\r\n\r\n")}, want: []int{400}},
		{name: "chunks of one byte", send: []string{raw(line, "Transfer-Encoding: chunked\r\n", strings.Repeat("1;"+long[:64]+"\r\n \r\n", 20_000))}, want: []int{400}},
		{name: "chunks without end", send: []string{raw(line, "Transfer-Encoding: chunked\r\n", strings.Repeat("10000\r\n"+long[:1<<16]+"\r\n", 160))}, want: []int{413}, say: "larger than"},
		{name: "chunks that break off", send: []string{raw(line, "Transfer-Encoding: chunked\r\n", "20\r\nabc"), half}, want: []int{400}},
		{name: "trailers of a megabyte", send: []string{raw(line, "Transfer-Encoding: chunked\r\nTrailer: X-A\r\n", strings.TrimSuffix(chunk, "\r\n")+"X-A: "+long+"\r\n\r\n")}, want: []int{400}},
		{name: "headers that break off", send: []string{line + "\r\nHost: x\r\nX-A", half}, want: []int{400}},
		{name: "a body that breaks off", send: []string{raw(line, length, good[:9]), half}, want: []int{400}, say: "ended early"},
		{name: "an answer to a half-closed connection", send: []string{post(completions, good), half}, want: []int{either}},
		{name: "a half-closed connection", send: []string{"GET /version HTTP/1.1\r\nHost: x\r\n\r\n", half}, want: []int{200}},
		{name: "three requests in one piece", send: []string{health + post(completions, good) + health}, want: []int{200, 200, 200}},
		{name: "a bad request between good ones", send: []string{health + post(completions, "{") + health}, want: []int{200, 400, 200}},
		{name: "a hundred requests in one piece", send: []string{strings.Repeat(health, 100)}, want: slices.Repeat([]int{200}, 100)},
		{name: "a request in the body of another", send: []string{raw("GET /health HTTP/1.1", fmt.Sprintf("Content-Length: %d\r\n", len(health)), health)}, want: []int{200}},
		{name: "one byte at a time", send: strings.Split(post(completions, good), ""), want: []int{200}},
		{name: "headers that never end", send: []string{line + "\r\nHost: x\r\nX-A: "}, want: []int{0}, slow: true},
		{name: "a request line that never ends", send: []string{"POST "}, want: []int{400}, slow: true},
		{name: "a body that never comes", send: []string{raw(line, length, "")}, want: []int{408}, say: "did not come", slow: true},
		{name: "a body that never ends", send: []string{raw(line, length, good[:9])}, want: []int{408}, say: "did not come", slow: true},
		{name: "a body that never comes, for no route", send: []string{raw("POST /nothing HTTP/1.1", length, "")}, want: []int{404}, slow: true},
		{name: "a body that never comes, for a probe", send: []string{raw("GET /health HTTP/1.1", length, "")}, want: []int{200, 0}, slow: true},
		{name: "a chunk that never ends", send: []string{raw(line, "Transfer-Encoding: chunked\r\n", "20\r\nabc")}, want: []int{408}, say: "did not come", slow: true},
		{name: "the second of two requests never ends", send: []string{health + "GET /health HTTP/1.1\r\n"}, want: []int{200, 0}, slow: true},
	}
}

// hostilePaths are attacks on paths.
func hostilePaths() (all []attack) {
	for path, want := range map[string]int{
		"/../../etc/passwd": 404, "/v1/../../etc/passwd": 404, "/v1/models/../../../etc/passwd": 404, "/%2e%2e/%2e%2e/etc/passwd": 404, "//v1//models": 404,
		"/v1/models/%2e%2e%2f%2e%2e%2fetc%2fpasswd": 404, "/v1/models/..%5c..%5cwindows": 404, "/v1/models/%00": 404, "/v1/models/%ff%fe": 404,
		"/v1/models/a%0d%0aSet-Cookie:%20a=b": 404, "/v1/models/" + strings.Repeat("a", 30_000): 404, "/v1/models/%zz": 400, "/v1/completions/": 404,
		"/v1/models?x=%zz;a=b": 200, "/v1/models#x": 404, "/.git/config": 404, "/debug/pprof/": 404, "/favicon.ico": 404, "/V1/models": 404, "*": 404,
	} {
		name := path[:min(len(path), 40)]
		all = append(all, attack{name: "GET " + name, send: []string{raw("GET "+path+" HTTP/1.1", "", "")}, want: []int{want}})
	}
	slices.SortFunc(all, func(a, b attack) int { return strings.Compare(a.name, b.name) })
	return all
}

// hostileBodies are attacks on JSON and parameters.
func hostileBodies() (all []attack) {
	add := func(name, path, body string, status int, say string) {
		all = append(all, attack{name: name, send: []string{post(path, body)}, want: []int{status}, say: say})
	}
	deep := func(n int, open, inner, shut string) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(shut, n)
	}
	many := func(n int, f func(i int) string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = f(i)
		}
		return strings.Join(all, ",")
	}
	for name, body := range map[string]string{
		"an empty body": "", "white space": " \n", "null": "null", "a list": "[]", "a number": "5", "a text": `"a"`, "a brace": "{", "two objects": good + good,
		"a comment": `{"prompt":"a"/* */}`, "single quotes": `{'prompt':'a'}`, "a trailing comma": `{"prompt":"a",}`, "two byte order marks": "\xef\xbb\xbf\xef\xbb\xbf" + good,
		"UTF-16": "\xff\xfe{\x00}\x00", "gzip": "\x1f\x8b\x08\x00\x00\x00\x00\x00", "a form": "prompt=a&n=1", "null bytes": "\x00\x00\x00",
		"NaN": `{"prompt":"a","temperature":NaN}`, "Infinity": `{"prompt":"a","temperature":Infinity}`, "minus Infinity": `{"prompt":"a","top_p":-Infinity}`,
		"a number of hexadecimal digits": `{"prompt":"a","n":0x1}`, "a number with a plus": `{"prompt":"a","n":+1}`, "a leading zero": `{"prompt":"a","n":01}`,
		"a hundred thousand lists": `{"x":` + deep(100_000, "[", "", "]") + `}`, "a hundred thousand objects": deep(100_000, `{"x":`, "1", "}"),
		"a hundred thousand lists that stay open": strings.Repeat("[", 100_000), "a control character": "{\"prompt\":\"a\nb\"}",
		"a key twice": `{"prompt":"a","n":1,"n":2}`, "a key twice, once escaped": `{"prompt":"a","n":1,"\u006e":2}`, "a key twice inside": `{"prompt":"a","talf":{"off":true,"off":false}}`,
		"no UTF-8": "{\"prompt\":\"a\xffb\"}", "half a surrogate pair": `{"prompt":"a\ud800b"}`, "a bad escape": `{"prompt":"\x"}`,
	} {
		add(name, completions, body, 400, "")
	}
	slices.SortFunc(all, func(a, b attack) int { return strings.Compare(a.name, b.name) })
	for _, x := range []struct{ field, value, say string }{
		{"n", "0", `"n"`},
		{"n", "129", `"n"`},
		{"n", "-1", `"n"`},
		{"n", "1e30", `"n"`},
		{"n", "1.5", `"n"`},
		{"n", `"1"`, `"n"`},
		{"n", "true", `"n"`},
		{"max_tokens", "0", "max_tokens"},
		{"max_tokens", "-2", "max_tokens"},
		{"max_tokens", "1e400", "max_tokens"},
		{"max_tokens", "9223372036854775808", "max_tokens"},
		{"temperature", "-0.1", "temperature"},
		{"temperature", "2.001", "temperature"},
		{"temperature", "1e999", "temperature"},
		{"temperature", `"hot"`, "temperature"},
		{"top_p", "0", "top_p"},
		{"top_p", "1.1", "top_p"},
		{"top_k", "-2", "top_k"},
		{"top_k", "1.5", "top_k"},
		{"min_p", "-1", "min_p"},
		{"min_p", "2", "min_p"},
		{"presence_penalty", "2.1", "presence_penalty"},
		{"frequency_penalty", "-2.1", "frequency_penalty"},
		{"repetition_penalty", "0", "repetition_penalty"},
		{"logit_bias", `{"x":1}`, "logit_bias"},
		{"logit_bias", `{"-1":1}`, "logit_bias"},
		{"logit_bias", `{"1":101}`, "logit_bias"},
		{"logit_bias", `{"999999":1}`, "logit_bias"},
		{"logit_bias", `[1]`, "logit_bias"},
		{"logit_bias", "{" + many(100_000, func(i int) string { return fmt.Sprintf(`"%d":1`, i) }) + "}", "logit_bias"},
		{"logprobs", "21", "logprobs"},
		{"logprobs", "-1", "logprobs"},
		{"seed", "1e30", "seed"},
		{"seed", `"a"`, "seed"},
		{"stop", `""`, "stop"},
		{"stop", `["a",5]`, "stop"},
		{"stop", `["` + strings.Repeat("a", 1<<20) + `"]`, "stop"},
		{"stop", "[" + many(1_000_000, func(int) string { return `"a"` }) + "]", "stop"},
		{"stop_token_ids", "[-1]", "stop_token_ids"},
		{"stop_token_ids", "[" + many(100_000, func(i int) string { return fmt.Sprint(i) }) + "]", "stop_token_ids"},
		{"stream", `"yes"`, "stream"},
		{"stream_options", `{"include_usage":true}`, "stream_options"},
		{"stream_options", "[]", "stream_options"},
		{"ignore_eos", "1", "ignore_eos"},
		{"echo", `"a"`, "echo"},
		{"best_of", "200", "best_of"},
		{"suffix", `7`, "suffix"},
		{"guided_json", `{"type":1}`, "guided_json"},
		{"model", "5", "model"},
		{"priority", "1e300", "priority"},
		{"talf", "5", "talf"},
		{"talf", `{"nodes":0}`, "talf.nodes"},
		{"talf", `{"method":"nonsense"}`, "talf.method"},
		{"talf", `{"method":"rest:/etc/passwd"}`, "talf.method"},
		{"talf", `{"method":"` + strings.Repeat("a", 1<<20) + `"}`, "talf.method"},
		{"talf", `{"method":"beam:N=1000000000"}`, "talf.method"},
	} {
		add(fmt.Sprintf("%s is %.30s", x.field, x.value), completions, fmt.Sprintf(`{"prompt":"a","%s":%s}`, x.field, x.value), 400, x.say)
	}
	for _, x := range []struct {
		value  string
		status int
	}{
		{`{}`, 400},
		{`5`, 400},
		{`[]`, 400},
		{`[[]]`, 400},
		{`[[[1]]]`, 400},
		{`["a",5]`, 400},
		{`[1,"a"]`, 400},
		{`[-1]`, 400},
		{`[1.5]`, 400},
		{`[1e9]`, 400},
		{`[4294967296]`, 400},
		{"[" + many(100_000, func(int) string { return "5" }) + "]", 400},
		{"[" + many(1000, func(int) string { return `"a"` }) + "]", 400},
		{`"` + strings.Repeat("a ", 400_000) + `"`, 400},
		{`""`, 200},
		{`"\u0000"`, 200},
		{`"\ufeff\u202e\ufffd"`, 200},
	} {
		add(fmt.Sprintf("prompt is %.30s", x.value), completions, `{"max_tokens":1,"prompt":`+x.value+`}`, x.status, "")
	}
	for _, messages := range []string{
		``, `[]`, `{}`, `[5]`, `[{}]`, `[{"role":"user"}]`, `[{"content":"a"}]`, `[{"role":5,"content":"a"}]`, `[{"role":"user","content":5}]`,
		`[{"role":"user","content":[{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}]}]`, `[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":"","format":"wav"}}]}]`,
		"[" + many(100_000, func(int) string { return `{"role":"user","content":"a"}` }) + "]", `[{"role":"user","content":"` + strings.Repeat("a ", 400_000) + `"}]`,
	} {
		body := `{"max_tokens":1,"messages":` + messages + `}`
		if messages == "" {
			body = `{"max_tokens":1}`
		}
		add(fmt.Sprintf("messages is %.60s", messages), chats, body, 400, "message")
	}
	add("top_logprobs alone", chats, `{"messages":[{"role":"user","content":"a"}],"top_logprobs":2}`, 400, "top_logprobs")
	add("unknown fields", completions, `{"prompt":"a","max_tokens":1,"constructor":{"__proto__":1},"x":"`+strings.Repeat("a", 1<<19)+`"}`, 200, "")
	add("no chat on this route", chats, good, 400, "messages")
	add("a body of nine megabytes", completions, `{"prompt":"`+strings.Repeat("a", 9<<20)+`"}`, 413, "larger than")
	add("tokens that do not exist", "/detokenize", `{"tokens":[1e9]}`, 400, "tokens")
	add("no tokens", "/detokenize", `{"tokens":{}}`, 400, "tokens")
	add("nothing to tokenize", "/tokenize", `{}`, 400, "prompt")
	add("a megabyte to tokenize", "/tokenize", `{"prompt":"`+strings.Repeat("a", 1<<20)+`"}`, 200, "")
	return all
}

// run sends an attack and returns what is wrong with what came back.
func (a *attack) run(address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil { // a server that hangs
		return err
	}
	go func() { // the server may answer, or hang up, before it has read all
		for _, s := range a.send {
			if s == half {
				_ = conn.(*net.TCPConn).CloseWrite()
				return
			}
			if _, err := io.WriteString(conn, s); err != nil {
				return
			}
		}
	}()
	in := bufio.NewReader(conn)
	for i, want := range a.want {
		resp, err := http.ReadResponse(in, nil)
		if want == 0 || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			var slow net.Error
			if err == nil || errors.As(err, &slow) && slow.Timeout() {
				return fmt.Errorf("response %d: %+v, %v, want the end of the connection", i, resp, err)
			}
			if want != 0 && want != http.StatusRequestTimeout {
				return fmt.Errorf("response %d: %w, want status %d", i, err, want)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("response %d: %w, want status %d", i, err, want)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			return fmt.Errorf("response %d: %w", i, err)
		}
		if want == either && resp.StatusCode == 499 {
			continue
		}
		if resp.StatusCode != want && (want != either || resp.StatusCode != http.StatusOK) {
			return fmt.Errorf("response %d: status %d, want %d: %.200s", i, resp.StatusCode, want, b)
		}
		if resp.Header.Get("Set-Cookie") != "" {
			return fmt.Errorf("a header was smuggled in: %v", resp.Header)
		}
		own := resp.Header.Get("X-Content-Type-Options") != "" // otherwise net/http did not let it through
		if r := (&servetest.Refusal{Status: resp.StatusCode, Header: resp.Header, Body: string(b)}); want >= 400 && own && r.Shape() != "" {
			return fmt.Errorf("response %d: %.200s", i, r.Shape())
		}
		if want >= 400 && !own && !resp.Close {
			return fmt.Errorf("the connection stays open after status %d", want)
		}
		if i == len(a.want)-1 && !strings.Contains(string(b), a.say) {
			return fmt.Errorf("%.300s: want %q", b, a.say)
		}
		if len(b) > 64<<10 && want >= 400 {
			return fmt.Errorf("an error of %d bytes", len(b))
		}
	}
	return nil
}

// Whatever is sent, the client gets an error that says what is wrong, or the end of its connection.
// The server answers the next question as before, and nothing stays behind.
func TestTrialHostileRequests(t *testing.T) {
	dir, _ := subject(t)
	o := servetest.NewOracle(t, dir)
	q := servetest.Easy(demo.Prompts(3, 1)[0], 6)
	q.Logprobs, q.Top = true, 2
	want := plainly(t, o, q)
	base := runtime.NumGoroutine()
	setup := servetest.Setup{Dir: dir, Parts: servetest.Default(), Threads: 1}
	setup.Parts.Methods = []string{"goose"}
	setup.Parts.Server.MaxBody = 8 << 20
	impatient := setup
	impatient.Parts.Server.HeaderTime, impatient.Parts.Server.BodyTime = 3*time.Second, 3*time.Second
	fast, slow := servetest.Start(t, setup), servetest.Start(t, impatient)
	check := func(s *servetest.Server, after string) {
		client := servetest.NewClient(t, 1)
		got, err := servetest.Ask(context.Background(), client, s.URL, &q, servetest.Way{})
		client.CloseIdleConnections()
		if err != nil {
			t.Errorf("after %q: %v", after, err)
		} else if d := servetest.Differ(got, want, &servetest.Way{}); d != "" {
			t.Errorf("after %q: %s", after, d)
		}
	}
	var wg sync.WaitGroup
	all := slices.Concat(hostileFrames(), hostilePaths(), hostileBodies())
	for _, a := range all {
		if a.slow { // they only wait
			wg.Go(func() {
				if err := a.run(strings.TrimPrefix(slow.URL, "http://")); err != nil {
					t.Errorf("%s: %v", a.name, err)
				}
			})
			continue
		}
		if err := a.run(strings.TrimPrefix(fast.URL, "http://")); err != nil {
			t.Errorf("%s: %v", a.name, err)
		}
		check(fast, a.name)
	}
	wg.Wait()
	check(slow, "slow requests")
	t.Logf("%d attacks", len(all))
	if err := errors.Join(fast.Stop(), slow.Stop()); err != nil {
		t.Error(err)
	}
	if n := servetest.Settle(base + 4); n > base+4 { // the workers of two devices
		t.Errorf("%d goroutines, %d before", n, base)
	}
}
