package inspect

import (
	"fmt"
	"maps"
	"slices"

	"talf/infer/lookup/datastore"
)

// A Datastore describes a datastore that drafts are looked up in.
type Datastore struct {
	Kind      string         `json:"kind"` // "datastore"
	Path      string         `json:"path"`
	Tokens    int            `json:"tokens"`
	Documents int            `json:"documents"`
	Vocab     int            `json:"vocabulary"`
	Tokenizer string         `json:"tokenizer"`         // its hash
	Seconds   float64        `json:"seconds,omitempty"` // that building took
	Dropped   map[string]int `json:"dropped,omitempty"` // documents left out, by reason
}

// OpenDatastore describes the datastore at path after checking all of it.
func OpenDatastore(path string) (*Datastore, error) {
	s, err := datastore.Open(path, "")
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }() // only read
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return NewDatastore(path, s.Info()), nil
}

// NewDatastore describes a datastore by its own information.
func NewDatastore(path string, i datastore.Info) *Datastore {
	return &Datastore{
		Kind: "datastore", Path: path, Tokens: i.Tokens, Documents: i.Documents, Vocab: i.Vocab, Tokenizer: i.Tokenizer,
	}
}

func (d *Datastore) String() string {
	var p page
	p.printf("datastore     %s\n", d.Path)
	p.printf("tokens        %d in %d documents\n", d.Tokens, d.Documents)
	p.printf("vocabulary    %d, tokenizer %s\n", d.Vocab, short(d.Tokenizer))
	for _, why := range slices.Sorted(maps.Keys(d.Dropped)) {
		p.printf("left out      %d: %s\n", d.Dropped[why], why)
	}
	if d.Seconds > 0 {
		p.printf("built in      %.1f s\n", d.Seconds)
	}
	return p.String()
}
