// Package mla computes multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, §2.1) over
// compressed keys and values.
//
// What a position keeps is the norm of its latent c and its rotated key r, which all heads share. A
// head's scores are sums over q·(K c) + q'·r, K being its part of the up-projection; they are computed
// as (Kᵀq)·c + q'·r, so that keys are never expanded, and the values V c of the weights that follow as
// V(Σ w c) (§2.1.2; "weight absorption"). So attention is that of many heads of queries with one head
// of keys, whose last elements are its values.
//
// Prompts, single tokens and trees take this one way, so that a row's bits do not depend on it.
package mla

import (
	"encoding/binary"
	"fmt"
	"math"

	"talf/compute"
	"talf/model/arch"
)

// A Layer is the attention of a layer. The rows of queries and of Down have their rotated elements
// first, in the order in which halves are rotated.
type Layer struct {
	QDown compute.Linear   // [QRank][Hidden] with the input norm; W is nil: queries are not compressed
	Q     compute.Linear   // [heads·HeadDim][QRank], with the norm of what it reads
	Down  compute.Linear   // [rotated+KVRank][Hidden] with the input norm
	Norm  *compute.Norm    // [KVRank] of what is compressed
	Keys  []compute.Weight // of each head [KVRank][Nope]: transposed keys of the up-projection
	Vals  []compute.Weight // of each head [ValueDim][KVRank]
}

// ReadThrough sets the norm of the layer's input.
func (l *Layer) ReadThrough(norm *compute.Norm) {
	l.Down.Norm = norm
	if l.QDown.W != nil {
		l.QDown.Norm = norm
	} else {
		l.Q.Norm = norm
	}
}

// Bytes returns the memory of the weights that a pass reads.
func (l *Layer) Bytes() int {
	n := l.Q.Bytes() + l.Down.Bytes()
	if l.QDown.W != nil {
		n += l.QDown.Bytes()
	}
	for h := range l.Keys {
		n += l.Keys[h].Bytes() + l.Vals[h].Bytes()
	}
	return n
}

// Shape returns what keys and values take in a store.
func Shape(s *arch.Spec) (kvHeads, headDim, latent int) {
	return 1, s.RotDim + s.Latent.KVRank, s.Latent.KVRank
}

// Turned returns the first rows of x, each of cols elements, transposed, as bytes of F32.
func Turned(x []float32, rows, cols int) []byte {
	turned := make([]byte, 4*rows*cols)
	for i := range rows {
		for j, e := range x[i*cols:][:cols] {
			binary.LittleEndian.PutUint32(turned[4*(j*rows+i):], math.Float32bits(e))
		}
	}
	return turned
}

// Type returns the type of the parts of the up-projection in a model with weights as as. They are not
// rounded to integers, because the one that keys need is transposed, and small; nor are activations
// rounded for them.
func Type(as compute.DType) compute.DType {
	if as == compute.BF16 || as == compute.BF16DP {
		return compute.BF16
	}
	return compute.F32
}

// Scale returns the factor of scores.
func Scale(s *arch.Spec) float32 {
	if s.AttnScale != 0 {
		return s.AttnScale
	}
	return float32(1 / math.Sqrt(float64(s.HeadDim)))
}

// widths returns the elements of a row of each of a runner's buffers.
func widths(s *arch.Spec) [6]int {
	l := &s.Latent
	key := s.RotDim + l.KVRank
	return [...]int{l.QRank, s.Heads * s.HeadDim, key, (s.Heads + 1) * key, s.Heads * l.KVRank, s.Heads * l.ValueDim}
}

// RowBytes returns the memory that a runner takes for a row of a pass.
func RowBytes(s *arch.Spec) int64 {
	n := int64(0)
	for _, w := range widths(s) {
		n += 4 * int64(w)
	}
	return n
}

// A Runner computes the layers of one model.
type Runner struct {
	q    compute.Queue
	norm compute.Varier
	more compute.Absorber
	spec *arch.Spec

	low, query, down compute.Buffer // [rows][QRank], [rows][heads·HeadDim], [rows][rotated+KVRank]
	qkv              compute.Buffer // [rows][heads+1][rotated+KVRank]
	mixed            compute.Buffer // [rows][heads·KVRank]: sums of latents
	out              compute.Buffer // [rows][heads·ValueDim]
}

// New returns a runner for models of one specification.
func New(q compute.Queue, s *arch.Spec) *Runner {
	return &Runner{q: q, norm: q.Abilities().Variants, more: q.Abilities().Latent, spec: s}
}

// Grow makes room for passes of n rows.
func (r *Runner) Grow(dev compute.Device, n int) error {
	for i, dst := range []*compute.Buffer{&r.low, &r.query, &r.down, &r.qkv, &r.mixed, &r.out} {
		w := widths(r.spec)[i]
		if w == 0 {
			continue
		}
		b, err := dev.Alloc(compute.F32, n, w)
		if err != nil {
			return fmt.Errorf("latent attention of %d rows: %w", n, err)
		}
		*dst = b
	}
	return nil
}

// Run computes the attention of layer i over the rows of x [n][Hidden] of a step, and writes their keys
// and values to kv. The result [n][heads·ValueDim] is valid until the next call.
func (r *Runner) Run(x compute.Buffer, l *Layer, kv compute.KV, i int, a *compute.Attention, s *compute.Step) compute.Buffer {
	n, heads, spec := s.Rows, r.spec.Heads, r.spec
	rank, rot := spec.Latent.KVRank, spec.RotDim
	key := rot + rank
	in := x
	if l.QDown.W != nil {
		r.q.Linear(r.low, x, &l.QDown, compute.Store, n)
		in = r.low
	}
	r.q.Linear(r.query, in, &l.Q, compute.Store, n)
	r.q.Linear(r.down, x, &l.Down, compute.Store, n)
	r.norm.NormColumns(r.down, rot, l.Norm, n)

	// Queries in terms of the latent, beside their rotated elements, and then the one key.
	queries := compute.Columns{Buf: r.query, Step: spec.HeadDim}
	r.more.CopyHeads(compute.Columns{Buf: r.qkv, Step: key}, queries, heads, rot, n)
	queries.Col = rot
	r.more.LinearHeads(compute.Columns{Buf: r.qkv, Col: rot, Step: key}, queries, l.Keys, n)
	r.more.CopyHeads(compute.Columns{Buf: r.qkv, Col: heads * key}, compute.Columns{Buf: r.down}, 1, key, n)

	r.q.Attend(r.mixed, r.qkv, kv, i, a, s)
	r.more.LinearHeads(compute.Columns{Buf: r.out, Step: spec.Latent.ValueDim}, compute.Columns{Buf: r.mixed, Step: rank}, l.Vals, n)
	return r.out
}
