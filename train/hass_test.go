package train

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"testing"

	"talf/data"
	"talf/model/arch"
	"talf/model/safetensors"
	"talf/train/loss"
)

// hassGolden returns the output of testdata/hass/make.py: three short sequences in which the
// first, the second and both of the first two positions count, with HASS's loss and gradients by
// automatic differentiation of all passes in float64.
func hassGolden(t testing.TB) (r *reference, golden *safetensors.Set) {
	t.Helper()
	open := func(name string) *safetensors.Set {
		s, err := safetensors.Open(filepath.Join("testdata", "hass", name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	spec, err := arch.LoadDraft(filepath.Join("testdata", "hass"))
	if err != nil {
		t.Fatal(err)
	}
	spec.FCBias = true
	b, h := open("batch.safetensors"), open("model.safetensors")
	r = &reference{
		spec: spec, head: h, lm: narrow[float32](f64s(t, b, "lm_head")), embed: narrow[float32](f64s(t, h, "embed_tokens.weight")),
		meta: data.Meta{Hidden: spec.Hidden, Vocab: spec.Vocab, Branch: 1, Depth: 1, Labels: data.Full},
	}
	for s := range 3 {
		of := func(name string) []float64 { return f64s(t, b, fmt.Sprintf("%s.%d", name, s)) }
		rec := &data.Record{Tokens: narrow[int32](of("tokens")), LabelFull: narrow[float32](of("labels"))}
		for _, m := range of("mask") {
			rec.LossMask = append(rec.LossMask, m != 0)
		}
		r.records, r.feats = append(r.records, rec), append(r.feats, narrow[float32](of("features")))
	}
	return r, open("golden.safetensors")
}

// At the start of a text one row stands for several passes of HASS: it must count for each of
// them.
func TestHASSCountsRepeatedPassesAtTheStartOfAText(t *testing.T) {
	for _, c := range []struct {
		name, spec string
		decay      float64
	}{
		{"detach", "hass:w_reg=1,w_cls=0.1,w_topk=1,top=3", 1},
		{"flow", "hass:w_reg=1,w_cls=0.1,w_topk=1,top=3,feed=flow", 1},
		{"detach", "hass:w_reg=1,w_cls=0.1,w_topk=1,top=3,decay=0.5", 0.5},
	} {
		name := c.name
		r, golden := hassGolden(t)
		q := queue(t, 1)
		p := params(t, q, r.spec, r.head)
		l, err := loss.Parse(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		g, b, _, total := r.build(t, q, p, l)
		if err := g.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		want, weight := 0.0, 1.0
		for _, x := range f64s(t, golden, name+".passes") {
			want += weight * x
			weight *= c.decay
		}
		if e := math.Abs(float64(total.Scalar())/want - 1); e > 1e-6 {
			t.Errorf("%s: loss %v, want %v", c.spec, total.Scalar(), want)
		}
		if c.decay != 1 { // the gradients are of passes that weigh alike
			continue
		}
		for _, a := range gradients(p, b.Head.Nodes) {
			if e := relative(a.Data, f64s(t, golden, name+"."+a.Name)); !(e < 1e-5) {
				t.Errorf("%s: the gradient of %s is off by %g of its largest element", name, a.Name, e)
			}
		}
	}
}
