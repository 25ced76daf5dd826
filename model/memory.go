package model

import (
	"fmt"
	"strings"

	"talf/compute"
	"talf/internal/units"
	"talf/model/arch"
	"talf/model/internal/footprint"
	"talf/model/safetensors"
)

// Memory is what a model holds, and as what, for those who use it.
type Memory struct {
	DType   string `json:"dtype"`             // of the weights: see TypeName
	Weights int64  `json:"weights"`           // bytes of the matrices
	File    int64  `json:"weights_in_file"`   // bytes of the same matrices in the file
	KV      int64  `json:"kv"`                // bytes of keys and values, of all texts so far that memory still has
	KVDType string `json:"kv_dtype"`          // their type
	Rounded string `json:"rounded,omitempty"` // what the file holds more exactly although the type was to keep it
	Exact   bool   `json:"exact"`             // products are those of the numbers in the file
}

// Memory returns what the model holds.
func (m *Model) Memory() Memory {
	return Memory{
		DType: m.TypeName(), Weights: m.held.Memory, File: m.held.File, KV: int64(m.KV().Held) * m.BlockBytes(),
		KVDType: lower(m.opt.KV), Rounded: m.Rounded(), Exact: (m.AsStored() || m.opt.DType == compute.F32) && m.Rounded() == "",
	}
}

// String returns one line.
func (m Memory) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "memory: weights %s (%s in the file) as %s; keys and values %s as %s",
		units.Bytes(uint64(m.Weights)), units.Bytes(uint64(m.File)), m.DType, units.Bytes(uint64(m.KV)), m.KVDType)
	switch {
	case m.Rounded != "":
		fmt.Fprintf(&b, "; rounded to 8 bits: %s", m.Rounded)
	case m.Exact:
		b.WriteString("; no weight is rounded")
	}
	return b.String()
}

// TypeName names the type of the weights as a user does: by the value of --dtype, and for matrices that are kept in the types of their
// file by what that value does.
func (m *Model) TypeName() string {
	if m.opt.DType == compute.Stored {
		return "auto (stored types)"
	}
	return lower(m.opt.DType)
}

// PlanSet is Plan for the weights of a set, which opt may keep as they are stored, on a device that takes memory as needed.
func PlanSet(spec *arch.Spec, set *safetensors.Set, dev compute.Device, opt Options) Footprint {
	opt.look(spec, set, dev)
	p := dev.Abilities().Account
	f := footprint.Of(spec, p, opt.footprint())
	if dev.Queue().Abilities().Check != nil { // no product sums logits to see whether they are numbers
		f.Weights -= p.WeightBytes(compute.F32, compute.NotKept, 1, spec.Vocab)
	}
	return f
}
