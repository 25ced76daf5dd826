package draft

import (
	"fmt"
	"slices"

	"talf/infer"
	"talf/internal/spec"
	"talf/tree"
)

func lookaheadMethod() Method {
	return Method{
		Line: spec.Line{
			Name: "lookahead", Doc: "Lookahead: collects n-grams by Jacobi iteration in the same pass that verifies them",
			Params: []spec.Param{
				spec.Int("W", 15, 1, tree.MaxNodes, "columns of the window"),
				spec.Int("N", 5, 2, tree.MaxNodes, "tokens of an n-gram; the window has N-1 levels"),
				spec.Int("G", 15, 1, tree.MaxNodes, "most n-grams verified in a pass, and kept per first token"),
			},
		},
		Open: func(v spec.Values, _ Env) (Maker, error) {
			c := lookaheadConfig{w: v.Int("W"), n: v.Int("N"), g: v.Int("G")}
			if n := 1 + (c.w+c.g)*(c.n-1); n > tree.MaxNodes {
				return Maker{}, fmt.Errorf("a window of W=%d, N=%d and G=%d has %d nodes, want at most %d", c.w, c.n, c.g, n, tree.MaxNodes)
			}
			return Maker{New: func() infer.Drafter { return newJacobi(c) }}, nil
		},
	}
}

type lookaheadConfig struct{ w, n, g int }

// A lookahead drafts as Lookahead Decoding does (Fu et al. 2024, §3): a window of guesses of the
// next W tokens, N-1 steps of Jacobi iteration deep, runs in the same pass as the draft, and the
// target's token after each column completes an n-gram. The draft consists of the n-grams that
// begin with the newest token.
//
// Level 0 of the window is the oldest. Its guess in column i (from 1) stands i positions after
// the root. Level l's guess stands l positions further, and attends to the guesses before it:
// columns 1..i of level 0, then levels 1..l-1 of its own column. This mask is a tree: level 0 is
// a chain below the root, and the further levels of a column are a chain below its node. So tree
// attention needs no second mask. The original differs in two ways: its levels fill up one by
// one at the start (here all begin with tokens of the prompt), and after steps that accept
// several tokens it leaves the window in place (here the columns move along with their
// positions).
//
// The window's nodes lie beyond Proposal.Live: they are scored but never accepted, so the output
// remains plain decoding's.
type lookahead struct {
	cfg    lookaheadConfig
	prompt []int32
	filler int       // tokens of the prompt taken so far
	pos    int       // of the root of the last tree, -1 before the first
	nodes  int       // of that tree
	window [][]int32 // [N-1][W] tokens
	node   [][]int   // [N-1][W] nodes of the last tree, -1 where it had none
	fresh  []int32   // [W] next level, -1 where none was scored
	pool   pool
	gram   []int32
	top    [1]int32
}

func newJacobi(c lookaheadConfig) *lookahead {
	d := &lookahead{cfg: c, fresh: make([]int32, c.w), gram: make([]int32, c.n)}
	for range c.n - 1 {
		d.window = append(d.window, make([]int32, c.w))
		d.node = append(d.node, make([]int, c.w))
	}
	d.pool.init(c.g, c.n-1)
	return d
}

func (d *lookahead) Start(prompt []int32) error {
	d.prompt, d.filler = append(d.prompt[:0], prompt...), 0
	d.pos = -1
	for i := range d.cfg.w {
		for l := range d.window {
			d.window[l][i] = d.fill()
		}
	}
	d.pool.clear()
	return nil
}

// fill returns a guess when nothing is known: the prompt's tokens in turn.
func (d *lookahead) fill() int32 {
	t := d.prompt[d.filler%len(d.prompt)]
	d.filler++
	return t
}

func (d *lookahead) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	t, levels := p.Tree, len(d.window)
	d.pos = p.Pos
	// A budget that is too small for both branches is split evenly.
	grams := min(d.cfg.g, max(1, (p.MaxNodes-1)/2/levels))
	for i := range d.pool.count(t.Token(0)) {
		if i == grams {
			break
		}
		n := 0
		for _, token := range d.pool.gram(t.Token(0), i) {
			c := t.Child(n, token)
			if c < 0 {
				if t.Len() == p.MaxNodes || t.Depth(n) == p.MaxDepth {
					break
				}
				c = t.Add(n, token)
			}
			n = c
		}
	}
	p.Live = t.Len()

	columns := min(d.cfg.w, (p.MaxNodes-t.Len())/levels, p.MaxDepth)
	trunk := 0
	for i := range d.cfg.w {
		for l := range d.window {
			d.node[l][i] = -1
		}
		if i >= columns {
			continue
		}
		trunk = t.Add(trunk, d.window[0][i])
		d.node[0][i] = trunk
		for n, l := trunk, 1; l < levels && t.Depth(n) < p.MaxDepth; l++ {
			n = t.Add(n, d.window[l][i])
			d.node[l][i] = n
		}
	}
	d.nodes = t.Len()
	return nil, nil
}

func (d *lookahead) Observe(p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	if p.Pos != d.pos || p.Tree.Len() != d.nodes {
		return nil // not one of our trees: a chunk of the prompt, a root alone, or a part of a tree
	}
	levels := len(d.window)
	for i := range d.fresh {
		d.fresh[i] = -1
		n := d.node[levels-1][i]
		if n < 0 {
			continue
		}
		top := s.Rank(d.top[:0], n, 1)
		if len(top) == 0 {
			continue // a replay knows the rows that were recorded
		}
		d.fresh[i] = top[0]
		for l := range d.window {
			d.gram[l] = d.window[l][i]
		}
		d.gram[levels] = d.fresh[i]
		d.pool.put(d.gram[0], d.gram[1:])
	}
	// Every level becomes the previous one, and columns move by the number of emitted tokens
	// beyond the first.
	shift := len(v.Path) - 1
	for i := range d.cfg.w {
		from := i + shift
		for l := range d.window {
			switch {
			case from >= d.cfg.w:
				d.window[l][i] = d.fill()
			case l+1 < levels:
				d.window[l][i] = d.window[l+1][from]
			case d.fresh[from] >= 0:
				d.window[l][i] = d.fresh[from]
			default:
				d.window[l][i] = d.fill()
			}
		}
	}
	return nil
}

// poolSlots is how many first tokens a pool holds.
const poolSlots = 1 << 10

// A pool holds the newest n-grams of some first tokens: one slot for tokens of equal hash, of
// which the newest replaces the others.
type pool struct {
	most, size int     // n-grams of a first token; tokens after it
	key        []int32 // [poolSlots]
	n          []int32 // [poolSlots] n-grams there
	grams      []int32 // [poolSlots][most][size], newest first
}

func (q *pool) init(most, size int) {
	q.most, q.size = most, size
	q.key, q.n = make([]int32, poolSlots), make([]int32, poolSlots)
	q.grams = make([]int32, poolSlots*most*size)
}

func (q *pool) clear() { clear(q.n) }

func (q *pool) slot(first int32) int {
	return int(uint32(first) * 0x9e3779b1 >> 22) // Knuth's multiplicative hash: the top ten bits
}

// count returns how many n-grams begin with first.
func (q *pool) count(first int32) int {
	if s := q.slot(first); q.key[s] == first {
		return int(q.n[s])
	}
	return 0
}

// gram returns what follows first in the i-th newest n-gram.
func (q *pool) gram(first int32, i int) []int32 {
	at := (q.slot(first)*q.most + i) * q.size
	return q.grams[at : at+q.size]
}

// put makes first and rest the newest n-gram of first.
func (q *pool) put(first int32, rest []int32) {
	s := q.slot(first)
	if q.key[s] != first {
		q.key[s], q.n[s] = first, 0
	}
	i := 0
	for i < int(q.n[s]) && !slices.Equal(q.gram(first, i), rest) {
		i++
	}
	switch {
	case i < int(q.n[s]): // known already: move it to the front
	case i < q.most:
		q.n[s]++
	default:
		i-- // the oldest is forgotten
	}
	at := s * q.most * q.size
	copy(q.grams[at+q.size:at+(i+1)*q.size], q.grams[at:at+i*q.size])
	copy(q.grams[at:], rest)
}

func (*lookahead) Traits() infer.Traits { return infer.Traits{} }
