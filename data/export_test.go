package data

import (
	"syscall"
	"testing"

	"talf/internal/vfs"
	"talf/internal/vfs/vfstest"
)

// Abandon leaves everything as a killed process does, except the locks.
func (w *Writer) Abandon(t testing.TB) {
	if w.file != nil {
		_ = w.buf.Flush()
		stop := vfstest.Fail(t, func(op *vfs.Op) error {
			if op.Kind == vfs.Remove {
				return syscall.EIO
			}
			return nil
		})
		w.discard()
		stop()
	}
	w.unlock()
}

// SetWindow makes readers decode n bytes at once, so that a small set has several
// windows.
func (s *Set) SetWindow(n int64) { s.window = n }
