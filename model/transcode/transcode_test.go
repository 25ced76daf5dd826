package transcode

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"talf/model/tokenizer"
)

func TestEachLineReportsFaults(t *testing.T) {
	echo := func(dst, line []byte, _ int) ([]byte, bool, error) {
		if bytes.Contains(line, []byte("bug")) {
			panic("planted")
		}
		return append(dst, bytes.TrimSpace(line)...), false, nil
	}
	var out bytes.Buffer
	if _, err := Each(t.Context(), "input", io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(errors.New("torn"))), &out, 2, echo); err == nil || !strings.Contains(err.Error(), "torn") {
		t.Errorf("a broken input: %v", err)
	}
	if _, err := Each(t.Context(), "input", strings.NewReader("a\nb\n"), brokenWriter{}, 2, echo); err == nil || !strings.Contains(err.Error(), "full") {
		t.Errorf("a broken output: %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a panic was lost")
		}
	}()
	_, _ = Each(t.Context(), "input", strings.NewReader("a\nbug\n"), &out, 2, echo) // does not return
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("full") }

// The answer to a line is JSON with all of its content, or an error.
func FuzzTokenizeLine(f *testing.F) {
	t, err := tokenizer.Load("../../internal/demo/target")
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{`{"text":"a\ud83d\ude00\\ud800"}`, `{"text":"\ud83d"}`, `{"text":"\udc00\u0041"}`, "{\"text\":\"\xff\"}", `{"ids":[1,-1]}`, `null`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t2 *testing.T, line []byte) {
		for _, g := range []Func{Encode(t, true), Decode(t, false)} {
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			out, _, err := g(nil, line, 1)
			if err == nil && !json.Valid(out) {
				t2.Fatalf("%q becomes %q", line, out)
			}
		}
		var in struct{ Text string }
		if readLine(line, &in) == nil {
			// No invalid character was replaced.
			had := bytes.Count(line, []byte("\uFFFD")) + bytes.Count(bytes.ToLower(line), []byte(`\ufffd`))
			if got := strings.Count(in.Text, "\uFFFD"); got > had {
				t2.Fatalf("%q: %d replacement characters from %d", line, got, had)
			}
		}
	})
}
