package durable

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"talf/internal/vfs"
)

// ErrBusy says that another process has a lock.
var ErrBusy = errors.New("another run is writing here")

// A Guard is a lock that this process has.
type Guard struct {
	f     *vfs.File
	owner string // file that says who has the lock, on a file system without locks
}

// Lock locks an open file for this process until Release, which closes it, or until the process
// ends. It does not wait: if another process has the lock, it fails with ErrBusy.
//
// Some file systems have no locks, such as Lustre without the option flock. There a second file
// next to f names the process and the machine that have the lock. The file of a process that has
// ended on this machine is taken over; one from another machine has to be removed by hand, and the
// error says so.
func Lock(f *vfs.File) (*Guard, error) {
	err := f.Lock()
	switch {
	case err == nil:
		return &Guard{f: f}, nil
	case busy(err):
		return nil, fmt.Errorf("%s is locked: %w", f.Name(), ErrBusy)
	case !lockless(err):
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	g := &Guard{f: f, owner: hidden(f.Name(), ".owner")}
	if err := own(g.owner); err != nil {
		return nil, fmt.Errorf("lock %s, on a file system without locks: %w", f.Name(), err)
	}
	return g, nil
}

// Release gives up the lock and closes the file.
func (g *Guard) Release() error {
	var err error
	if g.owner != "" {
		err = vfs.Delete(g.owner)
	}
	return errors.Join(err, g.f.Close())
}

// An owner is the content of an owner file.
type owner struct {
	Host string `json:"host"`
	PID  int    `json:"pid"`
}

// own creates the file by which this process has a lock.
func own(path string) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	me := owner{host, os.Getpid()}
	text, err := json.Marshal(me)
	if err != nil {
		return err
	}
	for range 2 {
		f, err := vfs.CreateNew(path)
		if err == nil {
			_, err = f.Write(text)
			if err = errors.Join(err, f.Close()); err != nil { // nobody could tell whose it is
				err = errors.Join(err, vfs.Delete(path))
			}
			return err
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		raw, err := vfs.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has just been released
		}
		if err != nil {
			return err
		}
		var has owner
		if err := json.Unmarshal(raw, &has); err != nil { // a crash cut it short, or it is being written
			return fmt.Errorf("%w, or began to: %s does not say who; if it has ended, remove that file", ErrBusy, path)
		}
		if has.Host != host || alive(has.PID) {
			return fmt.Errorf("%w: process %d on %s, as %s says; if it has ended, remove that file", ErrBusy, has.PID, has.Host, path)
		}
		if err := vfs.Delete(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return ErrBusy
}

// LockFile creates the file at path, if it is not there, and locks it; the file stays.
func LockFile(path string) (*Guard, error) {
	f, err := vfs.OpenFile(path, os.O_RDWR|os.O_CREATE|noFollow, 0o666)
	if err != nil {
		return nil, err
	}
	g, err := Lock(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return g, nil
}

// takeLock creates and locks the file at path, which dropLock removes.
func takeLock(path string) (*Guard, error) {
	for {
		g, err := LockFile(path)
		if err != nil {
			return nil, err
		}
		// The process that had the lock removed the file before it gave up the lock. Whoever had
		// opened it until then has a lock on nothing.
		same, err := named(g.f)
		if err != nil {
			return nil, errors.Join(err, g.Release())
		}
		if same {
			return g, nil
		}
		if err := g.Release(); err != nil {
			return nil, err
		}
	}
}

// named reports whether an open file still has the name that it was opened with.
func named(f *vfs.File) (bool, error) {
	own, err := f.Stat()
	if err != nil {
		return false, err
	}
	is, err := os.Lstat(f.Name())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(own, is), err
}

// dropLock removes the file that takeLock created and gives up the lock.
func dropLock(g *Guard) error {
	name := g.f.Name()
	err := vfs.Delete(name)
	closed := g.Release()
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // Windows removes no open file
		err = vfs.Delete(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, closed)
}
