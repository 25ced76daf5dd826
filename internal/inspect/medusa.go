package inspect

import (
	"fmt"

	"talf/checkpoints/medusa"
	"talf/internal/units"
)

// A Medusa describes Medusa heads.
type Medusa struct {
	Kind       string   `json:"kind"` // "heads"
	Algorithm  string   `json:"algorithm"`
	Path       string   `json:"path"`
	File       string   `json:"file"` // of the weights
	Target     string   `json:"target,omitempty"`
	Heads      int      `json:"medusa_heads"`
	Layers     int      `json:"layers"` // blocks of a head
	Vocab      int      `json:"vocabulary"`
	Hidden     int      `json:"hidden_size"`
	Parameters int64    `json:"parameters"`
	Bytes      int64    `json:"bytes"` // of the weights
	Notes      []string `json:"notes,omitempty"`
}

// openMedusa describes the Medusa heads in dir.
func openMedusa(dir string) (*Medusa, error) {
	f, err := medusa.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	m := &Medusa{
		Kind: "heads", Algorithm: "Medusa", Path: dir, File: f.File, Target: f.Target, Notes: f.Notes,
		Heads: f.Spec.Heads, Layers: f.Spec.Layers, Vocab: f.Spec.Vocab, Hidden: f.Spec.Hidden,
	}
	m.Parameters, m.Bytes = f.Size()
	return m, nil
}

func (m *Medusa) String() string {
	target := "unknown"
	if m.Target != "" {
		target = fmt.Sprintf("%.200q", m.Target) // untrusted text
	}
	var p page
	p.printf("heads         %s\n", m.Path)
	p.printf("algorithm     Medusa: %d heads, which draft up to %d tokens behind the target's own\n", m.Heads, m.Heads)
	p.printf("target        %s, hidden %d, vocabulary %d\n", target, m.Hidden, m.Vocab)
	p.printf("parameters    %d in %s, %s\n", m.Parameters, m.File, units.Bytes(uint64(m.Bytes)))
	p.printf("shape         %d blocks before each LM head\n", m.Layers)
	for _, n := range m.Notes {
		p.printf("note          %s\n", n)
	}
	return p.String()
}
