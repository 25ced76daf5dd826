package checkpoints

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"talf/internal/durable"
	"talf/internal/limits"
)

// BestFile names the best checkpoint of a store: {"step": n}.
const BestFile = "best.json"

// bestName is the name under which Find finds a store's best checkpoint.
const bestName = "best"

type bestStep struct {
	Step int `json:"step"`
}

// Path returns the directory of a step's checkpoint, whether it exists or not.
func (s *Store) Path(step int) string {
	return filepath.Join(s.dir, fmt.Sprintf("%s%08d", stepPrefix, step))
}

// SetBest marks a step's checkpoint as the best: Save does not remove it, and Find
// finds it under the name "best" in the store's directory.
func (s *Store) SetBest(step int) error {
	if _, err := os.Stat(filepath.Join(s.Path(step), ManifestFile)); err != nil {
		return fmt.Errorf("checkpoints: best: %w", err)
	}
	b, err := json.Marshal(bestStep{step})
	if err != nil {
		return fmt.Errorf("checkpoints: best: %w", err)
	}
	path := filepath.Join(s.dir, BestFile)
	if old, err := limits.ReadFile(path, limits.ConfigBytes); err == nil && string(old) == string(b)+"\n" {
		return nil
	}
	if err := durable.WriteFile(path, append(b, '\n')); err != nil {
		return fmt.Errorf("checkpoints: best: %w", err)
	}
	return s.Prune() // the previous best may be removed now
}

// best returns the directory of a store's best checkpoint, or "" if none is marked.
func best(dir string) (string, error) {
	path := filepath.Join(dir, BestFile)
	b, err := limits.ReadFile(path, limits.ConfigBytes)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	var v bestStep
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return filepath.Join(dir, fmt.Sprintf("%s%08d", stepPrefix, v.Step)), nil
}
