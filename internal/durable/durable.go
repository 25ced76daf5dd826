// Package durable writes files that survive a crash, and keeps two processes
// from writing the same ones.
package durable

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// WriteFile replaces path by data, readable by all, or leaves it as it was: a
// crash or a full disk never leaves half of it. Once it returns, the file is on
// disk under its name.
func WriteFile(path string, data []byte) error {
	return Write(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Write is WriteFile for what fill writes.
func Write(path string, fill func(w io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	err = fill(f)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // what is left of it is of no use
		return fmt.Errorf("write %s: %w", path, err)
	}
	return SyncDir(filepath.Dir(path))
}

// A Dir is a new directory that is being filled with files.
type Dir struct {
	path  string
	names []string
}

// NewDir makes the directory path, or takes it if it is empty. One that holds
// something is refused.
func NewDir(path string) (*Dir, error) {
	if es, err := os.ReadDir(path); err == nil && len(es) > 0 {
		return nil, fmt.Errorf("%s is not empty: want a new directory", path)
	}
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	return &Dir{path: path}, nil
}

// Write makes a file of what fill writes, flushed. If that fails no file of d is
// left: nothing is in the way of the next try. What tells readers that all are there
// comes last.
func (d *Dir) Write(name string, fill func(w io.Writer) error) error {
	d.names = append(d.names, name)
	path := filepath.Join(d.path, name)
	f, err := os.Create(path)
	if err == nil {
		if err = fill(f); err == nil {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		d.Discard()
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Discard removes the files that Write made and the named ones.
func (d *Dir) Discard(names ...string) {
	for _, name := range append(d.names, names...) {
		_ = os.Remove(filepath.Join(d.path, name)) // why they are discarded is the error that counts
	}
	d.names = nil
}

// Names returns the files that Write made, in their order.
func (d *Dir) Names() []string { return d.names }
