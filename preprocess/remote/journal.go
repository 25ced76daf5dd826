package remote

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"talf/internal/ijson"
	"talf/internal/jsonl"
	"talf/internal/vfs"
)

// An entry is one line of the file of answers: a request and what the server said. Refusals are not
// kept: another server, or this one with other settings, may answer.
type entry struct {
	Key       string          `json:"key"`     // of the request
	Request   json.RawMessage `json:"request"` // body
	Text      string          `json:"text"`
	Reasoning string          `json:"reasoning,omitempty"`
	Finish    string          `json:"finish"`
}

// keyOf identifies a request: a SHA-256, in hexadecimal.
func keyOf(path string, body []byte) string {
	h := sha256.New()
	h.Write([]byte(path + "\n"))
	h.Write(body)
	return hex.EncodeToString(h.Sum(nil))
}

// A journal is the file of answers. Those of earlier runs are read when they are asked for, since
// they may be more than the memory holds.
type journal struct {
	mu   sync.Mutex
	log  *jsonl.Log
	read *vfs.File
	at   map[[sha256.Size]byte]span
}

// A span is where a line is in the file.
type span struct {
	from int64
	n    int
}

var header = jsonl.Header{Format: "talf-answers-1"}

// openJournal opens or creates a file of answers.
func openJournal(path string) (*journal, error) {
	k := &journal{at: map[[sha256.Size]byte]span{}}
	first, err := json.Marshal(header)
	if err != nil {
		return nil, err
	}
	at := int64(len(first) + 1)
	k.log, err = jsonl.Open(path, jsonl.Config{
		Kind: "a file of answers", Header: header,
		Line: func(line []byte) error {
			var e struct {
				Key string `json:"key"`
			}
			if err := ijson.Unmarshal(line, &e); err != nil {
				return err
			}
			sum, err := sumOf(e.Key)
			if err != nil {
				return err
			}
			if _, twice := k.at[sum]; !twice {
				k.at[sum] = span{at, len(line)}
			}
			at += int64(len(line) + 1)
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	if k.read, err = vfs.OpenRead(path); err != nil {
		return nil, errors.Join(err, k.log.Close())
	}
	return k, nil
}

func sumOf(key string) (sum [sha256.Size]byte, err error) {
	if b, err := hex.DecodeString(key); err == nil && len(b) == len(sum) {
		return [sha256.Size]byte(b), nil
	}
	return sum, fmt.Errorf("field %q: %q, want %d hexadecimal digits", "key", key, 2*len(sum))
}

// find returns the answer of an earlier run.
func (k *journal) find(key string) (entry, bool, error) {
	sum, err := sumOf(key)
	if err != nil {
		return entry{}, false, err
	}
	k.mu.Lock()
	s, ok := k.at[sum]
	k.mu.Unlock()
	if !ok {
		return entry{}, false, nil
	}
	line := make([]byte, s.n)
	if _, err := k.read.ReadAt(line, s.from); err != nil {
		return entry{}, false, fmt.Errorf("read %s: %w", k.read.Name(), err)
	}
	var e entry
	if err := ijson.Unmarshal(line, &e); err != nil || e.Key != key {
		return entry{}, false, nil // somebody has edited the file: an answer is asked for again
	}
	return e, true, nil
}

// add keeps an answer. It outlasts the process, and after Close the machine.
func (k *journal) add(e entry) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.log.Append(e)
}

func (k *journal) close() error { return errors.Join(k.read.Close(), k.log.Close()) }
