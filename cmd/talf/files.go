package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"talf/internal/durable"
)

// notDir refuses a directory as the name of a file to write, before the work of
// hours goes into what cannot be written.
func notDir(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("%s is a directory: want a file to write", path)
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
