// Package model runs decoder-only language models and draft heads over trees.
package model

import (
	"context"

	"talf/compute"
	"talf/model/arch"
	"talf/tree"
)

// Options say how a model is loaded.
type Options struct {
	DType   compute.DType // of packed weights; F32
	MaxRows int           // most rows of one internal pass; larger batches run in row blocks
}

// Default returns the options for CPU decoding.
func Default() Options { return Options{DType: compute.F32, MaxRows: 512} }

// A Model is a loaded network. One goroutine at a time may call Forward;
// sequences and branches belong to that goroutine too.
type Model struct{}

// Load reads a Hugging Face directory: config.json, safetensors (one file or
// sharded), generation_config.json.
func Load(dir string, dev compute.Device, opt Options) (*Model, error) { panic("model: stub") }

func (m *Model) Spec() *arch.Spec       { panic("model: stub") }
func (m *Model) Device() compute.Device { panic("model: stub") }

// Hash identifies the weights: hex SHA-256 over every tensor's name, dtype,
// shape and bytes in name order.
func (m *Model) Hash() string { panic("model: stub") }

// NewSeq returns an empty sequence.
func (m *Model) NewSeq() *Seq { panic("model: stub") }

// Close frees what the model holds.
func (m *Model) Close() error { panic("model: stub") }

// A Seq is the committed positions of one sequence and their KV blocks.
type Seq struct{}

func (s *Seq) Len() int { panic("model: stub") }

// Fork returns a sequence that shares s's full blocks and copies its tail block.
func (s *Seq) Fork() *Seq { panic("model: stub") }

// Truncate drops positions from n on.
func (s *Seq) Truncate(n int) { panic("model: stub") }

// Branch returns rows for one tree whose root stands at position prefix;
// prefix < Len labels a past position.
func (s *Seq) Branch(prefix int) *Branch { panic("model: stub") }
func (s *Seq) Close()                    { panic("model: stub") }

// A Branch is the KV rows of one tree's nodes. At most one branch with prefix ==
// Len may be open on a sequence.
type Branch struct{}

// Commit appends path (nodes, root first, each the parent of the next) to the
// sequence and drops the rest. Only where prefix == Len.
func (b *Branch) Commit(path []int) error { panic("model: stub") }

// Drop gives the rows back.
func (b *Branch) Drop() { panic("model: stub") }

// Want says which run nodes get logits.
type Want uint8

const (
	WantNone Want = iota
	WantLast
	WantAll
)

// A Feature is one row of a device buffer: a hidden state, by handle.
type Feature struct {
	Buf compute.Buffer // [rows][Hidden]
	Row int32
}

// A Segment is one tree run over one sequence. A pass takes any number of them.
type Segment struct {
	Rows *Branch
	Tree *tree.Tree
	From int       // run nodes [From,Len); earlier ones ran before and keep their rows
	Want Want      // logits of none, the last, or all run nodes
	Feat []Feature // draft head only: input feature of each run node
}

// Forward runs the segments in one pass. The output is valid until the next
// Forward of this model.
func (m *Model) Forward(ctx context.Context, batch []Segment) (*Output, error) {
	panic("model: stub")
}

// An Output is a pass's results, on the device.
type Output struct {
	Hidden compute.Buffer // [rows][Hidden]: after the final norm; a head's f̂
	Logits compute.Buffer // [wanted rows][Vocab]
}

// Hidden row of node n of segment seg.
func (o *Output) HiddenRow(seg, n int) int { panic("model: stub") }

// LogitsRow of node n of segment seg; it panics if the row was not wanted.
func (o *Output) LogitsRow(seg, n int) int { panic("model: stub") }

// ReadLogits copies rows [row, row+len(dst)/Vocab) of the logits to dst.
func (o *Output) ReadLogits(dst []float32, row int) { panic("model: stub") }

// ReadHidden likewise.
func (o *Output) ReadHidden(dst []float32, row int) { panic("model: stub") }

// TopK writes the k most likely tokens of logits rows [row,row+n), best first,
// ties to the lower id, with log-softmax values at temperature 1: [n][k] each.
func (o *Output) TopK(ids []int32, logp []float32, row, n, k int) { panic("model: stub") }
