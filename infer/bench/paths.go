package bench

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"talf/infer"
)

// The origins that GOOSE's model of a tree is about.
const (
	Spine  = "spine"
	Branch = "branch"
)

// nothing is the kind of a path that accepted no node.
const nothing = "none"

// Paths count where the nodes of labelled trees come from, and what became of
// them. Tokens past EOS or a limit are not kept.
type Paths struct {
	Origins []string `json:"origins"`
	// By origin: nodes drafted, those whose parent was kept, those kept.
	Drafted []int `json:"drafted"`
	Reached []int `json:"reached"`
	Kept    []int `json:"kept"`
	// Kinds counts rounds by the origins on the accepted path, such as "spine",
	// "branch" or, where a branch went on from a spine, "spine+branch"; "none" is a
	// round that accepted nothing.
	Kinds map[string]int `json:"rounds_by_kind"`
	// The shapes that Proposition 1 needs: Length[m] counts rounds whose tree had a
	// spine of m nodes, Fan[i][w] those of them that had w branches at the spine's
	// node i, the root being 0 and the last one left out, and Bare[w] trees
	// without a spine that had w branches at the root.
	Length []int   `json:"spine_lengths,omitempty"`
	Fan    [][]int `json:"fan_out,omitempty"`
	Bare   []int   `json:"bare_fan_out,omitempty"`
}

// newPaths returns counts for a drafter that labels its nodes, nil for others.
func newPaths(t infer.Traits) *Paths {
	if t.Origin == nil {
		return nil
	}
	o := t.Origins
	return &Paths{Origins: o, Drafted: make([]int, len(o)), Reached: make([]int, len(o)), Kept: make([]int, len(o)), Kinds: map[string]int{}}
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

// Bound returns the lower bound of τ in Proposition 1 of GOOSE (equation 1),
// averaged over the shapes of the trees that were proposed:
//
//	Σ_{i=1..m} ps^i + Σ_{i<m} ps^i (1−ps) φ_i (1+ℓ) + 1
//	φ_i = 1 − (1−pt)^{w_i},  ℓ = Σ_{k=1..depth−1} pt^k
//
// ps and pt are the shares of drafted spine and branch nodes that were accepted,
// as the paper takes them. A tree without a spine has its branches at the root.
func (p *Paths) Bound(depth int) float64 {
	ps, _ := p.Rate(Spine)
	pt, _ := p.Rate(Branch)
	on := 0.0
	for k := 1; k < depth; k++ {
		on += math.Pow(pt, float64(k))
	}
	rounds, sum := 0, 0.0
	for m, n := range p.Length {
		rounds += n
		for i := 1; i <= m; i++ {
			sum += float64(n) * math.Pow(ps, float64(i))
		}
	}
	if rounds == 0 {
		return 1
	}
	branch := func(w int) float64 { return (1 - math.Pow(1-pt, float64(w))) * (1 + on) }
	for i, fan := range p.Fan {
		for w, n := range fan {
			sum += float64(n) * math.Pow(ps, float64(i)) * (1 - ps) * branch(w)
		}
	}
	for w, n := range p.Bare {
		sum += float64(n) * branch(w)
	}
	return sum/float64(rounds) + 1
}

// IsotropicBound is the same for a tree of transitions alone, k children to each
// node and budget nodes, root counted: Σ_d Π_{j≤d} (1 − (1−pt)^{k}) + 1.
func (p *Paths) IsotropicBound(k, budget int) float64 {
	pt, _ := p.Rate(Branch)
	phi := 1 - math.Pow(1-pt, float64(k))
	sum, reach := 0.0, 1.0
	for width, left := k, budget-1; left > 0; width *= k {
		if width > left { // the last level is not full
			phi = 1 - math.Pow(1-pt, float64(k)*float64(left)/float64(width))
		}
		reach *= phi
		sum += reach
		left -= width
	}
	return sum + 1
}

func (p *Paths) add(o *Paths) {
	for i := range p.Origins {
		p.Drafted[i] += o.Drafted[i]
		p.Reached[i] += o.Reached[i]
		p.Kept[i] += o.Kept[i]
	}
	for k, n := range o.Kinds {
		p.Kinds[k] += n
	}
	for m, n := range o.Length {
		*grow(&p.Length, m) += n
	}
	for w, n := range o.Bare {
		*grow(&p.Bare, w) += n
	}
	for i, fan := range o.Fan {
		f := grow(&p.Fan, i)
		for w, n := range fan {
			*grow(f, w) += n
		}
	}
}

func grow[T any](s *[]T, i int) *T {
	for len(*s) <= i {
		var zero T
		*s = append(*s, zero)
	}
	return &(*s)[i]
}

// clone returns a copy that shares nothing.
func (p *Paths) clone() *Paths {
	c := &Paths{Origins: p.Origins, Drafted: make([]int, len(p.Origins)), Reached: make([]int, len(p.Origins)), Kept: make([]int, len(p.Origins)), Kinds: map[string]int{}}
	c.add(p)
	return c
}

// A watched verifier notes what becomes of labelled nodes. Of a verdict it learns
// what was emitted through emit.
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
		w.paths, w.origin = newPaths(t), t.Origin
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

// shape notes the spine and its branches.
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
			*grow(grow(&w.paths.Fan, m), branches)++
		case n == 0:
			*grow(&w.paths.Bare, branches)++
		}
		n = next
		if next < 0 {
			break
		}
	}
	*grow(&w.paths.Length, m)++
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
	kind := nothing
	if len(kinds) > 0 {
		kind = strings.Join(kinds, "+")
	}
	w.paths.Kinds[kind]++
	return nil
}
