package data

import (
	"io"

	"talf/internal/durable"
)

// FailAfter makes the files that w creates fail with err after a total of n bytes.
func (w *Writer) FailAfter(n int, err error) {
	w.create = func(path string) (durable.File, error) {
		f, e := createFile(path)
		return &failing{File: f, left: &n, err: err}, e
	}
}

type failing struct {
	durable.File
	left *int
	err  error
}

func (f *failing) Write(p []byte) (int, error) {
	if len(p) > *f.left {
		n, _ := f.File.Write(p[:*f.left])
		*f.left = 0
		return n, f.err
	}
	*f.left -= len(p)
	return f.File.Write(p)
}

var _ io.Writer = (*failing)(nil)

// Abandon leaves everything as a killed process does, except the lock.
func (w *Writer) Abandon() {
	if w.file != nil {
		w.buf.Flush()
		w.file.Close()
	}
	w.unlock()
}

// SetWindow makes readers decode n bytes at once, so that a small set has several
// windows.
func (s *Set) SetWindow(n int64) { s.window = n }
