package serve_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"talf/infer"
	"talf/serve"
)

// Whatever the body of a request is, on whichever route, the server answers it or says what is wrong
// with it, in JSON, and holds nothing afterwards.
func FuzzBodies(f *testing.F) {
	paths := []string{
		"/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens", "/infill", "/tokenize", "/detokenize",
	}
	for i, body := range []string{
		`{"prompt":"a b","n":2,"stream":true,"stream_options":{"include_usage":true},"logprobs":2}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a"}]}],"stop":["x"],"prediction":{"type":"content","content":"a"}}`,
		`{"input":[{"role":"user","content":"a"}],"instructions":"b","max_output_tokens":5,"stream":true}`,
		`{"messages":[{"role":"user","content":"a"}],"system":"b","max_tokens":5,"stop_sequences":["x"],"stream":true}`,
		`{"messages":[{"role":"user","content":"a"}]}`, `{"prompt":"a","add_special_tokens":false}`, `{"tokens":[1,2,3]}`, `{"prompt":[[1,2],[3]],"echo":true}`,
	} {
		f.Add(byte(i), []byte(body))
	}
	f.Fuzz(func(t *testing.T, route byte, body []byte) {
		c := &core{words: []string{"Hello", " there"}, end: infer.EOS}
		conf := serve.Default()
		conf.Names = []string{"tiny"}
		s, err := serve.New(c, conf)
		if err != nil {
			t.Fatal(err)
		}
		path := paths[int(route)%len(paths)]
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(string(body))))
		text := w.Body.String()
		switch {
		case w.Code != http.StatusOK && w.Code != http.StatusBadRequest:
			t.Errorf("%s: status %d: %s", path, w.Code, text)
		case strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream"):
			for line := range strings.SplitSeq(text, "\n") {
				if data, ok := strings.CutPrefix(line, "data: "); ok && data != "[DONE]" && !json.Valid([]byte(data)) {
					t.Errorf("%s: %s", path, line)
				}
			}
		case !json.Valid(w.Body.Bytes()):
			t.Errorf("%s: %s", path, text)
		case w.Code != http.StatusOK && (!strings.Contains(text, `"error":{`) || !strings.Contains(text, `"message":"`)):
			t.Errorf("%s: %s", path, text)
		}
		if c.open() != 0 {
			t.Errorf("%s: %d answers are open", path, c.open())
		}
	})
}
