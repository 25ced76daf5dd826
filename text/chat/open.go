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
	"talf/model/gguf"
)

// FixedDate is the date that templates write in what a later run continues or is compared with: labels, files of
// answers and measurements, which must not change from day to day. It is the date that Llama 3.1's template falls back on.
const FixedDate = "2024-07-26"

// A source is a file that a template depends on.
type source struct{ dir, name string }

// Open returns the chat template of the model in dir, or the one in file with that
// model's special tokens. today is the date that the template writes. The hash
// identifies everything that determines the template's output and which of it may become special
// tokens: with control, messages may hold them (see WithControlTokens). For a model without a
// template, Open returns no template and no error.
func Open(dir, file string, today time.Time, control bool) (t *Template, hash string, err error) {
	sources := []source{{dir, "tokenizer_config.json"}, {dir, "special_tokens_map.json"}}
	if file != "" {
		sources = append(sources, source{filepath.Dir(file), filepath.Base(file)})
		if t, err = LoadFile(file); err == nil {
			t, err = t.WithTokens(dir)
		}
	} else {
		sources = append(sources, source{dir, "chat_template.jinja"})
		if t, err = Load(dir); errors.Is(err, fs.ErrNotExist) {
			return nil, "", nil
		}
	}
	if err != nil {
		return nil, "", err
	}
	h := sha256.New()
	for _, from := range sources {
		b, err := gguf.ReadFile(from.dir, from.name, limits.ConfigBytes)
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
