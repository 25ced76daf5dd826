// Package vfs is the module's one door to the file system for everything that is written, and
// for what commands read. Its functions are those of package os, and cost no more; tests can watch
// each operation and make it fail. Package durable builds files and directories that survive a
// crash from them.
//
// One rule holds for permissions: everything is created with mode 0666, directories with 0777, less
// the process's umask, and nothing is changed afterwards. Who runs talf under umask 077 gets files
// that nobody else can read, whatever is in them.
package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
)

// A Kind is a kind of operation.
type Kind string

// The kinds of operations.
const (
	Open     Kind = "open" // for reading
	Create   Kind = "create"
	Read     Kind = "read"
	ReadDir  Kind = "readdir"
	Write    Kind = "write"
	Truncate Kind = "truncate"
	Sync     Kind = "sync"
	Close    Kind = "close"
	Lock     Kind = "lock"
	Mkdir    Kind = "mkdir"
	Rename   Kind = "rename"
	Remove   Kind = "remove"
	SyncDir  Kind = "sync directory"
)

// An Op is one operation.
type Op struct {
	Kind Kind
	Path string
	To   string // new name of a Rename
	File *File  // of operations on an open file, and after an Open or Create
	Flag int    // of an Open or Create
	Size int64  // of a Truncate
	Data []byte // of a Write; a tap may shorten it before it runs the operation
}

// A Tap is called in place of an operation, which run carries out. What it returns is the
// operation's error. It must be safe for concurrent use.
type Tap func(op *Op, run func() error) error

var tap atomic.Pointer[Tap]

// SetTap makes all operations of the process go through t until the returned function is called.
// Only tests do this. There can be one tap at a time.
func SetTap(t Tap) (remove func()) {
	if !tap.CompareAndSwap(nil, &t) {
		panic("vfs: there is a tap already")
	}
	return func() { tap.Store(nil) }
}

// do carries out an operation. Errors that are not the system's own get its form.
func do(op Op, run func(op *Op) error) error {
	t := tap.Load()
	if t == nil {
		return run(&op)
	}
	err := (*t)(&op, func() error { return run(&op) })
	var number syscall.Errno
	if errors.As(err, &number) && err == error(number) {
		if op.To != "" {
			return &os.LinkError{Op: string(op.Kind), Old: op.Path, New: op.To, Err: err}
		}
		return &fs.PathError{Op: string(op.Kind), Path: op.Path, Err: err}
	}
	return err
}

// A File is an open file.
type File struct{ f *os.File }

// OpenFile is os.OpenFile.
func OpenFile(path string, flag int, perm fs.FileMode) (*File, error) {
	kind := Open
	if flag&(os.O_WRONLY|os.O_RDWR|os.O_CREATE) != 0 {
		kind = Create
	}
	var file *File
	err := do(Op{Kind: kind, Path: path, Flag: flag}, func(op *Op) error {
		f, err := os.OpenFile(path, flag, perm)
		if err == nil {
			file = &File{f}
			op.File = file
		}
		return err
	})
	if err != nil && file != nil { // a tap's error
		_ = file.f.Close()
		file = nil
	}
	return file, err
}

// OpenRead opens a file for reading.
func OpenRead(path string) (*File, error) { return OpenFile(path, os.O_RDONLY, 0) }

// CreateNew creates a file that must not exist yet, not even as a link.
func CreateNew(path string) (*File, error) {
	return OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
}

// OS returns the operating system's file. What is done with it no test sees.
func (f *File) OS() *os.File { return f.f }

// Name returns the path that the file was opened with.
func (f *File) Name() string { return f.f.Name() }

// Stat describes the file.
func (f *File) Stat() (fs.FileInfo, error) { return f.f.Stat() }

// Seek is os.File's.
func (f *File) Seek(offset int64, whence int) (int64, error) { return f.f.Seek(offset, whence) }

// Read is os.File's.
func (f *File) Read(p []byte) (n int, err error) {
	err = do(Op{Kind: Read, Path: f.Name(), File: f}, func(*Op) (err error) {
		n, err = f.f.Read(p)
		return err
	})
	return n, err
}

// ReadAt is os.File's.
func (f *File) ReadAt(p []byte, off int64) (n int, err error) {
	err = do(Op{Kind: Read, Path: f.Name(), File: f}, func(*Op) (err error) {
		n, err = f.f.ReadAt(p, off)
		return err
	})
	return n, err
}

// Write is os.File's.
func (f *File) Write(p []byte) (n int, err error) {
	if tap.Load() == nil {
		return f.f.Write(p)
	}
	err = do(Op{Kind: Write, Path: f.Name(), File: f, Data: p}, func(op *Op) (err error) {
		n, err = f.f.Write(op.Data)
		return err
	})
	return n, err
}

// Truncate is os.File's.
func (f *File) Truncate(size int64) error {
	return do(Op{Kind: Truncate, Path: f.Name(), File: f, Size: size}, func(*Op) error { return f.f.Truncate(size) })
}

// Sync makes the file's content outlast a crash of the machine, but not its name: see SyncDirectory.
func (f *File) Sync() error {
	return do(Op{Kind: Sync, Path: f.Name(), File: f}, func(*Op) error { return f.f.Sync() })
}

// Close closes the file, even if it fails.
func (f *File) Close() error {
	ran := false
	err := do(Op{Kind: Close, Path: f.Name(), File: f}, func(*Op) error {
		ran = true
		return f.f.Close()
	})
	if !ran {
		_ = f.f.Close() // the tap's error is the one to report
	}
	return err
}

// Lock takes the file's exclusive lock, or fails at once. Closing the file releases it.
func (f *File) Lock() error {
	return do(Op{Kind: Lock, Path: f.Name(), File: f}, func(*Op) error { return flock(f.f) })
}

// ReadFile is os.ReadFile.
func ReadFile(path string) ([]byte, error) {
	f, err := OpenRead(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(f)
	return b, errors.Join(err, f.Close())
}

// List is os.ReadDir.
func List(dir string) (es []fs.DirEntry, err error) {
	err = do(Op{Kind: ReadDir, Path: dir}, func(*Op) (err error) {
		es, err = os.ReadDir(dir)
		return err
	})
	return es, err
}

// MakeDir is os.Mkdir.
func MakeDir(dir string) error {
	return do(Op{Kind: Mkdir, Path: dir}, func(*Op) error { return os.Mkdir(dir, 0o777) })
}

// Move is os.Rename.
func Move(from, to string) error {
	return do(Op{Kind: Rename, Path: from, To: to}, func(*Op) error { return os.Rename(from, to) })
}

// Delete is os.Remove.
func Delete(path string) error {
	return do(Op{Kind: Remove, Path: path}, func(*Op) error { return os.Remove(path) })
}

// DeleteAll is os.RemoveAll, one operation for each name.
func DeleteAll(path string) error {
	info, err := os.Lstat(path)
	if err == nil && info.IsDir() {
		var es []fs.DirEntry
		if es, err = List(path); err == nil {
			for _, e := range es {
				if err := DeleteAll(filepath.Join(path, e.Name())); err != nil {
					return err
				}
			}
		}
	}
	if err == nil {
		err = Delete(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// SyncDirectory makes the names in dir outlast a crash of the machine.
func SyncDirectory(dir string) error {
	return do(Op{Kind: SyncDir, Path: dir}, func(*Op) error { return syncDir(dir) })
}
