package train

import (
	"fmt"
	"math/rand/v2"

	"talf/compute"
	"talf/data"
	"talf/train/internal/gg"
	"talf/train/loss"
	"talf/train/net"
)

// A headBatch fills a head's graph with sequences. They are packed one behind
// the other, without padding: a position that no label depends on gets no row,
// and only positions that count get the rows of their tree.
//
// Head position i of a sequence takes (f_i, x_{i+1}); its tree is the one rooted
// at p = i+1; its regression target is f_{i+1}; it counts if the token that it
// predicts, x_{i+2}, is in the loss mask.
type headBatch struct {
	head   *net.Head
	target []*gg.Node // [level]: f_{i+1}, where the loss regresses
	hidden int
	meta   data.Meta
	plan   loss.Plan
	vocab  *vocabulary // of the labels: IDs are draft ids

	labels []*compute.SoftLabels // [level]
	mask   [][]float32           // [level][rows]: how often a row counts
	top    [][]int32             // [level][rows] the target's most likely next token
	count  int                   // positions that count
	mass   []float64             // [level] of the labels of rows that count
	lost   []float64             // [level] of it outside the draft vocabulary

	row []int32 // of every node of one tree
	lev []int   // level of every node

	above, here []int32 // of every position of one sequence: its row in two passes
}

// labelling is what a loss must know of a set and of the vocabulary that it is
// learnt on.
func labelling(m data.Meta, v *vocabulary) loss.Labelling {
	l := loss.Labelling{Depth: m.Depth, K: m.K}
	if v != nil {
		l.DraftVocab = len(v.ids)
	}
	return l
}

// newHeadBatch adds a head and room for rows positions of labelled text to g, run
// as plan says.
func newHeadBatch(g *gg.Graph, p *net.Params, embed *gg.Tensor, rope compute.Buffer, meta data.Meta, plan loss.Plan, vocab *vocabulary, rows int) *headBatch {
	b := &headBatch{hidden: meta.Hidden, meta: meta, plan: plan, vocab: vocab}
	sh := net.Shape{Rows: rows, Branch: meta.Branch, Levels: plan.Levels, Detach: plan.Detach}
	if plan.Text {
		sh.Branch = 1
	}
	b.head = net.NewHead(g, p, embed, rope, sh)
	for l, lv := range b.head.Levels {
		b.labels = append(b.labels, &compute.SoftLabels{K: meta.K})
		if l < plan.Regress {
			b.target = append(b.target, g.Input("target", lv.Rows, meta.Hidden))
		}
	}
	b.mask, b.top = make([][]float32, plan.Levels), make([][]int32, plan.Levels)
	b.mass, b.lost = make([]float64, plan.Levels), make([]float64, plan.Levels)
	b.row, b.lev = make([]int32, meta.Nodes()), make([]int, meta.Nodes())
	return b
}

// inputs are what a loss over the batch is built of.
func (b *headBatch) inputs(g *gg.Graph, lm *gg.Tensor) loss.Inputs {
	in := loss.Inputs{Graph: g, Vocab: b.size(), LMHead: g.Frozen(lm), Labels: b.labels, Target: b.target}
	for _, l := range b.head.Levels {
		in.FHat = append(in.FHat, l.Out)
	}
	return in
}

// size returns the tokens that labels are of.
func (b *headBatch) size() int {
	if b.vocab != nil {
		return len(b.vocab.ids)
	}
	return b.meta.Vocab
}

func (b *headBatch) reset() {
	b.head.Reset()
	b.count = 0
	for l, s := range b.labels {
		s.IDs, s.Prob, s.Tail, s.Full = s.IDs[:0], s.Prob[:0], s.Tail[:0], s.Full[:0]
		b.mask[l], b.top[l] = b.mask[l][:0], b.top[l][:0]
		b.mass[l], b.lost[l] = 0, 0
	}
}

// span returns the number of head positions that a record needs: up to the last
// that counts. Positions beyond limit are cut off.
func span(r *data.Record, limit int) int {
	for i := len(r.Tokens) - 3; i >= 0; i-- {
		if i < limit && r.LossMask[i+2] {
			return i + 1
		}
	}
	return 0
}

// counted returns the number of head positions of a record that count.
func counted(r *data.Record, limit int) int {
	n := 0
	for i := range span(r, limit) {
		if r.LossMask[i+2] {
			n++
		}
	}
	return n
}

// add appends a record; its span must fit. feat is f [T][H], in what the head
// gets to see of it.
func (b *headBatch) add(r *data.Record, in, feat []float32, limit int) error {
	n := span(r, limit)
	l0 := b.head.Levels[0]
	first := int32(l0.Rows.N)
	if l0.Rows.N+n > l0.Rows.Max {
		panic("train: a batch overflows")
	}
	nodes := b.meta.Nodes()
	for i := range n {
		l0.Add(r.Tokens[i+1], int32(i), first)
		b.label(0, r, (i+1)*nodes, b.times(r, 0, i))
		if r.LossMask[i+2] {
			b.count++
		}
	}
	rows := b.head.Feature.Data()[int(first)*b.hidden:]
	copy(rows, in[:n*b.hidden])
	if len(b.target) > 0 {
		copy(b.target[0].Data()[int(first)*b.hidden:], feat[b.hidden:(n+1)*b.hidden])
	}
	if b.plan.Text {
		b.addText(r, feat, first, n)
		return nil
	}
	if len(b.head.Levels) == 1 {
		return nil
	}
	for i := range n {
		if !r.LossMask[i+2] {
			continue
		}
		tree := (i + 1) * nodes
		b.row[0], b.lev[0] = first+int32(i), 0
		for j := 1; j < nodes; j++ {
			p := int(r.TreeParents[tree+j])
			if p < 0 || p >= j {
				return fmt.Errorf("tree at position %d: node %d has parent %d, want an earlier node", i+1, j, p)
			}
			l := b.lev[p] + 1
			b.lev[j] = l
			if l >= len(b.head.Levels) {
				continue
			}
			// The head never drafts a token outside its vocabulary, nor what follows it.
			if b.row[p] < 0 || b.vocab.draft(r.TreeTokens[tree+j]) < 0 {
				b.row[j] = -1
				continue
			}
			level := b.head.Levels[l]
			if level.Rows.N == level.Rows.Max {
				return fmt.Errorf("tree at position %d: more than %d nodes on a level", i+1, b.meta.Branch)
			}
			b.row[j] = level.AddBelow(b.head.Levels[l-1], b.row[p], r.TreeTokens[tree+j])
			b.label(l, r, tree+j, 1)
		}
	}
	return nil
}

// times is how often the row of position i on a level counts. The passes of HASS
// whose features at i would come from before the text give the same f̂ as pass
// i+1, with the same gradients: they have no rows, and that pass counts for them.
func (b *headBatch) times(r *data.Record, level, i int) float32 {
	switch {
	case !r.LossMask[i+2]:
		return 0
	case b.plan.Text && level == i:
		return float32(b.plan.Levels - level)
	}
	return 1
}

// addText appends the passes of HASS after the first: level l at position i is
// fed the f̂ of level l−1 at i−1. A row that no position that counts depends on is
// left out, and so is one that is fed a token outside the draft vocabulary, or
// follows such a row: the head never drafts it.
func (b *headBatch) addText(r *data.Record, feat []float32, first int32, n int) {
	b.above, b.here = b.above[:0], b.here[:0]
	for i := range n {
		b.above, b.here = append(b.above, first+int32(i)), append(b.here, -1)
	}
	for l := 1; l < b.plan.Levels; l++ {
		level, up := b.head.Levels[l], b.head.Levels[l-1]
		for i := l; i < n; i++ {
			if b.here[i] = -1; !b.needs(r, n, l, i) || b.above[i-1] < 0 || b.vocab.draft(r.Tokens[i+1]) < 0 {
				continue
			}
			row := level.AddBelow(up, b.above[i-1], r.Tokens[i+1])
			b.here[i] = row
			b.label(l, r, (i+1)*b.meta.Nodes(), b.times(r, l, i))
			if l < len(b.target) {
				h := b.hidden
				copy(b.target[l].Data()[int(row)*h:], feat[(i+1)*h:(i+2)*h])
			}
		}
		b.above, b.here = b.here, b.above
	}
}

// prob returns what the labels of a row say of the target's token x: 0 if they do
// not hold it.
func (b *headBatch) prob(level, row int, x int32) float64 {
	s, d := b.labels[level], b.vocab.draft(x)
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

// needs reports whether a position that counts depends on the row of position i on
// a level of HASS: the position itself or one of the n that deeper levels reach from it.
func (b *headBatch) needs(r *data.Record, n, level, i int) bool {
	if level == 0 {
		return true // a key of all that follow
	}
	for j := i; j < min(n, i+b.plan.Levels-level); j++ {
		if r.LossMask[j+2] {
			return true
		}
	}
	return false
}

// label appends the labels of node n of r (an index into all trees' nodes), which
// count so many times.
func (b *headBatch) label(level int, r *data.Record, n int, times float32) {
	s := b.labels[level]
	var top int32
	if b.meta.Labels == data.Full {
		v := b.meta.Vocab
		p := r.LabelFull[n*v : (n+1)*v]
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
	b.mask[level], b.top[level] = append(b.mask[level], times), append(b.top[level], top)
}

// inside appends labels of the target's tokens as those of the draft vocabulary,
// and returns how often they count then. ids is nil where p is whole; tail has one
// value or none. Of the tail's tokens nothing is known: all count as inside.
func (b *headBatch) inside(level int, ids []int32, p, tail []float32, top int32, times float32) float32 {
	s := b.labels[level]
	from, probs := len(s.Prob), &s.Prob
	if ids == nil {
		from, probs = len(s.Full), &s.Full
		for _, id := range b.vocab.ids {
			s.Full = append(s.Full, p[id])
		}
	} else {
		for i, id := range ids {
			d, x := b.vocab.draft(id), p[i]
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
		b.mass[level], b.lost[level] = b.mass[level]+all, b.lost[level]+(all-in)
	}
	if b.plan.Outside == loss.Mask && b.vocab.draft(top) < 0 {
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

// noise adds (U−½)·width·512/T to features [T][H], as EAGLE's training script
// does; the numbers depend on key alone.
func noise(feat []float32, tokens int, width float64, key ...uint64) {
	var seed [2]uint64
	for i, k := range key {
		seed[i%2] = seed[i%2]*0x9e3779b97f4a7c15 + k + 1
	}
	r := rand.New(rand.NewPCG(seed[0], seed[1]))
	w := width * 512 / float64(max(tokens, 1))
	for i := range feat {
		feat[i] += float32((r.Float64() - 0.5) * w)
	}
}
