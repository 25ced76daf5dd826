package command

import (
	"fmt"
	"os"
	"path/filepath"
)

// canWrite refuses a file name that cannot be written, before hours of work go into it: a
// directory, or a file in a directory that does not exist. An empty name passes: nothing
// will be written.
func canWrite(path string) error {
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

// files is a flag that may be repeated, and is "" while empty.
type files []string
