package model

import (
	"cmp"
	"strings"

	"talf/compute"
	"talf/internal/mapped"
	"talf/model/arch"
	"talf/model/identity"
	"talf/model/internal/stored"
	"talf/model/safetensors"
)

// Function identifies what the model computes. The first call reads all weights, unless Identify has.
func (m *Model) Function() *identity.Function {
	if m.function == nil {
		_ = m.identify(nil) // only who watches ends it
	}
	return m.function
}

// Identify reads all weights, for Identity and Function. It fails only if Options.Watch ends it.
func (m *Model) Identify() (err error) {
	defer mapped.Guard(&err)()
	return m.identify(m.opt.Watch)
}

func (m *Model) identify(w Watch) error {
	if m.function == nil {
		id, err := IdentityOf(m.spec, m.set, w)
		if err != nil {
			return err
		}
		f := &identity.Function{
			Model: id, Weights: m.Weights(), KV: lower(m.opt.KV),
			Arithmetic: cmp.Or(m.dev.Arithmetic(), "cpu"),
		}
		if rounding := m.dev.Abilities().Rounding; rounding != nil {
			f.Activations = rounding(m.Products())
		}
		m.function = f
	}
	return nil
}

// Weights names what products with the packed weights compute, in the identity of the function, such as "q8" or "stored".
func (m *Model) Weights() string {
	name, _ := stored.Function(m.opt.DType, m.set, m.opt.kept)
	return name
}

// Products returns the type whose products the packed weights have: Options' one, or F32 of floating-point numbers that are kept
// as they are stored.
func (m *Model) Products() compute.DType {
	_, as := stored.Function(m.opt.DType, m.set, m.opt.kept)
	return as
}

// AsStored reports whether products have the bits of those with the weights as they are stored, or as near to that as the
// device can.
func (m *Model) AsStored() bool {
	own, _ := stored.Function(Stored(m.set, m.dev), m.set, m.opt.kept)
	return m.Weights() == own
}

func lower(t interface{ String() string }) string { return strings.ToLower(t.String()) }

// Identity identifies the model's files. The first call of Identity or Function reads
// all weights, for which the rule of package mapped holds.
func (m *Model) Identity() *identity.Model { return &m.Function().Model }

// Origin identifies the weights that the model's come from, as files of schema 1 do and
// as Identity's Base does. It is quick for quantised models, which name it.
func (m *Model) Origin() string {
	if h := m.set.Metadata()[MetaSource]; h != "" {
		return h
	}
	return m.Identity().Tensors
}

// IdentityOf identifies the files of a model with the specification spec and the tensors
// of set, all of which it reads. Only w, which may be nil, makes it fail.
func IdentityOf(spec *arch.Spec, set *safetensors.Set, w Watch) (identity.Model, error) {
	hash, err := set.SHA256(func(done, total int64) error {
		if w == nil {
			return nil
		}
		return w(Identifying, done, total)
	})
	return identity.Model{Spec: spec.Canonical(), Tensors: hash, DerivedFrom: set.Metadata()[MetaSource]}, err
}

// OriginOf returns the Origin of a model with the tensors of set. Only watch, which SHA256 calls,
// makes it fail.
func OriginOf(set *safetensors.Set, watch func(done, total int64) error) (string, error) {
	if h := set.Metadata()[MetaSource]; h != "" {
		return h, nil
	}
	return set.SHA256(watch)
}
