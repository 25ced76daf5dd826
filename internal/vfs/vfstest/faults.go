// Package vfstest tests what commands leave on disk: it makes operations of package vfs fail, and
// rebuilds the states that a power failure may leave.
package vfstest

import (
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"talf/internal/vfs"
)

// Fail makes the operations for which fault returns an error fail with it, until the test ends or
// the returned function is called. Calls of fault do not overlap.
func Fail(t testing.TB, fault func(op *vfs.Op) error) (stop func()) {
	var mu sync.Mutex
	return set(t, func(op *vfs.Op, run func() error) error {
		mu.Lock()
		err := fault(op)
		mu.Unlock()
		if err != nil {
			return err
		}
		return run()
	})
}

// FullDisk fails with ENOSPC once more than room bytes have been written: the write that reaches the
// end is cut short, or atSync the next Sync fails, as on networked file systems.
func FullDisk(t testing.TB, room int, atSync bool) (stop func()) {
	var mu sync.Mutex
	return set(t, func(op *vfs.Op, run func() error) error {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case op.Kind == vfs.Sync && room < 0:
			return syscall.ENOSPC
		case op.Kind != vfs.Write:
			return run()
		}
		left := room
		if room -= len(op.Data); room >= 0 || atSync {
			return run()
		}
		op.Data = op.Data[:max(0, left)]
		if err := run(); err != nil {
			return err
		}
		return syscall.ENOSPC
	})
}

// set sets a tap until the test ends.
func set(t testing.TB, tap vfs.Tap) (stop func()) {
	var once sync.Once
	remove := vfs.SetTap(tap)
	stop = func() { once.Do(remove) }
	t.Cleanup(stop)
	return stop
}

// under reports whether path lies in dir.
func under(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}
