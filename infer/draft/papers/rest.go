package papers

import (
	"fmt"
	"math"
	"slices"

	"talf/infer"
	"talf/infer/draft/method"
	"talf/infer/lookup/datastore"
	"talf/internal/spec"
	"talf/tree"
)

func restMethod() method.Method {
	return method.Method{
		Line: spec.Line{
			Name: "rest", Doc: "retrieval: the most frequent continuations in a datastore of text (REST)", Main: "file",
			Params: []spec.Param{
				spec.File("file", "the datastore, made by talf datastore build"),
				spec.Choice("set", "defaults of the others: paper, those of the published code; full, all that the datastore has, N=64,min=1,hits=0,fill=on,thin=off", "paper", "full"),
				method.Nodes(65),
				spec.Int("depth", 10, 1, tree.MaxNodes, "most tokens of a continuation"),
				spec.Int("min", 2, 1, maxMatch, "least number of newest tokens that must occur in the datastore"),
				spec.Int("max", 16, 1, maxMatch, "largest number of newest tokens to look up"),
				spec.Int("hits", 5000, 0, math.MaxInt32, "most occurrences that are counted, the first in the order of the suffixes; 0: all"),
				spec.Switch("fill", false, "on: shorter matches fill up a tree that is smaller than N"),
				spec.Switch("thin", true, "on: continuations with the most distinct tokens are dropped until those of all sum to less than N"),
			},
		},
		Open: openREST,
	}
}

// fullREST are the defaults of set=full.
const fullREST = "N=64,min=1,hits=0,fill=on,thin=off"

func openREST(v spec.Values, e method.Env) (method.Maker, error) {
	if v.Choice("set") == 1 {
		var err error
		if v, err = restMethod().Under(v, fullREST); err != nil {
			return method.Maker{}, err
		}
	}
	c := restConfig{
		n: v.Int("N"), depth: v.Int("depth"), least: v.Int("min"), most: v.Int("max"),
		hits: v.Int("hits"), fill: v.On("fill"), thin: v.On("thin"),
	}
	if c.hits == 0 {
		c.hits = math.MaxInt32
	}
	if c.most < c.least {
		return method.Maker{}, fmt.Errorf("min is %d and max %d, want min <= max", c.least, c.most)
	}
	store, err := method.OpenStore(v.File("file"), e)
	if err != nil {
		return method.Maker{}, err
	}
	return method.Maker{
		New:   func() infer.Drafter { return &rest{cfg: c, store: store} },
		Files: v.Files(),
		Close: store.Close,
	}, nil
}

// maxMatch bounds look-ups: longer matches add nothing.
const maxMatch = 1 << 16

type restConfig struct {
	n, depth, least, most, hits int
	fill, thin                  bool
}

// A rest drafts REST's trie (He et al. 2024, §3.2 and §3.3). It looks up the longest suffix of
// the sequence that occurs in the datastore; the most frequent prefixes of its continuations are
// the tree. The frequency of a prefix is the length of its interval in the suffix array. Equal ones
// go to the shallower, then to the more frequent parent's; in the published code chance decides.
type rest struct {
	cfg   restConfig
	store *datastore.Store
	seen  []int32
	next  []datastore.Next
	queue []found   // most frequent first
	trie  tree.Tree // before continuations are dropped from it
	kept  []kept    // by node of the trie
}

// A found is a continuation that may become a node.
type found struct {
	parent int // in the trie
	datastore.Next
}

// A kept continuation is a node of the trie.
type kept struct {
	distinct int // tokens of the continuation that differ
	node     int // of the tree, -1 if it was dropped
}

func (d *rest) Start(prompt []int32) error {
	d.seen = append(d.seen[:0], prompt...)
	return nil
}

func (d *rest) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	n, depth := min(d.cfg.n, p.MaxNodes), min(d.cfg.depth, p.MaxDepth)
	context := d.seen[:p.Pos+1]
	d.trie.Reset(p.Tree.Token(0), n)
	d.kept = append(d.kept[:0], kept{})
	for most := d.cfg.most; most >= d.cfg.least && d.trie.Room() > 0; {
		m := d.store.Longest(context, d.cfg.least, most)
		if m.Count() == 0 {
			break
		}
		d.queue = d.queue[:0]
		d.enqueue(p, n, 0, m.First(d.cfg.hits))
		for len(d.queue) > 0 && d.trie.Room() > 0 {
			f := d.queue[0]
			d.queue = slices.Delete(d.queue, 0, 1)
			// A shorter suffix finds all that a longer one found, and more.
			c := d.child(f.parent, f.Token)
			if d.trie.Depth(c) < depth {
				d.enqueue(p, n, c, f.Match)
			}
		}
		if !d.cfg.fill {
			break
		}
		most = m.Len() - 1
	}
	if d.cfg.thin {
		d.thin(n - 1)
	}
	for i := 1; i < d.trie.Len(); i++ {
		if x := &d.kept[i]; x.node >= 0 {
			x.node = p.Tree.Add(d.kept[d.trie.Parent(i)].node, d.trie.Token(i))
		}
	}
	return nil, d.store.Err()
}

// child returns the node of the trie for a token below another node, and adds it if it is new.
func (d *rest) child(parent int, token int32) int {
	if c := d.trie.Child(parent, token); c >= 0 {
		return c
	}
	x := kept{distinct: d.kept[parent].distinct + 1}
	for n := parent; n > 0; n = d.trie.Parent(n) {
		if d.trie.Token(n) == token {
			x.distinct--
			break
		}
	}
	d.kept = append(d.kept, x)
	return d.trie.Add(parent, token)
}

// thin drops continuations, those with the most distinct tokens first and of equal ones the last,
// until the distinct tokens of the others sum to most at most. A node never has fewer than its
// parent, which stands before it: what is left is a trie.
func (d *rest) thin(most int) {
	sum := 0
	for _, x := range d.kept {
		sum += x.distinct
	}
	for sum > most {
		last := 0
		for i, x := range d.kept {
			if x.node >= 0 && x.distinct >= d.kept[last].distinct {
				last = i
			}
		}
		sum -= d.kept[last].distinct
		d.kept[last].node = -1
	}
}

// enqueue queues the tokens that follow m, which ends at a node of the trie, and may come there.
func (d *rest) enqueue(p *infer.Proposal, n, node int, m datastore.Match) {
	room := n - 1
	var may func(token int32) bool
	if p.May != nil {
		may = func(token int32) bool { return p.May(&d.trie, node, token) }
	}
	d.next = method.Following(d.next[:0], d.store, m, min(room, maxNext), may)
	for _, x := range d.next {
		i := len(d.queue)
		for i > 0 && d.queue[i-1].Count() < x.Count() {
			i--
		}
		if i < room {
			if len(d.queue) == room {
				d.queue = d.queue[:room-1]
			}
			d.queue = slices.Insert(d.queue, i, found{node, x})
		}
	}
}

// maxNext bounds how many children of a node are considered.
const maxNext = 16

func (d *rest) Observe(p infer.Proposal, v infer.Verdict, _ infer.Scores) error {
	d.seen = observed(d.seen, p, v)
	return nil
}

// observed appends to a drafter's copy of the sequence what was kept. Chunks of the prompt,
// which Start gave, come a second time.
func observed(seen []int32, p infer.Proposal, v infer.Verdict) []int32 {
	if p.Pos+len(v.Path) < len(seen) {
		return seen
	}
	seen = seen[:p.Pos+1] // the root
	for _, n := range v.Path[1:] {
		seen = append(seen, p.Tree.Token(n))
	}
	return append(seen, v.Next)
}

func (*rest) Traits() infer.Traits { return infer.Traits{} }
