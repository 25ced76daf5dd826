package suffixtree

// Limits say how much is drafted.
type Limits struct {
	Most    int     // tokens
	Factor  float32 // tokens per token of the match, …
	Offset  float32 // … and tokens added to that
	MinProb float32 // of a token; less likely ones are left out
	Tree    bool    // the likeliest continuations; otherwise one chain of the likeliest tokens
}

// A Draft is what followed a match, as a tree of tokens. Memory is used again.
type Draft struct {
	Tokens  []int32
	Parents []int32 // index of the token before, -1 if it is the end of the match
	Probs   []float32
	Score   float32 // the sum of Probs: how many tokens are expected to be right
	Match   int     // tokens of the match; 0 if there was none

	queue []item
	order int32
}

// Speculate replaces d by the draft of the highest score of all ends of context that occur in t,
// the longest one among equals. The probability of a token is the product, over the branches on
// its way, of a child's count over its parent's.
//
// Matches are shorter than context and than the tree is deep, as in the published code: of depth
// tokens nothing that follows is known.
func (t *Tree) Speculate(d, scratch *Draft, context []int32, l Limits) {
	d.reset()
	context = context[max(0, len(context)-t.depth):]
	for m := 1; m < len(context); m++ {
		n, i := t.match(context[len(context)-m:])
		if n == 0 {
			break
		}
		most := max(0, min(l.Most, int(float64(float32(float32(m)*l.Factor)+l.Offset)+1e-6)))
		scratch.reset()
		if l.Tree {
			t.branch(scratch, n, i, most, l.MinProb)
		} else {
			t.chain(scratch, n, i, most, l.MinProb)
		}
		if scratch.Score >= d.Score {
			scratch.Match = m
			*d, *scratch = *scratch, *d
		}
	}
}

func (d *Draft) reset() {
	*d = Draft{Tokens: d.Tokens[:0], Parents: d.Parents[:0], Probs: d.Probs[:0], queue: d.queue[:0]}
}

func (d *Draft) add(token, parent int32, prob float32) {
	d.Tokens = append(d.Tokens, token)
	d.Parents = append(d.Parents, parent)
	d.Probs = append(d.Probs, prob)
	d.Score += prob
}

// match returns the node in which text ends, and how many of its tokens text takes; node 0 if text
// does not occur.
func (t *Tree) match(text []int32) (n int32, i int) {
	var left []int32 // of node n
	for _, token := range text {
		if len(left) == 0 {
			if n = t.child(n, token); n == 0 {
				return 0, 0
			}
			left = t.text(t.at(n))
		}
		if left[0] != token {
			return 0, 0
		}
		left = left[1:]
	}
	return n, int(t.at(n).length) - len(left)
}

// chain adds the likeliest token after each other, from token i of node n on.
func (t *Tree) chain(d *Draft, n int32, i, most int, least float32) {
	x, prob := t.at(n), float32(1)
	text := t.text(x)
	for len(d.Tokens) < most && prob >= least {
		if i < len(text) {
			d.add(text[i], int32(len(d.Tokens)-1), prob)
			i++
			continue
		}
		if x.first == 0 {
			return
		}
		y := t.at(x.first)
		prob = float32(prob * (float32(y.count) / float32(x.count)))
		x, text, i = y, t.text(y), 0
	}
}

// An item is a place in the tree: token i of a node, behind a token of the draft.
type item struct {
	prob   float32
	order  int32 // of equal ones the first comes first
	node   int32
	i      int32
	parent int32
}

// branch adds the likeliest tokens of all continuations.
func (t *Tree) branch(d *Draft, n int32, i, most int, least float32) {
	d.push(item{prob: 1, node: n, i: int32(i), parent: -1})
	for len(d.Tokens) < most && len(d.queue) > 0 {
		it := d.pop()
		x := t.at(it.node)
		if it.i < x.length {
			d.add(t.text(x)[it.i], it.parent, it.prob)
			it.i++
			it.parent = int32(len(d.Tokens) - 1)
			d.push(it)
			continue
		}
		// No more children can find a place.
		for c, room := x.first, most-len(d.Tokens); c != 0 && room > 0; room-- {
			y := t.at(c)
			prob := float32(it.prob*float32(y.count)) / float32(x.count)
			if prob < least {
				break
			}
			d.push(item{prob: prob, node: c, parent: it.parent})
			c = y.next
		}
	}
}

func (a *item) before(b *item) bool {
	return a.prob > b.prob || a.prob == b.prob && a.order < b.order
}

func (d *Draft) push(it item) {
	it.order = d.order
	d.order++
	q := append(d.queue, it)
	for i := len(q) - 1; i > 0 && q[i].before(&q[(i-1)/2]); i = (i - 1) / 2 {
		q[i], q[(i-1)/2] = q[(i-1)/2], q[i]
	}
	d.queue = q
}

func (d *Draft) pop() item {
	q := d.queue
	top, last := q[0], len(q)-1
	q[0] = q[last]
	q = q[:last]
	for i := 0; ; {
		best := i
		for c := 2*i + 1; c <= 2*i+2 && c < last; c++ {
			if q[c].before(&q[best]) {
				best = c
			}
		}
		if best == i {
			break
		}
		q[i], q[best] = q[best], q[i]
		i = best
	}
	d.queue = q
	return top
}
