package constrain

import (
	"slices"

	"talf/infer"
	"talf/text/grammar"
	"talf/tree"
)

// A Drafter keeps another drafter within the grammar: it says what may follow each node, so that the
// draft model ranks nothing else and children are drawn from nothing else, and takes the nodes that
// cannot come out of finished trees. Where the grammar allows one continuation alone, such as the
// names of required properties, that is in the tree whatever the other drafter proposes, and if it
// is long the other is not asked.
//
// Trees that are drawn at random stay as they are, since verifiers have to know how they were drawn:
// their Q are the draft's distributions over what may follow.
type Drafter struct {
	other  infer.Drafter
	proc   *Processor
	encode func(text string) ([]int32, error) // nil: nothing is drafted without asking

	prompt int
	tokens []int32 // prompt and answer, as far as they were observed
	path   []int

	round *infer.Proposal
	allow func(n int) []uint64
	may   func(t *tree.Tree, n int, token int32) bool
	mask  []uint64 // with the tokens that end answers

	ahead  []int32 // what has to come after the round's root
	spine  bool    // of the round: that alone is its tree
	scored bool    // the other drafter has nodes that are only scored, among which none can be put
	pruned tree.Tree
	logv   []float64
	from   []int // by node of the proposed tree: where it is in the other drafter's, -1: it has to come
	at     []int // by node of the other drafter's tree: where it is in the proposed one, -1: nowhere
}

// forced bounds the bytes that are drafted because nothing else can come, and alone is from how many
// tokens on they are a tree by themselves: about as many as trees are deep, so that a draft model would
// be asked for what is known.
const (
	forced = 256
	alone  = 8
)

// Draft returns a drafter that proposes what other does within the grammar of p. chosen says that
// other chooses its nodes without randomness: only then is drafted what has to come, which a
// verifier for drawn nodes could not take.
func (p *Processor) Draft(other infer.Drafter, chosen bool) *Drafter {
	d := &Drafter{other: other, proc: p}
	d.allow, d.may = d.allowed, d.allows
	if chosen {
		d.encode = p.encode
	}
	return d
}

// Start begins a sequence.
func (d *Drafter) Start(prompt []int32) error {
	d.prompt, d.tokens = len(prompt), append(d.tokens[:0], prompt...)
	return d.other.Start(prompt)
}

// Traits are those of the other drafter, with an origin of nodes more.
func (d *Drafter) Traits() infer.Traits {
	t := d.other.Traits()
	inner, names := t.Origins.Of, t.Origins.Names
	if inner == nil {
		inner, names = func(int) int { return 0 }, []string{"draft"}
	}
	t.Origins.Names = append(names[:len(names):len(names)], "grammar")
	t.Origins.Of = func(n int) int {
		if d.spine {
			return len(names)
		}
		if len(d.from) > 0 {
			if n = d.from[n]; n < 0 {
				return len(names)
			}
		}
		return inner(n)
	}
	if finish := t.Finish; finish != nil {
		t.Finish = func(p *infer.Proposal) error {
			err := finish(p)
			if err == nil {
				d.prune(p)
			}
			return err
		}
	}
	return t
}

// Grow proposes what has to come, or what the other drafter does.
func (d *Drafter) Grow(p *infer.Proposal, rows []infer.Row, c infer.Chance) ([]int, error) {
	d.round, p.Allow, p.May = p, d.allow, d.may
	if rows == nil {
		d.from = d.from[:0]
		d.look(p)
		if d.spine = len(d.ahead) >= alone || d.scored && len(d.ahead) > 0; d.spine {
			for i, id := range d.ahead {
				p.Tree.Add(i, id)
			}
			return nil, nil
		}
	} else if !p.Full {
		rows = d.possible(p, rows)
	}
	ask, err := d.other.Grow(p, rows, c)
	if err == nil && len(ask) == 0 {
		d.prune(p)
	}
	return ask, err
}

// follows reports whether the tokens up to the root of p are known.
func (d *Drafter) follows(p *infer.Proposal) bool {
	return p.Pos >= d.prompt-1 && p.Pos < len(d.tokens)
}

// context returns the tokens up to node n of t, whose root is at a position of the sequence.
func (d *Drafter) context(t *tree.Tree, pos, n int) []int32 {
	d.path = t.AppendPath(d.path[:0], n)
	ctx := d.tokens[:pos+1]
	for _, m := range d.path[1:] {
		ctx = append(ctx, t.Token(m))
	}
	d.tokens = ctx[:pos+1] // which may have grown
	return ctx
}

// look finds the tokens of what has to come after the root, as many as the round's tree may have. The last
// of them is left out unless the answer ends there: the model might join it with what follows.
func (d *Drafter) look(p *infer.Proposal) {
	d.ahead = d.ahead[:0]
	if d.encode == nil || !d.follows(p) {
		return
	}
	s := d.proc.State(d.tokens[:p.Pos+1])
	if s == nil {
		return
	}
	auto := d.proc.auto
	text := auto.Forced(s, forced)
	if len(text) < 2 {
		return
	}
	ids, err := d.encode(string(text))
	if err != nil {
		return // it is no text of its own, such as a part of a character
	}
	for i, id := range ids[:min(len(ids), p.MaxDepth, p.MaxNodes-1)] {
		to := auto.Next(s, id)
		if to == nil || i == len(ids)-1 && !to.Complete() {
			return
		}
		d.ahead = append(d.ahead, id)
		s = to
	}
}

// nothing is the set of no tokens.
var nothing = grammar.Mask{}

// allowed returns the tokens that may follow node n of the round's tree of asked nodes, and those that
// end the answer if it may end there.
func (d *Drafter) allowed(n int) []uint64 {
	s, mask := d.maskAt(d.round, n)
	if s == nil || mask == nil {
		return mask
	}
	end := s.Accepting()
	differs := func(id int32) bool { return mask.Has(id) != end }
	if !slices.ContainsFunc(d.proc.ends, differs) {
		return mask
	}
	d.mask = append(d.mask[:0], mask...)
	for _, id := range d.proc.ends {
		w, bit := int(id)/64, uint64(1)<<(id%64)
		for w >= len(d.mask) {
			d.mask = append(d.mask, 0)
		}
		if d.mask[w] &^= bit; end {
			d.mask[w] |= bit
		}
	}
	return d.mask
}

// allows reports whether a token continues the answer at node n of a tree below the round's root. A step of the
// grammar is all that it takes; a mask takes a walk through the vocabulary.
func (d *Drafter) allows(t *tree.Tree, n int, token int32) bool {
	p := d.round
	if !d.follows(p) {
		return true
	}
	s := d.proc.State(d.context(t, p.Pos, n))
	return s != nil && d.proc.auto.Next(s, token) != nil
}

// asked is the tree of asked nodes.
func asked(p *infer.Proposal) *tree.Tree {
	if p.Work != nil {
		return p.Work
	}
	return p.Tree
}

// maskAt returns the state of the grammar at node n of the tree of asked nodes, and the tokens that
// continue the answer there: none where it has ended or cannot come, and nil where that is not known.
func (d *Drafter) maskAt(p *infer.Proposal, n int) (*grammar.State, grammar.Mask) {
	if !d.follows(p) {
		return nil, nil
	}
	s := d.proc.State(d.context(asked(p), p.Pos, n))
	if s == nil || s.Complete() {
		return nil, nothing
	}
	mask, err := d.proc.auto.Mask(s)
	if err != nil {
		return s, nil // as in Processor.restrict
	}
	return s, mask
}

// possible returns rows without the candidates that the grammar does not allow, of which a source that
// heeds p.Allow names only those that end the answer: no node is worth them.
func (d *Drafter) possible(p *infer.Proposal, rows []infer.Row) []infer.Row {
	t := asked(p)
	out := slices.Clone(rows)
	for i := range out {
		_, mask := d.maskAt(p, t.Len()-len(rows)+i)
		if mask == nil {
			continue
		}
		r := infer.Row{Logits: out[i].Logits}
		for k, id := range out[i].Tokens {
			if mask.Has(id) && !slices.Contains(d.proc.ends, id) {
				r.Tokens, r.LogProb = append(r.Tokens, id), append(r.LogProb, out[i].LogProb[k])
			}
		}
		out[i] = r
	}
	return out
}

// prune takes the nodes out of a finished tree that no output comes to, and adds those that have to
// come. A chain stays one: what has to come takes the place of what differs from it.
func (d *Drafter) prune(p *infer.Proposal) {
	src := p.Tree
	if p.LiveNodes() < src.Len() {
		d.scored = true
		return
	}
	if src.Len() == 1 && len(d.ahead) == 0 || p.Choice() != infer.Chosen || !d.follows(p) {
		return
	}
	chain, changed := p.Chain(), false
	d.pruned.Reset(src.Token(0), min(src.Len()+len(d.ahead), tree.MaxNodes))
	d.at, d.from, d.logv = append(d.at[:0], 0), append(d.from[:0], 0), append(d.logv[:0], 0)
	for n := 1; n < src.Len(); n++ {
		up := d.at[src.Parent(n)]
		if up < 0 || chain && n <= len(d.ahead) && src.Token(n) != d.ahead[n-1] || d.proc.State(d.context(src, p.Pos, n)) == nil {
			d.at, changed = append(d.at, -1), true
			continue
		}
		d.at, d.from = append(d.at, d.pruned.Add(up, src.Token(n))), append(d.from, n)
		if p.LogV != nil {
			d.logv = append(d.logv, p.LogV[n])
		}
	}
	at := 0
	for _, id := range d.ahead {
		next := d.pruned.Child(at, id)
		if next < 0 {
			if d.pruned.Len() >= p.MaxNodes || d.pruned.Room() == 0 {
				break
			}
			next, changed = d.pruned.Add(at, id), true
			if d.from = append(d.from, -1); p.LogV != nil {
				d.logv = append(d.logv, d.logv[at])
			}
		}
		at = next
	}
	if !changed {
		d.from = d.from[:0]
		return
	}
	p.Tree, p.Live = &d.pruned, 0
	if p.LogV != nil {
		p.LogV = d.logv
	}
}

// Observe follows the answer.
func (d *Drafter) Observe(p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	if p.Pos+1 <= len(d.tokens) && p.Pos >= d.prompt-1 {
		d.tokens = d.tokens[:p.Pos+1]
		for _, n := range v.Path[1:] {
			d.tokens = append(d.tokens, p.Tree.Token(n))
		}
		d.tokens = append(d.tokens, v.Next)
	}
	return d.other.Observe(p, v, s)
}
