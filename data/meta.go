// Package data stores training data: Parquet shards of sequences with label trees,
// which preprocessing writes and training reads. docs/formats.md describes the files.
package data

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
)

// SchemaVersion is the version of the shards that this package writes, and the
// only one that it reads.
const SchemaVersion = 1

// A LabelMode says how soft labels are stored.
type LabelMode string

// A FeatureMode says whether hidden states are stored.
type FeatureMode string

// The modes of labels and features.
const (
	TopK LabelMode = "topk" // the K most likely tokens and the remaining mass
	Full LabelMode = "full" // every token

	BF16 FeatureMode = "bf16"
	None FeatureMode = "none" // training recomputes them
)

// Meta is the information that all rows of a set share. Every shard contains it. It has
// nothing that differs between equal runs: no time, host or path.
type Meta struct {
	Schema    int         `json:"schema"`    // SchemaVersion
	Target    string      `json:"target"`    // weight hash of the target
	Tokenizer string      `json:"tokenizer"` // hash of its tokenizer
	Hidden    int         `json:"hidden"`    // H
	Vocab     int         `json:"vocab"`     // V
	Branch    int         `json:"k"`         // nodes of each level below the root
	Depth     int         `json:"depth"`     // labelled levels, including the root's
	Labels    LabelMode   `json:"labels"`
	K         int         `json:"top_k"` // labels of a node; 0 with full labels
	Features  FeatureMode `json:"features"`
	LossOnly  bool        `json:"loss_only"` // trees only where the token after the root is trained on; see docs/formats.md
	Seed      uint64      `json:"seed"`
	Sampling  string      `json:"sampling"` // how answers were regenerated; "" if they are those of the text
	Source    string      `json:"source"`   // fingerprint of the input and of how it was divided
	// Arithmetic names the device and the type of weights that computed the target, if
	// they are not the CPU and the stored type. They determine the last bits of labels,
	// and so which of nearly equal tokens a tree has.
	Arithmetic string `json:"arithmetic,omitempty"`
}

// Nodes returns the labelled nodes of a position: the root, and Branch nodes on every
// deeper level.
func (m *Meta) Nodes() int { return 1 + m.Branch*(m.Depth-1) }

// tokenBytes returns the bytes of the values that a row has for each token.
func (m *Meta) tokenBytes() int {
	n := m.Nodes()
	size := 4 + 1 + n*3*4 // token and mask; tokens, parents and levels of the tree
	if m.Labels == TopK {
		size += n * (8*m.K + 4)
	} else {
		size += n * 4 * m.Vocab
	}
	if m.Features == BF16 {
		size += 2 * m.Hidden
	}
	return size
}

// Validate reports the first invalid field.
func (m *Meta) Validate() error {
	switch {
	case m.Schema != SchemaVersion:
		return fmt.Errorf("schema: version %d, want %d: preprocess the text again with this release", m.Schema, SchemaVersion)
	case m.Hidden < 1 || m.Hidden > 1<<20:
		return fmt.Errorf("hidden: %d, want 1..%d", m.Hidden, 1<<20)
	case m.Vocab < 1 || m.Vocab > 1<<24:
		return fmt.Errorf("vocab: %d, want 1..%d", m.Vocab, 1<<24)
	case m.Depth < 1 || m.Depth > 16:
		return fmt.Errorf("depth: %d, want 1..16", m.Depth)
	case m.Branch < 1 || m.Branch > 64 || m.Branch > m.Vocab:
		return fmt.Errorf("k: %d, want 1..%d", m.Branch, min(64, m.Vocab))
	case m.Labels != TopK && m.Labels != Full:
		return fmt.Errorf("labels: %q, want %q or %q", m.Labels, TopK, Full)
	case m.Labels == TopK && (m.K < 1 || m.K > m.Vocab):
		return fmt.Errorf("top_k: %d, want 1..%d", m.K, m.Vocab)
	case m.Labels == Full && m.K != 0:
		return fmt.Errorf("top_k: %d, want 0 with full labels", m.K)
	case m.Features != BF16 && m.Features != None:
		return fmt.Errorf("features: %q, want %q or %q", m.Features, BF16, None)
	}
	return nil
}

// diff names the first field in which m and o differ, or returns "".
func (m *Meta) diff(o *Meta) string {
	var a, b map[string]any
	for _, p := range []struct {
		m  *Meta
		to *map[string]any
	}{{m, &a}, {o, &b}} {
		raw, err := json.Marshal(p.m)
		if err == nil {
			d := json.NewDecoder(bytes.NewReader(raw))
			d.UseNumber() // a float64 cannot represent every seed
			err = d.Decode(p.to)
		}
		if err != nil {
			panic("data: " + err.Error()) // plain fields always marshal
		}
	}
	for _, key := range []string{"schema", "target", "tokenizer", "hidden", "vocab", "k", "depth", "labels", "top_k", "features", "loss_only", "seed", "sampling", "source", "arithmetic"} {
		x, y := a[key], b[key]
		if x == y {
			continue
		}
		if key == "arithmetic" {
			return fmt.Sprintf("arithmetic: of %s, want of %s", cmp.Or(o.Arithmetic, "the CPU"), cmp.Or(m.Arithmetic, "the CPU"))
		}
		if s, ok := x.(string); ok {
			x, y = strconv.Quote(s), strconv.Quote(b[key].(string)) // one may be empty
		}
		if key == "source" {
			key = "source (hash of the texts and of the options that cut them)"
		}
		return fmt.Sprintf("%s: %v, want %v", key, y, x)
	}
	return ""
}

// parseStrict decodes one JSON value and refuses unknown fields and anything after it,
// so that a foreign or newer file is detected.
func parseStrict(raw []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if d.More() {
		return fmt.Errorf("more than one JSON value")
	}
	return nil
}
