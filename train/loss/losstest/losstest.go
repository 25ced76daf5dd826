// Package losstest checks a training loss against the contract of all losses. A loss's test is
// one call of Run.
package losstest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"talf/compute"
	"talf/train/internal/gg"
	"talf/train/loss"
)

// Sizes of the small problems: rows of level 0, their children, hidden size, vocabulary, labels.
const (
	rows0, branch = 5, 2
	hidden, vocab = 6, 9
	topK          = 3
	depth         = 3
)

// A problem is a loss over outputs that are themselves parameters.
type problem struct {
	t      testing.TB
	g      *gg.Graph
	plan   loss.Plan
	full   bool // labels are whole distributions
	terms  []loss.Term
	total  *gg.Node
	out    []*gg.Node  // parameters: f̂ of each level, transposed
	fhat   [][]float32 // their memory [hidden][rows]
	rows   []int       // of each level
	target [][]float32 // [level][rows][hidden]
	lm     []float32   // [vocab][hidden]
	labels []*compute.SoftLabels
	mask   [][]float32
	n      float64
}

// newProblem draws a problem of a loss.
func newProblem(t testing.TB, q compute.Queue, l loss.Loss, seed uint64) *problem {
	t.Helper()
	// Some losses are of block heads, and some want the whole distribution.
	var plan loss.Plan
	var err error
	full := false
	for _, d := range []loss.Labelling{{Depth: depth, K: topK}, {Depth: depth, K: topK, Drafts: depth}, {Depth: depth}, {Depth: depth, Drafts: depth}} {
		full = d.K == 0
		if plan, err = l.Plan(d); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	g, err := gg.New(q)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(seed, 1))
	random := func(n int) []float32 {
		f := make([]float32, n)
		for i := range f {
			f[i] = float32(r.NormFloat64())
		}
		return f
	}
	tensor := func(name string, f []float32, shape ...int) *gg.Tensor {
		x, err := gg.NewTensor(q, name, f, shape...)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	p := &problem{t: t, g: g, plan: plan, full: full, lm: random(vocab * hidden), mask: make([][]float32, plan.Levels), n: 4}
	lm := append([]float32(nil), p.lm...)
	for i := range lm {
		lm[i] /= plan.Temp
	}
	in := loss.Inputs{Graph: g, Vocab: vocab, LMHead: g.Frozen(tensor("lm", lm, vocab, hidden))}
	for level := range plan.Levels {
		n := rows0
		if level > 0 {
			n *= branch
		}
		// f̂ = I·Wᵀ: a loss takes a matrix with live rows, not a parameter.
		one := g.Input("one", &gg.Rows{Max: n, N: n}, n)
		for i := range n {
			one.Data()[i*n+i] = 1
		}
		w := tensor("f", random(n*hidden), hidden, n)
		node := g.Param(w)
		p.out, p.fhat, p.rows = append(p.out, node), append(p.fhat, w.Data), append(p.rows, n)
		in.FHat = append(in.FHat, g.Linear(one, node, nil))
		lab := &compute.SoftLabels{K: topK}
		m := make([]float32, n)
		for i := range n {
			perm := r.Perm(vocab)
			for k := range topK {
				lab.IDs = append(lab.IDs, int32(perm[k]))
				lab.Prob = append(lab.Prob, []float32{0.5, 0.2, 0.1}[k])
			}
			if plan.Tail {
				lab.Tail = append(lab.Tail, 0.2)
			}
			if full {
				lab.Full = append(lab.Full, distribution(r)...)
			}
			if i != 1 {
				m[i] = 1
			}
		}
		p.labels, p.mask[level] = append(p.labels, lab), m
		// Siblings' tokens are different labels of their parent.
		token, parent, next := make([]int32, n), make([]int32, n), make([]int32, n)
		for i := range n {
			next[i] = int32(i % vocab)
			if level > 0 {
				parent[i] = int32(i * p.rows[level-1] / n)
				token[i] = p.labels[level-1].IDs[int(parent[i])*topK+i%branch]
			}
		}
		in.Nodes = append(in.Nodes, loss.Nodes{Token: &token, Parent: &parent, Mask: &p.mask[level], Next: &next})
	}
	in.Labels = p.labels
	for l := range plan.Regress {
		n := g.Input("target", in.FHat[l].Rows(), hidden)
		in.Target, p.target = append(in.Target, n), append(p.target, n.Data())
		copy(n.Data(), random(p.rows[l]*hidden))
	}
	p.terms = l.Build(in)
	if len(p.terms) == 0 {
		t.Fatal("the loss has no terms")
	}
	var ls []*gg.Loss
	for i := range p.terms {
		ls = append(ls, p.terms[i].Loss)
	}
	p.total = g.Total(ls...)
	if err := g.Compile(p.total, p.out...); err != nil {
		t.Fatal(err)
	}
	return p
}

// run returns the loss, summed in float64, and the gradients.
func (p *problem) run() (float64, [][]float32) {
	p.t.Helper()
	for i := range p.terms {
		p.terms[i].Set(p.mask[p.terms[i].Level], p.n)
	}
	if err := p.g.Run(context.Background()); err != nil {
		p.t.Fatal(err)
	}
	sum := 0.0
	for i := range p.terms {
		t := &p.terms[i]
		for r, x := range t.RowLoss() {
			sum += float64(t.Weight) * float64(p.mask[t.Level][r]) / p.n * float64(x)
		}
	}
	if got := float64(p.total.Scalar()); math.Abs(got-sum) > 1e-5*max(1, math.Abs(sum)) {
		p.t.Errorf("the loss is %v, but its rows add up to %v", got, sum)
	}
	var grads [][]float32
	for _, o := range p.out {
		grads = append(grads, append([]float32(nil), o.Grad()...))
	}
	return sum, grads
}

// distribution draws a distribution over the vocabulary.
func distribution(r *rand.Rand) []float32 {
	row, sum := make([]float32, vocab), float32(0)
	for v := range row {
		row[v] = r.Float32()
		sum += row[v]
	}
	for v := range row {
		row[v] /= sum
	}
	return row
}

// softmax returns softmax(lm·f̂/temp) of a row of a level.
func (p *problem) softmax(level, row int, temp float32) []float64 {
	z, sum := make([]float64, vocab), 0.0
	for v := range z {
		for k := range hidden {
			z[v] += float64(p.lm[v*hidden+k]) * float64(p.fhat[level][k*p.rows[level]+row])
		}
		z[v] = math.Exp(z[v] / float64(temp))
		sum += z[v]
	}
	for v := range z {
		z[v] /= sum
	}
	return z
}

// Run tests a loss on queues that can train.
func Run(t *testing.T, l loss.Loss, queue func(testing.TB) compute.Queue) {
	fresh := func(t testing.TB, seed uint64) *problem { return newProblem(t, queue(t), l, seed) }

	t.Run("gradients are central differences", func(t *testing.T) {
		// Rows are float32 and about 10: their sum is accurate to some 1e-6, and a difference
		// over 2h = 0.02 to 1e-4.
		const h = 1e-2
		if fresh(t, 0).plan.Held {
			t.Skip("the gradient takes factors of the loss as constants")
		}
		for seed := range uint64(5) {
			p := fresh(t, seed)
			_, grads := p.run()
			r := rand.New(rand.NewPCG(seed, 2))
			for l, f := range p.fhat {
				old := append([]float32(nil), f...)
				d := append([]float32(nil), grads[l]...)
				want := 0.0
				for i := range d {
					d[i] += float32(r.NormFloat64() * 0.2)
					want += float64(d[i]) * float64(grads[l][i])
				}
				at := func(s float32) float64 {
					for i := range f {
						f[i] = old[i] + s*d[i]
					}
					v, _ := p.run()
					return v
				}
				got := (at(h) - at(-h)) / (2 * h)
				copy(f, old)
				if math.Abs(got-want) > 1e-3+5e-3*math.Abs(want) {
					t.Errorf("seed %d, level %d: differences give %v, the gradient %v", seed, l, got, want)
				}
			}
		}
	})

	t.Run("masked rows count for nothing", func(t *testing.T) {
		p := fresh(t, 1)
		before, grads := p.run()
		for l, f := range p.fhat {
			for k := range hidden {
				if g := grads[l][k*p.rows[l]+1]; g != 0 {
					t.Errorf("level %d: gradient %v of a masked row", l, g)
				}
				f[k*p.rows[l]+1] += 3
			}
		}
		if after, _ := p.run(); after != before {
			t.Errorf("the loss changes from %v to %v with a masked row", before, after)
		}
		for _, m := range p.mask {
			clear(m)
		}
		v, grads := p.run()
		for _, g := range grads {
			for _, x := range g {
				if x != 0 {
					t.Fatalf("gradient %v with everything masked", x)
				}
			}
		}
		if v != 0 {
			t.Errorf("loss %v with everything masked", v)
		}
	})

	t.Run("the loss is divided by the positions that count", func(t *testing.T) {
		p := fresh(t, 2)
		a, ga := p.run()
		p.n *= 2
		b, gb := p.run()
		if a != 2*b {
			t.Errorf("loss %v, with twice the positions %v", a, b)
		}
		for l := range ga {
			for i := range ga[l] {
				if ga[l][i] != 2*gb[l][i] {
					t.Fatalf("level %d: gradient %v, with twice the positions %v", l, ga[l][i], gb[l][i])
				}
			}
		}
	})

	t.Run("perfect predictions have no gradient", func(t *testing.T) {
		p := fresh(t, 3)
		if p.plan.Cut {
			t.Skip("a part of the labels' mass is left out on purpose: the loss is least elsewhere")
		}
		for l := range p.labels {
			p.labels[l].Full = nil
			for r := range p.rows[l] {
				for _, x := range p.softmax(l, r, 1) {
					p.labels[l].Full = append(p.labels[l].Full, float32(x))
				}
			}
		}
		for l, f := range p.target {
			for r := range f {
				f[r] = p.fhat[l][r%hidden*p.rows[l]+r/hidden]
			}
		}
		// SmoothL1's gradient is exactly 0 at 0; for |y−t| any value from −1 to 1 would do: 0.
		_, grads := p.run()
		for l, g := range grads {
			for i, x := range g {
				if math.Abs(float64(x)) > 1e-5 {
					t.Fatalf("level %d: gradient %v at %d", l, x, i)
				}
			}
		}
	})

	t.Run("labels of all tokens are the full distribution", func(t *testing.T) {
		var values []float64
		var grads [][][]float32
		for _, full := range []bool{true, false} {
			p := fresh(t, 4)
			if p.full {
				t.Skip("only whole distributions are taken")
			}
			r := rand.New(rand.NewPCG(4, 4))
			for l, lab := range p.labels {
				*lab = compute.SoftLabels{K: vocab}
				for range p.rows[l] {
					for v, x := range distribution(r) {
						if full {
							lab.Full = append(lab.Full, x)
						} else {
							lab.IDs, lab.Prob = append(lab.IDs, int32(v)), append(lab.Prob, x)
						}
					}
					if !full {
						lab.Tail = append(lab.Tail, 0)
					}
				}
			}
			v, g := p.run()
			values, grads = append(values, v), append(grads, g)
		}
		if math.Abs(values[0]-values[1]) > 1e-5*math.Abs(values[0]) {
			t.Errorf("full labels give %v, all tokens as top-K %v", values[0], values[1])
		}
		for l := range grads[0] {
			for i, x := range grads[0][l] {
				if math.Abs(float64(x-grads[1][l][i])) > 1e-5 {
					t.Fatalf("level %d: gradients %v and %v", l, x, grads[1][l][i])
				}
			}
		}
	})

	t.Run("one certain token gives its negative log-likelihood", func(t *testing.T) {
		p := fresh(t, 5)
		for l, lab := range p.labels {
			*lab = compute.SoftLabels{K: 1}
			for r := range p.rows[l] {
				lab.IDs, lab.Prob, lab.Tail = append(lab.IDs, int32(r%vocab)), append(lab.Prob, 1), append(lab.Tail, 0)
				if p.full {
					row := make([]float32, vocab)
					row[r%vocab] = 1
					lab.Full = append(lab.Full, row...)
				}
			}
		}
		p.run()
		for i := range p.terms {
			if p.terms[i].Name != "cls" {
				continue
			}
			l := p.terms[i].Level
			for r, x := range p.terms[i].RowLoss() {
				if want := -math.Log(p.softmax(l, r, p.plan.Temp)[r%vocab]); math.Abs(float64(x)-want) > 1e-5*max(1, want) {
					t.Errorf("level %d, row %d: loss %v, want %v", l, r, x, want)
				}
			}
		}
	})

	t.Run("no stock operation is on the tape", func(t *testing.T) {
		if s := fresh(t, 6).g.Stock(); len(s) > 0 {
			t.Error(fmt.Sprint(s))
		}
	})
}
