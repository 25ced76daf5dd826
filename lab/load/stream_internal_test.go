package load

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
	"time"

	"talf/internal/limits"
)

// Whatever a server sends, it is read alike in one piece and byte by byte, is whole only with its
// [DONE], and counts no tokens that it does not name or show.
func FuzzStream(f *testing.F) {
	const text = `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n"
	f.Add([]byte(text + `data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":2}}}` + "\n\ndata: [DONE]\n\n"))
	f.Add([]byte(": ping\r\n\r\nevent: x\r\n" + text + "data:[DONE]"))
	f.Add([]byte(`data: {"choices":[{"text":"\ud800"}]}` + "\n"))
	f.Add([]byte(`data: {"error":{"message":"x"}}` + "\n\n"))
	f.Add([]byte(`data: {"usage":{"prompt_tokens":-1,"completion_tokens":9223372036854775807}}` + "\n\n"))
	f.Add([]byte("data: null\n\ndata: [[]]\n\ndata: {\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		read := func(r io.Reader) (a answer, err error) {
			err = a.read(r, func() time.Duration { return time.Second })
			return a, err
		}
		a, err := read(bytes.NewReader(b))
		x, errx := read(iotest.OneByteReader(bytes.NewReader(b)))
		if (err == nil) != (errx == nil) || err != nil && err.Error() != errx.Error() || a.tokens != x.tokens || a.prompt != x.prompt || a.cached != x.cached || len(a.gaps) != len(x.gaps) {
			t.Errorf("%+v, %v in one piece, %+v, %v byte by byte", a, err, x, errx)
		}
		if min(a.tokens, a.prompt, a.cached) < 0 || len(a.gaps) > len(b) {
			t.Errorf("%+v", a)
		}
		var status statusError
		switch {
		case err == nil:
			if !bytes.Contains(b, []byte("[DONE]")) {
				t.Error("a stream without [DONE] is whole")
			}
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, errMalformed), errors.Is(err, limits.ErrTooLarge), errors.As(err, &status):
		default:
			t.Errorf("%v", err)
		}
	})
}
