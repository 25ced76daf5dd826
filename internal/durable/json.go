package durable

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"talf/internal/limits"
)

// WriteJSON replaces path by v as indented JSON, completely or not at all.
func WriteJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return WriteFile(path, append(b, '\n'))
}

// ReadJSON reads v from path; found is false if there is no such file.
func ReadJSON(path string, v any) (found bool, err error) {
	b, err := limits.ReadFile(path, limits.IndexBytes)
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
