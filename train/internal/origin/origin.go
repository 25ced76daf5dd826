// Package origin says what a run of training began from, and whether it may continue from
// a checkpoint.
package origin

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"talf/checkpoints"
	"talf/model/arch"
	"talf/model/identity"
)

// Schema is the version of origins.
const Schema = 2

// An Origin is what a run has in common with all its checkpoints, besides its
// configuration.
type Origin struct{ parts parts }

// parts are the JSON of an Origin.
type parts struct {
	Schema int    `json:"schema"`
	Kind   string `json:"kind"`
	// Of a head: what the target computes, the labels, the draft vocabulary.
	Function *identity.Function `json:"function,omitempty"`
	Data     string             `json:"data,omitempty"`
	Vocab    string             `json:"draft_vocab,omitempty"`
	// Of a language model: its specification, its text, the length of its windows.
	Spec   identity.Spec `json:"spec,omitempty"`
	Docs   string        `json:"docs,omitempty"`
	Window int           `json:"window,omitempty"`
}

// Head returns the origin of a run for a target, from the data with an ID and for a draft
// vocabulary, "" if it is the whole.
func Head(target *identity.Function, data, vocab string) Origin {
	return Origin{parts{Schema: Schema, Kind: checkpoints.KindHead, Function: target, Data: data, Vocab: vocab}}
}

// LM returns the origin of a run that trains a language model on windows of documents.
func LM(spec *arch.Spec, docs [][]int32, window int) Origin {
	return Origin{parts{Schema: Schema, Kind: checkpoints.KindLM, Spec: spec.Canonical(), Docs: Docs(docs), Window: window}}
}

// JSON returns the form that checkpoints keep.
func (o Origin) JSON() []byte { return text(o.parts) }

func text(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic("origin: " + err.Error()) // numbers, texts, and JSON that was parsed before
	}
	return raw
}

// ErrOther is wrapped by the error of a checkpoint of another run.
var ErrOther = errors.New("the run began with another target, other data or other sizes")

// Check refuses the origin of another run.
func (o Origin) Check(then json.RawMessage) error {
	var schema struct {
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal(then, &schema); err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	var p parts
	d := json.NewDecoder(bytes.NewReader(then))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil || p.Schema != Schema {
		return fmt.Errorf("identity: schema %d, want %d: %w", schema.Schema, Schema, cmp.Or(err, ErrOther))
	}
	now := o.parts
	if now.Function != nil && p.Function != nil {
		if d := now.Function.Against(p.Function); d != nil {
			return fmt.Errorf("%w: %s", ErrOther, d.Since("the run began"))
		}
		p.Function = now.Function // they may differ in what they are derived from
	}
	if d := now.Spec.Against(p.Spec); d != nil {
		return fmt.Errorf("%w: %s", ErrOther, d.Since("the run began"))
	}
	if !equal(text(p), text(now)) {
		p.Function, p.Spec, now.Function, now.Spec = nil, nil, nil, nil
		return fmt.Errorf("%w (%s, now %s)", ErrOther, text(p), text(now))
	}
	return nil
}

func equal(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// Docs identifies tokenised documents.
func Docs(docs [][]int32) string {
	h := sha256.New()
	var b []byte
	for _, d := range docs {
		b = binary.LittleEndian.AppendUint32(b[:0], uint32(len(d)))
		for _, id := range d {
			b = binary.LittleEndian.AppendUint32(b, uint32(id))
		}
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))
}
