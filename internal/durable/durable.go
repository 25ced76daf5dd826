// Package durable writes files and directories that survive a crash, and keeps
// two processes from writing the same ones.
package durable

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// WriteFile replaces the file at path with data, readable by all, or leaves it as it was: a
// crash or a full disk never leaves half a file. Once it returns, the file is on disk under its
// name.
func WriteFile(path string, data []byte) error {
	return Write(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Write is WriteFile with the data that fill writes.
func Write(path string, fill func(w io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err = fill(f); err == nil {
		err = f.Chmod(0o644)
	}
	if err != nil {
		err = errors.Join(err, f.Close())
	} else {
		err = Publish(f, f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the error above is the one to report
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Publish flushes and closes a file that was written as temp, and renames it to path in the same
// directory.
func Publish(f File, temp, path string) error {
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// Writable refuses a file name that cannot be written, before hours of work go into it: a
// directory, or a file in a directory that does not exist. An empty name passes: nothing
// will be written.
func Writable(path string) error {
	if path == "" {
		return nil
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory: want a file to write", path)
	}
	dir := filepath.Dir(path)
	if info, err := os.Stat(dir); err != nil {
		return fmt.Errorf("%s cannot be written: %w", path, err)
	} else if !info.IsDir() {
		return fmt.Errorf("%s cannot be written: %s is a file, want a directory", path, dir)
	}
	return nil
}
