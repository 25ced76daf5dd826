package train

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"talf/model"
	"talf/model/head"
	"talf/model/safetensors"
	"talf/train/internal/gg"
	"talf/train/net"
	"talf/tree"
)

// The training graph and the decoder must be one network: on the same tree,
// f̂ of every node agrees to rounding (the two sum in different orders), or the
// logits of an EAGLE-3 head.
func TestTrainingAndDecodingAgreeOnTheHead(t *testing.T) {
	for layers := 1; layers <= 3; layers++ {
		t.Run(fmt.Sprint(layers), func(t *testing.T) { agreeOnTheHead(t, "eagle", layers) })
	}
	for _, variant := range []string{"", ",norm_before_residual=on", ",norm_before_fc=on", ",fc_norm=on,norm_output=on"} {
		t.Run("eagle3"+variant, func(t *testing.T) { agreeOnTheHead(t, tinyEagle3+variant, 1+len(variant)%2) })
	}
}

func agreeOnTheHead(t *testing.T, network string, layers int) {
	ctx := context.Background()
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	kind, err := net.ParseNetwork(network)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := kind.Spec(target.Spec(), layers, 0, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	q := dev.Queue()
	p, err := net.New(q, spec)
	if err != nil {
		t.Fatal(err)
	}
	p.Init(7)
	r := rand.New(rand.NewPCG(9, 9))
	var ts []safetensors.Tensor
	for _, a := range p.Export(nil) {
		ts = append(ts, safetensors.F32(a.Name, a.Data, a.Shape...))
	}
	h, err := head.FromTensors(spec, target, head.Default(), ts...)
	if err != nil {
		t.Fatal(err)
	}
	const n = 11 // positions of the text
	tokens := make([]int32, n+1)
	for i := range tokens {
		tokens[i] = int32(r.IntN(spec.Vocab))
	}
	wide := spec.FeatureSize()
	feat := make([]float32, n*wide)
	for i := range feat {
		feat[i] = float32(r.NormFloat64())
	}
	// A tree below the last position: depth 1, 1, 2, 2, 3.
	parents, ids := []int{-1, 0, 0, 1, 2, 3}, []int32{tokens[n], 3, 9, 27, 4, 12}

	g, err := gg.New(q)
	if err != nil {
		t.Fatal(err)
	}
	embed, err := target.HostEmbed()
	if err != nil {
		t.Fatal(err)
	}
	et, err := gg.NewTensor(q, "embed", embed, spec.Vocab, spec.Hidden)
	if err != nil {
		t.Fatal(err)
	}
	rope := q.Abilities().Train.Host(spec.Rope.Table(spec.HeadDim, 0, 32), 32, spec.HeadDim)
	train := net.NewHead(g, p, et, rope, net.Shape{Rows: n, Branch: 2, Levels: 4})
	for _, l := range train.Levels {
		g.Keep(l.Out)
	}
	if err := g.CompileForward(); err != nil {
		t.Fatal(err)
	}
	train.Reset()
	for i := range n {
		train.Levels[0].Add(tokens[i+1], int32(i), 0)
	}
	train.Feed(0, feat)
	row, lev := []int32{n - 1}, []int{0}
	for j := 1; j < len(parents); j++ {
		l := lev[parents[j]] + 1
		lev = append(lev, l)
		row = append(row, train.Levels[l].AddBelow(train.Levels[l-1], row[parents[j]], ids[j]))
	}
	if err := g.Run(ctx); err != nil {
		t.Fatal(err)
	}

	store, err := h.NewStore(n + len(parents))
	if err != nil {
		t.Fatal(err)
	}
	var in []model.Feature
	given, err := h.NewInputStore(n)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := given.Load(i, feat[i*wide:(i+1)*wide]); err != nil {
			t.Fatal(err)
		}
		in = append(in, given.At(i))
	}
	// trained and decoded return what is compared of rows [row,row+n).
	own, want := p.OwnLMHead(), model.WantNone
	if own != nil {
		want = model.WantAll
	}
	trained := func(l *net.Level, row, n int) []float32 {
		x := l.Out.Data()[row*spec.Hidden : (row+n)*spec.Hidden]
		if own == nil {
			return x
		}
		logits := make([]float32, 0, n*spec.Vocab)
		for r := range n {
			for v := range spec.Vocab {
				sum := 0.0
				for i := range spec.Hidden {
					sum += float64(x[r*spec.Hidden+i]) * float64(own.Data[v*spec.Hidden+i])
				}
				logits = append(logits, float32(sum))
			}
		}
		return logits
	}
	decoded := func(out *model.Output, node, n int) []float32 {
		if own == nil {
			x := make([]float32, n*spec.Hidden)
			out.ReadHidden(x, out.HiddenRow(0, node))
			return x
		}
		x := make([]float32, n*spec.Vocab)
		out.ReadLogits(x, out.LogitsRow(0, node))
		return x
	}
	check := func(what string, got []float32, want []float32) {
		t.Helper()
		for i := range got {
			if math.Abs(float64(got[i]-want[i])) > 2e-5*max(1, math.Abs(float64(want[i]))) {
				t.Fatalf("%s, element %d: training %v, decoding %v", what, i, got[i], want[i])
			}
		}
	}
	seq := h.NewSeq()
	out, err := seq.Append(ctx, tokens[1:], in, want)
	if err != nil {
		t.Fatal(err)
	}
	check("text", trained(train.Levels[0], 0, n), decoded(out, 0, n))

	tr := tree.New(tokens[n], 8)
	for j := 1; j < len(parents); j++ {
		tr.Add(parents[j], ids[j])
	}
	if err := store.Put(n, out.Feature(0, n-1)); err != nil {
		t.Fatal(err)
	}
	br := seq.BranchLast()
	defer br.Drop()
	for from := 1; from < tr.Len(); { // level by level: a node needs its parent's f̂
		end := from
		part := tree.New(tokens[n], 8)
		for j := 1; j < tr.Len() && (tr.Depth(j) <= tr.Depth(from)); j++ {
			part.Add(tr.Parent(j), tr.Token(j))
			end = j + 1
		}
		var f []model.Feature
		for j := from; j < end; j++ {
			f = append(f, store.At(n+tr.Parent(j)))
		}
		out, err := h.Forward(ctx, []model.Segment{{Rows: br, Tree: part, From: from, Feat: f, Want: want}})
		if err != nil {
			t.Fatal(err)
		}
		for j := from; j < end; j++ {
			check("tree", trained(train.Levels[lev[j]], int(row[j]), 1), decoded(out, j, 1))
		}
		for j := from; j < end; j++ {
			if err := store.Put(n+j, out.Feature(0, j)); err != nil {
				t.Fatal(err)
			}
		}
		from = end
	}
}
