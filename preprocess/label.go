package preprocess

import (
	"context"
	"fmt"

	"talf/data"
	"talf/internal/slab"
	"talf/model"
	"talf/tree"
	"talf/tree/levels"
)

// A labeller runs the target over texts and their trees. A pass takes rows of many
// positions and sequences. The result of a row does not depend on the others.
type labeller struct {
	c      *Config
	meta   *data.Meta
	target *model.Model
	top    int // tokens read from every row: labels, or the next level's candidates
	from   int // the first sequence of the input that has trees

	open   []*work // works that hold keys and values
	segs   []model.Segment
	chains []*tree.Tree
	path   []int            // 0, 1, …
	group  []position       // positions whose trees run together
	search []*levels.Search // one per position of the group

	// Results of the last pass, by row.
	ids    []int32   // [rows][top]
	logp   []float32 // [rows][top]
	logits []float32 // [rows][V], full labels only
	hidden []float32 // [rows][FeatureSize], if the device does not round
	bf16   []byte    // [rows][FeatureSize] as bfloat16
	dist   []float64 // [V]
}

// labels is the data that a sequence needs until its row is written.
type labels struct {
	seq *model.Seq
	// Level 0, kept from prefill for the trees: [T][K] each.
	ids  []int32
	logp []float32
}

// A position is one root in a group of trees that run together.
type position struct {
	w    *work
	p    int
	br   *model.Branch
	rows []tree.Row // of the level that ran last
}

func newLabeller(c *Config, target *model.Model, meta *data.Meta, from int) (*labeller, error) {
	l := &labeller{c: c, meta: meta, target: target, top: c.K, from: from}
	if meta.Labels == data.TopK {
		l.top = max(l.top, meta.K)
	} else {
		l.dist = make([]float64, meta.Vocab)
	}
	if c.Depth > 1 {
		for range max(1, c.Rows/c.K) {
			s, err := levels.New(levels.Config{K: c.K, Depth: c.Depth})
			if err != nil {
				return nil, fmt.Errorf("preprocess: %w", err)
			}
			l.search = append(l.search, s)
		}
	}
	return l, nil
}

// run makes one pass and reads its rows: the top tokens and, with full labels,
// everything.
func (l *labeller) run(ctx context.Context, segs []model.Segment) (*model.Output, error) {
	out, err := l.target.Forward(ctx, segs)
	if err != nil {
		return nil, err
	}
	for i := range segs {
		if err := out.Err(i); err != nil {
			return nil, err
		}
	}
	_, rows := out.Rows()
	l.ids, l.logp = slab.Resize(l.ids, rows*l.top), slab.Resize(l.logp, rows*l.top)
	out.TopK(l.ids, l.logp, 0, rows, l.top)
	if l.meta.Labels == data.Full {
		l.logits = slab.Resize(l.logits, rows*l.meta.Vocab)
		out.ReadLogits(l.logits, 0)
	}
	return out, nil
}

// prefill runs the texts in passes of at most Rows rows and labels every
// position's own node.
func (l *labeller) prefill(ctx context.Context, batch []*work) error {
	for _, w := range batch {
		t, n := len(w.tokens), len(w.tokens)*l.meta.Nodes()
		w.seq = l.target.NewSeqOf(l.meta.Reach(t))
		w.seq.KeepPast() // trees begin at every position
		l.open = append(l.open, w)
		w.labels.ids, w.labels.logp = make([]int32, t*l.c.K), make([]float32, t*l.c.K)
		w.row = &data.Record{
			Tokens: w.tokens, LossMask: w.answer,
			TreeTokens: make([]int32, n), TreeParents: make([]int32, n),
		}
		if l.meta.Labels == data.TopK {
			w.row.LabelIDs, w.row.LabelProbs = make([]int32, n*l.meta.K), make([]float32, n*l.meta.K)
			w.row.Tail = make([]float32, n)
		} else {
			w.row.LabelFull = make([]float32, n*l.meta.Vocab)
		}
		if n := l.meta.FeatureSize(); n > 0 {
			w.row.Features = make([]byte, 0, 2*t*n)
		}
	}
	if l.meta.Taps != nil { // not needed from the passes of the trees
		if err := l.target.Tap(l.meta.Taps...); err != nil {
			return err
		}
		defer func() { _ = l.target.Tap() }() // no boundaries: nothing to refuse
	}
	// Texts are packed into passes one after the other; one that does not fit continues
	// in the next pass.
	for len(batch) > 0 {
		l.segs = l.segs[:0]
		room := l.c.chunk()
		for i := 0; i < len(batch) && room > 0; i++ {
			w := batch[i]
			at := w.seq.Len()
			n := min(room, len(w.tokens)-at)
			l.segs = append(l.segs, model.Segment{Rows: w.seq.Branch(at), Tree: l.chain(i, w.tokens[at:at+n]), Want: model.WantAll})
			room -= n
		}
		out, err := l.run(ctx, l.segs)
		if err != nil {
			return err
		}
		l.states(out)
		for i := range l.segs {
			w, n := batch[i], l.segs[i].Tree.Len()
			l.text(w, n, out.LogitsRow(i, 0), out.HiddenRow(i, 0))
			if err := l.segs[i].Rows.Commit(l.path[:n]); err != nil {
				return err
			}
		}
		done := len(l.segs)
		if last := batch[done-1]; last.seq.Len() < len(last.tokens) {
			done--
		}
		batch = batch[done:]
	}
	return nil
}

// states reads what is stored of the hidden states of all rows.
func (l *labeller) states(out *model.Output) {
	n := l.meta.FeatureSize()
	if n == 0 {
		return
	}
	rows, _ := out.Rows()
	l.bf16 = slab.Resize(l.bf16, 2*rows*n)
	if l.meta.Taps == nil && out.ReadHiddenBF16(l.bf16, 0) {
		return
	}
	l.hidden = slab.Resize(l.hidden, rows*n)
	if l.meta.Taps == nil {
		out.ReadHidden(l.hidden, 0)
	} else {
		out.ReadTaps(l.hidden, 0)
	}
	l.bf16 = data.AppendBF16(l.bf16[:0], l.hidden)
}

// chain returns tokens as a tree without branches; i is the index of the chain in its
// pass.
func (l *labeller) chain(i int, tokens []int32) *tree.Tree {
	for len(l.chains) <= i {
		l.chains = append(l.chains, new(tree.Tree))
	}
	t := l.chains[i]
	t.Reset(tokens[0], len(tokens))
	for j := range tokens {
		if j > 0 {
			t.Add(j-1, tokens[j])
		}
		if j == len(l.path) {
			l.path = append(l.path, j)
		}
	}
	return t
}

// text stores the results of w's next n positions, from logits row row and hidden row
// hid on.
func (l *labeller) text(w *work, n, row, hid int) {
	k := l.c.K
	for i := range n {
		p := w.seq.Len() + i
		copy(w.labels.ids[p*k:(p+1)*k], l.ids[(row+i)*l.top:])
		copy(w.labels.logp[p*k:(p+1)*k], l.logp[(row+i)*l.top:])
		node := p * l.meta.Nodes()
		w.row.TreeTokens[node], w.row.TreeParents[node] = w.tokens[p], -1
		l.label(w.row, node, row+i)
	}
	if h := 2 * l.meta.FeatureSize(); h > 0 {
		w.row.Features = append(w.row.Features, l.bf16[hid*h:(hid+n)*h]...)
	}
}

// label writes the distribution of logits row row to node.
func (l *labeller) label(r *data.Record, node, row int) {
	if l.meta.Labels == data.Full {
		v := l.meta.Vocab
		softmax(r.LabelFull[node*v:(node+1)*v], l.logits[row*v:(row+1)*v], l.dist)
		return
	}
	k := l.meta.K
	copy(r.LabelIDs[node*k:(node+1)*k], l.ids[row*l.top:])
	p := r.LabelProbs[node*k : (node+1)*k]
	tail := 1.0
	for i := range p {
		p[i] = float32(min(1, exp(float64(l.logp[row*l.top+i]))))
		tail -= float64(p[i])
	}
	r.Tail[node] = float32(max(0, tail))
}

// softmax sets dst to the distribution of logits, in float64 and in the order of the
// tokens. tmp has the same length.
func softmax(dst, logits []float32, tmp []float64) {
	top := logits[0]
	for _, x := range logits {
		top = max(top, x)
	}
	sum := 0.0
	for i, x := range logits {
		tmp[i] = exp(float64(x) - float64(top))
		sum += tmp[i]
	}
	for i := range dst {
		dst[i] = float32(tmp[i] / sum)
	}
}

// trees grows the trees of all positions of the batch, one group at a time. A group
// takes one pass per level, so that a pass has about Rows rows and only one group's
// nodes hold keys and values.
func (l *labeller) trees(ctx context.Context, batch []*work) error {
	if len(l.search) == 0 {
		return nil // one level: prefill labelled it
	}
	for _, w := range batch {
		for p := range w.tokens {
			if w.unit < l.from || l.c.LossOnly && (p+1 == len(w.tokens) || !w.answer[p+1]) {
				l.blank(w, p)
				continue
			}
			if l.group = append(l.group, position{w: w, p: p}); len(l.group) == len(l.search) {
				if err := l.grow(ctx); err != nil {
					return err
				}
			}
		}
	}
	return l.grow(ctx)
}

// blank fills the deeper nodes of a position that has no tree: a chain of
// copies of the root, with its labels but with all probability in the tail.
func (l *labeller) blank(w *work, p int) {
	r, n, k := w.row, l.meta.Nodes(), l.meta.K
	root := p * n
	for i := root + 1; i < root+n; i++ {
		r.TreeTokens[i], r.TreeParents[i] = w.tokens[p], max(0, int32((i-root-1)/l.c.K)*int32(l.c.K)-int32(l.c.K)+1)
		if l.meta.Labels == data.TopK {
			copy(r.LabelIDs[i*k:(i+1)*k], r.LabelIDs[root*k:(root+1)*k])
			r.Tail[i] = 1
		}
	}
}

// grow runs the trees of the group level by level and writes their labels.
func (l *labeller) grow(ctx context.Context) error {
	defer l.drop()
	k := l.c.K
	for i := range l.group {
		g, s := &l.group[i], l.search[i]
		s.Start(g.w.tokens[g.p], l.c.Depth)
		s.Grow(nil) // asks for the root, which prefill ran
		g.rows = append(g.rows[:0], tree.Row{Tokens: g.w.labels.ids[g.p*k : (g.p+1)*k], LogProb: g.w.labels.logp[g.p*k : (g.p+1)*k]})
	}
	for level := 1; level < l.c.Depth && len(l.group) > 0; level++ {
		l.segs = l.segs[:0]
		for i := range l.group {
			g, s := &l.group[i], l.search[i]
			ask := s.Grow(g.rows)
			if len(ask) != k {
				return fmt.Errorf("level %d of a tree has %d nodes, want %d", level, len(ask), k)
			}
			if g.br == nil {
				g.br = g.w.seq.BranchPast(g.p)
			}
			l.segs = append(l.segs, model.Segment{Rows: g.br, Tree: s.Tree(), From: ask[0], Want: model.WantAll})
		}
		out, err := l.run(ctx, l.segs)
		if err != nil {
			return err
		}
		for i := range l.group {
			g, t := &l.group[i], l.segs[i].Tree
			g.rows = g.rows[:0]
			for n := l.segs[i].From; n < t.Len(); n++ {
				row, node := out.LogitsRow(i, n), g.p*l.meta.Nodes()+n
				g.w.row.TreeTokens[node], g.w.row.TreeParents[node] = t.Token(n), int32(t.Parent(n))
				l.label(g.w.row, node, row)
				g.rows = append(g.rows, tree.Row{Tokens: l.ids[row*l.top : row*l.top+k], LogProb: l.logp[row*l.top : row*l.top+k]})
			}
		}
	}
	return nil
}

// drop ends the group and frees its keys and values.
func (l *labeller) drop() {
	for i := range l.group {
		if b := l.group[i].br; b != nil {
			b.Drop()
		}
	}
	l.group = l.group[:0]
}

// finish frees the texts' keys and values.
func (l *labeller) finish(context.Context, []*work) error {
	l.close()
	return nil
}

// close frees what is still open.
func (l *labeller) close() {
	for _, w := range l.open {
		w.seq.Close()
		w.labels = labels{}
	}
	l.open = l.open[:0]
}
