package infer_test

import (
	"context"
	"testing"
	"time"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/draft"
	"talf/infer/source"
	"talf/model"
	"talf/model/head"
	"talf/model/modeltest"
)

// One round over a 10M-parameter Llama at a position of about 200, split into
// the draft's passes, the target's pass, and everything else: trees, verdict,
// bookkeeping. The head is untrained, so trees are as large as their budget.
func BenchmarkRound(b *testing.B) {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Close()
	c := modeltest.Default()
	c.Vocab, c.Hidden, c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.FFN = 4096, 256, 12, 4, 2, 64, 704
	c.MaxPos, c.Tied, c.EOS = 8192, true, -1
	m, err := model.Load(modeltest.Random(b, c, 1), dev, model.Default())
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	spec := m.Spec().DraftFor(true)
	h, err := head.FromTensors(spec, m, head.Default(), modeltest.Tensors(spec, false, 1)...)
	if err != nil {
		b.Fatal(err)
	}
	for _, spec := range []string{"ar", "beam:paper", "optimal:paper", "salf:paper", "salf"} {
		b.Run(spec, func(b *testing.B) {
			d, line, err := draft.New(spec)
			if err != nil {
				b.Fatal(err)
			}
			req := plainRequest(b, make([]int32, 200)...)
			req.MaxTokens, req.Drafter = 7000, d
			if line.Source {
				req.Source = source.NewHead(h, 0)
			}
			e := &infer.Engine{Target: infer.NewTarget(m, 0), Config: infer.Default()}
			s, err := e.Open(req)
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close(s)
			seqs := []*infer.Sequence{s}
			step := func() {
				if err := e.Step(context.Background(), seqs); err != nil {
					b.Fatal(err)
				}
			}
			for range 5 {
				step()
			}
			before := *s.Stats()
			for b.Loop() {
				step()
			}
			st := s.Stats()
			n := float64(st.Passes - before.Passes)
			for name, d := range map[string]time.Duration{
				"draft": st.Draft - before.Draft, "verify": st.Verify - before.Verify, "other": st.Overhead - before.Overhead,
			} {
				b.ReportMetric(float64(d.Nanoseconds())/n, name+"-ns/op")
			}
			b.ReportMetric(float64(st.Drafted-before.Drafted)/n, "nodes/op")
		})
	}
}
