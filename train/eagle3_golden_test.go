package train

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"talf/compute"
	"talf/data"
	"talf/internal/golden"
	"talf/model/arch"
	"talf/model/draftvocab"
	"talf/model/safetensors"
	"talf/train/internal/batch"
	"talf/train/internal/gg"
	"talf/train/loss"
	"talf/train/net"
)

// eagle3Heads are the heads of data/eagle3 and their targets.
var eagle3Heads = [][2]string{{"plain", "llama"}, {"norms", "qwen3"}, {"targetlm", "llama"}, {"narrow", "llama"}}

// An eagle3Reference is one of the heads with the batch of its target.
type eagle3Reference struct {
	name      string
	spec      *arch.Spec
	head      *safetensors.Set
	embed, lm []float32 // lm is the target's
	vocab     *batch.Vocabulary
	records   []*data.Record
	taps      [][]float32 // of each record [T][FeatureSize]
	meta      data.Meta
	seqs, pad int // B, T
	losses    struct {
		TTT map[string]struct {
			PerStep []float64 `json:"per_step"`
			Rows    []int     `json:"positions_per_step"`
			Total   []float64 `json:"total_for_steps_1_to_7"`
		}
		Tree map[string]json.RawMessage
	}
}

func loadEagle3(t testing.TB, name, target string) *eagle3Reference {
	t.Helper()
	dir := "eagle3/" + name
	b := openSet(t, "eagle3/targets/"+target+"/batch.safetensors")
	of := openSet(t, "eagle3/targets/"+target+"/model.safetensors")
	r := &eagle3Reference{name: name, head: openSet(t, dir+"/eagle/model.safetensors")}
	var err error
	if r.spec, err = arch.LoadDraft(golden.File(t, dir+"/eagle")); err != nil {
		t.Fatal(err)
	}
	r.spec.Adopt(func(name string) bool { _, ok := r.head.Tensor(name); return ok })
	ts, err := arch.Load(golden.File(t, "eagle3/targets/"+target))
	if err != nil {
		t.Fatal(err)
	}
	at, err := r.spec.TapsOf(ts)
	if err != nil {
		t.Fatal(err)
	}
	if r.lm = narrow[float32](f64s(t, of, "model.embed_tokens.weight")); !ts.Tied {
		r.lm = narrow[float32](f64s(t, of, "lm_head.weight"))
	}
	if _, own := r.head.Tensor("embed_tokens.weight"); own {
		r.embed = narrow[float32](f64s(t, r.head, "embed_tokens.weight"))
	} else {
		r.embed = narrow[float32](f64s(t, of, "model.embed_tokens.weight"))
	}
	ids, err := draftvocab.Read(r.head, r.spec.DraftVocab, r.spec.Vocab)
	if err != nil {
		t.Fatal(err)
	}
	if r.vocab, err = batch.NewVocabulary(ids, r.spec.Vocab); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(golden.Read(t, dir+"/losses.json"), &r.losses); err != nil {
		t.Fatal(err)
	}
	const nodes = 9
	v, hid, bounds := r.spec.Vocab, ts.Hidden, ts.Layers+1
	r.meta = data.Meta{Hidden: hid, Vocab: v, Branch: 4, Depth: 3, Labels: data.Full}
	lengths := narrow[int32](f64s(t, b, "lengths"))
	tokens, mask := narrow[int32](f64s(t, b, "token_ids")), f64s(t, b, "token_loss_mask")
	tt, tp := narrow[int32](f64s(t, b, "tree_tokens")), narrow[int32](f64s(t, b, "tree_parents"))
	labels, states := narrow[float32](f64s(t, b, "tree_labels")), narrow[float32](f64s(t, b, "boundaries"))
	r.seqs, r.pad = len(lengths), len(tokens)/len(lengths)
	for s, n := range lengths {
		from, end := s*r.pad, s*r.pad+int(n)
		rec := &data.Record{
			Tokens: tokens[from:end], TreeTokens: tt[from*nodes : end*nodes], TreeParents: tp[from*nodes : end*nodes],
			LabelFull: labels[from*nodes*v : end*nodes*v],
		}
		var taps []float32
		for p := from; p < end; p++ {
			rec.LossMask = append(rec.LossMask, mask[p] != 0)
			for _, j := range at {
				taps = append(taps, states[(p*bounds+j)*hid:(p*bounds+j+1)*hid]...)
			}
		}
		r.records, r.taps = append(r.records, rec), append(r.taps, taps)
	}
	return r
}

// A built loss over the reference's batch.
type eagle3Run struct {
	g     *gg.Graph
	p     *net.Params
	b     *batch.Batch
	terms []loss.Term
	total *gg.Node
}

func (r *eagle3Reference) build(t testing.TB, q compute.Queue, spec string) *eagle3Run {
	t.Helper()
	l, err := loss.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := l.Plan(batch.Labelling(r.meta, r.vocab))
	if err != nil {
		t.Fatal(err)
	}
	g, err := gg.New(q)
	if err != nil {
		t.Fatal(err)
	}
	tensor := func(name string, f []float32, width int) *gg.Tensor {
		x, err := gg.NewTensor(q, name, f, len(f)/width, width)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	run := &eagle3Run{g: g, p: params(t, q, r.spec, r.head)}
	const positions = 64
	rope := q.Abilities().Train.Host(r.spec.Rope.Table(r.spec.HeadDim, 0, positions), positions, r.spec.HeadDim)
	run.b = batch.New(g, run.p, tensor("embed", r.embed, r.spec.Hidden), rope, r.meta, plan, r.vocab, 2*r.pad, 0)
	var lm *gg.Tensor
	if run.p.OwnLMHead() == nil {
		lm = tensor("lm_head", r.lm, r.meta.Hidden)
	}
	in := run.b.Inputs(g, lm)
	run.terms = l.Build(in)
	var ls []*gg.Loss
	for i := range run.terms {
		ls = append(ls, run.terms[i].Loss)
	}
	run.total = g.Total(ls...)
	if err := g.Compile(run.total, run.b.Head.Nodes...); err != nil {
		t.Fatal(err)
	}
	if s := g.Stock(); len(s) > 0 {
		t.Errorf("stock operations on the tape: %v", s)
	}
	run.b.Reset()
	for i, rec := range r.records {
		if err := run.b.Add(rec, r.taps[i], r.taps[i], positions); err != nil {
			t.Fatal(err)
		}
	}
	return run
}

// run runs the graph with term i divided by n(i).
func (e *eagle3Run) run(t testing.TB, n func(i int) float64) {
	t.Helper()
	for i := range e.terms {
		e.terms[i].Set(e.b.Mask[e.terms[i].Level], n(i))
	}
	if err := e.g.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// rows returns how many rows of a level count.
func (e *eagle3Run) rows(level int) (n int) {
	for _, m := range e.b.Mask[level] {
		if m != 0 {
			n++
		}
	}
	return n
}

// mean returns the mean of a term over n.
func (e *eagle3Run) mean(term int, n float64) (sum float64) {
	for i, x := range e.terms[term].RowLoss() {
		if m := e.b.Mask[e.terms[term].Level][i]; m != 0 {
			sum += float64(m) * float64(x) / n
		}
	}
	return sum
}

// entropy returns the labels' entropy over the rows of a level that count, divided by n.
func (e *eagle3Run) entropy(level int, n float64) (sum float64) {
	full := e.b.Labels[level].Full
	v := len(full) / max(1, len(e.b.Mask[level]))
	for i, m := range e.b.Mask[level] {
		for _, p := range full[i*v : (i+1)*v] {
			if m != 0 && p > 0 {
				sum -= float64(p) * math.Log(float64(p)) / n
			}
		}
	}
	return sum
}

// gradients compares all gradients with those that the reference calls prefix.
func (e *eagle3Run) gradients(t *testing.T, grads *safetensors.Set, prefix string) {
	t.Helper()
	worst := 0.0
	for _, a := range gradients(e.p, e.b.Head.Nodes) {
		d := relative(a.Data, f64s(t, grads, prefix+"."+a.Name))
		worst = max(worst, d)
		if !(d <= 1e-5) {
			t.Errorf("%s: gradient of %s is off by %.2g of its largest element", prefix, a.Name, d)
		}
	}
	t.Logf("%s: worst relative gradient error %.2g", prefix, worst)
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= 3e-6*max(1, math.Abs(want))) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// Training-time test with every published mask, its per-step losses, and all gradients.
func TestTrainingTimeTestAgreesWithTheReference(t *testing.T) {
	for _, h := range eagle3Heads {
		t.Run(h[0], func(t *testing.T) {
			r := loadEagle3(t, h[0], h[1])
			q := queue(t, 2)
			grads := openSet(t, "eagle3/"+r.name+"/grads.safetensors")
			nodes := openSet(t, "eagle3/"+r.name+"/nodes.safetensors")
			ce := f64s(t, nodes, "ttt_ce") // [steps][B][T−1]
			for _, c := range []struct{ kind, spec string }{
				{"eagle", "eagle3:mask=eagle"},
				{"token", "eagle3:mask=token"},
				{"speculators", "eagle3:mask=speculators,outside=renorm,decay=1,steps=3"},
			} {
				run := r.build(t, q, c.spec)
				want := r.losses.TTT[c.kind]
				per := func(run *eagle3Run) func(i int) float64 {
					return func(i int) float64 {
						switch c.kind {
						case "eagle":
							return float64(r.seqs * r.pad)
						case "token":
							return float64(run.rows(0))
						}
						return float64(run.rows(i))
					}
				}
				n := per(run)
				run.run(t, n)
				sum := 0.0
				for k := range run.terms {
					if got := run.rows(k); got != want.Rows[k] {
						t.Errorf("%s: %d rows of step %d count, want %d", c.kind, got, k, want.Rows[k])
					}
					got := run.mean(k, n(k))
					sum += got * float64(run.terms[k].Weight)
					if c.kind == "speculators" {
						got -= run.entropy(k, n(k)) // KL(p̃‖q)
					}
					near(t, fmt.Sprintf("%s: the loss of step %d", c.kind, k), got, want.PerStep[k])
				}
				near(t, c.kind+": the loss", float64(run.total.Scalar()), sum)
				if len(want.Total) != 7 {
					t.Fatalf("%s: %d losses of whole runs, want those of 1 to 7 steps", c.kind, len(want.Total))
				}
				for i, want := range want.Total {
					whole := r.build(t, q, fmt.Sprintf("%s,steps=%d", strings.TrimSuffix(c.spec, ",steps=3"), i+1))
					n := per(whole)
					whole.run(t, n)
					got := float64(whole.total.Scalar())
					if c.kind == "speculators" {
						for k := range whole.terms {
							got -= whole.entropy(k, n(k)) // the weights are 1
						}
					}
					near(t, fmt.Sprintf("%s: the loss of %d steps", c.kind, i+1), got, want)
				}
				if _, ok := grads.Tensor(c.kind + ".fc.weight"); ok {
					run.gradients(t, grads, c.kind)
				}
				r.checkSteps(t, run, ce)
				if _, ok := grads.Tensor("eagle.step0.fc.weight"); ok && c.kind == "eagle" {
					for k := range run.terms {
						run.run(t, func(i int) float64 {
							if i != k {
								return math.Inf(1)
							}
							return n(i) * float64(run.terms[k].Weight)
						})
						run.gradients(t, grads, fmt.Sprintf("eagle.step%d", k))
					}
				}
			}
		})
	}
}

// checkSteps compares the rows that count one by one.
func (r *eagle3Reference) checkSteps(t *testing.T, run *eagle3Run, want []float64) {
	t.Helper()
	next := make([]int, len(run.terms))
	at := 0
	for s := range r.records {
		n := 0
		for l0 := run.b.Head.Levels[0]; at+n < l0.Rows.N && int(l0.Attn.First[at+n]) == at; n++ {
		}
		for k := range run.terms {
			level := run.b.Head.Levels[k]
			for ; next[k] < level.Rows.N && int(level.Attn.First[next[k]]) == at; next[k]++ {
				row := next[k]
				if run.b.Mask[k][row] == 0 {
					continue
				}
				root := int(level.Attn.Last[row]) - at
				near(t, fmt.Sprintf("sequence %d, root %d, step %d", s, root, k), float64(run.terms[k].RowLoss()[row]), want[(k*r.seqs+s)*(r.pad-1)+root])
			}
		}
		at += n
	}
}

// TALF's loss on an EAGLE-3 head along the target's trees, with all ways to count what the head
// cannot draft.
func TestTreeLossesOfEAGLE3HeadsAgreeWithTheReference(t *testing.T) {
	for _, h := range eagle3Heads {
		t.Run(h[0], func(t *testing.T) {
			r := loadEagle3(t, h[0], h[1])
			q := queue(t, 2)
			grads := openSet(t, "eagle3/"+r.name+"/grads.safetensors")
			for _, c := range []struct{ kind, spec string }{
				{"renorm", "talf:beyond=learn,outside=mask"},
				{"mass", "talf:beyond=learn,outside=drop"},
				{"renorm_reach", "talf:outside=mask"},
				{"renorm_w8", "talf:beyond=learn,outside=mask,decay=0.8"},
			} {
				raw, ok := r.losses.Tree[c.kind]
				if !ok {
					t.Fatalf("losses.json has no tree loss %s", c.kind)
				}
				var want float64
				if err := json.Unmarshal(raw, &want); err != nil {
					t.Fatal(err)
				}
				run := r.build(t, q, c.spec)
				run.run(t, func(int) float64 { return float64(run.b.Count) })
				near(t, c.kind, float64(run.total.Scalar()), want)
				if _, ok := grads.Tensor("tree." + c.kind + ".fc.weight"); ok {
					run.gradients(t, grads, "tree."+c.kind)
				}
			}
		})
	}
}

// The gradient of every weight is the central difference of the loss, norms of queries and keys and
// a second layer included, which no reference has.
func TestGradientsOfEAGLE3HeadsAreCentralDifferences(t *testing.T) {
	r := loadEagle3(t, "plain", "llama")
	for _, c := range []struct {
		name string
		set  func(*arch.Spec)
	}{
		{"norms of queries and keys", func(s *arch.Spec) { s.Eagle3.QKNorm = true }},
		{"two layers, fc with a bias", func(s *arch.Spec) { s.Layers, s.FCBias = 2, true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := queue(t, 2)
			spec := *r.spec
			c.set(&spec)
			p, err := net.New(q, &spec)
			if err != nil {
				t.Fatal(err)
			}
			p.Init(3)
			var ts []safetensors.Tensor
			for _, a := range p.Export(nil) {
				ts = append(ts, safetensors.F32(a.Name, a.Data, a.Shape...))
			}
			own := *r
			own.spec, own.head = &spec, safetensors.Of("head", ts...)
			run := own.build(t, q, "eagle3:steps=3")
			n := func(int) float64 { return float64(run.b.Count) }
			value := func() (sum float64) {
				run.run(t, n)
				for k := range run.terms {
					sum += run.mean(k, n(k)) * float64(run.terms[k].Weight)
				}
				return sum
			}
			value()
			var grad [][]float32
			for _, n := range run.b.Head.Nodes {
				grad = append(grad, append([]float32(nil), n.Grad()...))
			}
			for i, x := range run.p.Tensors() {
				// Along the gradient itself the difference is |g|², as large as it can be.
				norm := 0.0
				for _, g := range grad[i] {
					norm += float64(g) * float64(g)
				}
				if norm == 0 {
					t.Errorf("%s has no gradient", x.Name)
					continue
				}
				norm = math.Sqrt(norm)
				const h = 2e-3
				old := append([]float32(nil), x.Data...)
				at := func(step float64) float64 {
					for j := range x.Data {
						x.Data[j] = old[j] + float32(step*float64(grad[i][j])/norm)
					}
					return value()
				}
				got := (at(h) - at(-h)) / (2 * h)
				copy(x.Data, old)
				if math.Abs(got-norm) > 1e-3+5e-3*norm {
					t.Errorf("%s: differences give %v, the gradient %v", x.Name, got, norm)
				}
			}
		})
	}
}
