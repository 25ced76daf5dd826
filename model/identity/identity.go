// Package identity says which function a model computes. Files that depend on it keep
// it, so that what one function made is never taken for what another made.
//
// A Model is what a model's files say: the specification and the tensors. Draft heads
// belong to a Model. A Function adds how this machine computes it: the types of weights,
// keys, values and activations, and the arithmetic of the device. Labels, answers and
// measurements belong to a Function. Both have a hash, and are kept in parts beside it,
// so that a refusal can name the part that differs.
package identity

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The prefixes of hashes. The number changes when the parts mean something else.
const (
	functionPrefix = "talf-fn-1:"
	modelPrefix    = "talf-model-1:"
)

// A Spec is a canonical specification: values by the names of config.json; see
// arch.Spec.Canonical. A name that is missing has the value zero.
type Spec map[string]json.RawMessage

// A Model identifies a model's files.
type Model struct {
	Spec    Spec
	Tensors string // hexadecimal SHA-256 of every tensor's name, type, shape and bytes
	// DerivedFrom is the Tensors of the model that this one was quantised from, as its
	// file says; "": none. It is no part of the hash: nothing proves it.
	DerivedFrom string
}

// A Function identifies what a loaded model computes, bit for bit.
type Function struct {
	Model
	Weights     string // type in memory: "f32", "bf16", "bf16dp", "q8", "q4" or "q4 with Q6_K"
	KV          string // type of keys and values
	Activations string // what products round them to; "" if the device has only one way
	Arithmetic  string // of the device: "cpu" or, for example, "cuda sm_90"
}

// modelParts are the parts of a Model, in the order in which they are hashed and kept.
type modelParts struct {
	ID          string `json:"id,omitempty"`
	Spec        Spec   `json:"spec"`
	Tensors     string `json:"tensors"`
	DerivedFrom string `json:"derived_from,omitempty"`
}

// functionParts are those of a Function.
type functionParts struct {
	modelParts
	Weights     string `json:"weights"`
	KV          string `json:"kv"`
	Activations string `json:"activations"`
	Arithmetic  string `json:"arithmetic"`
}

func (m *Model) parts() modelParts { return modelParts{"", m.Spec, m.Tensors, m.DerivedFrom} }

func (f *Function) parts() functionParts {
	return functionParts{f.Model.parts(), f.Weights, f.KV, f.Activations, f.Arithmetic}
}

// Hash returns, for example, "talf-model-1:" and 64 hexadecimal digits.
func (m *Model) Hash() string {
	p := m.parts()
	p.DerivedFrom = ""
	return hash(modelPrefix, p)
}

// Hash returns, for example, "talf-fn-1:" and 64 hexadecimal digits.
func (f *Function) Hash() string {
	p := f.parts()
	p.DerivedFrom = ""
	return hash(functionPrefix, p)
}

func hash(prefix string, parts any) string {
	raw, err := json.Marshal(parts)
	if err != nil {
		panic("identity: " + err.Error()) // texts, and JSON that was parsed before
	}
	sum := sha256.Sum256(raw)
	return prefix + hex.EncodeToString(sum[:])
}

// Short abbreviates a hash for people, and a bare SHA-256 as well.
func Short(hash string) string {
	prefix, digits, ok := strings.Cut(hash, ":")
	if !ok {
		return fmt.Sprintf("%.12s", hash)
	}
	return fmt.Sprintf("%s:%.12s", prefix, digits)
}

// MarshalJSON writes the parts and their hash.
func (m Model) MarshalJSON() ([]byte, error) {
	p := m.parts()
	p.ID = m.Hash()
	return json.Marshal(p)
}

// MarshalJSON writes the parts and their hash.
func (f Function) MarshalJSON() ([]byte, error) {
	p := f.parts()
	p.ID = f.Hash()
	return json.Marshal(p)
}

// UnmarshalJSON reads the parts and refuses a hash that is not theirs.
func (m *Model) UnmarshalJSON(raw []byte) error {
	var p modelParts
	if err := decode(raw, &p); err != nil {
		return err
	}
	*m = Model{p.Spec, p.Tensors, p.DerivedFrom}
	return checkID(p.ID, m.Hash())
}

// UnmarshalJSON reads the parts and refuses a hash that is not theirs.
func (f *Function) UnmarshalJSON(raw []byte) error {
	var p functionParts
	if err := decode(raw, &p); err != nil {
		return err
	}
	*f = Function{Model{p.Spec, p.Tensors, p.DerivedFrom}, p.Weights, p.KV, p.Activations, p.Arithmetic}
	return checkID(p.ID, f.Hash())
}

func decode(raw []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(to)
}

func checkID(got, want string) error {
	if got != want {
		return fmt.Errorf("id: %q, want %q for the parts beside it", got, want)
	}
	return nil
}

// Base returns the hash of the tensors that the model's weights come from: of those
// that it was quantised from, or else its own.
func (m *Model) Base() string {
	if m.DerivedFrom != "" {
		return m.DerivedFrom
	}
	return m.Tensors
}

// A Difference is a part in which two identities differ.
type Difference struct{ Part, Now, Then string }

// Differences are in the order of the parts; none means equal.
type Differences []Difference

// most is the number of differences that a sentence tells.
const most = 3

// Since tells the differences, for example "rope_theta is 500000, the labels were made
// with 10000" if made is "the labels were made".
func (d Differences) Since(made string) string {
	var all []string
	for _, x := range d[:min(len(d), most)] {
		if all == nil {
			all = append(all, fmt.Sprintf("%s is %s, %s with %s", x.Part, x.Now, made, x.Then))
		} else {
			all = append(all, fmt.Sprintf("%s is %s, not %s", x.Part, x.Now, x.Then))
		}
	}
	if n := len(d) - most; n > 0 {
		all = append(all, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(all, "; ")
}

// Against compares f, as it is now, with an earlier function. DerivedFrom does not
// count.
func (f *Function) Against(then *Function) Differences {
	d := f.Spec.Against(then.Spec)
	for _, p := range []struct{ name, now, then string }{
		{"the type of weights", f.Weights, then.Weights},
		{"the type of keys and values", f.KV, then.KV},
		{"the type of activations in products", f.Activations, then.Activations},
		{"the arithmetic", f.Arithmetic, then.Arithmetic},
		{tensors, Short(f.Tensors), Short(then.Tensors)},
	} {
		d = d.add(p.name, p.now, p.then)
	}
	if d == nil && f.Tensors != then.Tensors {
		d = d.add(tensors, f.Tensors, then.Tensors) // that differ after the digits shown
	}
	return d
}

// Names of parts: a model's own tensors, and those that its weights come from.
const (
	tensors = "the hash of the tensors"
	weights = "the hash of the weights"
)

// Fits compares a model, given by its specification and Base, with the one that a draft
// head belongs to. A head also fits what either was quantised to.
func (m *Model) Fits(now Spec, base string) Differences {
	d := now.Against(m.Spec)
	if base != m.Base() {
		d = d.add(weights, Short(base), Short(m.Base()))
	}
	return d
}

func (d Differences) add(part, now, then string) Differences {
	if now == then {
		return d
	}
	for _, x := range []*string{&now, &then} {
		if *x == "" {
			*x = "none"
		}
	}
	return append(d, Difference{part, now, then})
}

// Against compares specifications, whose JSON may be laid out differently.
func (s Spec) Against(then Spec) Differences {
	names := slices.AppendSeq(slices.Collect(maps.Keys(s)), maps.Keys(then))
	slices.Sort(names)
	var d Differences
	for _, name := range slices.Compact(names) {
		d = d.add(name, s.value(name), then.value(name))
	}
	return d
}

// value returns the JSON of a value, without white space, and without the quotes of a
// text.
func (s Spec) value(name string) string {
	raw, ok := s[name]
	if !ok {
		return "not set"
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return string(raw)
	}
	return b.String()
}
