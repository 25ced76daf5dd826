// Package durable writes files and directories that survive a crash, and keeps two processes from
// writing the same ones.
//
// A file or a new directory appears under its name when it is complete and on disk. Until then it
// has a hidden name next to its place, ".NAME.tmp", and while it is being written ".NAME.lock" next
// to it is locked. What a crash leaves under these names, the next run that writes NAME removes.
package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"talf/internal/vfs"
)

// hidden returns the name next to path under which something of path's is kept.
func hidden(path, suffix string) string {
	dir, name := filepath.Split(filepath.Clean(path))
	return filepath.Join(dir, "."+name+suffix)
}

const (
	tempSuffix = ".tmp"
	lockSuffix = ".lock"
)

// A File is a file being written. Once it is complete, Commit gives it its name, in place of a file
// that had the name before. A File is not safe for concurrent use.
type File struct {
	path, temp string
	f          *vfs.File // nil: committed or discarded
	lock       *Guard
}

// Create begins the file at path. It refuses a path that another process is writing, and one that
// cannot be written, so that hours of work can begin after it. The caller ends it with Commit or
// Discard.
func Create(path string) (*File, error) {
	if err := Writable(path); err != nil {
		return nil, err
	}
	f := &File{path: path, temp: hidden(path, tempSuffix)}
	var err error
	if f.lock, err = takeLock(hidden(path, lockSuffix)); err != nil {
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	if err = vfs.Delete(f.temp); err == nil || errors.Is(err, fs.ErrNotExist) { // a crash left it
		f.f, err = vfs.CreateNew(f.temp)
	}
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", path, errors.Join(err, dropLock(f.lock)))
	}
	return f, nil
}

// Write appends to the file.
func (f *File) Write(p []byte) (int, error) {
	if f.f == nil {
		return 0, fmt.Errorf("write %s: %w", f.path, fs.ErrClosed)
	}
	return f.f.Write(p)
}

// Fill writes what fill writes and commits the file. If that fails, f is discarded.
func (f *File) Fill(fill func(w io.Writer) error) error {
	if err := fill(f); err != nil {
		return fmt.Errorf("write %s: %w", f.path, errors.Join(err, f.Discard()))
	}
	return f.Commit()
}

// Commit flushes the file and gives it its name. Once it returns nil, the file is on disk. If it
// fails, f is discarded.
func (f *File) Commit() error {
	if f.f == nil {
		return fmt.Errorf("write %s: %w", f.path, fs.ErrClosed)
	}
	err := publish(f.f, f.temp, f.path)
	f.f = nil
	if err != nil {
		_ = vfs.Delete(f.temp) // the error above is the one to report
		return fmt.Errorf("write %s: %w", f.path, errors.Join(err, dropLock(f.lock)))
	}
	if err := dropLock(f.lock); err != nil {
		return fmt.Errorf("write %s: %w", f.path, err)
	}
	return nil
}

// Discard removes what was written, unless f was committed.
func (f *File) Discard() error {
	if f.f == nil {
		return nil
	}
	err := errors.Join(f.f.Close(), vfs.Delete(f.temp), dropLock(f.lock))
	f.f = nil
	return err
}

// WriteFile replaces the file at path with data, or leaves it as it was: a crash or a full disk
// never leaves half a file. Once it returns nil, the file is on disk under its name.
func WriteFile(path string, data []byte) error {
	return Write(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Write is WriteFile with the data that fill writes.
func Write(path string, fill func(w io.Writer) error) error {
	f, err := Create(path)
	if err != nil {
		return err
	}
	return f.Fill(fill)
}

// publish flushes and closes a file that was written as temp, and renames it to path in the same
// directory. The caller holds a lock that keeps others from both names.
func publish(f *vfs.File, temp, path string) error {
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := vfs.Move(temp, path); err != nil {
		return err
	}
	return vfs.SyncDirectory(filepath.Dir(path))
}

// Sweep removes what a crash left of the file or directory at path. The caller holds a lock that
// keeps others from writing it.
func Sweep(path string) error {
	return errors.Join(vfs.DeleteAll(hidden(path, tempSuffix)), vfs.DeleteAll(hidden(path, lockSuffix)))
}

// Writable refuses a file name that cannot be written, before hours of work go into it: a
// directory or a device, or a file in a directory that does not exist. An empty name passes:
// nothing will be written.
func Writable(path string) error {
	if path == "" {
		return nil
	}
	if info, err := os.Stat(path); err == nil {
		switch mode := info.Mode(); {
		case mode.IsDir():
			return fmt.Errorf("%s is a directory: want a file to write", path)
		case !mode.IsRegular(): // it would be replaced
			return fmt.Errorf("%s is a device or a pipe: want a file to write", path)
		}
	}
	dir := filepath.Dir(path)
	if info, err := os.Stat(dir); err != nil {
		return fmt.Errorf("%s cannot be written: %w", path, err)
	} else if !info.IsDir() {
		return fmt.Errorf("%s cannot be written: %s is a file, want a directory", path, dir)
	}
	return nil
}

// MakeDirs is os.MkdirAll; the names of new directories outlast a crash of the machine.
func MakeDirs(dir string) error {
	dir = filepath.Clean(dir)
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return fmt.Errorf("%s is a file, want a directory", dir)
		}
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := MakeDirs(parent); err != nil {
			return err
		}
	}
	if err := vfs.MakeDir(dir); err != nil {
		if info, serr := os.Stat(dir); serr == nil && info.IsDir() { // another process was faster
			return nil
		}
		return err
	}
	return vfs.SyncDirectory(parent)
}
