package cli

import (
	"io"
	"sync"
	"sync/atomic"
)

// A stream is standard output or standard error. It remembers why writing to it failed: a
// command whose output is lost has not succeeded, and few commands check.
type stream struct {
	w    io.Writer
	gone func() // called when nobody reads any more

	muted atomic.Bool

	mu  sync.Mutex
	err error // of the first write that failed
}

// Mute makes output that Run passed on discard what is written to it, or write it again. It is
// for a process that leaves messages to another. Other writers stay as they are.
func Mute(w io.Writer, on bool) {
	if s, ok := w.(*stream); ok {
		s.muted.Store(on)
	}
}

func (s *stream) Write(p []byte) (int, error) {
	if s.muted.Load() {
		return len(p), nil
	}
	n, err := s.w.Write(p)
	if err != nil {
		s.mu.Lock()
		if s.err == nil {
			s.err = err
		}
		s.mu.Unlock()
		if isBrokenPipe(err) {
			s.gone()
		}
	}
	return n, err
}

// failed returns the error of the first write that failed.
func (s *stream) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
