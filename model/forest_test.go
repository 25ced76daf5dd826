package model_test

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"talf/compute/cpu/kern"
	"talf/internal/golden"
	"talf/model"
	"talf/model/modeltest"
	"talf/tree"
)

// scores runs ids, then a forest below the last of them: node i follows node
// parents[i], or the last id if parents[i] is −1. It returns the logits and hidden
// states after each id, and the logits of the nodes.
func scores(t *testing.T, m *model.Model, ids, parents, tokens []int32) (logits, hidden, forest []float32) {
	t.Helper()
	ctx := context.Background()
	v, h := m.Spec().Vocab, m.Spec().Hidden
	logits, hidden = make([]float32, len(ids)*v), make([]float32, len(ids)*h)
	s := m.NewSeq()
	defer s.Close()
	for at := 0; at < len(ids); {
		n := min(tree.MaxNodes, len(ids)-at)
		o := must[*model.Output](t)(s.Append(ctx, ids[at:at+n], nil, model.WantAll))
		o.ReadLogits(logits[at*v:(at+n)*v], 0)
		o.ReadHidden(hidden[at*h:(at+n)*h], 0)
		at += n
	}
	if len(tokens) == 0 {
		return logits, hidden, nil
	}
	tr := tree.New(ids[len(ids)-1], len(tokens)+1)
	for i, p := range parents {
		tr.Add(int(p)+1, tokens[i])
	}
	o := must[*model.Output](t)(m.Forward(ctx, []model.Segment{{Rows: s.BranchLast(), Tree: tr, From: 1, Want: model.WantAll}}))
	forest = make([]float32, len(tokens)*v)
	o.ReadLogits(forest, 0)
	return logits, hidden, forest
}

func TestForestsBelowTheLastTokenAgreeWithTransformers(t *testing.T) {
	dir := golden.File(t, "hf/llama-llama3rope")
	want := open(t, filepath.Join(dir, "golden.safetensors"))
	m := load(t, dir, device(t, kern.Best(), 2), model.Default())
	ids := ints(t, want, "input_ids")
	for _, name := range []string{"tree10", "tree30"} {
		// In the fixture the root is a node; here it is the last id.
		parents, tokens := ints(t, want, name+"_parents"), ints(t, want, name+"_tokens")
		for i := range parents {
			parents[i]--
		}
		prefix := append(ints(t, want, name+"_prefix"), tokens[0])
		logits, _, forest := scores(t, m, prefix, parents[1:], tokens[1:])
		all := floats(t, want, name+"_logits")
		close32(t, name, forest, all[m.Spec().Vocab:])
		close32(t, name+" root", logits[len(logits)-m.Spec().Vocab:], all[:m.Spec().Vocab])
	}
	logits, hidden, _ := scores(t, m, ids, nil, nil)
	close32(t, "logits", logits, floats(t, want, "logits"))
	close32(t, "hidden", hidden, floats(t, want, "hidden"))
}

func TestLongTextsAndForests(t *testing.T) {
	c := modeltest.Default()
	c.MaxPos = 1200
	m := load(t, modeltest.Random(t, c, 1), device(t, kern.Best(), 2), model.Default())
	r := rand.New(rand.NewPCG(5, 5))
	ids := make([]int32, 1100) // more than one pass
	for i := range ids {
		ids[i] = r.Int32N(int32(c.Vocab))
	}
	got, _, forest := scores(t, m, ids[:1090], []int32{-1, -1, 1}, []int32{7, ids[1090], ids[1091]})
	want, _, _ := scores(t, m, ids[:1092], nil, nil)
	if err := sameBits(got, want[:len(got)]); err != nil {
		t.Error(err)
	}
	if err := sameBits(forest[c.Vocab:], want[len(got):]); err != nil {
		t.Error(err)
	}
	if used := m.KV().Used; used != 0 {
		t.Errorf("%d blocks in use", used)
	}
}
