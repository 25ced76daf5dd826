package model

import (
	"cmp"
	"strings"

	"talf/compute"
	"talf/model/arch"
	"talf/model/identity"
	"talf/model/internal/stored"
	"talf/model/safetensors"
)

// Function identifies what the model computes. The first call reads all weights.
func (m *Model) Function() *identity.Function {
	if m.function == nil {
		f := &identity.Function{
			Model: IdentityOf(m.spec, m.set), Weights: m.Weights(), KV: lower(m.opt.KV),
			Arithmetic: cmp.Or(m.dev.Arithmetic(), "cpu"),
		}
		if rounding := m.dev.Abilities().Rounding; rounding != nil {
			f.Activations = rounding(m.Products())
		}
		m.function = f
	}
	return m.function
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
// of set, all of which it reads.
func IdentityOf(spec *arch.Spec, set *safetensors.Set) identity.Model {
	return identity.Model{Spec: spec.Canonical(), Tensors: set.SHA256(), DerivedFrom: set.Metadata()[MetaSource]}
}

// OriginOf returns the Origin of a model with the tensors of set.
func OriginOf(set *safetensors.Set) string {
	if h := set.Metadata()[MetaSource]; h != "" {
		return h
	}
	return set.SHA256()
}
