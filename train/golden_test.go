package train

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/data"
	"talf/internal/golden"
	"talf/model/arch"
	"talf/model/safetensors"
	"talf/train/internal/batch"
	"talf/train/internal/gg"
	"talf/train/loss"
	"talf/train/mix"
	"talf/train/net"
)

func queue(t testing.TB, threads int) compute.Queue {
	t.Helper()
	c := cpu.Default()
	c.Threads = threads
	dev, err := cpu.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev.Queue()
}

func openSet(t testing.TB, name string) *safetensors.Set {
	t.Helper()
	s, err := safetensors.Open(golden.File(t, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// f64s returns a tensor's elements without the rounding of Float32s.
func f64s(t testing.TB, s *safetensors.Set, name string) []float64 {
	t.Helper()
	x, err := s.Get(name)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float64, x.Len())
	for i := range out {
		switch x.DType {
		case "F64":
			out[i] = math.Float64frombits(binary.LittleEndian.Uint64(x.Data[8*i:]))
		case "F32":
			out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(x.Data[4*i:])))
		case "I32":
			out[i] = float64(int32(binary.LittleEndian.Uint32(x.Data[4*i:])))
		default:
			t.Fatalf("%s is %s", name, x.DType)
		}
	}
	return out
}

func narrow[T float32 | int32](x []float64) []T {
	out := make([]T, len(x))
	for i, v := range x {
		out[i] = T(v)
	}
	return out
}

// A reference is the batch of data/reference/losses.
type reference struct {
	spec    *arch.Spec
	head    *safetensors.Set
	lm      []float32
	embed   []float32
	records []*data.Record
	feats   [][]float32
	meta    data.Meta
	pad     int // T
	lengths []int32
	values  map[string]json.RawMessage
}

func loadReference(t testing.TB, full bool) *reference {
	t.Helper()
	b := openSet(t, "reference/losses/batch.safetensors")
	h := openSet(t, "reference/losses/head/model.safetensors")
	spec, err := arch.LoadDraft(golden.File(t, "reference/losses/head"))
	if err != nil {
		t.Fatal(err)
	}
	spec.FCBias = true
	r := &reference{spec: spec, head: h}
	if err := json.Unmarshal(golden.Read(t, "reference/losses/losses.json"), &r.values); err != nil {
		t.Fatal(err)
	}
	r.lm = narrow[float32](f64s(t, b, "lm_head.weight"))
	r.embed = narrow[float32](f64s(t, h, "embed_tokens.weight"))
	const nodes, k = 9, 16
	hid, v := spec.Hidden, spec.Vocab
	r.meta = data.Meta{Hidden: hid, Vocab: v, Branch: 4, Depth: 3, Labels: data.TopK, K: k}
	if full {
		r.meta.Labels, r.meta.K = data.Full, 0
	}
	r.lengths = narrow[int32](f64s(t, b, "lengths"))
	ids := narrow[int32](f64s(t, b, "token_ids"))
	mask := f64s(t, b, "token_loss_mask")
	feat := narrow[float32](f64s(t, b, "features"))
	tt, tp := narrow[int32](f64s(t, b, "tree_tokens")), narrow[int32](f64s(t, b, "tree_parents"))
	li, lp := narrow[int32](f64s(t, b, "tree_top_ids")), narrow[float32](f64s(t, b, "tree_top_probs"))
	tail, lf := narrow[float32](f64s(t, b, "tree_tail")), narrow[float32](f64s(t, b, "tree_labels"))
	r.pad = len(ids) / len(r.lengths)
	for s, n := range r.lengths {
		at, end := s*r.pad, s*r.pad+int(n)
		rec := &data.Record{Tokens: ids[at:end], TreeTokens: tt[at*nodes : end*nodes], TreeParents: tp[at*nodes : end*nodes]}
		for _, m := range mask[at:end] {
			rec.LossMask = append(rec.LossMask, m != 0)
		}
		if full {
			rec.LabelFull = lf[at*nodes*v : end*nodes*v]
		} else {
			rec.LabelIDs, rec.LabelProbs, rec.Tail = li[at*nodes*k:end*nodes*k], lp[at*nodes*k:end*nodes*k], tail[at*nodes:end*nodes]
		}
		r.records = append(r.records, rec)
		r.feats = append(r.feats, feat[at*hid:end*hid])
	}
	return r
}

// build builds the graph of a loss over the reference batch, ready to run.
func (r *reference) build(t testing.TB, q compute.Queue, p *net.Params, l loss.Loss) (*gg.Graph, *batch.Batch, []loss.Term, *gg.Node) {
	t.Helper()
	g, err := gg.New(q)
	if err != nil {
		t.Fatal(err)
	}
	tensor := func(name string, f []float32, shape ...int) *gg.Tensor {
		x, err := gg.NewTensor(q, name, f, shape...)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	v, hid := r.spec.Vocab, r.spec.Hidden
	plan, err := l.Plan(batch.Labelling(r.meta, nil))
	if err != nil {
		t.Fatal(err)
	}
	table := r.spec.Rope.Table(r.spec.HeadDim, 0, 64)
	rope := q.Abilities().Train.Host(table, 64, r.spec.HeadDim)
	b := batch.New(g, p, tensor("embed", r.embed, v, hid), rope, r.meta, plan, nil, 40, 0)
	lm := tensor("lm_head", r.lm, v, hid)
	if plan.Exact {
		b.Exact(q.Abilities().Train, lm.Buf)
	}
	in := b.Inputs(g, lm)
	terms := l.Build(in)
	var ls []*gg.Loss
	for i := range terms {
		ls = append(ls, terms[i].Loss)
	}
	g.Keep(in.FHat...)
	total := g.Total(ls...)
	if err := g.Compile(total, b.Head.Nodes...); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	for i, rec := range r.records {
		b.Final(r.feats[i])
		if err := b.Add(rec, r.feats[i], r.feats[i], 64); err != nil {
			t.Fatal(err)
		}
	}
	for i := range terms {
		terms[i].Set(b.Mask[terms[i].Level], float64(b.Count))
	}
	return g, b, terms, total
}

func params(t testing.TB, q compute.Queue, spec *arch.Spec, set *safetensors.Set) *net.Params {
	t.Helper()
	p, err := net.New(q, spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Import(set); err != nil {
		t.Fatal(err)
	}
	return p
}

// relative returns |a−b|∞ / |b|∞.
func relative(a []float32, b []float64) float64 {
	diff, top := 0.0, 0.0
	for i := range b {
		diff, top = max(diff, math.Abs(float64(a[i])-b[i])), max(top, math.Abs(b[i]))
	}
	return diff / top
}

func gradients(p *net.Params, nodes []*gg.Node) []net.Array {
	of := make(map[*gg.Tensor][]float32)
	for i, t := range p.Tensors() {
		of[t] = nodes[i].Grad()
	}
	return p.Export(func(t *gg.Tensor) []float32 { return of[t] })
}

func TestLossesAndGradientsAgreeWithTheReference(t *testing.T) {
	grads := openSet(t, "reference/losses/grads.safetensors")
	fwd := openSet(t, "reference/losses/forward.safetensors")
	for _, c := range []struct {
		name, loss string
		full       bool // the data hold whole distributions
		value      func(map[string]float64) float64
	}{
		{"eagle.reg", "eagle:w_reg=1,w_cls=0", true, func(m map[string]float64) float64 { return m["reg"] }},
		{"eagle.cls", "eagle:w_reg=0,w_cls=1", true, func(m map[string]float64) float64 { return m["cls"] }},
		{"eagle.total", "eagle:w_reg=1,w_cls=0.1", true, func(m map[string]float64) float64 { return m["total"] }},
		{"hass.detach", "hass:w_reg=1,w_cls=0.1,w_topk=1", true, func(m map[string]float64) float64 { return m["total"] }},
		{"hass.flow", "hass:w_reg=1,w_cls=0.1,w_topk=1,feed=flow", true, func(m map[string]float64) float64 { return m["total"] }},
		// The same from the 16 most likely tokens and the features.
		{"eagle.cls", "eagle:w_reg=0,w_cls=1,labels=full", false, func(m map[string]float64) float64 { return m["cls"] }},
		{"hass.detach", "hass:w_reg=1,w_cls=0.1,w_topk=1,labels=full", false, func(m map[string]float64) float64 { return m["total"] }},
		{"hass.flow", "hass:w_reg=1,w_cls=0.1,w_topk=1,feed=flow,labels=full", false, func(m map[string]float64) float64 { return m["total"] }},
		{"talf.full", "talf", true, func(m map[string]float64) float64 { return m["total"] }},
		{"talf.tail", "talf:labels=tail", false, func(m map[string]float64) float64 { return m["total"] }},
		{"talf.ignore", "talf:labels=ignore", false, func(m map[string]float64) float64 { return m["total"] }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := loadReference(t, c.full)
			q := queue(t, 2)
			p := params(t, q, r.spec, r.head)
			l, err := loss.Parse(c.loss)
			if err != nil {
				t.Fatal(err)
			}
			g, b, terms, total := r.build(t, q, p, l)
			if err := g.Run(context.Background()); err != nil {
				t.Fatal(err)
			}
			key, _, _ := strings.Cut(c.name, ".")
			if key != "eagle" {
				key = c.name
			}
			want := r.numbers(t, key)
			if e := math.Abs(float64(total.Scalar())/c.value(want) - 1); e > 1e-5 {
				t.Errorf("loss %v, want %v", total.Scalar(), c.value(want))
			}
			worst := 0.0
			for _, a := range gradients(p, b.Head.Nodes) {
				e := relative(a.Data, f64s(t, grads, c.name+"."+a.Name))
				worst = max(worst, e)
				if e > 1e-4 || e != e {
					t.Errorf("gradient of %s is off by %g of its largest element", a.Name, e)
				}
			}
			t.Logf("worst relative gradient error %.2g", worst)
			if s := g.Stock(); len(s) > 0 {
				t.Errorf("stock operations on the tape: %v", s)
			}
			r.checkForward(t, fwd, c.name, b, terms)
		})
	}
}

// numbers returns the plain numbers of an entry of losses.json.
func (r *reference) numbers(t testing.TB, key string) map[string]float64 {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal(r.values[key], &all); err != nil {
		t.Fatal(err)
	}
	out := make(map[string]float64)
	for k, v := range all {
		if f, ok := v.(float64); ok {
			out[k] = f
		}
	}
	return out
}

// Every pass of HASS gives the reference's regression, cross-entropy and top-K distillation, the
// last also if the data have only the 16 most likely tokens.
func TestHASSAgreesPassByPass(t *testing.T) {
	for _, c := range []struct {
		column int
		loss   string
		full   bool
	}{
		{0, "hass:w_reg=1,w_cls=0,w_topk=0", true},
		{1, "hass:w_reg=0,w_cls=1,w_topk=0", true},
		{2, "hass:w_reg=0,w_cls=0,w_topk=1", true},
		{0, "hass:w_reg=1,w_cls=0,w_topk=0", false},
		{2, "hass:w_reg=0,w_cls=0,w_topk=1", false},
	} {
		r := loadReference(t, c.full)
		var want struct {
			Passes [][3]float64 `json:"per_pass_reg_cls_topk"`
		}
		if err := json.Unmarshal(r.values["hass.detach"], &want); err != nil {
			t.Fatal(err)
		}
		q := queue(t, 1)
		l, err := loss.Parse(c.loss)
		if err != nil {
			t.Fatal(err)
		}
		g, b, terms, _ := r.build(t, q, params(t, q, r.spec, r.head), l)
		if err := g.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		if len(terms) != 3 {
			t.Fatalf("%s: %d terms", c.loss, len(terms))
		}
		// Positions before a pass's first are its repetitions of earlier passes.
		got := make([]float64, 3)
		for i := range terms {
			next := 0
			for _, rec := range r.records {
				n := mix.Span(rec, 64, 0)
				for p := range n {
					if p < i || !b.Needs(rec, n, i, p) {
						continue
					}
					if rec.LossMask[p+2] {
						x := float64(terms[i].RowLoss()[next]) / float64(b.Count)
						for pass := i; pass < 3; pass++ {
							if pass == i || p == i {
								got[pass] += x
							}
						}
					}
					next++
				}
			}
			if next != len(terms[i].RowLoss()) {
				t.Errorf("%s: pass %d has %d rows, want %d", c.loss, i+1, len(terms[i].RowLoss()), next)
			}
		}
		for pass, x := range got {
			if w := want.Passes[pass][c.column]; math.Abs(x/w-1) > 1e-5 {
				t.Errorf("%s, full labels %v: pass %d gives %v, want %v", c.loss, c.full, pass+1, x, w)
			}
		}
	}
}

// alongText makes the reference's labels those of trees with one branch that follow the text:
// what the target would have written if it had answered greedily.
func (r *reference) alongText() {
	v := r.meta.Vocab
	r.meta.Branch = 1
	for _, rec := range r.records {
		old := rec.LabelFull
		rec.TreeTokens, rec.TreeParents, rec.LabelFull = nil, nil, nil
		for p := range rec.Tokens {
			rec.LossMask[p] = true
			for l := range 3 {
				at := min(p+l, len(rec.Tokens)-1)
				rec.TreeTokens = append(rec.TreeTokens, rec.Tokens[at])
				rec.TreeParents = append(rec.TreeParents, int32(l-1))
				rec.LabelFull = append(rec.LabelFull, old[at*9*v:(at*9+1)*v]...)
			}
		}
	}
}

// The paper finds TALF with k=1 "almost the same as HASS" (§4.3, Table 3). Along a text that
// the target itself wrote greedily, a node at level l below position i is HASS's
// pass l+1 at position i+l, to the bit. What differs is where the losses are taken:
// HASS counts the positions of the text in every pass, the first ones several
// times; TALF's trees hang below every position, reach past the end of the text,
// and follow the target's choice where the text took another token.
func TestTALFOnOneBranchIsHASSAlongGreedyText(t *testing.T) {
	rows := func(r *reference, name string) [][]float32 {
		q := queue(t, 1)
		l, err := loss.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		g, _, terms, _ := r.build(t, q, params(t, q, r.spec, r.head), l)
		if err := g.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		var out [][]float32
		for i := range terms {
			out = append(out, append([]float32(nil), terms[i].RowLoss()...))
		}
		return out
	}
	r := loadReference(t, true)
	r.alongText()
	hass, talf := rows(r, "hass:w_reg=0,w_cls=1,w_topk=0"), rows(r, "talf")

	// One tree takes a token other than the text's.
	const where = 4
	first := r.records[0]
	first.TreeTokens[3*(where+1)+1] = (first.TreeTokens[3*(where+1)+1] + 1) % int32(r.meta.Vocab)
	other := rows(r, "talf")

	for l := range hass {
		h, k := 0, 0 // of the sequence's first row in hass and in talf
		for s, rec := range r.records {
			n := mix.Span(rec, 64, 0)
			for i := range n {
				if got, want := talf[l][k+i], hass[l][min(h+i, len(hass[l])-1)]; i+l < n && got != want {
					t.Errorf("sequence %d, level %d below position %d: TALF %v, HASS at position %d %v", s, l, i, got, i+l, want)
				}
				if changed := talf[l][k+i] != other[l][k+i]; changed != (s == 0 && i == where && l > 0) {
					t.Errorf("sequence %d, level %d below position %d: changed by another token at %d: %v", s, l, i, where, changed)
				}
			}
			h, k = h+n-l, k+n
		}
		if len(hass[l]) != h || len(talf[l]) != k {
			t.Errorf("level %d: %d and %d rows, want %d and %d", l, len(hass[l]), len(talf[l]), h, k)
		}
	}
}

// checkForward compares f̂ or the nodes' losses.
func (r *reference) checkForward(t *testing.T, fwd *safetensors.Set, name string, b *batch.Batch, terms []loss.Term) {
	hid := r.spec.Hidden
	at := 0
	if strings.HasPrefix(name, "hass") {
		return // pass by pass in a test of its own
	}
	if strings.HasPrefix(name, "eagle") {
		want := f64s(t, fwd, "eagle.f_hat")
		got := b.Head.Levels[0].Out.Data()
		for s, rec := range r.records {
			n := mix.Span(rec, 64, 0)
			if e := relative(got[at*hid:(at+n)*hid], want[s*r.pad*hid:(s*r.pad+n)*hid]); e > 1e-5 {
				t.Errorf("f̂ of sequence %d is off by %g", s, e)
			}
			at += n
		}
		return
	}
	want := f64s(t, fwd, name+".node_loss")
	next := make([]int, len(terms))
	for s, rec := range r.records {
		for i := range mix.Span(rec, 64, 0) {
			for l, n := 0, 0; l < len(terms); l++ {
				count := 4
				if l == 0 {
					count = 1
				} else if !rec.LossMask[i+2] {
					count = 0
				}
				for range count {
					got, w := float64(terms[l].RowLoss()[next[l]]), want[(s*r.pad+i)*9+n]
					if math.Abs(got-w) > 2e-5*math.Abs(w) {
						t.Errorf("sequence %d, position %d, node %d: loss %v, want %v", s, i, n, got, w)
					}
					next[l]++
					n++
				}
			}
		}
	}
}

func TestAdamWStepsAgreeWithTheReference(t *testing.T) {
	ref := openSet(t, "reference/losses/adamw.safetensors")
	r := loadReference(t, true)
	var want struct {
		Betas [2]float64
		Eps   float64
		Decay float64 `json:"weight_decay"`
		MaxN  float64 `json:"max_grad_norm"`
		Steps []struct {
			LR   float64
			Loss float64 `json:"loss_before"`
			Norm float64 `json:"grad_norm"`
		}
	}
	if err := json.Unmarshal(r.values["adamw"], &want); err != nil {
		t.Fatal(err)
	}
	cfg := Default()
	cfg.Beta1, cfg.Beta2, cfg.Eps, cfg.Decay, cfg.Clip = want.Betas[0], want.Betas[1], want.Eps, want.Decay, want.MaxN
	l, err := loss.Parse("eagle:w_reg=1,w_cls=0.1")
	if err != nil {
		t.Fatal(err)
	}
	// With the reference's gradients every weight agrees. With our own, a first
	// step is lr·g/|g| even for a gradient that is all rounding, so the whole
	// update is compared by its norm.
	for _, own := range []bool{false, true} {
		q := queue(t, 2)
		p := params(t, q, r.spec, r.head)
		g, b, _, total := r.build(t, q, p, l)
		opt, err := newOptimiser(cfg, q, p.Tensors(), cfg.Accum > 1)
		if err != nil {
			t.Fatal(err)
		}
		given, err := net.New(q, r.spec)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range want.Steps {
			before := p.Export(nil)
			if err := g.Run(context.Background()); err != nil {
				t.Fatal(err)
			}
			if e := math.Abs(float64(total.Scalar())/s.Loss - 1); e > 1e-5 {
				t.Errorf("step %d: loss %v, want %v", i+1, total.Scalar(), s.Loss)
			}
			var grads []safetensors.Tensor
			for _, a := range gradients(p, b.Head.Nodes) {
				want := f64s(t, ref, fmt.Sprintf("step%d.grad.%s", i+1, a.Name))
				if e := relative(a.Data, want); !(e <= 1e-4) {
					t.Errorf("step %d: gradient of %s is off by %g", i+1, a.Name, e)
				}
				grads = append(grads, safetensors.F32(a.Name, narrow[float32](want), a.Shape...))
			}
			if !own {
				if err := given.Import(safetensors.Of("reference", grads...)); err != nil {
					t.Fatal(err)
				}
				for j, n := range b.Head.Nodes {
					copy(n.Grad(), given.Tensors()[j].Data)
				}
			}
			norm, ok := opt.Update(b.Head.Nodes, s.LR)
			if !ok {
				t.Fatal("gradients are not finite")
			}
			if e := math.Abs(norm/s.Norm - 1); e > 1e-5 {
				t.Errorf("step %d: norm %v, want %v", i+1, norm, s.Norm)
			}
			diff, moved := 0.0, 0.0
			for k, a := range p.Export(nil) {
				ref := f64s(t, ref, fmt.Sprintf("step%d.param.%s", i+1, a.Name))
				for j, x := range a.Data {
					d := float64(x) - ref[j]
					if !own && math.Abs(d) > 1e-6*max(1, math.Abs(ref[j])) {
						t.Fatalf("step %d: %s[%d] is %v, want %v", i+1, a.Name, j, x, ref[j])
					}
					diff += d * d
					moved += (float64(before[k].Data[j]) - ref[j]) * (float64(before[k].Data[j]) - ref[j])
				}
			}
			if e := math.Sqrt(diff / moved); e > 2e-3 {
				t.Errorf("step %d, own gradients %v: the update is off by %g of its norm", i+1, own, e)
			} else {
				t.Logf("step %d, own gradients %v: the update is off by %.2g of its norm", i+1, own, e)
			}
		}
	}
}

// Data whose trees are limited to answers have nothing elsewhere: not a bit of the gradients may
// depend on it.
func TestLabelsThatNobodyTrainsOnDoNotCount(t *testing.T) {
	for _, name := range []string{"eagle:w_reg=1,w_cls=0.1", "talf"} {
		var grads [2][]net.Array
		for blank := range grads {
			r := loadReference(t, false)
			q := queue(t, 1)
			p := params(t, q, r.spec, r.head)
			if blank == 1 {
				for _, rec := range r.records {
					for i := range rec.Tokens {
						if i+1 < len(rec.Tokens) && rec.LossMask[i+1] {
							continue
						}
						clear(rec.TreeTokens[i*9 : (i+1)*9])
						clear(rec.LabelProbs[i*9*16 : (i+1)*9*16])
						clear(rec.Tail[i*9 : (i+1)*9])
						for j := range 9 * 16 {
							rec.LabelIDs[i*9*16+j] = 0
						}
					}
				}
			}
			l, err := loss.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			g, b, _, _ := r.build(t, q, p, l)
			if err := g.Run(context.Background()); err != nil {
				t.Fatal(err)
			}
			grads[blank] = gradients(p, b.Head.Nodes)
		}
		for i, a := range grads[0] {
			for j, x := range a.Data {
				if x != grads[1][i].Data[j] {
					t.Fatalf("%s: gradient of %s[%d] is %v, without those labels %v", name, a.Name, j, x, grads[1][i].Data[j])
				}
			}
		}
	}
}
