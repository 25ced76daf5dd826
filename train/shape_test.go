package train

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"talf/data"
	"talf/model"
	"talf/train/mix"
)

// shapedData writes random sequences with trees of k nodes on each of depth levels, every node
// below a random one of the level above, and their labels.
func shapedData(t testing.TB, target *model.Model, k, depth int, labels data.LabelMode) *data.Set {
	t.Helper()
	spec := target.Spec()
	meta := data.Meta{
		Schema: data.SchemaVersion, Function: target.Function(), Tokenizer: "none", Hidden: spec.Hidden, Vocab: spec.Vocab,
		Branch: k, Depth: depth, Labels: labels, Features: data.None, Seed: 1, Source: "test",
	}
	if labels == data.TopK {
		meta.K = 4
	}
	dir := filepath.Join(t.TempDir(), "data")
	w, err := data.Create(dir, meta, data.Whole(), data.DefaultWriter())
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(uint64(k), uint64(depth)))
	for range 6 {
		rec := &data.Record{}
		for p := range 12 {
			rec.Tokens = append(rec.Tokens, int32(r.IntN(spec.Vocab)))
			rec.LossMask = append(rec.LossMask, p > 2 && r.IntN(3) > 0)
		}
		for p := range rec.Tokens {
			for j := range meta.Nodes() {
				parent, tok := int32(-1), rec.Tokens[p]
				if j > 0 {
					tok = int32(r.IntN(spec.Vocab))
					if level := (j-1)/k + 1; level > 1 {
						parent = int32(1 + (level-2)*k + r.IntN(k))
					} else {
						parent = 0
					}
				}
				rec.TreeTokens, rec.TreeParents = append(rec.TreeTokens, tok), append(rec.TreeParents, parent)
				perm := r.Perm(spec.Vocab)
				if labels == data.Full {
					row := make([]float32, spec.Vocab)
					row[perm[0]], row[perm[1]] = 0.75, 0.25
					rec.LabelFull = append(rec.LabelFull, row...)
					continue
				}
				for i := range 4 {
					rec.LabelIDs = append(rec.LabelIDs, int32(perm[i]))
					rec.LabelProbs = append(rec.LabelProbs, []float32{0.4, 0.3, 0.1, 0.1}[i])
				}
				rec.Tail = append(rec.Tail, 0.1)
			}
		}
		if err := w.Append(rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	set, err := data.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	return set
}

// For trees of any k and depth, the loss of every node is the cross-entropy of its own label and
// the head's prediction along only the node's path.
func TestTreesOfAnyShapeAreLearned(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	lm, err := target.HostLMHead()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		k, depth int
		labels   data.LabelMode
	}{{1, 1, data.TopK}, {1, 4, data.Full}, {2, 4, data.TopK}, {5, 2, data.Full}, {3, 5, data.TopK}} {
		t.Run(fmt.Sprintf("k=%d,depth=%d,%s", c.k, c.depth, c.labels), func(t *testing.T) {
			set := shapedData(t, target, c.k, c.depth, c.labels)
			h, tr, err := newHeadTask(tinyConfig(), HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			defer tr.store.Close()
			h.params.Init(4)
			if err := tr.beginStage(0); err != nil {
				t.Fatal(err)
			}
			s, err := h.source.Next()
			if err != nil {
				t.Fatal(err)
			}
			h.count = 1
			if err := h.pack(context.Background(), []mix.Sample{s}, 1, 0); err != nil {
				t.Fatal(err)
			}
			if err := h.graph.Run(context.Background()); err != nil {
				t.Fatal(err)
			}
			var got [][]float32
			for i := range h.terms {
				got = append(got, append([]float32(nil), h.terms[i].RowLoss()...))
			}
			if len(got) != c.depth {
				t.Fatalf("%d terms", len(got))
			}
			// Only the path: a chain of the node's tokens below its position, in the graph of
			// the evaluation, whose outputs are kept.
			eval := h.eval
			feat, err := h.features(context.Background(), s.Record, false)
			if err != nil {
				t.Fatal(err)
			}
			feat = append([]float32(nil), feat...)
			nodes, next := h.meta.Nodes(), make([]int, c.depth)
			for i := range mix.Span(s.Record, h.limit, 0) {
				if !s.LossMask[i+2] {
					next[0]++
					continue
				}
				for j := range nodes {
					tree := (i + 1) * nodes
					var path []int32
					for n := j; n > 0; n = int(s.TreeParents[tree+n]) {
						path = append([]int32{s.TreeTokens[tree+n]}, path...)
					}
					level := len(path)
					eval.batch.Reset()
					l0 := eval.batch.Head.Levels[0]
					for p := range i + 1 {
						l0.Add(s.Tokens[p+1], int32(p), 0)
					}
					eval.batch.Head.Feed(0, feat[:(i+1)*h.meta.Hidden])
					row := int32(i)
					for d, x := range path {
						row = eval.batch.Head.Levels[d+1].AddBelow(eval.batch.Head.Levels[d], row, x)
					}
					for d, l := range eval.batch.Head.Levels { // rows without labels
						b := eval.batch.Labels[d]
						for range l.Rows.N {
							if c.labels == data.Full {
								b.Full = append(b.Full, make([]float32, h.meta.Vocab)...)
							} else {
								b.IDs, b.Prob = append(b.IDs, 0, 1, 2, 3), append(b.Prob, 0, 0, 0, 0)
								b.Tail = append(b.Tail, 0)
							}
							eval.batch.Mask[d] = append(eval.batch.Mask[d], 0)
						}
						eval.terms[d].Set(eval.batch.Mask[d], 1)
					}
					if err := eval.graph.Run(context.Background()); err != nil {
						t.Fatal(err)
					}
					f := eval.batch.Head.Levels[level].Out.Data()[int(row)*h.meta.Hidden:][:h.meta.Hidden]
					z, sum := make([]float64, h.meta.Vocab), 0.0
					for v := range z {
						for k, x := range f {
							z[v] += float64(x) * float64(lm[v*h.meta.Hidden+k])
						}
						sum += math.Exp(z[v])
					}
					want, rest := 0.0, 1.0
					if c.labels == data.Full {
						for v, p := range s.LabelFull[(tree+j)*h.meta.Vocab:][:h.meta.Vocab] {
							want -= float64(p) * (z[v] - math.Log(sum))
						}
					} else {
						for k := range 4 {
							v := s.LabelIDs[(tree+j)*4+k]
							want -= float64(s.LabelProbs[(tree+j)*4+k]) * (z[v] - math.Log(sum))
							rest -= math.Exp(z[v]) / sum
						}
						want -= 0.1 * math.Log(rest)
					}
					if x := float64(got[level][next[level]]); math.Abs(x-want) > 1e-4*want {
						t.Fatalf("position %d, node %d on level %d: loss %v, want %v", i, j, level, x, want)
					}
					next[level]++
				}
			}
			for l := range got {
				if next[l] != len(got[l]) {
					t.Errorf("level %d: %d rows, want %d", l, len(got[l]), next[l])
				}
			}
		})
	}
}
