package serve

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"talf/serve/wire/refuse"
)

// bodies counts the bytes of the bodies of requests that are being answered. The queue bounds
// requests that have been read; this bounds what reading them takes.
type bodies struct {
	most int64 // 0: any
	held atomic.Int64
}

// errBodies is the error of reading a body while those of others take all that there is for them.
var errBodies = errors.New("too many bytes of requests")

// A charged body is one whose bytes count until it is given back.
type charged struct {
	io.ReadCloser
	all *bodies
	own int64
}

// charge counts what is read of a body from now on.
func (b *bodies) charge(r io.ReadCloser) *charged { return &charged{ReadCloser: r, all: b} }

// Read fails once there is no room. What it has read then counts, too.
func (c *charged) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.own += int64(n)
	if held := c.all.held.Add(int64(n)); n > 0 && c.all.most > 0 && held > c.all.most {
		return n, errBodies
	}
	return n, err
}

// free says that nothing of the body is held any more.
func (c *charged) free() {
	c.all.held.Add(-c.own)
	c.own = 0
}

// body reads the body of a request.
func (s *Server) body(w http.ResponseWriter, r *http.Request) ([]byte, *refuse.Error) {
	if s.c.MaxBody > 0 && r.ContentLength > s.c.MaxBody { // without waiting for it
		return nil, tooLarge(s.c.MaxBody)
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		e := refuse.Invalid("", "the body has the Content-Encoding %.40q, want none", coding)
		e.Status, e.Code = http.StatusUnsupportedMediaType, "unsupported_content_encoding"
		return nil, e
	}
	b, err := io.ReadAll(r.Body)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, tooLarge(large.Limit)
	case errors.Is(err, errBodies):
		return nil, refuse.Unavailable("the requests being answered are larger than %d bytes together", s.c.MaxBodies)
	case errors.Is(err, os.ErrDeadlineExceeded):
		e := refuse.Invalid("", "the body did not come within %v", s.c.BodyTime)
		e.Status, e.Code = http.StatusRequestTimeout, "timeout"
		return nil, e
	case err != nil:
		return nil, refuse.Invalid("", "the body ended early: %v", err)
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // the answer may take longer than the body
	return b, nil
}

func tooLarge(most int64) *refuse.Error {
	e := refuse.Invalid("", "the body is larger than %d bytes", most)
	e.Status = http.StatusRequestEntityTooLarge
	return e
}
