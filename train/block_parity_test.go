package train

import (
	"math"
	"math/rand/v2"
	"testing"

	"talf/model"
	"talf/model/head"
	"talf/model/safetensors"
	"talf/train/internal/gg"
	"talf/train/net"
)

// The training graph and the decoder must be one network: they agree on the logits after every node of a tree
// and on the confidence in it.
func TestTrainingAndDecodingAgreeOnBlockHeads(t *testing.T) {
	for _, c := range tinyBlocks {
		t.Run(c.network, func(t *testing.T) { agreeOnBlocks(t, c.network) })
	}
}

func agreeOnBlocks(t *testing.T, network string) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	kind, err := net.ParseNetwork(network)
	must(err)
	spec, err := kind.Spec(target.Spec(), 2, 0, false, nil)
	must(err)
	q := dev.Queue()
	p, err := net.New(q, spec)
	must(err)
	p.Init(7)
	for _, x := range p.Tensors() { // some of which begin as 0
		for i := range x.Data {
			x.Data[i] += 0.1 * float32(math.Sin(float64(i)))
		}
	}
	var ts []safetensors.Tensor
	for _, a := range p.Export(nil) {
		ts = append(ts, safetensors.F32(a.Name, a.Data, a.Shape...))
	}
	h, err := head.FromTensors(spec, target, head.Default(), ts...)
	must(err)
	defer h.Close()
	r := rand.New(rand.NewPCG(9, 9))
	const n, anchor = 9, 5 // positions of the context
	feat := make([]float32, n*spec.FeatureSize())
	for i := range feat {
		feat[i] = float32(r.NormFloat64())
	}
	parents, ids := []int{-1, 0, 0, 1, 2}, []int32{anchor, 3, 9, 27, 4}

	g, err := gg.New(q)
	must(err)
	embed, err := target.HostEmbed()
	must(err)
	et, err := gg.NewTensor(q, "embed", embed, spec.Vocab, spec.Hidden)
	must(err)
	rope := q.Abilities().Train.Host(spec.Rope.Table(spec.HeadDim, 0, 32), 32, spec.HeadDim)
	train := net.NewHead(g, p, et, rope, net.Shape{Rows: n, Branch: 2, Levels: 3, Blocks: 1})
	for _, l := range train.Levels {
		g.Keep(l.Ranked())
		if l.Sure != nil {
			g.Keep(l.Sure)
		}
	}
	must(g.CompileForward())
	train.Reset()
	first := train.Block.AddText(n)
	train.Feed(first, feat)
	row, lev := []int32{train.AddBlock(anchor, n, int32(first))}, []int{0}
	for j := 1; j < len(parents); j++ {
		lev = append(lev, lev[parents[j]]+1)
		row = append(row, train.AddNode(lev[j], row[parents[j]], ids[j]))
	}
	must(g.Run(t.Context()))

	given, err := h.NewInputStore(n)
	must(err)
	must(given.Load(0, feat))
	var in []model.Feature
	for i := range n {
		in = append(in, given.At(i))
	}
	seq := h.NewSeq()
	defer seq.Close()
	out, err := h.ForwardBlocks(t.Context(), []model.BlockSegment{{Seq: seq, Feat: in, Anchor: anchor}})
	must(err)
	said, err := h.NewBlockState()
	must(err)
	out.Keep(0, said)
	lm, err := target.HostLMHead()
	must(err)
	w := &gg.Tensor{Shape: []int{spec.Vocab, spec.Hidden}, Data: lm}
	if m := p.Beside(); m != nil {
		w = gg.Beside(w, m)
	}
	b := &spec.Block
	for j := range parents {
		at := []model.After{{Block: said, Depth: lev[j], Token: ids[j]}}
		want := make([]float32, spec.Vocab)
		l := train.Levels[lev[j]]
		x := l.Ranked().Data()[int(row[j])*l.Ranked().Width():][:l.Ranked().Width()]
		if b.SelectorRank > 0 { // of any Top tokens
			out.ReadLogits(want, out.LogitsRow(0, b.Row(lev[j])))
			for v := 0; v < spec.Vocab; v += b.SelectorTop {
				var some []int32
				for i := range b.SelectorTop {
					some = append(some, int32(v+i))
				}
				must(h.SelectAfter(t.Context(), at, some, want[v:v+b.SelectorTop]))
			}
		} else {
			o, err := h.ForwardAfter(t.Context(), at)
			must(err)
			o.ReadLogits(want, 0)
		}
		for v := range want {
			sum := 0.0
			for i, a := range x {
				sum += float64(a) * float64(w.Data[v*len(x)+i])
			}
			near(t, "logit", float64(want[v]), sum)
		}
		if l.Sure != nil {
			near(t, "confidence", float64(at[0].Accept), 1/(1+math.Exp(-float64(l.Sure.Data()[row[j]]))))
		}
	}
}
