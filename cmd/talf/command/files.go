package command

import (
	"fmt"
	"os"
	"path/filepath"
)

// canWrite refuses the name of a file that cannot be written, before the work of hours
// goes into it: a directory, or one in a directory that does not exist. Without a name
// nothing will be written.
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
