package command

import (
	"io"
	"sync"
)

// A stream is standard output or standard error. It remembers why writing to it
// failed: a command whose output is lost has not succeeded, and few look.
type stream struct {
	w    io.Writer
	gone func() // called when nobody reads any more

	mu  sync.Mutex
	err error // of the first write that failed
}

func (s *stream) Write(p []byte) (int, error) {
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
