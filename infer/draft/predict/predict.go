// Package predict drafts from a text that the client predicts the answer to be: OpenAI's predicted
// outputs. The prediction is one more source of drafts beside the method of the request, verified
// as any draft is, so the answer is the same with every prediction.
package predict

import (
	"math"

	"talf/infer"
	"talf/infer/lookup"
	"talf/tree"
)

// A Text is a predicted answer with an index of its n-grams. It does not change, and any number of
// drafters may share it.
type Text struct {
	tokens []int32
	index  *lookup.Context
}

// New indexes the tokens of a predicted answer.
func New(tokens []int32) *Text {
	x := lookup.NewContext(1, grams)
	x.Append(tokens...)
	return &Text{tokens: x.Tokens(), index: x}
}

// Len returns the number of tokens.
func (t *Text) Len() int { return len(t.tokens) }

const (
	grams = 4  // longest n-gram of the index
	limit = 32 // tokens of a spine, and of an agreement that is told from longer ones
	// places is how many occurrences of an n-gram are compared. What occurs more often says little.
	places = 64

	// least is the probability of a path below which the spine ends. A row of a pass costs a
	// fraction of a pass with one row, so what is accepted this seldom costs more than it gains.
	least = 0.3
	// sure is the probability of the spine's first token from which on the method is not asked: its
	// tree would add rows, and passes of a draft model, to a round that rarely needs them.
	sure = 0.8
	// prior is the weight of the assumed probabilities in samples.
	prior = 4
)

// A class is what is known of a place in the prediction: how many tokens before it the answer
// has in common with it.
type class struct{ hit, tried float64 }

// assumed are the probabilities, by class, that the prediction's next token is the answer's:
// at its beginning, and after 1, 2, 3–4, 5–8, 9–16 and more tokens in common.
var assumed = [...]float64{0.7, 0.3, 0.55, 0.75, 0.85, 0.93, 0.96}

func classOf(agree int) int {
	switch {
	case agree <= 2:
		return agree
	case agree <= 4:
		return 3
	case agree <= 8:
		return 4
	case agree <= 16:
		return 5
	}
	return 6
}

// A Drafter adds the prediction to what another drafter proposes. Where the answer agrees with the
// prediction, the tokens that follow there are a spine of the tree. After they diverge, the newest
// tokens of the answer are looked up in the prediction until they are found.
type Drafter struct {
	text  *Text
	other infer.Drafter

	prompt  int
	answer  []int32
	at      int  // position of the prediction that is to continue the answer
	agree   int  // tokens before at that are those of the answer, limit at most
	found   bool // there is such a position
	classes [len(assumed)]class

	spine []int32   // of the round
	from  int       // its place in the prediction
	logv  []float64 // of the paths along the spine
	known int       // nodes of the other drafter's tree; the spine's come after them
	nodes int       // the engine's bound
	part  tree.Tree // the other drafter's tree
	whole tree.Tree // with the spine
	paths []float64 // LogV of whole

	state    []uint8 // of the prediction's tokens
	accepted int
	rejected int
}

// The states of a predicted token.
const (
	undrafted uint8 = iota
	drafted         // in vain until now
	accepted
)

// Wrap returns a drafter that proposes text besides what other does. other must choose its
// children without randomness where the spine is to join its tree; other trees stay as they are.
func Wrap(other infer.Drafter, text *Text) *Drafter {
	return &Drafter{text: text, other: other}
}

// Counts returns how many tokens of the prediction the answer has, each where the two agreed until
// then, and how many were drafted and never were what the answer went on with. Each token counts
// once, so that their sum is at most the length of the prediction.
func (d *Drafter) Counts() (accepted, rejected int) { return d.accepted, d.rejected }

// Start begins a sequence.
func (d *Drafter) Start(prompt []int32) error {
	d.prompt, d.answer = len(prompt), d.answer[:0]
	d.at, d.agree, d.found = 0, 0, len(d.text.tokens) > 0
	d.classes = [len(assumed)]class{}
	d.spine = d.spine[:0]
	d.state, d.accepted, d.rejected = make([]uint8, len(d.text.tokens)), 0, 0
	return d.other.Start(prompt)
}

// Traits are those of the other drafter, with an origin of nodes more.
func (d *Drafter) Traits() infer.Traits {
	t := d.other.Traits()
	inner, names := t.Origins.Of, t.Origins.Names
	if inner == nil {
		inner, names = func(int) int { return 0 }, []string{"draft"}
	}
	t.Origins.Names = append(names[:len(names):len(names)], "prediction")
	t.Origins.Of = func(n int) int {
		if n < d.known {
			return inner(n)
		}
		return len(names)
	}
	if finish := t.Finish; finish != nil {
		t.Finish = func(p *infer.Proposal) error {
			if err := finish(p); err != nil {
				return err
			}
			d.finish(p)
			return nil
		}
	}
	return t
}

// Grow proposes the spine, the other drafter's tree, or both.
func (d *Drafter) Grow(p *infer.Proposal, rows []infer.Row, c infer.Chance) ([]int, error) {
	if rows == nil {
		d.known, d.nodes = 1, p.MaxNodes
		if d.lay(min(p.MaxDepth, p.MaxNodes-1)) >= sure {
			d.extend(p, p.Tree)
			p.LogV = append(append(d.paths[:0], 0), d.logv...)
			d.paths = p.LogV
			return nil, nil
		}
		if len(d.spine) > 0 {
			// What both propose, they share; half of the tree is the method's in any case.
			d.spine = d.spine[:min(len(d.spine), p.MaxNodes/2)]
			p.MaxNodes -= len(d.spine)
			d.part.Reset(p.Tree.Token(0), p.MaxNodes)
			p.Tree = &d.part
		}
	}
	ask, err := d.other.Grow(p, rows, c)
	if err != nil || len(ask) > 0 {
		return ask, err
	}
	d.finish(p)
	return nil, nil
}

// finish joins the spine with the other drafter's tree, which is finished.
func (d *Drafter) finish(p *infer.Proposal) {
	p.MaxNodes = d.nodes
	d.known = p.Tree.Len()
	if len(d.spine) > 0 {
		d.join(p)
	}
}

// lay sets the spine, of most tokens at most, and returns the probability of its first token.
func (d *Drafter) lay(most int) float64 {
	d.spine, d.logv, d.from = d.spine[:0], d.logv[:0], d.at
	if !d.found {
		return 0
	}
	first, path, agree := 0.0, 1.0, d.agree
	for _, token := range d.text.tokens[d.at:min(d.at+min(most, limit), len(d.text.tokens))] {
		q := d.probability(classOf(agree))
		if path *= q; path < least {
			break
		}
		if len(d.spine) == 0 {
			first = q
		}
		d.spine, d.logv = append(d.spine, token), append(d.logv, math.Log(path))
		agree = min(agree+1, limit)
	}
	return first
}

func (d *Drafter) probability(class int) float64 {
	c := &d.classes[class]
	return (c.hit + prior*assumed[class]) / (c.tried + prior)
}

// extend adds the spine to a tree, sharing what nodes it has.
func (d *Drafter) extend(p *infer.Proposal, t *tree.Tree) {
	n := 0
	for _, token := range d.spine {
		c := t.Child(n, token)
		if c < 0 {
			if t.Room() == 0 || t.Depth(n) == p.MaxDepth {
				return
			}
			c = t.Add(n, token)
		}
		n = c
	}
}

// join adds the spine to the other drafter's tree, unless that would change what a verifier has to
// know of it: nodes that are only scored come last, and children that were drawn are all drawn.
func (d *Drafter) join(p *infer.Proposal) {
	if p.Q != nil || p.Live > 0 && p.Live < p.Tree.Len() {
		return
	}
	src := p.Tree
	d.whole.Reset(src.Token(0), max(d.nodes, src.Len()))
	for n := 1; n < src.Len(); n++ {
		d.whole.Add(src.Parent(n), src.Token(n))
	}
	d.extend(p, &d.whole)
	p.Tree, p.Live = &d.whole, 0
	d.paths = append(d.paths[:0], p.LogV...)
	switch {
	case src.Len() == 1: // all nodes are the spine's
		d.paths = append(d.paths[:0], 0)
	case p.LogV == nil:
		return
	}
	// The rest of the spine is as likely, given its parent, as the prediction says.
	for n := len(d.paths); n < d.whole.Len(); n++ {
		i, up := d.whole.Depth(n)-1, 0.0
		if i > 0 {
			up = d.logv[i-1]
		}
		d.paths = append(d.paths, d.paths[d.whole.Parent(n)]+d.logv[i]-up)
	}
	p.LogV = d.paths
}

// Observe follows the answer.
func (d *Drafter) Observe(p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	if p.Pos >= d.prompt-1 {
		d.count(&p, v)
		d.answer = d.answer[:min(len(d.answer), p.Pos+1-d.prompt)]
		for _, n := range v.Path[1:] {
			d.follow(p.Tree.Token(n))
		}
		d.follow(v.Next)
		if !d.found {
			d.find()
		}
	}
	d.spine = d.spine[:0]
	return d.other.Observe(p, v, s)
}

// count notes which of the spine's tokens were scored and are not in the answer.
func (d *Drafter) count(p *infer.Proposal, v infer.Verdict) {
	n, right := 0, true
	for i, token := range d.spine {
		c := p.Tree.Child(n, token)
		if c < 0 || c >= p.LiveNodes() {
			return
		}
		switch {
		case !right:
		case i+1 < len(v.Path):
			right = v.Path[i+1] == c
		default: // the last token of an answer may be a node of the tree, too
			right = i+1 == len(v.Path) && v.Next == token
		}
		if state := &d.state[d.from+i]; !right && *state == undrafted {
			*state = drafted
			d.rejected++
		}
		n = c
	}
}

// follow takes the next token of the answer.
func (d *Drafter) follow(token int32) {
	d.answer = append(d.answer, token)
	if !d.found {
		return
	}
	if d.at == len(d.text.tokens) {
		d.found = false
		return
	}
	c := &d.classes[classOf(d.agree)]
	c.tried++
	if d.found = d.text.tokens[d.at] == token; !d.found {
		return
	}
	c.hit++
	switch state := &d.state[d.at]; *state {
	case drafted:
		d.rejected--
		fallthrough
	case undrafted:
		*state = accepted
		d.accepted++
	}
	d.at, d.agree = d.at+1, min(d.agree+1, limit)
}

// find looks the end of the answer up in the prediction. The place with most tokens in common is
// best; of several, the next one after the place where the two diverged, because edits of a text
// keep its order, and otherwise the one nearest before it.
func (d *Drafter) find() {
	end, best, at := len(d.answer), 0, 0
	for n := min(grams, end); n >= 1 && best == 0; n-- {
		pos := d.text.index.Find(d.answer[end-n:])
		for range places {
			if pos < 0 {
				break
			}
			if m := d.common(pos); pos < len(d.text.tokens) && (m > best || m == best && d.nearer(pos, at)) {
				best, at = m, pos
			}
			pos = d.text.index.Earlier(n, pos)
		}
	}
	if best > 0 {
		d.found, d.at, d.agree = true, at, best
	}
}

// common returns how many tokens before a place of the prediction end the answer.
func (d *Drafter) common(pos int) (n int) {
	for end := len(d.answer); n < min(limit, pos, end) && d.text.tokens[pos-1-n] == d.answer[end-1-n]; {
		n++
	}
	return n
}

// nearer reports whether place a is to be preferred to b.
func (d *Drafter) nearer(a, b int) bool {
	if (a > d.at) != (b > d.at) {
		return a > d.at
	}
	if a > d.at {
		return a < b
	}
	return a > b
}
