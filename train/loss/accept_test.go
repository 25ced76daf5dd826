package loss

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"talf/compute"
	"talf/internal/golden"
)

// A model is a tree of nodes with the target's and the head's distributions in float64. Logits are
// of the labels, or of the labels and one token for all others.
type model struct {
	p, z   [][]float64 // [node][tokens]
	parent []int       // [node]; −1: the root
	token  []int       // [node]: index among its parent's labels
	level  []int
	tail   bool
}

// grow draws a tree: two children of the root, two of each of them.
func grow(r *rand.Rand, tail bool) *model {
	m := &model{tail: tail}
	for n, up := range []int{-1, 0, 0, 1, 1, 2, 2} {
		p, z := make([]float64, 6), make([]float64, 6)
		sum := 0.0
		for i := range p {
			p[i] = math.Exp(r.NormFloat64() * 1.5)
			sum += p[i]
			z[i] = r.NormFloat64()
		}
		for i := range p {
			p[i] /= sum
			z[i] += math.Log(p[i])
		}
		m.p, m.z, m.parent, m.token = append(m.p, p), append(m.z, z), append(m.parent, up), append(m.token, n%2*3)
		m.level = append(m.level, []int{0, 1, 1, 2, 2, 2, 2}[n])
	}
	return m
}

func softmax(z []float64) []float64 {
	q, sum := make([]float64, len(z)), 0.0
	for i, x := range z {
		q[i] = math.Exp(x)
		sum += q[i]
	}
	for i := range q {
		q[i] /= sum
	}
	return q
}

func alpha(p, q []float64) (a float64) {
	for i := range p {
		a += math.Min(p[i], q[i])
	}
	return a
}

// held are the factors of a loss that its gradient takes as constants, by the head as it is.
type held struct{ reach, lambda []float64 }

func (m *model) held(reach string, eta float64) (h held) {
	for n := range m.p {
		r := 1.0
		if up := m.parent[n]; up >= 0 {
			p, q := m.p[up][m.token[n]], softmax(m.z[up])[m.token[n]]
			r = h.reach[up]
			switch reach {
			case "overlap":
				r *= math.Min(p, q)
			case "target":
				r *= p
			}
		}
		h.reach = append(h.reach, r)
		h.lambda = append(h.lambda, math.Exp(-eta*alpha(m.p[n], softmax(m.z[n]))))
	}
	return h
}

// nodeLoss computes a loss of nodes as it is printed.
func (m *model) nodeLoss(name string, h held) (sum float64) {
	for n, p := range m.p {
		q := softmax(m.z[n])
		kl, rkl := 0.0, 0.0
		for i := range p {
			kl += p[i] * math.Log(p[i]/q[i])
			rkl += q[i] * math.Log(q[i]/p[i])
		}
		a := alpha(p, q)
		sum += h.reach[n] * map[string]float64{
			"tv": 1 - a, "nla": -math.Log(a), "rkl": rkl, "lk": h.lambda[n]*kl + (1-h.lambda[n])*(1-a),
		}[name]
	}
	return sum
}

// draws returns the expected number of accepted tokens of a chain that is drawn from the head below
// node n: x with probability q(x), accepted with min(1, p(x)/q(x)), and then the next.
func (m *model) draws(n int) (sum float64) {
	for x, q := range softmax(m.z[n]) {
		below := 0.0
		for c, up := range m.parent {
			if up == n && m.token[c] == x {
				below = m.draws(c)
			}
		}
		sum += q * math.Min(1, m.p[n][x]/q) * (1 + below)
	}
	return sum
}

func (m *model) eal(linear bool, wCls float64) float64 {
	l := 3 - m.draws(0)
	if !linear {
		l = -math.Log(m.draws(0) / 3)
	}
	for n, p := range m.p {
		for i, q := range softmax(m.z[n]) {
			l -= wCls * p[i] * math.Log(q)
		}
	}
	return l
}

// inputs returns the tree as rows of three levels behind those of another one that does not count,
// and the head's probabilities.
func (m *model) inputs(other *model) (in Inputs, q []*compute.SoftLabels, row []int) {
	k := len(m.p[0])
	in.Vocab = k
	if m.tail {
		k--
	}
	row = make([]int, len(m.p))
	for l := range 3 {
		lab, own := &compute.SoftLabels{K: k}, &compute.SoftLabels{K: k}
		token, parent, mask := []int32(nil), []int32(nil), []float32(nil)
		for _, t := range []*model{other, m} {
			for n := range t.p {
				if t.level[n] != l {
					continue
				}
				at := len(mask)
				if t == m {
					row[n] = at
				}
				mask = append(mask, 1)
				up := 0
				if l > 0 {
					up = t.parent[n] - []int{0, 0, 1}[l]
					if t == m {
						up = row[t.parent[n]]
					}
				}
				parent, token = append(parent, int32(up)), append(token, int32(t.token[n]))
				dist := softmax(t.z[n])
				for i := range len(dist) {
					p, q := float32(t.p[n][i]), float32(dist[i])
					switch {
					case !m.tail:
						lab.Full, own.Full = append(lab.Full, p), append(own.Full, q)
					case i == k:
						lab.Tail, own.Tail = append(lab.Tail, p), append(own.Tail, q)
					default:
						lab.IDs, lab.Prob, own.Prob = append(lab.IDs, int32(i)), append(lab.Prob, p), append(own.Prob, q)
					}
				}
			}
		}
		in.Labels, q = append(in.Labels, lab), append(q, own)
		in.Nodes = append(in.Nodes, Nodes{Token: &token, Parent: &parent, Mask: &mask})
	}
	return in, q, row
}

// run returns what a loss says of m: its value, and its gradient by all logits.
func (m *model) run(t *testing.T, name string, other *model) (float64, [][]float64) {
	t.Helper()
	l, err := Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	in, q, row := m.inputs(other)
	w := l.(accept).walk(in, 3)
	losses := make([]float32, 2)
	const scale = 0.25
	w.judge(q, losses, []float32{0, scale})
	var grads [][]float64
	for n, z := range m.z {
		l, own, sum := m.level[n], []float64(nil), 0.0
		for i := range z {
			var x float32
			switch k := q[l].K; {
			case !m.tail:
				x = q[l].Full[row[n]*len(z)+i]
			case i == k:
				x = q[l].Tail[row[n]]
			default:
				x = q[l].Prob[row[n]*k+i]
			}
			own = append(own, float64(x)/scale)
			sum += own[i]
		}
		// What SoftCE makes of labels of any sum.
		for i, x := range softmax(z) {
			own[i] = x*sum - own[i]
		}
		grads = append(grads, own)
	}
	return float64(losses[1]), grads
}

func TestAcceptanceLossesAreThoseOfTheirFormulas(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	for _, tail := range []bool{false, true} {
		for _, c := range []struct {
			spec string
			of   func(m *model, h held) float64
			held func(m *model) held
		}{
			{"tv:reach=overlap", nodes("tv"), heldBy("overlap", 3)},
			{"tv", nodes("tv"), heldBy("target", 3)},
			{"nla:reach=overlap", nodes("nla"), heldBy("overlap", 3)},
			{"nla:reach=all", nodes("nla"), heldBy("all", 3)},
			{"lk:reach=overlap", nodes("lk"), heldBy("overlap", 3)},
			{"lk:eta=1", nodes("lk"), heldBy("target", 1)},
			{"rkl:reach=overlap", nodes("rkl"), heldBy("overlap", 3)},
			{"eal:w_cls=0", func(m *model, _ held) float64 { return m.eal(false, 0) }, heldBy("all", 0)},
			{"eal:form=linear,w_cls=0", func(m *model, _ held) float64 { return m.eal(true, 0) }, heldBy("all", 0)},
			{"eal", func(m *model, _ held) float64 { return m.eal(false, 0.1) }, heldBy("all", 0)},
			{"eal:w_cls=0.25", func(m *model, _ held) float64 { return m.eal(false, 0.25) }, heldBy("all", 0)},
		} {
			t.Run(fmt.Sprintf("%s, tail %v", c.spec, tail), func(t *testing.T) {
				for range 4 {
					m := grow(r, tail)
					h := c.held(m)
					got, grads := m.run(t, c.spec, grow(r, tail))
					if want := c.of(m, h); math.Abs(got-want) > 1e-5 {
						t.Errorf("the loss is %v, want %v", got, want)
					}
					for n, z := range m.z {
						for i := range z {
							const d = 1e-6
							old := z[i]
							z[i] = old + d
							up := c.of(m, h)
							z[i] = old - d
							want := (up - c.of(m, h)) / (2 * d)
							z[i] = old
							if math.Abs(grads[n][i]-want) > 2e-6 {
								t.Fatalf("node %d, token %d: gradient %v, differences give %v", n, i, grads[n][i], want)
							}
						}
					}
				}
			})
		}
	}
}

func nodes(name string) func(*model, held) float64 {
	return func(m *model, h held) float64 { return m.nodeLoss(name, h) }
}

func heldBy(reach string, eta float64) func(*model) held {
	return func(m *model) held { return m.held(reach, eta) }
}

// The losses of one node, by the code of the speculators library.
func TestAcceptanceLossesAgreeWithSpeculators(t *testing.T) {
	var cases []struct {
		Name          string
		Target, Draft []float64
		Losses        map[string]struct {
			Loss     float64
			Gradient []float64
		}
	}
	if err := json.Unmarshal(golden.Read(t, "reference/losses/acceptance.json"), &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 10 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		for _, name := range []string{"tv", "nla", "lk", "rkl"} {
			m := grow(rand.New(rand.NewPCG(1, 1)), false)
			for n := range m.p { // only the root is looked at: others are not reached
				m.p[n], m.z[n] = softmax(c.Target), c.Draft
			}
			in, q, row := m.inputs(m)
			l, err := Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			in.Labels, in.Nodes, q = in.Labels[:1], in.Nodes[:1], q[:1]
			losses := make([]float32, len(*in.Nodes[0].Mask))
			scale := make([]float32, len(losses))
			for i := range scale {
				scale[i] = 1
			}
			l.(accept).walk(in, 1).judge(q, losses, scale)
			own := q[0].Full[row[0]*len(c.Draft):][:len(c.Draft)]
			sum := 0.0
			for _, x := range own {
				sum += float64(x)
			}
			want := c.Losses[name]
			if got := float64(losses[row[0]]); math.Abs(got-want.Loss) > 3e-6*max(1, want.Loss) {
				t.Errorf("%s: %s is %v, want %v", c.Name, name, got, want.Loss)
			}
			for i, x := range softmax(c.Draft) {
				if got := x*sum - float64(own[i]); math.Abs(got-want.Gradient[i]) > 3e-6*max(1, math.Abs(want.Gradient[i])) {
					t.Errorf("%s: %s: gradient %v by logit %d, want %v", c.Name, name, got, i, want.Gradient[i])
				}
			}
		}
	}
}

func TestTreesThatAcceptanceLossesCannotUseAreRefused(t *testing.T) {
	for _, c := range []struct {
		spec string
		of   Labelling
		want string
	}{
		{"eal:levels=4", Labelling{Depth: 3, K: 16, Branch: 4}, "levels=4, but the trees of the data have 3"},
		{"tv", Labelling{Depth: 3, K: 2, Branch: 4}, "the data hold 2 labels of a node, want at least the 4 of its children"},
		{"lk", Labelling{Depth: 3, K: 4, Branch: 4}, ""},
		{"nla:levels=1", Labelling{Depth: 3, K: 2, Branch: 4}, ""},
		{"rkl", Labelling{Depth: 3, Branch: 4}, ""},
	} {
		l, err := Parse(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Plan(c.of); fmt.Sprint(err) != cmp.Or(c.want, "<nil>") {
			t.Errorf("%s on %+v: %v, want %q", c.spec, c.of, err, c.want)
		}
	}
}
