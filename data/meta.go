// Package data stores training data: Parquet shards of sequences with label trees,
// which preprocessing writes and training reads. docs/formats.md describes the files.
package data

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"talf/model/identity"
)

// SchemaVersion is the version of the shards. Sets of another one are refused.
const SchemaVersion = 2

// A LabelMode says how soft labels are stored.
type LabelMode string

// A FeatureMode says whether hidden states are stored.
type FeatureMode string

// The modes of labels and features.
const (
	TopK LabelMode = "topk" // the K most likely tokens and the remaining mass
	Full LabelMode = "full" // every token

	BF16 FeatureMode = "bf16" // after the target's final norm, for EAGLE-1/2 heads
	Taps FeatureMode = "taps" // the residual stream before the layers Meta.Taps, for EAGLE-3 heads; bfloat16, too
	None FeatureMode = "none" // training recomputes them
)

// Meta is the information that all rows of a set share. Every shard contains it. It has
// nothing that differs between equal runs: no time, host or path.
type Meta struct {
	Schema    int                `json:"schema"`    // SchemaVersion
	Function  *identity.Function `json:"function"`  // what the target computes
	Tokenizer string             `json:"tokenizer"` // hash of its tokenizer
	Hidden    int                `json:"hidden"`    // H
	Vocab     int                `json:"vocab"`     // V
	Branch    int                `json:"k"`         // nodes of each level below the root
	Depth     int                `json:"depth"`     // labelled levels, including the root's
	Labels    LabelMode          `json:"labels"`
	K         int                `json:"top_k"` // labels of a node; 0 with full labels
	Features  FeatureMode        `json:"features"`
	Taps      []int              `json:"taps,omitempty"` // boundaries of the target's layers, see model.Tap
	LossOnly  bool               `json:"loss_only"`      // trees only where the token after the root is trained on; see docs/formats.md
	// TreeShare is the share of the sequences that have trees: the last ones, which training holds out. The others have the
	// labels of their own tokens alone, as outside the loss mask with LossOnly. 0: all have trees.
	TreeShare float64 `json:"tree_share,omitempty"`
	Seed      uint64  `json:"seed"`
	Sampling  string  `json:"sampling"` // how answers were regenerated; "" if they are those of the text
	Source    string  `json:"source"`   // fingerprint of the input and of how it was divided
	// Arithmetic names the device and the type of weights that computed the target, if
	// they are not the CPU and the stored type. They determine the last bits of labels,
	// and so which of nearly equal tokens a tree has.
	Arithmetic string `json:"arithmetic,omitempty"`
}

// Nodes returns the labelled nodes of a position: the root, and Branch nodes on every
// deeper level.
func (m *Meta) Nodes() int { return 1 + m.Branch*(m.Depth-1) }

// Reach returns the positions of a text of n tokens and of the tree at its end. It is as a text of so many that the target ran
// over it.
func (m *Meta) Reach(n int) int { return n + max(m.Depth, 1) - 1 }

// tokenBytes returns the bytes of the values that a row has for each token.
func (m *Meta) tokenBytes() int {
	n := m.Nodes()
	size := 4 + 1 + n*3*4 // token and mask; tokens, parents and levels of the tree
	if m.Labels == TopK {
		size += n * (8*m.K + 4)
	} else {
		size += n * 4 * m.Vocab
	}
	return size + 2*m.FeatureSize()
}

// FeatureSize returns the elements of hidden states that a row has for each token.
func (m *Meta) FeatureSize() int {
	switch m.Features {
	case BF16:
		return m.Hidden
	case Taps:
		return len(m.Taps) * m.Hidden
	}
	return 0
}

// maxTaps bounds Meta.Taps.
const maxTaps = 16

// Validate reports the first invalid field.
func (m *Meta) Validate() error {
	switch {
	case m.Schema != SchemaVersion:
		return versionError(m.Schema)
	case m.Function == nil:
		return errors.New("function: missing, want what computed the labels")
	case !(m.TreeShare >= 0 && m.TreeShare < 1):
		return fmt.Errorf("tree_share: %v, want 0 ≤ share < 1", m.TreeShare)
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
	case m.Features != BF16 && m.Features != Taps && m.Features != None:
		return fmt.Errorf("features: %q, want %q, %q or %q", m.Features, BF16, Taps, None)
	case (m.Features == Taps) != (m.Taps != nil) || m.Taps != nil && (len(m.Taps) < 1 || len(m.Taps) > maxTaps):
		return fmt.Errorf("taps: %v with features %q, want 1 to %d of them with %q alone", m.Taps, m.Features, maxTaps, Taps)
	case slices.ContainsFunc(m.Taps, func(b int) bool { return b < 0 }):
		return fmt.Errorf("taps: %v, want boundaries of layers, from 0 on", m.Taps)
	}
	return nil
}

// versionError refuses a version of the schema.
func versionError(v int) error {
	return fmt.Errorf("schema: version %d, want %d: preprocess the text again with this release", v, SchemaVersion)
}

// Tie returns the model that made the labels.
func (m *Meta) Tie() identity.Tie { return identity.To(&m.Function.Model) }

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
	if d := o.Function.Against(m.Function); d != nil {
		return fmt.Sprintf("function: %s is %s, want %s", d[0].Part, d[0].Now, d[0].Then)
	}
	a["taps"], b["taps"] = fmt.Sprint(m.Taps), fmt.Sprint(o.Taps) // lists do not compare
	for _, key := range []string{"schema", "tokenizer", "hidden", "vocab", "k", "depth", "labels", "top_k", "features", "taps", "loss_only", "tree_share", "seed", "sampling", "source", "arithmetic"} {
		x, y := a[key], b[key]
		if x == y {
			continue
		}
		if key == "arithmetic" {
			return fmt.Sprintf("arithmetic: of %s, want of %s", cmp.Or(o.Arithmetic, "the CPU"), cmp.Or(m.Arithmetic, "the CPU"))
		}
		if s, ok := x.(string); ok {
			other, _ := b[key].(string) // "" if it is left out
			x, y = strconv.Quote(s), strconv.Quote(other)
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
