package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"talf/internal/limits"
)

// Open returns the chat template of the model in dir, or the one in file with that
// model's special tokens. today is the date that the template writes. The hash
// identifies everything that determines the template's output and which of it may become special
// tokens: with control, messages may hold them (see WithControlTokens). For a model without a
// template, Open returns no template and no error.
func Open(dir, file string, today time.Time, control bool) (t *Template, hash string, err error) {
	sources := []string{filepath.Join(dir, "tokenizer_config.json"), filepath.Join(dir, "special_tokens_map.json")}
	if file != "" {
		sources = append(sources, file)
		if t, err = LoadFile(file); err == nil {
			t, err = t.WithTokens(dir)
		}
	} else {
		sources = append(sources, filepath.Join(dir, "chat_template.jinja"))
		if t, err = Load(dir); errors.Is(err, fs.ErrNotExist) {
			return nil, "", nil
		}
	}
	if err != nil {
		return nil, "", err
	}
	h := sha256.New()
	for _, name := range sources {
		b, err := limits.ReadFile(name, limits.ConfigBytes)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, "", err
		}
		sum := sha256.Sum256(b)
		_, _ = h.Write(sum[:])
	}
	_, _ = fmt.Fprint(h, today.Format(time.DateOnly))
	if control { // the hash of releases that knew nothing else
		t = t.WithControlTokens()
	} else {
		_, _ = fmt.Fprint(h, "messages are text")
	}
	return t.WithClock(func() time.Time { return today }), hex.EncodeToString(h.Sum(nil)), nil
}
