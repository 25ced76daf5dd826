package model_test

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"talf/compute/cpu/kern"
	"talf/internal/golden"
	"talf/model"
	"talf/model/modeltest"
)

func TestScoreAgreesWithTransformers(t *testing.T) {
	dir := golden.Shared(t, "data/hf/llama-llama3rope")
	want := open(t, filepath.Join(dir, "golden.safetensors"))
	m := load(t, dir, device(t, kern.Best(), 2), model.Default())
	ids := ints(t, want, "input_ids")
	for _, name := range []string{"tree10", "tree30"} {
		// The fixture's root is a node; here it is the last id.
		parents, tokens := ints(t, want, name+"_parents"), ints(t, want, name+"_tokens")
		for i := range parents {
			parents[i]--
		}
		prefix := append(ints(t, want, name+"_prefix"), tokens[0])
		got, err := m.Score(context.Background(), prefix, parents[1:], tokens[1:])
		if err != nil {
			t.Fatal(err)
		}
		all := floats(t, want, name+"_logits")
		close32(t, name, got.Tree, all[m.Spec().Vocab:])
		close32(t, name+" root", got.Logits[len(got.Logits)-m.Spec().Vocab:], all[:m.Spec().Vocab])
	}
	got, err := m.Score(context.Background(), ids, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	close32(t, "logits", got.Logits, floats(t, want, "logits"))
	close32(t, "hidden", got.Hidden, floats(t, want, "hidden"))
}

func TestScoreOfLongTextsAndForests(t *testing.T) {
	c := modeltest.Default()
	c.MaxPos = 1200
	m := load(t, modeltest.Random(t, c, 1), device(t, kern.Best(), 2), model.Default())
	r := rand.New(rand.NewPCG(5, 5))
	ids := make([]int32, 1100) // more than one pass
	for i := range ids {
		ids[i] = r.Int32N(int32(c.Vocab))
	}
	got, err := m.Score(context.Background(), ids[:1090], []int32{-1, -1, 1}, []int32{7, ids[1090], ids[1091]})
	if err != nil {
		t.Fatal(err)
	}
	want, err := m.Score(context.Background(), ids[:1092], nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sameBits(got.Logits, want.Logits[:len(got.Logits)]); err != nil {
		t.Error(err)
	}
	if err := sameBits(got.Tree[c.Vocab:], want.Logits[len(got.Logits):]); err != nil {
		t.Error(err)
	}
	for _, bad := range []struct {
		ids, parents, tokens []int32
		want                 string
	}{
		{nil, nil, nil, "ids"},
		{ids[:3], []int32{-1}, nil, "tree.parents"},
		{ids[:3], []int32{0}, []int32{1}, "tree.parents[0]"},
		{ids[:3], []int32{-2}, []int32{1}, "tree.parents[0]"},
		{ids[:3], make([]int32, 1024), make([]int32, 1024), "at most 1023"},
		{[]int32{-1}, nil, nil, "token -1"},
	} {
		if _, err := m.Score(context.Background(), bad.ids, bad.parents, bad.tokens); err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%v: error %v, want %q", bad.parents, err, bad.want)
		}
	}
	if used, _ := m.KVBlocks(); used != 0 {
		t.Errorf("%d blocks in use", used)
	}
}
