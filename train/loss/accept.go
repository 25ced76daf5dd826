package loss

import (
	"fmt"

	"talf/compute"
	"talf/internal/detmath"
	"talf/internal/slab"
	"talf/internal/spec"
)

// accept is a loss of what verification accepts. With p the target's distribution at a node and q
// the head's, a token that is drawn from q is accepted with probability
//
//	α = Σ_x min(p(x), q(x)) = 1 − TV(p, q)
//
// (Leviathan et al. 2023, arXiv 2211.17192, §3.2). A loss of nodes is Σ_n r(n)·ℓ(n) over the target's
// own tree of a position, where the head is fed its own features down every path, as in talf. r(n) is
// the probability that decoding at temperature 1 reaches the node if the tree is drafted: that the
// target draws what leads there.
//
//	r(root) = 1,  r(child x of n) = r(n)·p_n(x)
//
// reach=overlap has min(p_n(x), q_n(x)) in place of p_n(x): a chain is drafted, q draws x, and the target
// accepts it. The gradient takes that as constant. reach=all is talf's sum, in which every node weighs
// 1. Greedy decoding reaches a child only if both find it most likely, of which there is no gradient.
//
// Top-K labels have a tail, which is compared as one token. So its part of α is min(Σp, Σq), which is
// at least Σ min(p, q). A draft vocabulary leaves p as it is: what lies outside is never accepted.
// With outside=renorm p is that of the tokens inside.
type accept struct {
	node    func(row []part, scale float64) float64 // nil: the loss is of the expected accepted length
	reach   string
	outside Outside
	levels  int
	wCls    float64 // eal
	linear  bool    // eal
	adapts  bool    // node has weights of its own that depend on the head
	detach  bool
}

// Values of reach.
const (
	reachTarget  = "target"
	reachOverlap = "overlap"
	reachAll     = "all"
)

// A part is some of the tokens that a row has labels of: all of them, or the tail as one token. q
// is the head's probabilities, and becomes −q·∂loss/∂q (see gg.Judge).
type part struct{ p, q []float32 }

// tie is how close p and q must be, relative to p, to count as equal. A float32 softmax is not more
// accurate. Where they are equal min(p, q) has a kink, and the derivative taken is the one that
// vanishes if all of p and q are equal.
const tie = 1e-5

// Where a loss divides by or takes the logarithm of α or EAL, they are at least least, as in
// speculators. Of p and q, the same holds with leastP, since labels may say 0, which a target never
// means, and leastQ, the least normal number.
const (
	least  = 1e-5
	leastP = 1e-10
	leastQ = 0x1p-126
)

// overlap returns Σ min(p, q).
func overlap(row []part) float64 {
	sum := 0.0
	for _, t := range row {
		for i, p := range t.p {
			sum += float64(min(p, t.q[i]))
		}
	}
	return sum
}

// raises reports whether more q raises min(p, q).
func raises(p, q float32) bool { return float64(q) <= float64(p)*(1+tie) }

// pullOverlap replaces q by scale·q·∂α/∂q.
func pullOverlap(row []part, scale float64) {
	for _, t := range row {
		for i, q := range t.q {
			if t.q[i] = 0; raises(t.p[i], q) {
				t.q[i] = float32(float64(q) * scale)
			}
		}
	}
}

// cross returns the cross-entropy −Σ p·log q.
func cross(row []part) float64 {
	sum := 0.0
	for _, t := range row {
		for i, p := range t.p {
			if p > 0 {
				sum -= float64(float64(p) * detmath.Log(max(float64(t.q[i]), leastQ)))
			}
		}
	}
	return sum
}

// pullCross adds −scale·q·∂cross/∂q.
func pullCross(row []part, scale float64) {
	for _, t := range row {
		for i, p := range t.p {
			t.q[i] = float32(float64(t.q[i]) + float64(scale*float64(p)))
		}
	}
}

// acceptParams are the parameters of all of these losses.
func acceptParams() []spec.Param {
	return []spec.Param{
		spec.Int("levels", 0, 0, 16, "levels of the trees that are trained on (0: all that the data have)"),
		spec.Choice("feed", "gradient through the features that are fed back: flow or detach (none)", "flow", "detach"),
		spec.Choice("outside", "labels outside a draft vocabulary: drop (never accepted) or renorm (those inside get their mass)", string(Drop), string(Renorm)),
	}
}

func newAccept(v spec.Values) accept {
	return accept{levels: v.Int("levels"), detach: v.Text("feed") == "detach", outside: Outside(v.Text("outside"))}
}

func (a accept) Plan(d Labelling) (Plan, error) {
	levels, err := d.levels(a.levels)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Levels: levels, Outside: a.outside, Tail: true, Temp: 1, Detach: a.detach}
	if d.K != 0 && d.K < d.Branch && p.Levels > 1 {
		return Plan{}, fmt.Errorf("the data hold %d labels of a node, want at least the %d of its children", d.K, d.Branch)
	}
	p.Held = a.adapts || a.node != nil && a.reach == reachOverlap && p.Levels > 1
	return p, nil
}

func (a accept) Build(in Inputs) []Term {
	return []Term{in.Joint(1, a.walk(in, len(in.FHat)).judge)}
}

// walk returns a walk over the nodes and labels of so many levels.
func (a accept) walk(in Inputs, levels int) *walk {
	w := &walk{accept: a, in: in}
	w.reached, w.below, w.link = make([][]float64, levels), make([][]float64, levels), make([][]float64, levels)
	w.label, w.root = make([][]int32, levels), make([][]int32, levels)
	return w
}

// A walk computes a loss over the trees of a batch.
type walk struct {
	accept
	in Inputs

	// Of every row of every level:
	reached [][]float64 // r
	below   [][]float64 // how many tokens are expected to be accepted below it
	link    [][]float64 // min(p, q) of its own token at its parent; 0 if the row does not count
	label   [][]int32   // index of its token among its parent's labels; −1: none
	root    [][]int32   // its row of level 0

	extra []float64 // [rows of a level]: what they add to what their parents' q becomes
	sum   []float64 // [rows of level 0]: loss
	slope []float64 // [rows of level 0]: −∂loss/∂EAL
	parts [2]part
}

// judge is a gg.Judge.
func (w *walk) judge(q []*compute.SoftLabels, loss, scale []float32) {
	w.descend(q)
	w.sum, w.slope = slab.Zeros(w.sum, len(loss)), slab.Zeros(w.slope, len(loss))
	if w.node != nil {
		w.nodes(q, scale)
	} else {
		w.length(q, scale)
	}
	for r, s := range w.sum {
		loss[r] = float32(s)
	}
}

// row returns the labels of a row beside the head's probabilities.
func (w *walk) row(q *compute.SoftLabels, level, r int) []part {
	l := w.in.Labels[level]
	if v := w.in.Vocab; l.Full != nil {
		w.parts[0] = part{l.Full[r*v:][:v], q.Full[r*v:][:v]}
		return w.parts[:1]
	}
	w.parts[0] = part{l.Prob[r*l.K:][:l.K], q.Prob[r*l.K:][:l.K]}
	w.parts[1] = part{l.Tail[r:][:1], q.Tail[r:][:1]}
	return w.parts[:2]
}

// find returns the index of a token among the labels of a row, or −1.
func (w *walk) find(level int, r, token int32) int32 {
	l := w.in.Labels[level]
	if l.Full != nil || token < 0 {
		return token
	}
	for i, id := range l.IDs[int(r)*l.K:][:l.K] {
		if id == token {
			return int32(i)
		}
	}
	return -1
}

// counts reports whether a row counts. Those of level 0 are weighed by the scale instead.
func (w *walk) counts(level, r int) bool { return level == 0 || (*w.in.Nodes[level].Mask)[r] != 0 }

// descend computes, from the top, how likely every row is reached.
func (w *walk) descend(q []*compute.SoftLabels) {
	for l := range q {
		n := len(*w.in.Nodes[l].Mask)
		w.reached[l], w.link[l] = slab.Zeros(w.reached[l], n), slab.Zeros(w.link[l], n)
		w.label[l], w.root[l] = slab.Resize(w.label[l], n), slab.Resize(w.root[l], n)
		for r := range n {
			if l == 0 {
				w.reached[l][r], w.root[l][r] = 1, int32(r)
				continue
			}
			up := (*w.in.Nodes[l].Parent)[r]
			at := w.find(l-1, up, (*w.in.Nodes[l].Token)[r])
			w.label[l][r], w.root[l][r] = at, w.root[l-1][up]
			if at < 0 || !w.counts(l, r) {
				continue
			}
			row := w.row(q[l-1], l-1, int(up))[0]
			w.link[l][r] = float64(min(row.p[at], row.q[at]))
			step := 1.0
			switch w.reach {
			case reachOverlap:
				step = w.link[l][r]
			case reachTarget:
				step = float64(row.p[at])
			}
			w.reached[l][r] = w.reached[l-1][up] * step
		}
	}
}

// nodes adds up a loss of every node.
func (w *walk) nodes(q []*compute.SoftLabels, scale []float32) {
	for l := range q {
		for r, reach := range w.reached[l] {
			root := w.root[l][r]
			w.sum[root] += float64(reach * w.node(w.row(q[l], l, r), float64(reach*float64(scale[root]))))
		}
	}
}
