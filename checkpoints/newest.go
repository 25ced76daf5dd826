package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"talf/internal/durable"
	"talf/internal/vfs"
)

// damagedPrefix begins the name of a damaged checkpoint that was set aside.
const damagedPrefix = "damaged-"

// OpenNewest opens the newest checkpoint to continue training from, or returns nil if there is none.
// If checkpoints are damaged, it opens the newest that is not, sets the damaged ones aside, which
// keeps them from being taken for the newest again, and calls warn with a sentence on each. If all
// are damaged, it returns the error of the newest and changes nothing.
func (s *Store) OpenNewest(ctx context.Context, warn func(string)) (*State, error) {
	if err := s.sweep(); err != nil {
		return nil, fmt.Errorf("checkpoints: %w", err)
	}
	whole, _, err := steps(s.dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoints: %w", err)
	}
	var damage []error // of the newest checkpoints, newest first
	for _, dir := range slices.Backward(whole) {
		st, err := Open(ctx, dir)
		if errors.Is(err, ErrDamaged) {
			damage = append(damage, err)
			continue
		}
		if err != nil {
			return nil, err
		}
		bad := whole[len(whole)-len(damage):]
		slices.Reverse(bad)
		for i, dir := range bad {
			if err := s.setAside(dir, st, damage[i], warn); err != nil {
				return nil, errors.Join(err, st.Close())
			}
		}
		return st, nil
	}
	if len(damage) > 0 {
		return nil, fmt.Errorf("%w; no other checkpoint in %s is whole: begin anew in another directory", damage[0], s.dir)
	}
	return nil, nil
}

// setAside renames the damaged checkpoint dir and warns that the run goes on from good.
func (s *Store) setAside(dir string, good *State, why error, warn func(string)) error {
	to := filepath.Join(s.dir, damagedPrefix+filepath.Base(dir))
	if err := vfs.DeleteAll(to); err != nil { // the same step was damaged before
		return fmt.Errorf("set %s aside: %w", dir, err)
	}
	if err := vfs.Move(dir, to); err != nil {
		return fmt.Errorf("set %s aside: %w", dir, err)
	}
	again := ""
	if n, ok := stepOf(dir); ok {
		again = fmt.Sprintf(": %d steps are made again", n-good.Manifest.Step)
	}
	warn(fmt.Sprintf("%v; the directory is now %s, and may be deleted; the run goes on from %s%s", why, to, good.Dir, again))
	return nil
}

// Has reports whether the store has a finished checkpoint of a step.
func (s *Store) Has(step int) bool {
	_, err := os.Stat(filepath.Join(s.Path(step), ManifestFile))
	return err == nil
}

// ForgetBest takes back SetBest, of a checkpoint that was deleted.
func (s *Store) ForgetBest() error {
	if err := vfs.Delete(filepath.Join(s.dir, BestFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("checkpoints: best: %w", err)
	}
	return nil
}

// runFile keeps the identity of the run that writes to a store.
const runFile = ".run"

// Run returns the identity that SetRun wrote, "" if there is none.
func (s *Store) Run() (string, error) {
	b, err := vfs.ReadFile(filepath.Join(s.dir, runFile))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return "", fmt.Errorf("checkpoints: %w", err)
	}
	return string(b), nil
}

// SetRun says which run writes to the store, before its first checkpoint does.
func (s *Store) SetRun(identity string) error {
	if err := durable.WriteFile(filepath.Join(s.dir, runFile), []byte(identity)); err != nil {
		return fmt.Errorf("checkpoints: %w", err)
	}
	return nil
}
