package bench

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"talf/infer"
	"talf/internal/slab"
)

// The origins of nodes that GOOSE models (spine and branch).
const (
	Spine  = "spine"
	Branch = "branch"
)

// Nothing is the kind of a path on which no drafted node was accepted.
const Nothing = "none"

// Paths count where the nodes of labelled trees come from and what became of them. Tokens past
// the end of an answer do not count as kept.
type Paths struct {
	Origins []string `json:"origins"`
	// By origin: nodes drafted, those whose parent was kept, those kept.
	Drafted []int `json:"drafted"`
	Reached []int `json:"reached"`
	Kept    []int `json:"kept"`
	// Kinds counts rounds by the origins on the accepted path, such as "spine", "branch" or, if
	// a branch continued a spine, "spine+branch". "none" is a round that accepted nothing.
	Kinds map[string]int `json:"rounds_by_kind"`
	// The shapes that Proposition 1 of GOOSE needs. Length[m] counts rounds whose tree had a
	// spine of m nodes; Fan[i][w] counts those with w branches at the spine's node i, where
	// the root is 0 and the last node is left out; Bare[w] counts trees without a spine that
	// had w branches at the root.
	Length []int   `json:"spine_lengths,omitempty"`
	Fan    [][]int `json:"fan_out,omitempty"`
	Bare   []int   `json:"bare_fan_out,omitempty"`
}

// newPaths returns counts for a drafter that labels its nodes, nil for others.
func newPaths(t infer.Traits) *Paths {
	o := t.Origins.Names
	if t.Origins.Of == nil {
		return nil
	}
	return &Paths{Origins: o, Drafted: make([]int, len(o)), Reached: make([]int, len(o)), Kept: make([]int, len(o)), Kinds: map[string]int{}}
}

// check refuses counts that no run makes.
func (p *Paths) check() error {
	for _, c := range []struct {
		name string
		n    int
	}{{"drafted", len(p.Drafted)}, {"reached", len(p.Reached)}, {"kept", len(p.Kept)}} {
		if c.n != len(p.Origins) {
			return fmt.Errorf("paths.%s: %d counts, want one for each of %d origins", c.name, c.n, len(p.Origins))
		}
	}
	return nil
}

// Rate returns the share of the drafted nodes of an origin that were kept, and the
// share of those whose parent was kept. Both are 0 where there were none.
func (p *Paths) Rate(origin string) (drafted, reached float64) {
	for i, o := range p.Origins {
		if o == origin {
			return infer.Rate{Tried: p.Drafted[i], Kept: p.Kept[i]}.Value(), infer.Rate{Tried: p.Reached[i], Kept: p.Kept[i]}.Value()
		}
	}
	return 0, 0
}

// Share returns the share of rounds whose accepted path is of this kind.
func (p *Paths) Share(kind string) float64 {
	all := 0
	for _, n := range p.Kinds {
		all += n
	}
	return infer.Rate{Tried: all, Kept: p.Kinds[kind]}.Value()
}

// kinds lists the shares of rounds by kind of path, the most frequent first.
func (p *Paths) kinds() string {
	names := slices.SortedFunc(maps.Keys(p.Kinds), func(a, b string) int {
		return cmp.Or(cmp.Compare(p.Kinds[b], p.Kinds[a]), cmp.Compare(a, b))
	})
	for i, k := range names {
		names[i] = fmt.Sprintf("%s %.0f%%", k, 100*p.Share(k))
	}
	return strings.Join(names, ", ")
}

// add sums o into p, origin by origin: releases may name them differently.
func (p *Paths) add(o *Paths) {
	for i, name := range o.Origins {
		at := slices.Index(p.Origins, name)
		if at < 0 {
			at = len(p.Origins)
			p.Origins = append(p.Origins, name)
			p.Drafted, p.Reached, p.Kept = append(p.Drafted, 0), append(p.Reached, 0), append(p.Kept, 0)
		}
		p.Drafted[at] += o.Drafted[i]
		p.Reached[at] += o.Reached[i]
		p.Kept[at] += o.Kept[i]
	}
	for k, n := range o.Kinds {
		p.Kinds[k] += n
	}
	for m, n := range o.Length {
		*slab.At(&p.Length, m) += n
	}
	for w, n := range o.Bare {
		*slab.At(&p.Bare, w) += n
	}
	for i, fan := range o.Fan {
		f := slab.At(&p.Fan, i)
		for w, n := range fan {
			*slab.At(f, w) += n
		}
	}
}

// clone returns a copy that shares nothing.
func (p *Paths) clone() *Paths {
	c := &Paths{Kinds: map[string]int{}}
	c.add(p)
	return c
}

// A watched verifier counts what becomes of labelled nodes. It learns through emit how much of
// a verdict was emitted.
type watched struct {
	infer.Verifier
	origin func(n int) int // of a node
	paths  *Paths
	path   []int // origins of the nodes of the accepted path, root left out
	tried  []int // nodes by origin whose parent is on the path, by depth of the parent
}

func watch(v infer.Verifier, d infer.Drafter) *watched {
	w := &watched{Verifier: v}
	if d != nil {
		t := d.Traits()
		w.paths, w.origin = newPaths(t), t.Origins.Of
	}
	return w
}

func (w *watched) Verify(p infer.Proposal, s infer.Scores, c infer.Chance) (infer.Verdict, error) {
	v, err := w.Verifier.Verify(p, s, c)
	if w.paths == nil || err != nil {
		return v, err
	}
	k, t := len(w.paths.Origins), p.Tree
	for n := 1; n < t.Len(); n++ {
		w.paths.Drafted[w.origin(n)]++
	}
	w.path, w.tried = w.path[:0], w.tried[:0]
	for i, n := range v.Path {
		if i > 0 {
			w.path = append(w.path, w.origin(n))
		}
		at := len(w.tried)
		for range k {
			w.tried = append(w.tried, 0)
		}
		for c := t.FirstChild(n); c >= 0; c = t.NextSibling(c) {
			w.tried[at+w.origin(c)]++
		}
	}
	w.shape(p)
	return v, nil
}

// shape counts the spine and its branches.
func (w *watched) shape(p infer.Proposal) {
	t, o := p.Tree, w.paths.Origins
	m := 0
	for n := 0; n >= 0; m++ {
		next, branches := -1, 0
		for c := t.FirstChild(n); c >= 0; c = t.NextSibling(c) {
			switch o[w.origin(c)] {
			case Spine:
				next = c
			case Branch:
				branches++
			}
		}
		switch {
		case next >= 0:
			*slab.At(slab.At(&w.paths.Fan, m), branches)++
		case n == 0:
			*slab.At(&w.paths.Bare, branches)++
		}
		n = next
		if next < 0 {
			break
		}
	}
	*slab.At(&w.paths.Length, m)++
}

func (w *watched) emit(d infer.Delta) error {
	if w.paths == nil {
		return nil
	}
	k := len(w.paths.Origins)
	kept := w.path[:min(len(w.path), len(d.Tokens))]
	for i := 0; i <= len(kept) && (i+1)*k <= len(w.tried); i++ {
		if i == len(d.Tokens) {
			break // the output ended with the node itself
		}
		for o, n := range w.tried[i*k : (i+1)*k] {
			w.paths.Reached[o] += n
		}
	}
	var kinds []string
	for _, o := range kept {
		w.paths.Kept[o]++
		if name := w.paths.Origins[o]; !slices.Contains(kinds, name) {
			kinds = append(kinds, name)
		}
	}
	kind := Nothing
	if len(kinds) > 0 {
		kind = strings.Join(kinds, "+")
	}
	w.paths.Kinds[kind]++
	return nil
}
