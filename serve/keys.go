package serve

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"

	"talf/internal/limits"
)

// Keys are the API keys of a server: one a line in a file, where empty lines and those that begin
// with # do not count. A nil *Keys lets everyone in. The methods may be called from any goroutine.
type Keys struct {
	path   string // "": there is no file
	hashes atomic.Pointer[[][sha256.Size]byte]
}

// maxKeys bounds a file of keys: each request is compared with all.
const maxKeys = 10_000

// LoadKeys reads a file of keys.
func LoadKeys(path string) (*Keys, error) {
	k := &Keys{path: path}
	if err := k.Reload(); err != nil {
		return nil, err
	}
	return k, nil
}

// Reload reads the file again. If it cannot, the keys stay as they are. Requests that were let in go on.
func (k *Keys) Reload() error {
	if k == nil || k.path == "" {
		return nil
	}
	b, err := limits.ReadFile(k.path, limits.MiB)
	if err != nil {
		return fmt.Errorf("API keys: %w", err)
	}
	var hashes [][sha256.Size]byte
	for line := range bytes.Lines(b) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' {
			hashes = append(hashes, sha256.Sum256(line))
		}
	}
	switch {
	case len(hashes) == 0:
		return fmt.Errorf("API keys: %s has no keys, want one a line", k.path)
	case len(hashes) > maxKeys:
		return fmt.Errorf("API keys: %s has %d keys, want at most %d", k.path, len(hashes), maxKeys)
	}
	k.hashes.Store(&hashes)
	return nil
}

// OpenKeys returns the keys in a file, or else the one key given, or nil if there is neither. Space
// around a key does not count.
func OpenKeys(path, key string) (*Keys, error) {
	key = strings.TrimSpace(key)
	switch {
	case path != "":
		return LoadKeys(path)
	case key != "":
		k := &Keys{}
		k.hashes.Store(&[][sha256.Size]byte{sha256.Sum256([]byte(key))})
		return k, nil
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
	for _, want := range *k.hashes.Load() {
		found |= subtle.ConstantTimeCompare(h[:], want[:])
	}
	return fmt.Sprintf("%x", h[:8]), found == 1
}
