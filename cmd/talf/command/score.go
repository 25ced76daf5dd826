package command

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"talf/infer/decode"
	"talf/internal/durable"
	"talf/model"
	"talf/model/head"
	"talf/model/safetensors"
	"talf/tree"
)

// A scoreLine is one line of score's input.
type scoreLine struct {
	IDs  []int32 `json:"ids"`
	Tree *struct {
		Parents []int   `json:"parents"` // -1: follows the last id
		Tokens  []int32 `json:"tokens"`
	} `json:"tree"`

	at int // the line's number in the input, from 1
}

func newScore(a *app) *cobra.Command {
	var dir, out, headDir string
	var force bool
	var o machineOptions
	c := &cobra.Command{
		Use:   "score --model DIR --out FILE",
		Short: "Write logits and hidden states of given tokens, to compare with other systems",
		Long: `Score reads one JSON object a line from standard input:

  {"ids": [1, 5, 9], "tree": {"parents": [-1, 0, 0], "tokens": [3, 4, 7]}}

"tree" is optional: node i hangs below node parents[i], which comes before it;
-1 is the last id. For input line N (from 0, blank ones not counted) the
safetensors file gets, in float32,

  N.logits       [ids, vocabulary]
  N.hidden       [ids, hidden size], after the final norm
  N.tree_logits  [nodes, vocabulary], only where the line has a tree
  N.head_logits  [ids − 1, vocabulary], only with --head: what the draft head makes
                 of every id but the first and the model's hidden state before it`,
		Example: `  echo '{"ids":[1,5,9]}' | talf score --model DIR --out scores.safetensors`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := need(cmd, "model", "out"); err != nil {
				return err
			}
			if err := canWrite(out); err != nil {
				return err
			}
			lines, err := waitFor(cmd.Context(), func() ([]scoreLine, error) { return readScoreLines(a.in) })
			if err != nil {
				return err
			}
			m, closeModel, err := openModelAs(dir, &o)
			if err != nil {
				return err
			}
			defer closeModel()
			if err := checkScoreLines(lines, m); err != nil {
				return err
			}
			var h *head.Head
			if headDir != "" {
				if h, err = decode.LoadHead(headDir, m, force); err != nil {
					return err
				}
				defer func() { _ = h.Close() }()
			}
			return a.score(cmd.Context(), m, h, lines, out)
		},
	}
	f := c.Flags()
	f.StringVar(&dir, "model", "", "model directory in Hugging Face layout")
	f.StringVar(&headDir, "head", "", "checkpoint of a draft head, to write its logits too")
	f.BoolVar(&force, "force", false, "use a head that was trained for other weights")
	f.StringVar(&out, "out", "", "safetensors file to write")
	o.flags(f)
	return c
}

func readScoreLines(r io.Reader) ([]scoreLine, error) {
	var lines []scoreLine
	s := bufio.NewScanner(r)
	s.Buffer(nil, 64<<20)
	for n := 1; s.Scan(); n++ {
		if len(bytes.TrimSpace(s.Bytes())) == 0 {
			continue
		}
		l := scoreLine{at: n}
		d := json.NewDecoder(bytes.NewReader(s.Bytes()))
		d.DisallowUnknownFields()
		if err := d.Decode(&l); err != nil {
			return nil, fmt.Errorf("standard input, line %d: %w", n, plainJSON(err))
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("standard input, line %d: text after the JSON object", n)
		}
		if len(l.IDs) == 0 {
			return nil, fmt.Errorf("standard input, line %d: ids is empty, want at least one token", n)
		}
		if t := l.Tree; t != nil {
			if len(t.Parents) != len(t.Tokens) {
				return nil, fmt.Errorf("standard input, line %d: tree has %d parents and %d tokens, want as many", n, len(t.Parents), len(t.Tokens))
			}
			if len(t.Parents) >= tree.MaxNodes {
				return nil, fmt.Errorf("standard input, line %d: tree has %d nodes, want fewer than %d", n, len(t.Parents), tree.MaxNodes)
			}
			for i, p := range t.Parents {
				if p < -1 || p >= i {
					return nil, fmt.Errorf("standard input, line %d: tree.parents[%d] is %d, want -1 or an earlier node", n, i, p)
				}
			}
		}
		lines = append(lines, l)
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	if len(lines) == 0 {
		return nil, usagef("standard input is empty: want one JSON object a line")
	}
	return lines, nil
}

// checkScoreLines holds tokens and lengths against the model.
func checkScoreLines(lines []scoreLine, m *model.Model) error {
	spec := m.Spec()
	for _, l := range lines {
		long := len(l.IDs)
		tokens := l.IDs
		if l.Tree != nil {
			tokens = append(tokens[:long:long], l.Tree.Tokens...)
			deep := make([]int, len(l.Tree.Parents))
			for i, p := range l.Tree.Parents {
				deep[i] = 1
				if p >= 0 {
					deep[i] += deep[p]
				}
				long = max(long, len(l.IDs)+deep[i])
			}
		}
		if long > spec.MaxPos {
			return fmt.Errorf("standard input, line %d: %d positions, but the model has %d", l.at, long, spec.MaxPos)
		}
		for _, t := range tokens {
			if t < 0 || int(t) >= spec.Vocab {
				return fmt.Errorf("standard input, line %d: token %d is outside the vocabulary of %d", l.at, t, spec.Vocab)
			}
		}
	}
	return nil
}

// scoreChunk is how many tokens run in one pass; results do not depend on it.
const scoreChunk = 256

// score runs every line and streams its tensors to out, which appears whole or
// not at all. A head may be nil.
func (a *app) score(ctx context.Context, m *model.Model, h *head.Head, lines []scoreLine, out string) error {
	spec := m.Spec()
	var all []safetensors.Tensor
	add := func(n int, name string, rows, cols int) {
		all = append(all, safetensors.Tensor{Name: fmt.Sprintf("%d.%s", n, name), DType: "F32", Shape: []int{rows, cols}})
	}
	for n, l := range lines {
		add(n, "logits", len(l.IDs), spec.Vocab)
		add(n, "hidden", len(l.IDs), spec.Hidden)
		if l.Tree != nil {
			add(n, "tree_logits", len(l.Tree.Tokens), spec.Vocab)
		}
		if h != nil {
			add(n, "head_logits", len(l.IDs)-1, spec.Vocab)
		}
	}
	bar := a.progress("score", "lines")
	defer bar.end()
	return durable.Write(out, func(f io.Writer) error {
		w, err := safetensors.NewWriter(f, nil, all...)
		if err != nil {
			return err
		}
		for n, l := range lines {
			if err := scoreOne(ctx, m, h, l, w); err != nil {
				return fmt.Errorf("score line %d: %w", l.at, err)
			}
			bar.set(int64(n+1), int64(len(lines)), "")
		}
		return w.Close()
	})
}

// scoreOne writes the tensors of one line in the order that score declared.
func scoreOne(ctx context.Context, m *model.Model, h *head.Head, l scoreLine, w *safetensors.Writer) error {
	spec := m.Spec()
	seq := m.NewSeq()
	defer seq.Close()
	hidden := make([]float32, 0, len(l.IDs)*spec.Hidden)
	var chain tree.Tree
	for at := 0; at < len(l.IDs); {
		ids := l.IDs[at:min(at+scoreChunk, len(l.IDs))]
		last := at+len(ids) == len(l.IDs)
		size := len(ids)
		if last && l.Tree != nil {
			// The tree's nodes join the last chunk's chain: one pass, and the same
			// bits as in any other pass.
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
		if err != nil {
			b.Drop()
			return err
		}
		logits := make([]float32, size*spec.Vocab)
		o.ReadLogits(logits, o.LogitsRow(0, 0))
		f := make([]float32, len(ids)*spec.Hidden)
		o.ReadHidden(f, o.HiddenRow(0, 0))
		if err := b.Commit(path); err != nil {
			return err
		}
		hidden = append(hidden, f...)
		if err := w.Float32s(logits[:len(ids)*spec.Vocab]); err != nil {
			return err
		}
		at += len(ids)
		if last { // the rest of the logits is the tree's
			if err := errors.Join(w.Float32s(hidden), w.Float32s(logits[len(ids)*spec.Vocab:])); err != nil {
				return err
			}
		}
	}
	if h == nil {
		return nil
	}
	return scoreHead(ctx, h, l.IDs, hidden, w)
}

// scoreHead writes what h makes of ids[1:], given the hidden states [ids][hidden
// size] of the tokens before them.
func scoreHead(ctx context.Context, h *head.Head, ids []int32, hidden []float32, w *safetensors.Writer) error {
	s := h.Spec()
	store, err := h.NewStore(len(ids))
	if err != nil {
		return err
	}
	if err := store.Load(0, hidden); err != nil {
		return err
	}
	seq := h.NewSeq()
	defer seq.Close()
	for at := 0; at+1 < len(ids); at += scoreChunk {
		n := min(scoreChunk, len(ids)-1-at)
		var in []model.Feature
		for i := range n {
			in = append(in, store.At(at+i))
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
