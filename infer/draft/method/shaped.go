package method

import (
	"math"
	"slices"

	"talf/infer"
	"talf/infer/draft/shape"
	"talf/internal/spec"
	"talf/model/sample"
	"talf/tree"
)

// Draw says how children are chosen.
func Draw() spec.Param {
	return spec.Choice("draw", "how children are chosen: top (the most likely), distinct (drawn without replacement) or repeated (drawn with replacement)", "top", "distinct", "repeated")
}

// Shaped makes drafters of trees of one shape. At temperature 0 nothing is drawn: its ways to
// choose children are all top.
func Shaped(s shape.Shape, v spec.Values, e Env) (Maker, error) { return shapedOf(s, 0, v, e) }

// Sure is Shaped with the parameter sure: nodes have no children where the draft model's own estimate that one is accepted is lower.
func Sure(s shape.Shape, v spec.Values, e Env) (Maker, error) {
	return shapedOf(s, v.Float("sure"), v, e)
}

func shapedOf(s shape.Shape, sure float64, v spec.Values, e Env) (Maker, error) {
	draw := []infer.Choice{infer.Chosen, infer.Distinct, infer.Repeated}[v.Choice("draw")]
	at := func(temperature float64) Maker {
		d, env := draw, e
		if env.Temperature = temperature; temperature == 0 {
			d = infer.Chosen
		}
		return Maker{
			New:  func() infer.Drafter { return newShaped(s, sure, d, env) },
			Draw: d, Chain: s.Chain(), Files: v.Files(),
		}
	}
	mk := at(e.Temperature)
	if draw != infer.Chosen {
		mk.At = at
	}
	return mk, nil
}

// A shaped drafts trees of one shape. Chosen children are the tokens at the slots' ranks. Drawn
// ones take the slots in the order of drawing: the first draw gets the first slot and everything
// below it.
type shaped struct {
	shape shape.Shape
	draw  infer.Choice
	vocab int
	temp  float64
	sure  float64
	prob  func(n int) infer.Dist

	work   tree.Tree
	asked  []node  // by node of the work tree
	rows   []drawn // what was drawn from, by node of the work tree
	urn    Urn[float32]
	row    []int32   // by node of the tree: node of the work tree, -1 if it was not asked
	logV   []float64 // by node of the tree
	grown  []node    // nodes of the newest level that may get children
	ask    []int
	kids   []int32
	before int // nodes of the work tree whose rows came
}

// A drawn row is the weights that the children of a node are drawn from. It is converted to
// probabilities only when a verifier asks, which happens for few nodes of a tree.
type drawn struct {
	weights []float32 // [vocab]
	sum     float64
	dist    infer.Dist // [vocab], weights/sum if known
	known   bool
}

// A node is a node of the tree, its slot, and its parent's node of the work tree.
type node struct{ node, slot, above int }

func newShaped(s shape.Shape, sure float64, d infer.Choice, e Env) *shaped {
	x := &shaped{shape: s, sure: sure, draw: d, vocab: e.Vocab, temp: e.Temperature}
	x.prob = func(n int) infer.Dist { return x.rows[x.row[n]].probabilities() }
	return x
}

func (d *drawn) probabilities() infer.Dist {
	if !d.known {
		sample.Widen(d.dist, d.weights, 1/d.sum)
		d.known = true
	}
	return d.dist
}

func (s *shaped) Start([]int32) error { return nil }

func (s *shaped) Grow(p *infer.Proposal, rows []infer.Row, c infer.Chance) ([]int, error) {
	if rows == nil {
		s.work.Reset(p.Tree.Token(0), len(s.shape))
		s.asked, s.row, s.before = append(s.asked[:0], node{}), append(s.row[:0], 0), 0
		s.logV = append(s.logV[:0], 0)
		p.Work, p.Width, p.Full = &s.work, s.shape.Width(), s.draw != infer.Chosen
		if s.draw != infer.Chosen {
			p.Q, p.Replace, p.Width = s.prob, s.draw == infer.Repeated, 1
		}
		s.ask = s.ask[:0]
		if p.MaxDepth > 0 && p.MaxNodes > 1 && len(s.shape) > 1 {
			s.ask = append(s.ask, 0)
		}
		return s.ask, nil
	}
	first := s.before
	s.before = len(s.asked)
	s.grown, s.ask = s.grown[:0], s.ask[:0]
	for i := range rows {
		s.place(p, first+i, &rows[i], c)
	}
	p.LogV = s.logV
	p.Reach = 0
	room := p.MaxNodes - p.Tree.Len()
	for _, x := range s.grown {
		if room <= 0 {
			break // no row is needed without a place for a child
		}
		room -= s.shape[x.slot].Kids
		w := s.work.Add(x.above, p.Tree.Token(x.node))
		s.row[x.node] = int32(w)
		p.Reach += math.Exp(s.logV[x.node])
		s.asked, s.ask = append(s.asked, x), append(s.ask, w)
	}
	return s.ask, nil
}

// place gives asked node w its children. Their number is fixed before they are drawn: the estimate that may end a path is of what
// comes before them.
func (s *shaped) place(p *infer.Proposal, w int, r *infer.Row, c infer.Chance) {
	if r.Accept > 0 && float64(r.Accept) < s.sure {
		return
	}
	at := s.asked[w]
	slots := s.shape[s.shape[at.slot].First:][:s.shape[at.slot].Kids]
	slots = slots[:min(len(slots), p.MaxNodes-p.Tree.Len())]
	s.kids = s.kids[:0]
	above := s.logV[at.node]
	if s.draw == infer.Chosen {
		for _, x := range slots {
			if x.Rank >= len(r.Tokens) || !(r.LogProb[x.Rank] > float32(math.Inf(-1))) {
				break // no token, or one without mass or with a NaN
			}
			s.kids = append(s.kids, r.Tokens[x.Rank])
			s.logV = append(s.logV, above+float64(r.LogProb[x.Rank]))
		}
	} else if len(r.Logits) > 0 {
		pos := p.Pos + p.Tree.Depth(at.node) + 1
		q := s.soften(w, r.Logits)
		s.kids = s.urn.Children(s.kids, c, pos, len(slots), s.draw)
		for _, x := range s.kids {
			s.logV = append(s.logV, above+math.Log(float64(q.weights[x])/q.sum))
		}
	}
	for i, token := range s.kids {
		// With replacement, a token may be drawn twice. The second node only records the
		// draw: it cannot be accepted, and nothing hangs below it.
		again := p.Tree.Child(at.node, token) >= 0
		n := p.Tree.Add(at.node, token)
		s.row = append(s.row, -1)
		slot := s.shape[at.slot].First + i
		if again || s.shape[slot].Kids == 0 || p.Tree.Depth(n) == p.MaxDepth {
			continue
		}
		s.grown = append(s.grown, node{n, slot, w})
	}
}

// soften fills the urn and the row of work node w with the softmax of logits at the temperature,
// over the target's vocabulary: a draft model may be padded to more tokens, or know fewer.
func (s *shaped) soften(w int, logits []float32) *drawn {
	for len(s.rows) <= w {
		s.rows = append(s.rows, drawn{})
	}
	vocab := s.vocab
	if vocab == 0 {
		vocab = len(logits)
	}
	q := &s.rows[w]
	if len(q.weights) != vocab {
		q.weights, q.dist = make([]float32, vocab), make(infer.Dist, vocab)
	}
	bins := sample.Bins(vocab)
	s.urn.Weights, s.urn.Size = q.weights, sample.Bin
	s.urn.Bins = slices.Grow(s.urn.Bins[:0], bins)[:bins]
	known := min(vocab, len(logits))
	sample.Weigh(q.weights[:known], s.urn.Bins, logits[:known], s.temp)
	clear(q.weights[known:])
	clear(s.urn.Bins[sample.Bins(known):])
	q.sum, q.known = sample.Sum(s.urn.Bins), false
	return q
}

func (*shaped) Observe(infer.Proposal, infer.Verdict, infer.Scores) error { return nil }

// Traits: the tree grows as rows come, so that it may end at any time.
func (s *shaped) Traits() infer.Traits {
	t := infer.Traits{Finish: func(*infer.Proposal) error { return nil }}
	if s.draw != infer.Chosen {
		t.Control = infer.Never
	}
	return t
}
