// Package batch packs labelled sequences into the graph of a draft head: which rows its levels have,
// what each is fed, and the labels that it is compared with.
package batch

import (
	"fmt"
	"math/rand/v2"

	"talf/compute"
	"talf/data"
	"talf/train/internal/gg"
	"talf/train/loss"
	"talf/train/mix"
	"talf/train/net"
)

// A Batch fills a head's graph with sequences. They are packed one after another,
// without padding: a position that no label depends on gets no row, and only positions
// that count get rows for the nodes of their tree.
//
// The input of head position i of a sequence is (f_i, x_{i+1}). Its tree is the one
// rooted at p = i+1, its regression target is f_{i+1}, and it counts if the token that
// it predicts, x_{i+2}, is in the loss mask.
type Batch struct {
	Head   *net.Head
	Labels []*compute.SoftLabels // [level]
	Mask   [][]float32           // [level][rows]: how many times a row counts
	Top    [][]int32             // [level][rows]: the target's most likely next token
	Token  [][]int32             // [level][rows]: the row's own token, a draft id; −1: it has none. level 0: empty
	Next   [][]int32             // [level][rows] of a block head along the text: the token after the row, a draft id; −1: it has none
	Count  int                   // positions that count
	Mass   []float64             // [level]: mass of the labels of rows that count
	Lost   []float64             // [level]: the part of it outside the draft vocabulary

	target []*gg.Node // [level]: f_{i+1}, on the levels with a regression
	hidden int
	meta   data.Meta
	plan   loss.Plan
	vocab  *Vocabulary // that the labels are over: their IDs are draft ids

	exact  *exact    // nil unless Plan.Exact
	taught []float32 // [T−1][V]: the labels of one sequence, if they are exact

	row   []int32   // of each node of one tree; −1: none
	lev   []int     // level of each node
	reach []float64 // with Plan.Reach, how likely the target draws each node; else 1

	above, here []int32 // row of each position of one sequence in two consecutive passes of HASS

	anchors []int // of a block head: see Choose
}

// Labelling returns what a loss needs to know about the data and the draft vocabulary.
func Labelling(m data.Meta, v *Vocabulary) loss.Labelling {
	l := loss.Labelling{Depth: m.Depth, K: m.K, Branch: m.Branch}
	if v != nil {
		l.DraftVocab = len(v.IDs)
	}
	return l
}

// New adds a head to g with room for rows positions of labelled text and, if it is a block head, so
// many blocks. plan says how the head is run.
func New(g *gg.Graph, p *net.Params, embed *gg.Tensor, rope compute.Buffer, meta data.Meta, plan loss.Plan, vocab *Vocabulary, rows, blocks int) *Batch {
	b := &Batch{hidden: meta.Hidden, meta: meta, plan: plan, vocab: vocab}
	sh := net.Shape{Rows: rows, Branch: meta.Branch, Levels: plan.Levels, Detach: plan.Detach, Blocks: blocks, Path: plan.Path}
	if plan.Text {
		sh.Branch = 1
	}
	b.Head = net.NewHead(g, p, embed, rope, sh)
	for l, lv := range b.Head.Levels {
		b.Labels = append(b.Labels, &compute.SoftLabels{K: meta.K})
		if l < plan.Regress {
			b.target = append(b.target, g.Input("target", lv.Rows, meta.Hidden))
		}
	}
	b.Mask, b.Top = make([][]float32, plan.Levels), make([][]int32, plan.Levels)
	b.Token, b.Next = make([][]int32, plan.Levels), make([][]int32, plan.Levels)
	b.Mass, b.Lost = make([]float64, plan.Levels), make([]float64, plan.Levels)
	b.row, b.lev, b.reach = make([]int32, meta.Nodes()), make([]int, meta.Nodes()), make([]float64, meta.Nodes())
	return b
}

// Inputs returns what a loss over the batch is built from. lm is the LM head, frozen, or nil for the
// head's own, which learns.
func (b *Batch) Inputs(g *gg.Graph, lm *gg.Tensor) loss.Inputs {
	in := loss.Inputs{Graph: g, Vocab: b.size(), Labels: b.Labels, Target: b.target, Top: b.Head.Params.Spec.Block.SelectorTop}
	in.LMHead, in.PairHead = b.Head.LM(g, lm)
	for i, l := range b.Head.Levels {
		in.FHat = append(in.FHat, l.Out)
		in.Nodes = append(in.Nodes, loss.Nodes{Token: &b.Token[i], Parent: &l.From, Mask: &b.Mask[i], Next: &b.Next[i]})
		if l.Pair != nil {
			in.Pair = append(in.Pair, l.Pair)
		}
		if l.Sure != nil {
			in.Sure = append(in.Sure, l.Sure)
		}
	}
	return in
}

// size returns the number of tokens that labels are over.
func (b *Batch) size() int {
	if b.vocab != nil {
		return len(b.vocab.IDs)
	}
	return b.meta.Vocab
}

func (b *Batch) Reset() {
	b.Head.Reset()
	b.Count, b.anchors = 0, nil
	for l, s := range b.Labels {
		s.IDs, s.Prob, s.Tail, s.Full = s.IDs[:0], s.Prob[:0], s.Tail[:0], s.Full[:0]
		b.Mask[l], b.Top[l], b.Token[l], b.Next[l] = b.Mask[l][:0], b.Top[l][:0], b.Token[l][:0], b.Next[l][:0]
		b.Mass[l], b.Lost[l] = 0, 0
	}
}

// Add appends a record, whose span must fit. feat is f [T][H]; in is the features that the head
// is fed instead, perhaps with noise.
func (b *Batch) Add(r *data.Record, in, feat []float32, limit int) error {
	n := mix.Span(r, limit, b.plan.Early)
	if b.Head.Block != nil {
		return b.addBlocks(r, in, n)
	}
	l0 := b.Head.Levels[0]
	first := int32(l0.Rows.N)
	if l0.Rows.N+n > l0.Rows.Max {
		panic("train: a batch overflows")
	}
	nodes := b.meta.Nodes()
	if b.exact != nil {
		if err := b.teach(r, n); err != nil {
			return err
		}
	}
	for i := range n {
		l0.Add(r.Tokens[i+1], int32(i), first)
		b.label(0, r, (i+1)*nodes, b.repeats(r, 0, i))
		if b.learnt(r, i) {
			b.Count++
		}
	}
	b.Head.Feed(int(first), in[:n*b.Head.Params.Spec.FeatureSize()])
	if len(b.target) > 0 {
		copy(b.target[0].Data()[int(first)*b.hidden:], feat[b.hidden:(n+1)*b.hidden])
	}
	if b.plan.Text {
		b.addPasses(r, feat, first, n)
		return nil
	}
	for i := range n {
		if b.learnt(r, i) {
			if err := b.addTree(r, i, first+int32(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// addTree appends the nodes of the tree of head position i, which is row root of level 0.
func (b *Batch) addTree(r *data.Record, i int, root int32) error {
	nodes := b.meta.Nodes()
	tree := (i + 1) * nodes
	b.row[0], b.lev[0], b.reach[0] = root, 0, 1
	for j := 1; j < nodes && len(b.Head.Levels) > 1; j++ {
		p := int(r.TreeParents[tree+j])
		if p < 0 || p >= j {
			return fmt.Errorf("tree at position %d: node %d has parent %d, want an earlier node", i+1, j, p)
		}
		l := b.lev[p] + 1
		b.lev[j] = l
		if l >= len(b.Head.Levels) {
			continue
		}
		if b.row[p] < 0 || !b.runs(r.TreeTokens[tree+j]) {
			b.row[j] = -1
			continue
		}
		level := b.Head.Levels[l]
		if level.Rows.N == level.Rows.Max {
			return fmt.Errorf("tree at position %d: more than %d nodes on a level", i+1, b.meta.Branch)
		}
		b.row[j] = b.Head.AddNode(l, b.row[p], r.TreeTokens[tree+j])
		b.Token[l] = append(b.Token[l], b.vocab.Draft(r.TreeTokens[tree+j]))
		if b.reach[j] = 1; b.plan.Reach {
			b.reach[j] = b.reach[p] * b.Prob(l-1, int(b.row[p]), r.TreeTokens[tree+j])
		}
		b.label(l, r, tree+j, float32(b.reach[j]))
	}
	return nil
}

// learnt reports whether head position i of a record counts.
func (b *Batch) learnt(r *data.Record, i int) bool { return mix.Learnt(r, i, b.plan.Early) }

// runs reports whether there are rows below the top level that are fed the target's token x. The
// head never drafts a token outside its vocabulary, nor any node below it.
func (b *Batch) runs(x int32) bool { return b.plan.Undrafted || b.vocab.Draft(x) >= 0 }

// Prob returns the probability of the target's token x by the labels of a row, 0 if they do not
// include it.
func (b *Batch) Prob(level, row int, x int32) float64 {
	s, d := b.Labels[level], b.vocab.Draft(x)
	if d < 0 {
		return 0
	}
	if b.meta.Labels == data.Full {
		return float64(s.Full[row*b.size()+int(d)])
	}
	for i, id := range s.IDs[row*s.K : (row+1)*s.K] {
		if id == d {
			return float64(s.Prob[row*s.K+i])
		}
	}
	return 0
}

// label appends the labels of node n of r (an index into the nodes of all its trees), which
// count the given number of times.
func (b *Batch) label(level int, r *data.Record, n int, times float32) {
	s := b.Labels[level]
	var top int32
	if v := b.meta.Vocab; b.meta.Labels == data.Full || b.exact != nil {
		p := r.LabelFull
		if b.exact != nil {
			n, p = n/b.meta.Nodes()-1, b.taught
		}
		p = p[n*v : (n+1)*v]
		for i, x := range p {
			if x > p[top] {
				top = int32(i)
			}
		}
		if b.vocab == nil {
			s.Full = append(s.Full, p...)
		} else {
			times = b.inside(level, nil, p, nil, top, times)
		}
	} else {
		k := b.meta.K
		ids, p := r.LabelIDs[n*k:(n+1)*k], r.LabelProbs[n*k:(n+1)*k]
		top = ids[0]
		var tail []float32
		if b.plan.Tail {
			tail = r.Tail[n : n+1]
		}
		if b.vocab == nil {
			s.IDs, s.Prob, s.Tail = append(s.IDs, ids...), append(s.Prob, p...), append(s.Tail, tail...)
		} else {
			times = b.inside(level, ids, p, tail, top, times)
		}
	}
	b.Mask[level], b.Top[level] = append(b.Mask[level], times), append(b.Top[level], top)
}

// inside maps labels over the target's tokens to the draft vocabulary, appends them, and returns
// how many times they now count. ids is nil if p is the full distribution; tail has at most one
// value. The tail's tokens are unknown, so all of it counts as inside.
func (b *Batch) inside(level int, ids []int32, p, tail []float32, top int32, times float32) float32 {
	s := b.Labels[level]
	from, probs := len(s.Prob), &s.Prob
	if ids == nil {
		from, probs = len(s.Full), &s.Full
		for _, id := range b.vocab.IDs {
			s.Full = append(s.Full, p[id])
		}
	} else {
		for i, id := range ids {
			d, x := b.vocab.Draft(id), p[i]
			if d < 0 {
				x = 0
			}
			s.IDs, s.Prob = append(s.IDs, d), append(s.Prob, x)
		}
	}
	s.Tail = append(s.Tail, tail...)
	all, in := 0.0, 0.0
	for _, x := range p {
		all += float64(x)
	}
	mapped := (*probs)[from:]
	for _, x := range mapped {
		in += float64(x)
	}
	if times != 0 {
		b.Mass[level], b.Lost[level] = b.Mass[level]+all, b.Lost[level]+(all-in)
	}
	if b.plan.Outside == loss.Mask && b.vocab.Draft(top) < 0 {
		return 0
	}
	if b.plan.Outside != loss.Drop && in != all {
		rest := 0.0
		for _, x := range tail {
			rest += float64(x)
		}
		if in+rest > 0 {
			f := (all + rest) / (in + rest)
			for i := range mapped {
				mapped[i] = float32(float64(mapped[i]) * f)
			}
			for i := len(s.Tail) - len(tail); i < len(s.Tail); i++ {
				s.Tail[i] = float32(float64(s.Tail[i]) * f)
			}
		}
	}
	return times
}

// Noise adds (U−½)·width·512/T, with U uniform in [0, 1), to features [T][H], as
// EAGLE's training script does. The numbers depend on key alone.
func Noise(feat []float32, tokens int, width float64, key ...uint64) {
	r := rand.New(rand.NewPCG(fold(key)))
	w := width * 512 / float64(max(tokens, 1))
	for i := range feat {
		feat[i] += float32((r.Float64() - 0.5) * w)
	}
}

// fold makes a seed of numbers.
func fold(key []uint64) (uint64, uint64) {
	var seed [2]uint64
	for i, k := range key {
		seed[i%2] = seed[i%2]*0x9e3779b97f4a7c15 + k + 1
	}
	return seed[0], seed[1]
}
