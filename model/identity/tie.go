package identity

import (
	"encoding/json"
	"fmt"
)

// A Tie says which model a draft head belongs to. The zero Tie is that of a head which
// does not say.
type Tie struct{ Model *Model }

// The metadata of a head's safetensors file.
const (
	MetaOrigin = "talf.target_sha256" // Base of the target
	MetaModel  = "talf.target"        // its Model, as JSON
)

// To returns the tie of a head to m.
func To(m *Model) Tie { return Tie{m} }

// Known reports whether there is anything to compare.
func (t Tie) Known() bool { return t.Model != nil }

// Base returns the hash of the weights that the head belongs to, "" if it does not say.
func (t Tie) Base() string {
	if t.Model == nil {
		return ""
	}
	return t.Model.Base()
}

// String names the model for people.
func (t Tie) String() string {
	if t.Model == nil {
		return ""
	}
	return Short(t.Model.Hash())
}

// Against compares the head's model with a target, given by its canonical specification
// and its Base.
func (t Tie) Against(target Spec, base string) Differences {
	if t.Model == nil {
		return nil
	}
	return t.Model.Fits(target, base)
}

// Metadata adds the tie to a file's metadata.
func (t Tie) Metadata(meta map[string]string) {
	if t.Model == nil {
		return
	}
	raw, err := json.Marshal(t.Model)
	if err != nil {
		panic("identity: " + err.Error()) // texts, and JSON that was parsed before
	}
	meta[MetaOrigin], meta[MetaModel] = t.Base(), string(raw)
}

// TieOf reads a tie from a file's metadata.
func TieOf(meta map[string]string) (Tie, error) {
	raw, ok := meta[MetaModel]
	if !ok {
		return Tie{}, nil
	}
	m := new(Model)
	if err := json.Unmarshal([]byte(raw), m); err != nil {
		return Tie{}, fmt.Errorf("metadata %q: %w", MetaModel, err)
	}
	return To(m), nil
}
