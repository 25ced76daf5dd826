package identity

import (
	"encoding/json"
	"fmt"
)

// A Tie says which model a draft head belongs to. The zero Tie is that of a head which
// does not say.
type Tie struct {
	Model *Model
	// Origin is all that heads of schema 1 have in place of Model: its Base.
	Origin string
}

// The metadata of a head's safetensors file. Earlier releases read MetaOrigin alone.
const (
	MetaOrigin = "talf.target_sha256" // Base of the target
	MetaModel  = "talf.target"        // its Model, as JSON
)

// To returns the tie of a head to m.
func To(m *Model) Tie { return Tie{Model: m} }

// Known reports whether there is anything to compare.
func (t Tie) Known() bool { return t != Tie{} }

// Base returns the hash of the weights that the head belongs to.
func (t Tie) Base() string {
	if t.Model != nil {
		return t.Model.Base()
	}
	return t.Origin
}

// String names the model for people.
func (t Tie) String() string {
	if t.Model != nil {
		return Short(t.Model.Hash())
	}
	return Short(t.Origin)
}

// Against compares the head's model with a target, given by its canonical specification
// and its Base. A tie of schema 1 compares the latter alone.
func (t Tie) Against(target Spec, base string) Differences {
	switch {
	case t.Model != nil:
		return t.Model.Fits(target, base)
	case t.Origin != "":
		return Differences(nil).add(weights, Short(base), Short(t.Origin))
	}
	return nil
}

// Uncovered says what Against could not compare, "" if nothing.
func (t Tie) Uncovered() string {
	if t.Model != nil || t.Origin == "" {
		return ""
	}
	return "it was written by an earlier release, which kept the hash of its target's weights alone: whether the target's config.json is still the same is not known"
}

// Metadata adds the tie to a file's metadata.
func (t Tie) Metadata(meta map[string]string) {
	if t.Known() {
		meta[MetaOrigin] = t.Base()
	}
	if t.Model != nil {
		raw, err := json.Marshal(t.Model)
		if err != nil {
			panic("identity: " + err.Error()) // texts, and JSON that was parsed before
		}
		meta[MetaModel] = string(raw)
	}
}

// TieOf reads a tie from a file's metadata.
func TieOf(meta map[string]string) (Tie, error) {
	raw, ok := meta[MetaModel]
	if !ok {
		return Tie{Origin: meta[MetaOrigin]}, nil
	}
	m := new(Model)
	if err := json.Unmarshal([]byte(raw), m); err != nil {
		return Tie{}, fmt.Errorf("metadata %q: %w", MetaModel, err)
	}
	return To(m), nil
}
