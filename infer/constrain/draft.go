package constrain

import (
	"slices"

	"talf/infer"
	"talf/tree"
)

// A Drafter keeps another drafter within the grammar: candidates that cannot come are taken out
// before a node is spent on them, and so are nodes of finished trees. Where the grammar allows one
// continuation alone, such as the names of required properties, that is drafted without asking.
//
// What is drawn at random stays as it is, since verifiers have to know how it was drawn.
type Drafter struct {
	other  infer.Drafter
	proc   *Processor
	encode func(text string) ([]int32, error) // nil: nothing is drafted without asking

	prompt int
	tokens []int32 // prompt and answer, as far as they were observed
	path   []int

	spine  bool // of the round: its tree is what has to come
	pruned tree.Tree
	logv   []float64
	from   []int // by node of the proposed tree: where it is in the other drafter's
	at     []int // by node of the other drafter's tree: where it is in the proposed one, -1: nowhere
}

// forced bounds the bytes that are drafted because nothing else can come.
const forced = 256

// Draft returns a drafter that proposes what other does within the grammar of p. chosen says that
// other chooses its nodes without randomness: only then is drafted what has to come, which a
// verifier for drawn nodes could not take.
func (p *Processor) Draft(other infer.Drafter, chosen bool) *Drafter {
	d := &Drafter{other: other, proc: p}
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
	inner, names := t.Origin, t.Origins
	if inner == nil {
		inner, names = func(int) int { return 0 }, []string{"draft"}
	}
	t.Origins = append(names[:len(names):len(names)], "grammar")
	t.Origin = func(n int) int {
		if d.spine {
			return len(names)
		}
		if len(d.from) > 0 {
			n = d.from[n]
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
	if rows == nil {
		d.from = d.from[:0]
		if d.spine = d.lay(p); d.spine {
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

// lay adds the tokens of what has to come as a chain, and reports whether there are any. The last of
// them is left out unless the answer ends there: the model might join it with what follows.
func (d *Drafter) lay(p *infer.Proposal) bool {
	if d.encode == nil || !d.follows(p) {
		return false
	}
	s := d.proc.State(d.tokens[:p.Pos+1])
	if s == nil {
		return false
	}
	auto := d.proc.auto
	text := auto.Forced(s, forced)
	if len(text) < 2 {
		return false
	}
	ids, err := d.encode(string(text))
	if err != nil {
		return false // it is no text of its own, such as a part of a character
	}
	read := 0
	for i, id := range ids {
		to := auto.Next(s, id)
		if to == nil || p.Tree.Len() > p.MaxDepth || p.Tree.Room() == 0 || i == len(ids)-1 && !to.Complete() {
			break
		}
		p.Tree.Add(p.Tree.Len()-1, id)
		s = to
		read++
	}
	return read > 0
}

// possible returns rows without the candidates that the grammar does not allow. A row that would be
// empty stays as it is.
func (d *Drafter) possible(p *infer.Proposal, rows []infer.Row) []infer.Row {
	if !d.follows(p) {
		return rows
	}
	t := p.Tree
	if p.Work != nil {
		t = p.Work
	}
	out := slices.Clone(rows)
	for i := range out {
		s := d.proc.State(d.context(t, p.Pos, t.Len()-len(rows)+i))
		if s == nil {
			continue
		}
		r := infer.Row{Logits: out[i].Logits}
		for k, id := range out[i].Tokens {
			if d.proc.auto.Next(s, id) != nil {
				r.Tokens, r.LogProb = append(r.Tokens, id), append(r.LogProb, out[i].LogProb[k])
			}
		}
		if len(r.Tokens) > 0 {
			out[i] = r
		}
	}
	return out
}

// prune takes the nodes out of a finished tree that no output comes to.
func (d *Drafter) prune(p *infer.Proposal) {
	src := p.Tree
	if src.Len() == 1 || p.Draw() != infer.Chosen || p.LiveNodes() < src.Len() || !d.follows(p) {
		return
	}
	d.pruned.Reset(src.Token(0), src.Len())
	d.at, d.from, d.logv = append(d.at[:0], 0), append(d.from[:0], 0), append(d.logv[:0], 0)
	for n := 1; n < src.Len(); n++ {
		up := d.at[src.Parent(n)]
		if up < 0 || d.proc.State(d.context(src, p.Pos, n)) == nil {
			d.at = append(d.at, -1)
			continue
		}
		d.at, d.from = append(d.at, d.pruned.Add(up, src.Token(n))), append(d.from, n)
		if p.LogV != nil {
			d.logv = append(d.logv, p.LogV[n])
		}
	}
	if d.pruned.Len() == src.Len() {
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
