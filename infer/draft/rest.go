package draft

import (
	"errors"
	"fmt"
	"slices"

	"talf/infer"
	"talf/infer/lookup/datastore"
	"talf/internal/spec"
	"talf/tree"
)

func restMethod() Method {
	return Method{
		Line: spec.Line{
			Name: "rest", Doc: "retrieval: the most frequent continuations in a datastore of text (REST)", Main: "file",
			Params: []spec.Param{
				spec.File("file", "the datastore, made by talf datastore build"),
				nodesParam(64),
				spec.Int("depth", 10, 1, tree.MaxNodes, "most tokens of a continuation"),
				spec.Int("min", 1, 1, maxMatch, "least number of newest tokens that must occur in the datastore"),
				spec.Int("max", 16, 1, maxMatch, "largest number of newest tokens to look up"),
			},
		},
		Open: openREST,
	}
}

func openREST(v spec.Values, e Env) (Maker, error) {
	c := restConfig{n: v.Int("N"), depth: v.Int("depth"), least: v.Int("min"), most: v.Int("max")}
	if c.most < c.least {
		return Maker{}, fmt.Errorf("min is %d and max %d, want min <= max", c.least, c.most)
	}
	store, err := openStore(v.File("file"), e)
	if err != nil {
		return Maker{}, err
	}
	return Maker{
		New:   func() infer.Drafter { return &rest{cfg: c, store: store} },
		Files: v.Files(),
		Close: store.Close,
	}, nil
}

// maxMatch bounds look-ups: longer matches add nothing.
const maxMatch = 1 << 16

// openStore opens a datastore for a target.
func openStore(path string, e Env) (*datastore.Store, error) {
	if path == "" {
		return nil, errors.New("it needs a datastore: give file=FILE, made by talf datastore build")
	}
	s, err := datastore.Open(path, e.Tokenizer)
	if err != nil {
		return nil, FileError{err}
	}
	if v := s.Info().Vocab; e.Vocab > 0 && v > e.Vocab {
		return nil, FileError{errors.Join(fmt.Errorf("datastore %s: a vocabulary of %d, the model's is %d", path, v, e.Vocab), s.Close())}
	}
	return s, nil
}

type restConfig struct{ n, depth, least, most int }

// A rest drafts REST's trie (He et al. 2024, §3.2 and §3.3). It looks up the longest suffix of
// the sequence that occurs in the datastore; the most frequent prefixes of its continuations are
// the tree. The frequency of a prefix is the length of its interval in the suffix array, so
// counts cover every occurrence; the published code takes a sample. If the trie is smaller than
// the budget, shorter suffixes fill it up.
type rest struct {
	cfg   restConfig
	store *datastore.Store
	seen  []int32
	next  []datastore.Next
	queue []found // most frequent first
}

// A found is a continuation that may become a node.
type found struct {
	parent int
	datastore.Next
}

func (d *rest) Start(prompt []int32) error {
	d.seen = append(d.seen[:0], prompt...)
	return nil
}

func (d *rest) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	n, depth := min(d.cfg.n, p.MaxNodes), min(d.cfg.depth, p.MaxDepth)
	context := d.seen[:p.Pos+1]
	for most := d.cfg.most; most >= d.cfg.least && p.Tree.Len() < n; {
		m := d.store.Longest(context, d.cfg.least, most)
		if m.Count() == 0 {
			break
		}
		d.queue = d.queue[:0]
		d.enqueue(n, 0, m)
		for len(d.queue) > 0 && p.Tree.Len() < n {
			f := d.queue[0]
			d.queue = slices.Delete(d.queue, 0, 1)
			// A shorter suffix finds all that a longer one found, and more.
			c := p.Tree.Child(f.parent, f.Token)
			if c < 0 {
				c = p.Tree.Add(f.parent, f.Token)
			}
			if p.Tree.Depth(c) < depth {
				d.enqueue(n, c, f.Match)
			}
		}
		most = m.Len() - 1
	}
	return nil, d.store.Err()
}

// enqueue queues the tokens that follow m, which ends at node.
func (d *rest) enqueue(n, node int, m datastore.Match) {
	room := n - 1
	d.next = d.store.Append(d.next[:0], m, min(room, maxNext))
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
