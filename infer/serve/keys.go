package serve

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"strings"

	"talf/internal/limits"
)

// Keys are the API keys of a server: one a line in a file, where empty lines and those that begin
// with # do not count. A nil *Keys lets everyone in.
type Keys struct{ hashes [][sha256.Size]byte }

// maxKeys bounds a file of keys: each request is compared with all.
const maxKeys = 10_000

// LoadKeys reads a file of keys.
func LoadKeys(path string) (*Keys, error) {
	b, err := limits.ReadFile(path, limits.MiB)
	if err != nil {
		return nil, err
	}
	k := &Keys{}
	for line := range bytes.Lines(b) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' {
			k.hashes = append(k.hashes, sha256.Sum256(line))
		}
	}
	switch {
	case len(k.hashes) == 0:
		return nil, fmt.Errorf("%s has no keys, want one a line", path)
	case len(k.hashes) > maxKeys:
		return nil, fmt.Errorf("%s has %d keys, want at most %d", path, len(k.hashes), maxKeys)
	}
	return k, nil
}

// OpenKeys returns the keys in a file, or else the one key given, or nil if there is neither.
func OpenKeys(path, key string) (*Keys, error) {
	switch {
	case path != "":
		return LoadKeys(path)
	case key != "":
		return &Keys{hashes: [][sha256.Size]byte{sha256.Sum256([]byte(key))}}, nil
	}
	return nil, nil
}

// tenant returns a name for the key of a request, which says nothing about the key, and whether it
// is one of the keys. It takes as long whichever key it is, and whether it is one.
func (k *Keys) tenant(r *http.Request) (string, bool) {
	if k == nil {
		return "", true
	}
	given := r.Header.Get("X-Api-Key") // Anthropic's clients
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "bearer") {
		given = strings.TrimSpace(token)
	}
	h := sha256.Sum256([]byte(given))
	found := 0
	for _, want := range k.hashes {
		found |= subtle.ConstantTimeCompare(h[:], want[:])
	}
	return fmt.Sprintf("%x", h[:8]), found == 1
}
