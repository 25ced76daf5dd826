package checkpoints

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"talf/model"
	"talf/model/arch"
	"talf/model/gguf"
	"talf/model/head"
)

// Any reports whether dir contains checkpoints, finished or not.
func Any(dir string) (bool, error) {
	whole, ruins, err := steps(dir)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("checkpoints: %w", err)
	}
	return len(whole)+len(ruins) > 0, nil
}

// tries bounds how often a reader looks for a checkpoint that a run in progress has just removed.
const tries = 100

func latest(dir string) (string, error) {
	for range tries {
		whole, ruins, err := steps(dir)
		if err != nil {
			return "", fmt.Errorf("checkpoints: %w", err)
		}
		if len(whole) > 0 {
			return whole[len(whole)-1], nil
		}
		if len(ruins) == 0 {
			break
		}
		// A run saves the next checkpoint before it removes one: it is there now, unless the run
		// was killed.
	}
	return "", nil
}

// Find returns the directory that a user means by path: path itself if it contains
// weights or is a GGUF file, the newest checkpoint if it is a store, or the store's best
// checkpoint if path is the name "best" in a store.
func Find(path string) (string, error) {
	if gguf.Is(path) {
		return path, nil
	}
	if _, err := os.Stat(filepath.Join(path, ConfigFile)); err == nil {
		return path, nil
	}
	if filepath.Base(path) == bestName {
		if d, err := best(filepath.Dir(path)); err != nil || d != "" {
			return d, err
		}
	}
	d, err := latest(path)
	if err != nil {
		return "", err
	}
	if d == "" {
		return "", cmp.Or(arch.HintGGUF(path), fmt.Errorf("%s: neither a %s nor a finished checkpoint", path, ConfigFile))
	}
	return d, nil
}

// FindTokenizer returns the directory with the tokenizer that a user means by path:
// path itself if it contains any of a tokenizer's files or is a GGUF file, otherwise what Find returns.
// If there is neither, it returns path, so that loading reports what is missing. ""
// stays "".
func FindTokenizer(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	if _, err := os.Stat(path); err != nil {
		return "", err
	}
	if gguf.Is(path) {
		return path, nil
	}
	for _, name := range []string{"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "chat_template.jinja"} {
		if _, err := os.Stat(filepath.Join(path, name)); err == nil {
			return path, nil
		}
	}
	if dir, err := Find(path); err == nil {
		return dir, nil
	}
	return path, nil
}

// Read calls read with the directory that a user means by path (see Find). A run that is training
// may remove this checkpoint while it is being read, because there is a newer one: then read is
// called again with that. Checkpoints never change otherwise.
func Read(path string, read func(dir string) error) error {
	for try := 1; ; try++ {
		dir, err := Find(path)
		if err != nil {
			return err
		}
		if err = read(dir); !errors.Is(err, fs.ErrNotExist) || try == tries {
			return err
		}
		if now, found := Find(path); found != nil || now == dir {
			return err // what is missing was not there before
		}
	}
}

// LoadHead finds the head that path refers to, checks it against its manifest and
// the target, and loads it.
func LoadHead(path string, target *model.Model, opt head.Options) (h *head.Head, err error) {
	err = Read(path, func(dir string) error {
		h, err = loadHead(dir, dir != path, target, opt)
		return err
	})
	return h, err
}

// loadHead loads the head in dir; ours says that it is a checkpoint of a store.
func loadHead(dir string, ours bool, target *model.Model, opt head.Options) (*head.Head, error) {
	m, err := ReadManifest(dir)
	if err != nil {
		return nil, err
	}
	if m != nil {
		if err := m.CheckTarget(dir, target, opt); err != nil {
			return nil, err
		}
		opt.Warn = nil // told
		// The trainer's own files may have been deleted: using a head does not need them.
		if err := m.Verify(context.Background(), dir, ConfigFile, WeightsFile); err != nil {
			return nil, err
		}
	} else if ours { // it is being removed
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(dir, ManifestFile), Err: fs.ErrNotExist}
	} else if k := kindOf(dir); k == imported {
		return nil, fmt.Errorf("%s: %w", dir, ErrForeign)
	} else if k == checked {
		d, err := OpenDraft(dir)
		if err != nil {
			return nil, err
		}
		if !d.Spec.Eagle3.On && !d.Spec.Block.On {
			return nil, errors.Join(fmt.Errorf("%s: %w", dir, ErrForeign), d.Close())
		}
		h, err := d.Load(target, opt)
		if err != nil {
			return nil, errors.Join(err, d.Close())
		}
		return h, nil
	}
	return head.Load(dir, target, opt)
}
