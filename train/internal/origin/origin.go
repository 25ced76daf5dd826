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
	"talf/compute"
	"talf/model/arch"
	"talf/model/identity"
)

// Schema is the version of origins in new checkpoints. Those of version 1 have no such
// field: they are compared in the form that they have, and stay in it.
const Schema = 2

// An Origin is what a run has in common with all its checkpoints, besides its
// configuration.
type Origin struct {
	parts parts
	old   []byte // in schema 1
}

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
	old := map[string]any{"kind": checkpoints.KindHead, "target": target.Base(), "data": data}
	if vocab != "" {
		old["draft_vocab"] = vocab
	}
	return Origin{parts{Schema: Schema, Kind: checkpoints.KindHead, Function: target, Data: data, Vocab: vocab}, text(old)}
}

// LM returns the origin of a run that trains a language model on windows of documents.
func LM(spec *arch.Spec, docs [][]int32, window int) Origin {
	hash := Docs(docs)
	return Origin{parts{Schema: Schema, Kind: checkpoints.KindLM, Spec: spec.Canonical(), Docs: hash, Window: window}, oldLM(spec, hash, window)}
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

// uncovered says what checkpoints of schema 1 do not say.
const uncovered = "an earlier release began this run and kept only the hash of the target's weights: whether config.json and the types of weights, keys, values and activations are still the same is not known"

// Check refuses the origin of another run. why, if not empty, says what then, of an
// earlier release, leaves unknown.
func (o Origin) Check(then json.RawMessage) (why string, err error) {
	var schema struct {
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal(then, &schema); err != nil {
		return "", fmt.Errorf("identity: %w", err)
	}
	if schema.Schema == 0 {
		if !equal(then, o.old) {
			return "", fmt.Errorf("%w (%s, now %s)", ErrOther, then, o.old)
		}
		if o.parts.Function == nil {
			return "", nil // it has all there is to a language model
		}
		return uncovered, nil
	}
	var p parts
	d := json.NewDecoder(bytes.NewReader(then))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil || p.Schema != Schema {
		return "", fmt.Errorf("identity: schema %d, want %d or that of an earlier release: %w", schema.Schema, Schema, cmp.Or(err, ErrOther))
	}
	now := o.parts
	if now.Function != nil && p.Function != nil {
		if d := now.Function.Against(p.Function); d != nil {
			return "", fmt.Errorf("%w: %s", ErrOther, d.Since("the run began"))
		}
		p.Function = now.Function // they may differ in what they are derived from
	}
	if d := now.Spec.Against(p.Spec); d != nil {
		return "", fmt.Errorf("%w: %s", ErrOther, d.Since("the run began"))
	}
	if !equal(text(p), text(now)) {
		p.Function, p.Spec, now.Function, now.Spec = nil, nil, nil, nil
		return "", fmt.Errorf("%w (%s, now %s)", ErrOther, text(p), text(now))
	}
	return "", nil
}

func equal(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// oldLM is the form of schema 1. It never changes for the same run, whatever arch.Spec
// looks like. Therefore it has fields to which only other families give a value.
func oldLM(s *arch.Spec, docs string, window int) []byte {
	type rope struct {
		Theta                     float64
		Type                      string
		Factor, LowFreq, HighFreq float64
		Original                  int
		BetaFast, BetaSlow, Scale float64
		Truncate                  bool
	}
	type spec struct {
		Arch                                                        string
		Vocab, Hidden, Layers, Heads, KVHeads, HeadDim, FFN, MaxPos int
		NormEps                                                     float32
		LayerNorm                                                   bool
		Rope                                                        rope
		RotDim                                                      int
		QKNorm                                                      bool
		Windows                                                     []int
		Act                                                         compute.Activation
		Gated, Parallel, Tied, QKVBias, OBias, MLPBias              bool
		BOS                                                         int32
		EOS                                                         []int32
		Draft, FCBias                                               bool
		DraftVocab                                                  int
		Names                                                       json.RawMessage
	}
	r := &s.Rope
	return text(map[string]any{
		"kind": checkpoints.KindLM, "docs": docs, "window": window,
		"spec": spec{
			Arch: s.Arch, Vocab: s.Vocab, Hidden: s.Hidden, Layers: s.Layers, Heads: s.Heads, KVHeads: s.KVHeads,
			HeadDim: s.HeadDim, FFN: s.FFN, MaxPos: s.MaxPos, NormEps: s.NormEps, LayerNorm: s.LayerNorm,
			Rope:   rope{r.Theta, r.Type, r.Factor, r.LowFreq, r.HighFreq, r.Original, r.BetaFast, r.BetaSlow, r.Scale, r.Truncate},
			RotDim: s.RotDim, Windows: s.Windows, Act: s.Act, Gated: true, Parallel: s.Parallel, Tied: s.Tied,
			QKVBias: s.QKVBias, OBias: s.OBias, MLPBias: s.MLPBias, BOS: s.BOS, EOS: s.EOS,
			Draft: s.Draft, FCBias: s.FCBias, DraftVocab: s.DraftVocab, Names: json.RawMessage(llamaNames),
		},
	})
}

// llamaNames are the tensors of the family that LM trains.
const llamaNames = `{"Embed":"model.embed_tokens","FinalNorm":"model.norm","LMHead":"lm_head","FC":"","Layer":"model.layers.%d.",` +
	`"InputNorm":"input_layernorm","PostNorm":"post_attention_layernorm",` +
	`"Q":"self_attn.q_proj","K":"self_attn.k_proj","V":"self_attn.v_proj","O":"self_attn.o_proj","QKV":"","QNorm":"","KNorm":"",` +
	`"Gate":"mlp.gate_proj","Up":"mlp.up_proj","Down":"mlp.down_proj"}`

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
