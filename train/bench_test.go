package train

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"talf/compute"
	"talf/data"
	"talf/model/arch"
	"talf/train/internal/batch"
	"talf/train/internal/gg"
	"talf/train/loss"
	"talf/train/net"
)

// BenchmarkStep is one optimiser step of a head with hidden size 512, FFN 1376, 8
// heads, vocabulary 8192 and top-16 labels over 4 sequences of 256 positions.
func BenchmarkStep(b *testing.B) {
	for _, dtype := range []string{"f32", BF16} {
		for _, name := range []string{"eagle", "hass", "talf"} {
			b.Run(dtype+"/"+name, func(b *testing.B) { benchmarkStep(b, name, dtype == BF16) })
		}
	}
}

func benchmarkStep(b *testing.B, name string, half bool) {
	spec := arch.Llama()
	spec.Vocab, spec.Hidden, spec.Layers, spec.Heads, spec.KVHeads, spec.HeadDim, spec.FFN, spec.MaxPos = 8192, 512, 1, 8, 8, 64, 1376, 512
	benchmarkStepOf(b, spec.DraftFor(true), 4, 256, name, half)
}

// BenchmarkEagle3Step is one optimiser step of an EAGLE-3 head with training-time test, an LM head of its own
// and top-16 labels: a head for gsm10m, 7 steps from 2 sequences of 256 positions, and one with hidden size 2048, FFN
// 5632, 16 heads and 32,000 tokens to predict, 3 steps from one such sequence.
// lab/experiments/torch_eagle3.py is the same in PyTorch.
func BenchmarkEagle3Step(b *testing.B) {
	for _, c := range []struct {
		name, loss                           string
		vocab, hidden, heads, kv, ffn, batch int
	}{
		{"small", "eagle3", 4096, 256, 4, 2, 704, 2},
		{"large", "eagle3:steps=3", 32000, 2048, 16, 16, 5632, 1},
	} {
		b.Run(c.name, func(b *testing.B) {
			target := arch.Llama()
			target.Vocab, target.Hidden, target.Layers, target.Heads, target.KVHeads, target.HeadDim = c.vocab, c.hidden, 12, c.heads, c.kv, c.hidden/c.heads
			target.FFN, target.MaxPos = c.ffn, 512
			spec := target.Eagle3For(nil, 0)
			spec.Layers = 1
			benchmarkStepOf(b, spec, c.batch, 256, c.loss, false)
		})
	}
}

// benchmarkStepOf is one optimiser step of a head on seqs sequences of length positions.
func benchmarkStepOf(b *testing.B, spec *arch.Spec, seqs, length int, name string, half bool) {
	dev := device(b, 2)
	q := dev.Queue()
	r := rand.New(rand.NewPCG(1, 1))
	random := func(n int, std float64) []float32 {
		f := make([]float32, n)
		for i := range f {
			f[i] = float32(r.NormFloat64() * std)
		}
		return f
	}
	p, err := net.New(q, spec)
	if err != nil {
		b.Fatal(err)
	}
	p.Init(1)
	l, err := loss.Parse(name)
	if err != nil {
		b.Fatal(err)
	}
	meta := data.Meta{Hidden: spec.Hidden, Vocab: spec.Vocab, Branch: 4, Depth: 3, Labels: data.TopK, K: 16}
	plan, err := l.Plan(batch.Labelling(meta, nil))
	if err != nil {
		b.Fatal(err)
	}
	g, err := gg.New(q)
	if err != nil {
		b.Fatal(err)
	}
	tensor := func(name string, f []float32, shape ...int) *gg.Tensor {
		t, err := gg.NewTensor(q, name, f, shape...)
		if err != nil {
			b.Fatal(err)
		}
		return t
	}
	rope := q.Abilities().Train.Host(spec.Rope.Table(spec.HeadDim, 0, 300), 300, spec.HeadDim)
	bt := batch.New(g, p, tensor("embed", random(spec.Vocab*spec.Hidden, 0.02), spec.Vocab, spec.Hidden), rope, meta, plan, nil, seqs*length, 0)
	own := p.OwnLMHead() != nil
	lm := p.OwnLMHead()
	if !own {
		lm = tensor("lm_head", random(spec.Vocab*spec.Hidden, 0.05), spec.Vocab, spec.Hidden)
	}
	as := compute.F32
	if half {
		as = compute.BF16
		if err := g.Stash(); err != nil {
			b.Fatal(err)
		}
	}
	in := lm
	if own {
		in = nil // learns
	} else {
		w, err := dev.Pack(as, lm.Matrix())
		if err != nil {
			b.Fatal(err)
		}
		lm.Buf = w.(compute.Buffer)
	}
	terms := l.Build(bt.Inputs(g, in))
	var ls []*gg.Loss
	for i := range terms {
		ls = append(ls, terms[i].Loss)
	}
	total := g.Total(ls...)
	if err := g.Compile(total, bt.Head.Nodes...); err != nil {
		b.Fatal(err)
	}
	opt, err := newOptimiser(Default(), q, p.Tensors(), Default().Accum > 1)
	if err != nil {
		b.Fatal(err)
	}
	var recs []*data.Record
	for range seqs {
		rec := &data.Record{}
		for i := range length + 2 {
			rec.Tokens = append(rec.Tokens, int32(r.IntN(spec.Vocab)))
			rec.LossMask = append(rec.LossMask, true)
			for j := range 9 {
				parent, tok := int32(-1), rec.Tokens[i]
				if j > 0 {
					tok, parent = int32(r.IntN(spec.Vocab)), 0
				}
				if j > 4 {
					parent = int32(1 + r.IntN(4))
				}
				rec.TreeTokens, rec.TreeParents = append(rec.TreeTokens, tok), append(rec.TreeParents, parent)
				first := r.IntN(spec.Vocab)
				for k := range 16 {
					rec.LabelIDs = append(rec.LabelIDs, int32((first+37*k)%spec.Vocab))
					rec.LabelProbs = append(rec.LabelProbs, 0.05)
				}
				rec.Tail = append(rec.Tail, 0.2)
			}
		}
		recs = append(recs, rec)
	}
	feat := random((length+2)*spec.FeatureSize(), 1)
	ctx := context.Background()
	step := func() {
		bt.Reset()
		for _, rec := range recs {
			if err := bt.Add(rec, feat, feat, 512); err != nil {
				b.Fatal(err)
			}
		}
		for i := range terms {
			terms[i].Set(bt.Mask[terms[i].Level], float64(bt.Count))
		}
		if err := g.Run(ctx); err != nil {
			b.Fatal(err)
		}
		if _, ok := opt.Update(bt.Head.Nodes, 3e-4); !ok {
			b.Fatal("gradients are not finite")
		}
	}
	step()
	b.ReportAllocs()
	before := processorTime()
	for b.Loop() {
		step()
	}
	spent := processorTime() - before
	rows := 0
	for _, lv := range bt.Head.Levels {
		rows += lv.Rows.N
	}
	// Products with weights, forward and both gradients, and the LM head forward and back; the
	// feature half of fc once per parent.
	weights := 4*spec.Hidden*spec.Hidden + 3*spec.Hidden*spec.FFN + spec.Hidden*spec.Hidden
	flop := 6*float64(rows)*float64(weights) + 4*float64(rows)*float64(spec.Hidden*spec.Vocab) + 6*float64(min(rows, 5*seqs*length))*float64(spec.Hidden*spec.Hidden)
	if own {
		fc := 3 * spec.Hidden * spec.Hidden
		flop = 6 * (float64(rows)*float64(p.Count()-fc) + float64(seqs*length)*float64(fc))
	}
	b.ReportMetric(flop*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
	b.ReportMetric(float64(rows*b.N)/b.Elapsed().Seconds(), "nodes/s")
	b.ReportMetric(float64(g.Bytes())/(1<<20), "MiB")
	if spent > 0 {
		b.ReportMetric(spent*1e3/float64(b.N), "cpu-ms/op")
	}
	if kib := peakMemory(); kib > 0 {
		b.ReportMetric(kib/(1<<10), "peak-MiB")
	}
}

// processorTime returns the seconds that all threads of the process have run, 0 where the system does not say. On a
// machine with other work they say more than the time that has passed.
func processorTime() float64 {
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), ") ") // behind the name, which may have spaces
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, err := strconv.ParseFloat(fields[11], 64)
	sys, err2 := strconv.ParseFloat(fields[12], 64)
	if errors.Join(err, err2) != nil {
		return 0
	}
	return (user + sys) / 100 // ticks of Linux
}

// peakMemory returns the largest resident memory of the process so far in KiB, 0 where the system does not say.
func peakMemory() (kib float64) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		return 0
	}
	return kib
}

// BenchmarkLMStep is one step of a language model of the demo target's size over
// 1024 tokens in windows of 256.
func BenchmarkLMStep(b *testing.B) {
	spec := arch.Llama()
	spec.Vocab, spec.Hidden, spec.Layers, spec.Heads, spec.KVHeads, spec.HeadDim, spec.FFN, spec.MaxPos, spec.Tied = 1024, 128, 10, 4, 2, 32, 352, 512, true
	r := rand.New(rand.NewPCG(1, 1))
	docs := make([][]int32, 64)
	for i := range docs {
		for range 257 {
			docs[i] = append(docs[i], int32(r.IntN(spec.Vocab)))
		}
	}
	cfg := Default()
	cfg.Held, cfg.SaveEvery, cfg.EvalEvery, cfg.Steps = 0, 0, 0, 1<<20
	_, t, err := newLMTask(cfg, LMJob{Device: device(b, 2), Spec: spec, Docs: docs, Window: 256, Out: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	t.params.Init(1)
	if err := t.beginStage(0); err != nil {
		b.Fatal(err)
	}
	step := func() {
		if _, err := t.makeStep(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	step()
	b.ReportAllocs()
	for b.Loop() {
		step()
	}
	weights := float64(t.params.Count())
	b.ReportMetric(6*1024*weights*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
	b.ReportMetric(float64(1024*b.N)/b.Elapsed().Seconds(), "tokens/s")
	b.ReportMetric(float64(t.graph.Bytes())/(1<<20), "MiB")
}
