package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"talf/internal/durable"
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

// writeJSON replaces path by v as JSON, whole or not at all.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return durable.WriteFile(path, append(b, '\n'))
}

// readJSON reads v from path; found is false if there is no such file.
func readJSON(path string, v any) (found bool, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	return true, nil
}
