// Package suffix is SuffixDecoding (Oliaro et al. 2024): what followed the newest tokens in this
// sequence and in earlier outputs, as far as the counts say that it is likely.
package suffix

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"talf/infer"
	"talf/infer/lookup/suffixtree"
)

// A Config has the parameters of the published code, snowflakedb/ArcticInference, under its names.
type Config struct {
	MaxTreeDepth  int     // tokens of a match and of what follows it
	MaxSpecTokens int     // most tokens of a draft
	MaxSpecFactor float32 // most tokens of a draft, for each token of the match, …
	MaxSpecOffset float32 // … and tokens added to that
	MinTokenProb  float32 // of a token of a draft
	UseTreeSpec   bool    // drafts are trees; otherwise chains
}

// treeBytes bounds every tree.
const treeBytes = 48 << 20

func (c *Config) limits(most int) suffixtree.Limits {
	return suffixtree.Limits{
		Most: min(c.MaxSpecTokens, most), Factor: c.MaxSpecFactor, Offset: c.MaxSpecOffset, MinProb: c.MinTokenProb, Tree: c.UseTreeSpec,
	}
}

// A Cache holds the newest outputs, for all drafters that share it.
type Cache struct {
	mu   sync.Mutex
	tree *suffixtree.Tree
	most int
}

// NewCache returns a cache of the outputs of at most as many requests, fewer if they are long.
func NewCache(c Config, requests int) *Cache {
	return &Cache{tree: suffixtree.New(c.MaxTreeDepth, treeBytes), most: requests}
}

// open begins an output. Those that are still being written may be removed, too.
func (c *Cache) open() suffixtree.Seq {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.tree.Len() >= c.most {
		c.tree.Remove()
	}
	return c.tree.Open()
}

func (c *Cache) close(s suffixtree.Seq) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tree.Has(s) {
		c.tree.Close(s)
	}
}

func (c *Cache) append(s suffixtree.Seq, tokens []int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range tokens {
		for c.tree.Has(s) && !c.tree.Append(s, t) {
			c.tree.Remove()
		}
	}
}

func (c *Cache) speculate(d, scratch *suffixtree.Draft, context []int32, l suffixtree.Limits) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tree.Speculate(d, scratch, context, l)
}

// A Drafter drafts for one sequence at a time.
type Drafter struct {
	cfg    Config
	cache  *Cache // nil if there is none
	output suffixtree.Seq
	opened bool // output is the cache's
	prompt int  // tokens

	own     *suffixtree.Tree // the newest part of the sequence
	text    suffixtree.Seq
	newest  []int32 // up to MaxTreeDepth tokens
	drafted [2]suffixtree.Draft
	scratch suffixtree.Draft
	from    int       // which of drafted the tree was made of
	node    []int32   // by token of the draft: its node, -1 if it found no place
	logV    []float64 // by node
	tokens  []int32
}

// New returns a drafter. A cache, if it is not nil, has the configuration's depth.
func New(c Config, cache *Cache) *Drafter {
	return &Drafter{cfg: c, cache: cache, own: suffixtree.New(c.MaxTreeDepth, treeBytes)}
}

// Start begins a sequence.
func (d *Drafter) Start(prompt []int32) error {
	if len(prompt) == 0 {
		return errors.New("suffix: an empty prompt")
	}
	d.own.Reset()
	d.text = d.own.Open()
	d.newest = d.newest[:0]
	d.prompt = len(prompt)
	d.follow(prompt)
	d.end()
	if d.cache != nil {
		d.output, d.opened = d.cache.open(), true
	}
	return nil
}

// follow appends tokens to the sequence.
func (d *Drafter) follow(tokens []int32) {
	for _, t := range tokens {
		if d.own.Append(d.text, t) {
			continue
		}
		// The tree is full: it goes on with the newer half of what it has.
		text := d.own.Text(d.text)
		text = append(slices.Clone(text[len(text)/2:]), t)
		d.own.Reset()
		d.text = d.own.Open()
		for _, t := range text {
			d.own.Append(d.text, t) // half of the text takes no more than all of it
		}
	}
	text := d.own.Text(d.text)
	d.newest = append(d.newest[:0], text[max(0, len(text)-d.cfg.MaxTreeDepth):]...)
}

func (d *Drafter) end() {
	if d.opened {
		d.cache.close(d.output)
		d.opened = false
	}
}

// Bytes returns the memory of what the sequence has, without the cache.
func (d *Drafter) Bytes() int { return d.own.Bytes() }

// Grow makes a tree of the better of the two drafts: that of the sequence itself and that of the
// outputs of all.
func (d *Drafter) Grow(p *infer.Proposal, _ []infer.Row, _ infer.Chance) ([]int, error) {
	l := d.cfg.limits(p.Tree.Room())
	d.own.Speculate(&d.drafted[0], &d.scratch, d.newest, l)
	d.from = 0
	if d.cache != nil {
		d.cache.speculate(&d.drafted[1], &d.scratch, d.newest, l)
		if d.drafted[1].Score > d.drafted[0].Score {
			d.from = 1
		}
	}
	x := &d.drafted[d.from]
	d.node, d.logV = d.node[:0], append(d.logV[:0], 0)
	for i, token := range x.Tokens {
		at := int32(0)
		if up := x.Parents[i]; up >= 0 {
			at = d.node[up]
		}
		if at < 0 || p.Tree.Depth(int(at)) == p.MaxDepth || p.May != nil && !p.May(p.Tree, int(at), token) {
			d.node = append(d.node, -1)
			continue
		}
		d.node = append(d.node, int32(p.Tree.Add(int(at), token)))
		d.logV = append(d.logV, math.Log(float64(x.Probs[i])))
	}
	p.LogV = d.logV
	return nil, nil
}

// Observe appends what was kept.
func (d *Drafter) Observe(p infer.Proposal, v infer.Verdict, _ infer.Scores) error {
	if p.Pos < d.prompt-1 {
		return nil // the prompt is known from the start
	}
	if root := p.Tree.Token(0); root != d.newest[len(d.newest)-1] {
		return fmt.Errorf("suffix: a verdict below token %d, the newest is %d", root, d.newest[len(d.newest)-1])
	}
	d.tokens = d.tokens[:0]
	for _, n := range v.Path[1:] {
		d.tokens = append(d.tokens, p.Tree.Token(n))
	}
	d.tokens = append(d.tokens, v.Next)
	d.follow(d.tokens)
	if d.opened {
		d.cache.append(d.output, d.tokens)
	}
	return nil
}

// Traits: nodes are drafted from the request, or from the outputs that are kept.
func (d *Drafter) Traits() infer.Traits {
	return infer.Traits{Origins: infer.Origins{Names: []string{"request", "outputs"}, Of: func(int) int { return d.from }}, End: d.end}
}
