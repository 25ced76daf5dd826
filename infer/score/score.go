// Package score writes the outputs of a target, and of a draft head, for given tokens, so that
// they can be compared with other systems.
package score

import (
	"context"
	"errors"
	"fmt"
	"io"

	"talf/model"
	"talf/model/arch"
	"talf/model/head"
	"talf/model/safetensors"
	"talf/tree"
)

// An Input is a sequence of tokens, optionally followed by a tree.
type Input struct {
	IDs  []int32 `json:"ids"`
	Tree *Tree   `json:"tree"` // nil: none
	// Place says where Read found it: "standard input, line 3".
	Place string `json:"-"`
}

// A Tree lists the nodes that follow a sequence, parents before their children.
type Tree struct {
	Parents []int   `json:"parents"` // of each node; -1 is the sequence's last token
	Tokens  []int32 `json:"tokens"`
}

// Validate reports an input that is wrong for every model.
func (in *Input) Validate() error {
	if len(in.IDs) == 0 {
		return errors.New("ids is empty, want at least one token")
	}
	t := in.Tree
	if t == nil {
		return nil
	}
	if len(t.Parents) != len(t.Tokens) {
		return fmt.Errorf("tree has %d parents and %d tokens, want as many", len(t.Parents), len(t.Tokens))
	}
	if len(t.Parents) >= tree.MaxNodes {
		return fmt.Errorf("tree has %d nodes, want fewer than %d", len(t.Parents), tree.MaxNodes)
	}
	for i, p := range t.Parents {
		if p < -1 || p >= i {
			return fmt.Errorf("tree.parents[%d] is %d, want -1 or an earlier node", i, p)
		}
	}
	return nil
}

// Fits reports tokens that a model does not know, and a sequence that is too long for it.
func (in *Input) Fits(spec *arch.Spec) error {
	long, tokens := len(in.IDs), in.IDs
	if t := in.Tree; t != nil {
		tokens = append(tokens[:long:long], t.Tokens...)
		depth := make([]int, len(t.Parents))
		for i, p := range t.Parents {
			depth[i] = 1
			if p >= 0 {
				depth[i] += depth[p]
			}
			long = max(long, len(in.IDs)+depth[i])
		}
	}
	if long > spec.MaxPos {
		return fmt.Errorf("%d positions, but the model has %d", long, spec.MaxPos)
	}
	if n := spec.Rope.Switch(); !spec.Long(len(in.IDs)) && spec.Long(long) {
		return fmt.Errorf("the tree ends at position %d, but all positions rotate otherwise in texts of more than %d: want paths of it as ids", long, n)
	}
	for _, t := range tokens {
		if t < 0 || int(t) >= spec.Vocab {
			return fmt.Errorf("token %d is outside the vocabulary of %d", t, spec.Vocab)
		}
	}
	return nil
}

// chunk is how many tokens run in one pass. Results do not depend on it.
const chunk = 256

// Write runs the inputs and streams their tensors to f as a safetensors file. Input n gives
// n.logits [ids, vocabulary]; n.hidden [ids, hidden size], after the final norm; n.tree_logits
// [nodes, vocabulary] if it has a tree; and with a head n.head_logits [ids − 1, vocabulary].
// done, if not nil, is called after each input.
func Write(ctx context.Context, f io.Writer, m *model.Model, h *head.Head, inputs []Input, done func(n int)) error {
	spec := m.Spec()
	var all []safetensors.Tensor
	add := func(n int, name string, rows, cols int) {
		all = append(all, safetensors.Tensor{Name: fmt.Sprintf("%d.%s", n, name), DType: "F32", Shape: []int{rows, cols}})
	}
	for n, in := range inputs {
		add(n, "logits", len(in.IDs), spec.Vocab)
		add(n, "hidden", len(in.IDs), spec.Hidden)
		if in.Tree != nil {
			add(n, "tree_logits", len(in.Tree.Tokens), spec.Vocab)
		}
		if h != nil {
			add(n, "head_logits", len(in.IDs)-1, spec.Vocab)
		}
	}
	w, err := safetensors.NewWriter(f, nil, all...)
	if err != nil {
		return err
	}
	for n, in := range inputs {
		if err := one(ctx, m, h, in, w); err != nil {
			return fmt.Errorf("score input %d: %w", n, err)
		}
		if done != nil {
			done(n)
		}
	}
	return w.Close()
}

// one writes the tensors of one input in the order in which Write declared them.
func one(ctx context.Context, m *model.Model, h *head.Head, l Input, w *safetensors.Writer) error {
	spec := m.Spec()
	seq := m.NewSeqOf(len(l.IDs))
	defer seq.Close()
	hidden := make([]float32, 0, len(l.IDs)*spec.Hidden)
	var read *model.Store // what the head reads
	if h != nil {
		var err error
		if read, err = h.NewInputStore(len(l.IDs)); err != nil {
			return err
		}
	}
	var chain tree.Tree
	for at := 0; at < len(l.IDs); {
		ids := l.IDs[at:min(at+chunk, len(l.IDs))]
		last := at+len(ids) == len(l.IDs)
		size := len(ids)
		if last && l.Tree != nil {
			// The tree's nodes join the last chunk's chain. A pass of any other size
			// would give the same bits.
			if size+len(l.Tree.Tokens) > tree.MaxNodes {
				ids, last = ids[:size-1], false
				size--
			} else {
				size += len(l.Tree.Tokens)
			}
		}
		chain.Reset(ids[0], size)
		path := []int{0}
		for i, id := range ids[1:] {
			path = append(path, chain.Add(i, id))
		}
		if last && l.Tree != nil {
			for i, p := range l.Tree.Parents {
				chain.Add(len(ids)+p, l.Tree.Tokens[i])
			}
		}
		b := seq.Branch(seq.Len())
		o, err := m.Forward(ctx, []model.Segment{{Rows: b, Tree: &chain, Want: model.WantAll}})
		if err == nil {
			err = o.Err(0)
		}
		if err != nil {
			b.Drop()
			return err
		}
		logits := make([]float32, size*spec.Vocab)
		o.ReadLogits(logits, o.LogitsRow(0, 0))
		f := make([]float32, len(ids)*spec.Hidden)
		o.ReadHidden(f, o.HiddenRow(0, 0))
		if h != nil {
			var states []model.Feature
			for i := range ids {
				states = append(states, o.Feature(0, i))
			}
			if err := read.Put(at, states...); err != nil {
				return err
			}
		}
		if err := b.Commit(path); err != nil {
			return err
		}
		hidden = append(hidden, f...)
		if err := w.Float32s(logits[:len(ids)*spec.Vocab]); err != nil {
			return err
		}
		at += len(ids)
		if last { // the rest of the logits are the tree's
			if err := errors.Join(w.Float32s(hidden), w.Float32s(logits[len(ids)*spec.Vocab:])); err != nil {
				return err
			}
		}
	}
	if h == nil {
		return nil
	}
	return byHead(ctx, h, l.IDs, read, w)
}

// byHead writes h's outputs for ids[1:], given what it reads of the target's states at the
// tokens before them.
func byHead(ctx context.Context, h *head.Head, ids []int32, read *model.Store, w *safetensors.Writer) error {
	s := h.Spec()
	seq := h.NewSeq()
	defer seq.Close()
	for at := 0; at+1 < len(ids); at += chunk {
		n := min(chunk, len(ids)-1-at)
		var in []model.Feature
		for i := range n {
			in = append(in, read.At(at+i))
		}
		o, err := seq.Append(ctx, ids[at+1:at+1+n], in, model.WantAll)
		if err != nil {
			return err
		}
		logits := make([]float32, n*s.Vocab)
		o.ReadLogits(logits, o.LogitsRow(0, 0))
		if err := w.Float32s(logits); err != nil {
			return err
		}
	}
	return nil
}
