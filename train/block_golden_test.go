package train

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"talf/compute"
	"talf/data"
	"talf/internal/golden"
	"talf/model/arch"
	"talf/model/safetensors"
	"talf/train/internal/batch"
	"talf/train/internal/gg"
	"talf/train/loss"
	"talf/train/net"
)

// A blockReference is a head of data/block, trained with its authors' code, with what their trainers
// make of a batch.
type blockReference struct {
	name      string
	spec      *arch.Spec
	head      *safetensors.Set
	embed, lm []float32
	records   []*data.Record
	taps      [][]float32
	anchors   [][]int // of each record, as head positions
	meta      data.Meta
	losses    map[string]float64
}

func openBlockSet(t testing.TB, name string) *safetensors.Set {
	t.Helper()
	s, err := safetensors.Open(golden.Shared(t, "data/block/"+name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func loadBlock(t testing.TB, name string) *blockReference {
	t.Helper()
	r := &blockReference{name: name, head: openBlockSet(t, name+"/head/model.safetensors")}
	var err error
	if r.spec, err = arch.LoadDraft(golden.Shared(t, "data/block/"+name+"/head")); err != nil {
		t.Fatal(err)
	}
	var info struct{ Target string }
	for file, to := range map[string]any{"info.json": &info, "losses.json": &r.losses} {
		raw, err := os.ReadFile(filepath.Join(golden.Shared(t, "data/block/"+name), file))
		if err == nil {
			err = json.Unmarshal(raw, to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	of := openBlockSet(t, "targets/"+info.Target+"/model.safetensors")
	r.embed = narrow[float32](f64s(t, of, "model.embed_tokens.weight"))
	if r.lm = r.embed; info.Target == "llama" {
		r.lm = narrow[float32](f64s(t, of, "lm_head.weight"))
	}
	r.meta = data.Meta{Hidden: r.spec.Hidden, Vocab: r.spec.Vocab, Branch: 1, Depth: 1, Labels: data.Full}
	return r
}

// texts reads the batch of the losses along the text.
func (r *blockReference) texts(t testing.TB) {
	t.Helper()
	s := openBlockSet(t, r.name+"/train.safetensors")
	tokens, mask := narrow[int32](f64s(t, s, "input_ids")), f64s(t, s, "loss_mask")
	taps, anchors := narrow[float32](f64s(t, s, "taps")), f64s(t, s, "anchors")
	n, v, h := len(tokens)/2, r.spec.Vocab, r.spec.Hidden
	labels := make([]float32, 2*n*v)
	if x, ok := s.Tensor("target_logits"); ok {
		labels = softmaxes(f64s(t, s, x.Name), v)
	} else if _, ok := s.Tensor("last_hidden"); ok {
		labels = softmaxes(product(f64s(t, s, "last_hidden"), r.lm, h), v)
	}
	for i := range 2 {
		rec := &data.Record{Tokens: tokens[i*n : (i+1)*n], LabelFull: labels[i*n*v : (i+1)*n*v]}
		for _, m := range mask[i*n : (i+1)*n] {
			rec.LossMask = append(rec.LossMask, m != 0)
		}
		var at []int
		for _, a := range anchors[i*len(anchors)/2 : (i+1)*len(anchors)/2] {
			at = append(at, int(a)-1)
		}
		w := r.spec.FeatureSize()
		r.records, r.taps, r.anchors = append(r.records, rec), append(r.taps, taps[i*n*w:(i+1)*n*w]), append(r.anchors, at)
	}
}

// product returns x·wᵀ of rows x [n][h].
func product(x []float64, w []float32, h int) []float64 {
	var y []float64
	for r := 0; r < len(x); r += h {
		for o := 0; o < len(w); o += h {
			sum := 0.0
			for i := range h {
				sum += x[r+i] * float64(w[o+i])
			}
			y = append(y, sum)
		}
	}
	return y
}

// softmaxes returns the softmax of rows of v logits.
func softmaxes(z []float64, v int) []float32 {
	p := make([]float32, len(z))
	for r := 0; r < len(z); r += v {
		sum := 0.0
		for _, x := range z[r : r+v] {
			sum += math.Exp(x)
		}
		for i, x := range z[r : r+v] {
			p[r+i] = float32(math.Exp(x) / sum)
		}
	}
	return p
}

// A blockRun is a built loss over the reference's batch.
type blockRun struct {
	g     *gg.Graph
	p     *net.Params
	b     *batch.Batch
	plan  loss.Plan
	terms []loss.Term
	total *gg.Node
}

func (r *blockReference) build(t testing.TB, q compute.Queue, text string) *blockRun {
	t.Helper()
	l, err := loss.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	of := batch.Labelling(r.meta, nil)
	of.Drafts = r.spec.Block.Drafts()
	run := &blockRun{p: params(t, q, r.spec, r.head)}
	if run.plan, err = l.Plan(of); err != nil {
		t.Fatal(err)
	}
	if run.g, err = gg.New(q); err != nil {
		t.Fatal(err)
	}
	tensor := func(name string, f []float32) *gg.Tensor {
		x, err := gg.NewTensor(q, name, f, len(f)/r.spec.Hidden, r.spec.Hidden)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	const positions = 64
	rope := q.Abilities().Train.Host(r.spec.Rope.Table(r.spec.HeadDim, 0, positions), positions, r.spec.HeadDim)
	lm := append([]float32(nil), r.lm...)
	for i := range lm {
		lm[i] /= run.plan.Temp
	}
	run.b = batch.New(run.g, run.p, tensor("embed", r.embed), rope, r.meta, run.plan, nil, 2*positions, 2*positions)
	run.terms = loss.Terms(l, run.b.Inputs(run.g, tensor("lm_head", lm)))
	var ls []*gg.Loss
	for i := range run.terms {
		ls = append(ls, run.terms[i].Loss)
	}
	run.total = run.g.Total(ls...)
	if err := run.g.Compile(run.total, run.b.Head.Nodes...); err != nil {
		t.Fatal(err)
	}
	if s := run.g.Stock(); len(s) > 0 {
		t.Errorf("stock operations on the tape: %v", s)
	}
	run.b.Reset()
	for i, rec := range r.records {
		run.b.Choose(r.anchors[i])
		if err := run.b.Add(rec, r.taps[i], r.taps[i], positions); err != nil {
			t.Fatal(err)
		}
	}
	return run
}

// run returns the loss, divided by n.
func (b *blockRun) run(t testing.TB, n float64) (sum float64) {
	t.Helper()
	for i := range b.terms {
		b.terms[i].Set(b.b.Mask[b.terms[i].Level], n)
	}
	if err := b.g.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	for i := range b.terms {
		x := &b.terms[i]
		for r, l := range x.RowLoss() {
			sum += float64(b.b.Mask[x.Level][r]) * float64(x.Weight) * float64(l) / n
		}
	}
	return sum
}

// weights returns the sum of exp(−k/gamma) over the rows k that count; 0 is no decay.
func (b *blockRun) weights(gamma float64) (sum float64) {
	for k, m := range b.b.Mask {
		for _, m := range m {
			if w := 1.0; m != 0 {
				if gamma != 0 {
					w = math.Exp(-float64(k) / gamma)
				}
				sum += w
			}
		}
	}
	return sum
}

// entropy returns the mean entropy of the tempered labels of rows that count.
func (b *blockRun) entropy(v int) (sum float64) {
	n := 0.0
	for l, mask := range b.b.Mask {
		for r, m := range mask {
			if m == 0 {
				continue
			}
			n++
			z := 0.0
			p := make([]float64, v)
			for i, x := range b.b.Labels[l].Full[r*v : (r+1)*v] {
				p[i] = math.Pow(float64(x), 1/float64(b.plan.Temp))
				z += p[i]
			}
			for _, x := range p {
				if x > 0 {
					sum -= x / z * math.Log(x/z)
				}
			}
		}
	}
	return sum / n
}

// gradients compares all gradients with the reference's: within 5e-6 of the tensor's largest entry, or 1e-7
// where that is below 1e-3.
func (b *blockRun) gradients(t *testing.T, grads *safetensors.Set) {
	t.Helper()
	worst := 0.0
	for _, a := range gradients(b.p, b.b.Head.Nodes) {
		want := f64s(t, grads, a.Name)
		top, off := 0.0, 0.0
		for i, x := range want {
			top, off = max(top, math.Abs(x)), max(off, math.Abs(x-float64(a.Data[i])))
		}
		if top < 1e-3 && off <= 1e-7 {
			continue
		}
		if worst = max(worst, off/top); !(off <= 5e-6*top) {
			t.Errorf("gradient of %s is off by %.2g, its largest element is %.2g", a.Name, off, top)
		}
	}
	t.Logf("worst relative gradient error %.2g", worst)
}

// close1e6 compares losses.
func close1e6(t *testing.T, what string, got, want float64) {
	t.Helper()
	t.Logf("%s: %v, the reference %v", what, got, want)
	if !(math.Abs(got-want) <= 1e-6*math.Abs(want)) {
		t.Errorf("%s is %v, want %v: off by %.2g of it", what, got, want, math.Abs(got/want-1))
	}
}

// The losses of block heads along the text are those of the authors' trainers, and so are the gradients of
// the first one of each head.
func TestBlockLossesAgreeWithTheReference(t *testing.T) {
	for _, c := range []struct {
		head, loss, name string
		gamma            float64
		grads            bool
	}{
		{"dflash/a", "dflash", "dflash_gamma4", 4, true},
		{"dflash/b", "dflash", "dflash_gamma4", 4, true},
		{"dflash/swa", "dflash", "dflash_gamma4", 4, true},
		{"dflash/a", "dflash:gamma=0", "dflash_flat", 0, false},
		{"dspark/a", "dspark", "ce0.1_l10.9_conf1_gamma4", 4, true},
		{"dspark/b", "dspark", "ce0.1_l10.9_conf1_gamma4", 4, true},
		{"dspark/a", "dspark:w_ce=1,w_l1=0,w_sure=0", "ce_only_gamma4", 4, false},
		{"dspark/b", "dspark:w_ce=0,w_l1=1,w_sure=0,gamma=0", "l1_only_flat", 0, false},
		{"jetspec/a", "dflash:labels=full,gamma=0", "kl_T1", 0, true},
		{"jetspec/b", "dflash:labels=full,gamma=0", "kl_T1", 0, true},
		{"jetspec/a", "dflash:labels=full,gamma=0,temp=2", "kl_T2", 0, false},
	} {
		t.Run(fmt.Sprint(c.head, " ", c.name), func(t *testing.T) {
			r := loadBlock(t, c.head)
			r.texts(t)
			run := r.build(t, queue(t, 2), c.loss)
			got := run.run(t, run.weights(c.gamma))
			if c.head[0] == 'j' {
				got -= float64(run.plan.Temp*run.plan.Temp) * run.entropy(r.spec.Vocab)
			}
			want, ok := r.losses[c.name]
			if !ok {
				t.Fatalf("losses.json has no %s", c.name)
			}
			close1e6(t, c.name, got, want)
			if c.grads {
				run.gradients(t, openBlockSet(t, c.head+"/grads.safetensors"))
			}
		})
	}
	t.Run("dflash2/a", func(t *testing.T) {
		r := loadBlock(t, "dflash2/a")
		r.texts(t)
		run := r.build(t, queue(t, 2), "dflash")
		run.run(t, 1)
		// NeMo divides each of the two losses by the weights of its rows; those of the selector are rows of
		// which the text's token is a candidate. Others have no loss.
		n := map[string]float64{"cls": run.weights(4)}
		for i := range run.terms {
			for _, l := range run.terms[i].RowLoss() {
				if run.terms[i].Name == "pair" && l > 0 {
					n["pair"] += float64(run.terms[i].Weight)
				}
			}
		}
		sum := map[string]float64{}
		for i := range run.terms {
			x := &run.terms[i]
			x.Set(run.b.Mask[x.Level], n[x.Name])
			for row, l := range x.RowLoss() {
				sum[x.Name] += float64(run.b.Mask[x.Level][row]) * float64(x.Weight) * float64(l) / n[x.Name]
			}
		}
		close1e6(t, "base", sum["cls"], r.losses["base"])
		if off := math.Abs(sum["pair"] - r.losses["selector"]); !(off <= 1e-6*r.losses["total"]) { // differences of logits of up to 12
			t.Errorf("the selector's loss is %v, want %v", sum["pair"], r.losses["selector"])
		}
		if err := run.g.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		close1e6(t, "total", float64(run.total.Scalar()), r.losses["total"])
		run.gradients(t, openBlockSet(t, "dflash2/a/grads.safetensors"))
	})
	for _, head := range []string{"dflash/a", "dflash/b", "dflash/swa"} {
		t.Run(head+" dpace", func(t *testing.T) {
			r := loadBlock(t, head)
			r.texts(t)
			close1e6(t, "dpace", r.build(t, queue(t, 2), "dpace").run(t, 2), r.losses["dpace"])
		})
	}
}

// trees reads the batch of the tree loss: one text, with the target's trees at some of its positions.
func (r *blockReference) trees(t testing.TB) {
	t.Helper()
	const nodes = 9
	s := openBlockSet(t, r.name+"/tree.safetensors")
	r.meta.Branch, r.meta.Depth = 4, 3
	tokens, v := narrow[int32](f64s(t, s, "token_ids")), r.spec.Vocab
	rec := &data.Record{
		Tokens: tokens, LossMask: make([]bool, len(tokens)), LabelFull: make([]float32, len(tokens)*nodes*v),
		TreeTokens: make([]int32, len(tokens)*nodes), TreeParents: make([]int32, len(tokens)*nodes),
	}
	tt, tp, labels := narrow[int32](f64s(t, s, "tree_tokens")), narrow[int32](f64s(t, s, "tree_parents")), narrow[float32](f64s(t, s, "tree_labels"))
	var at []int
	for i, root := range f64s(t, s, "roots") {
		p := int(root)
		copy(rec.TreeTokens[p*nodes:], tt[i*nodes:][:nodes])
		copy(rec.TreeParents[p*nodes:], tp[i*nodes:][:nodes])
		copy(rec.LabelFull[p*nodes*v:], labels[i*nodes*v:][:nodes*v])
		rec.LossMask[p+1] = true
		at = append(at, p-1)
	}
	r.records, r.taps, r.anchors = []*data.Record{rec}, [][]float32{narrow[float32](f64s(t, s, "taps"))}, [][]int{at}
}

// TALF's loss on block heads over the target's trees: a Markov head reads each node's token beside one row
// for all nodes of a level; of a causal head every node is a row. The reference has the distributions of
// DeepSpec's Markov head, and of JetSpec's own conditioned passes.
func TestTreeLossesOfBlockHeadsAgreeWithTheReference(t *testing.T) {
	for _, c := range []struct {
		head, loss, name string
		grads            bool
	}{
		{"dspark/a", "talf:decay=0.8", "tree_w08", false},
		{"dspark/b", "talf:decay=0.8", "tree_w08", true},
		{"dspark/a", "talf:reach=target", "tree_reach", false},
		{"dspark/b", "talf:reach=target", "tree_reach", false},
		{"jetspec/a", "talf:decay=0.8,path=on", "tree_w08", false},
		{"jetspec/b", "talf:decay=0.8,path=on", "tree_w08", true},
		{"jetspec/a", "talf:reach=target,path=on", "tree_reach", false},
		{"jetspec/b", "talf:reach=target,path=on", "tree_reach", false},
	} {
		t.Run(fmt.Sprint(c.head, " ", c.name), func(t *testing.T) {
			r := loadBlock(t, c.head)
			r.spec.Block.Confidence, r.spec.Block.ConfidenceMarkov = false, false // of which the reference has none
			r.trees(t)
			run := r.build(t, queue(t, 2), c.loss)
			run.run(t, float64(run.b.Count))
			close1e6(t, c.name, float64(run.total.Scalar()), r.losses[c.name])
			if c.grads {
				run.gradients(t, openBlockSet(t, c.head+"/tree_grads.safetensors"))
			}
			tree := openBlockSet(t, c.head+"/tree.safetensors")
			depths := f64s(t, tree, "tree_depths")
			var next [3]int
			for i, want := range f64s(t, tree, "node_ce") {
				l := int(depths[i])
				near(t, fmt.Sprintf("cross-entropy of node %d", i), float64(run.terms[l].RowLoss()[next[l]]), want)
				next[l]++
			}
		})
	}
}
