// Package lookahead drafts as Lookahead Decoding does (Fu et al. 2024, §3): it collects n-grams by
// Jacobi iteration in the same pass that verifies them.
package lookahead

import (
	"fmt"

	"talf/infer"
	"talf/tree"
)

// A Config holds the parameters by the names of the authors' code, where W is WINDOW_SIZE, N is LEVEL
// and G is GUESS_SET_SIZE.
type Config struct {
	W int // columns of the window, the last token's included
	N int // tokens of an n-gram; the window has N-1 levels
	G int // most n-grams verified in a pass, and kept per first token

	// Bonus: an n-gram that is right throughout is followed by the target's own token, as in other
	// methods. The authors' code does not emit it, so that a round emits at most N-1 tokens.
	Bonus bool
	// Slide: after a round that emits several tokens, columns move with their positions. In the
	// authors' code they stay.
	Slide bool
	// Prompt puts the prompt's n-grams into the pool at the start, and the output's as it grows
	// (POOL_FROM_PROMPT).
	Prompt bool
}

// Validate checks the ranges.
func (c Config) Validate() error {
	if c.W < 1 || c.N < 3 || c.G < 1 {
		return fmt.Errorf("a window of W=%d, N=%d and G=%d, want W >= 1, N >= 3 and G >= 1", c.W, c.N, c.G)
	}
	if n := 1 + (c.W+c.G)*(c.N-1); n > tree.MaxNodes {
		return fmt.Errorf("a window of W=%d, N=%d and G=%d has %d nodes, want at most %d", c.W, c.N, c.G, n, tree.MaxNodes)
	}
	return nil
}

// A Drafter drafts for one sequence. Its window holds guesses of the next tokens, and runs in the same
// pass as the draft. Level 0 is a chain below the root, which is the last token and column 0; the
// guess in column i stands i positions after it. Level l's guess in column i stands l positions
// further, and attends to the guesses before it: columns 0..i of level 0, then levels 1..l-1 of its
// own column. This mask is a tree: the further levels of a column are a chain below its node of level
// 0. So tree attention needs no second mask. The target's token after each column completes an
// n-gram, and the draft is the n-grams that begin with the last token.
//
// At the start level 0 holds tokens drawn from the prompt, in W+N-2 columns with the root's; each of
// the first N-2 rounds adds a level and drops a column.
//
// The window's nodes lie beyond Proposal.Live: they are scored but never accepted, so the output
// remains plain decoding's.
type Drafter struct {
	cfg    Config
	prompt []int32
	fresh  bool      // level 0 is still to be drawn
	levels int       // filled
	pos    int       // of the root of the last tree, -1 before the first
	nodes  int       // of that tree
	window [][]int32 // [N-1][W+N-2] tokens; column 0 of level 0 is the root's
	node   [][]int   // [N-1][W+N-2] nodes of the last tree, -1 where it had none
	next   []int32   // [W+N-2] the next level, -1 where none was scored
	pool   pool
	gram   []int32
	past   []int32 // the last N tokens, for Prompt
	dist   infer.Dist
	filler int // tokens of the prompt taken for columns without a guess
	top    [1]int32
}

// New returns a drafter for a valid configuration.
func New(c Config) *Drafter {
	n := c.W + c.N - 2
	d := &Drafter{cfg: c, next: make([]int32, n), gram: make([]int32, c.N), past: make([]int32, 0, c.N)}
	for range c.N - 1 {
		d.window = append(d.window, make([]int32, n))
		d.node = append(d.node, make([]int, n))
	}
	d.pool.init(c.G, c.N-1)
	return d
}

// Start begins a sequence.
func (d *Drafter) Start(prompt []int32) error {
	d.prompt = append(d.prompt[:0], prompt...)
	d.fresh, d.levels, d.pos, d.filler = true, 1, -1, 0
	d.pool.clear()
	d.past = d.past[:0]
	if d.cfg.Prompt {
		for _, t := range prompt {
			d.follow(t)
		}
	}
	return nil
}

// Bytes returns about how much memory the n-grams take.
func (d *Drafter) Bytes() int { return d.pool.bytes() }

// follow puts the n-gram that ends with t, the next token, into the pool.
func (d *Drafter) follow(t int32) {
	if len(d.past) == d.cfg.N {
		d.past = append(d.past[:0], d.past[1:]...)
	}
	if d.past = append(d.past, t); len(d.past) == d.cfg.N {
		d.pool.put(d.past[0], d.past[1:])
	}
}

// draw fills level 0 with tokens of the prompt, drawn at random.
func (d *Drafter) draw(pos int, c infer.Chance) {
	d.dist = d.dist[:0]
	for range d.prompt {
		d.dist = append(d.dist, 1)
	}
	for i := 1; i < d.columns(); i++ {
		d.window[0][i] = d.prompt[c.Draw(pos+i, d.dist)]
	}
	d.fresh = false
}

// full reports whether the window has all levels.
func (d *Drafter) full() bool { return d.levels == d.cfg.N-1 }

// columns returns how many columns the window has, the root's included.
func (d *Drafter) columns() int { return d.cfg.W + d.cfg.N - 1 - d.levels }

// fill returns a guess for a column that has none: the prompt's tokens in turn.
func (d *Drafter) fill() int32 {
	t := d.prompt[d.filler%len(d.prompt)]
	d.filler++
	return t
}

// Grow proposes the n-grams of the last token, as far as they may come, and adds the window.
func (d *Drafter) Grow(p *infer.Proposal, _ []infer.Row, c infer.Chance) ([]int, error) {
	if d.fresh {
		d.draw(p.Pos, c)
	}
	t := p.Tree
	d.pos = p.Pos
	// Without the bonus token an n-gram's last token is not drafted: the target's own token
	// stands for it.
	length := d.cfg.N - 2
	if d.cfg.Bonus {
		length++
	}
	// A budget that is too small for both branches is split evenly.
	grams := min(d.cfg.G, max(1, (p.MaxNodes-1)/2/(d.cfg.N-1)))
	if !d.full() {
		grams = 0 // as in the authors' code
	}
	for i := 0; i < d.pool.count(t.Token(0)) && grams > 0; i++ {
		n := 0
		for _, token := range d.pool.newest(t.Token(0), i)[:length] {
			c := t.Child(n, token)
			if c < 0 {
				if t.Len() == p.MaxNodes || t.Depth(n) == p.MaxDepth || p.May != nil && !p.May(t, n, token) {
					break
				}
				c = t.Add(n, token)
			}
			n = c
		}
		if n > 0 || p.May == nil { // one that cannot come takes no other's place
			grams--
		}
	}
	p.Live = t.Len()

	// The root's column costs a node less than the others.
	columns := min(d.columns(), (p.MaxNodes-t.Len()+1)/d.levels, p.MaxDepth+1)
	trunk := 0
	for i := range d.window[0] {
		for l := range d.window {
			d.node[l][i] = -1
		}
		if i >= columns {
			continue
		}
		if i > 0 {
			trunk = t.Add(trunk, d.window[0][i])
		}
		d.node[0][i] = trunk
		for n, l := trunk, 1; l < d.levels && t.Depth(n) < p.MaxDepth; l++ {
			n = t.Add(n, d.window[l][i])
			d.node[l][i] = n
		}
	}
	d.nodes = t.Len()
	return nil, nil
}

// Observe collects the n-grams of a round and moves the window on.
func (d *Drafter) Observe(p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	if p.Pos != d.pos || p.Tree.Len() != d.nodes {
		return nil // not one of our trees: a chunk of the prompt, a root alone, or a part of a tree
	}
	full := d.full()
	for i := range d.columns() {
		d.next[i] = -1
		n := d.node[d.levels-1][i]
		if n < 0 || n == 0 {
			continue
		}
		if top := s.Rank(d.top[:0], n, 1); len(top) > 0 { // a replay knows the rows that were recorded
			d.next[i] = top[0]
		}
		if full && d.next[i] >= 0 {
			d.gram[0] = p.Tree.Token(d.node[0][i])
			for l := 1; l < d.levels; l++ {
				d.gram[l] = d.window[l][i]
			}
			d.gram[d.levels] = d.next[i]
			d.pool.put(d.gram[0], d.gram[1:])
		}
	}
	if d.cfg.Prompt {
		// The authors' code adds the round's last token once for every token that the round emits.
		for range v.Path {
			d.follow(v.Next)
		}
	}
	shift := 0
	if d.cfg.Slide {
		shift = len(v.Path) - 1
	}
	if full {
		d.turn(shift)
	} else {
		d.add(1 + shift)
	}
	return nil
}

// turn makes every level the previous one, shift columns further.
func (d *Drafter) turn(shift int) {
	for i := range d.columns() {
		for l := range d.window {
			if l+i > 0 { // the root is not guessed
				d.window[l][i] = d.guess(l+1, i+shift)
			}
		}
	}
}

// add adds the next level and drops a column: guesses move shift columns.
func (d *Drafter) add(shift int) {
	columns := d.columns() - 1
	for l := range d.levels + 1 {
		for i := range columns {
			if l+i > 0 {
				d.window[l][i] = d.guess(l, i+shift)
			}
		}
	}
	d.levels++
}

// guess returns the token of a level and column, of which the level above the last is the one that
// the target has just made.
func (d *Drafter) guess(level, column int) int32 {
	row := d.next
	if level < d.levels {
		row = d.window[level]
	}
	if column >= d.columns() || row[column] < 0 {
		return d.fill()
	}
	return row[column]
}

// Traits are those of a drafter that does nothing else.
func (*Drafter) Traits() infer.Traits { return infer.Traits{} }
