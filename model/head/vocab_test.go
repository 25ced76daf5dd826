package head_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"talf/model"
	"talf/model/draftvocab"
	"talf/model/head"
	"talf/model/identity"
	"talf/model/modeltest"
	"talf/model/safetensors"
)

// logitsOf returns the logits, the most likely tokens and their log-probabilities for a
// fixed input.
func logitsOf(t testing.TB, h *head.Head, m *model.Model, k int) (logits []float32, ids []int32, logp []float32) {
	t.Helper()
	ctx := context.Background()
	text := []int32{1, 5, 9, 13, 2, 60}
	s, hs := m.NewSeq(), h.NewSeq()
	defer s.Close()
	defer hs.Close()
	o, err := s.Append(ctx, text, nil, model.WantNone)
	if err != nil {
		t.Fatal(err)
	}
	var in []model.Feature
	for i := range len(text) - 1 {
		in = append(in, o.Feature(0, i))
	}
	p, err := hs.Append(ctx, text[1:], in, model.WantAll)
	if err != nil {
		t.Fatal(err)
	}
	n := len(in)
	logits, ids, logp = make([]float32, n*h.Spec().Vocab), make([]int32, n*k), make([]float32, n*k)
	p.ReadLogits(logits, 0)
	p.TopK(ids, logp, 0, n, k)
	// A single row reads the same as within a block.
	one, oneIDs, oneLogp := make([]float32, h.Spec().Vocab), make([]int32, k), make([]float32, k)
	p.ReadLogits(one, 2)
	p.TopK(oneIDs, oneLogp, 2, 1, k)
	if !slices.Equal(one, logits[2*len(one):3*len(one)]) || !slices.Equal(oneIDs, ids[2*k:3*k]) || !slices.Equal(oneLogp, logp[2*k:3*k]) {
		t.Error("a row read alone differs")
	}
	return logits, ids, logp
}

// A draft vocabulary leaves the logits of its tokens unchanged bit by bit and excludes
// the others. A draft vocabulary of all tokens changes nothing.
func TestADraftVocabularyRestrictsTheHead(t *testing.T) {
	for _, tied := range []bool{false, true} {
		c := modeltest.Default()
		c.Tied = tied
		m, err := model.Load(modeltest.Random(t, c, 1), device(t), model.Default())
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		spec := m.Spec().DraftFor(false)
		tensors := modeltest.Tensors(spec, false, 4)[1:]
		whole, err := head.FromTensors(spec, m, head.Default(), tensors...)
		if err != nil {
			t.Fatal(err)
		}
		const k = 4
		want, _, _ := logitsOf(t, whole, m, k)
		var every []int32
		for id := range int32(c.Vocab) {
			every = append(every, id)
		}
		for _, ids := range [][]int32{{0, 3, 4, 17, 40, 41, 70, 96}, {5, 6, 7, 8, 9}, every} {
			s := *spec
			s.DraftVocab = len(ids)
			dir := t.TempDir()
			if err := head.Write(t.Context(), dir, &s, identity.Tie{}, append(draftvocab.Tensors(ids, c.Vocab), tensors...)...); err != nil {
				t.Fatal(err)
			}
			h, err := head.Load(dir, m, head.Default())
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			if h.Outputs() != len(ids) || h.Spec().DraftVocab != len(ids) || !slices.Equal(h.DraftVocab(), ids) {
				t.Fatalf("a vocabulary of %d, %d and %v, want %v", h.Outputs(), h.Spec().DraftVocab, h.DraftVocab(), ids)
			}
			got, top, logp := logitsOf(t, h, m, k)
			v := c.Vocab
			for i, x := range got {
				w := float32(math.Inf(-1))
				if slices.Contains(ids, int32(i%v)) {
					w = want[i]
				}
				if math.Float32bits(x) != math.Float32bits(w) {
					t.Fatalf("row %d, token %d: %v, want %v", i/v, i%v, x, w)
				}
			}
			for r := range len(got) / v {
				row := got[r*v : (r+1)*v]
				order := slices.Clone(every)
				slices.SortStableFunc(order, func(a, b int32) int {
					if row[a] == row[b] {
						return 0
					} else if row[a] > row[b] {
						return -1
					}
					return 1
				})
				if !slices.Equal(top[r*k:(r+1)*k], order[:k]) {
					t.Errorf("row %d: likeliest %v, want %v", r, top[r*k:(r+1)*k], order[:k])
				}
				sum := 0.0
				for _, x := range row {
					sum += math.Exp(float64(x))
				}
				for i, id := range order[:k] {
					if w := float64(row[id]) - math.Log(sum); math.Abs(float64(logp[r*k+i])-w) > 1e-5 {
						t.Errorf("row %d, token %d: log-probability %v, want %v", r, id, logp[r*k+i], w)
					}
				}
			}
			if len(ids) == v {
				_, a, b := logitsOf(t, whole, m, k)
				if !slices.Equal(a, top) || !slices.Equal(b, logp) {
					t.Error("the vocabulary of all tokens differs from no vocabulary")
				}
			}
		}
	}
}

func TestMismatchedDraftVocabulariesAreRefused(t *testing.T) {
	m, spec := random(t, 1)
	tensors := modeltest.Tensors(spec, false, 4)[1:]
	v := spec.Vocab
	with := func(size int, change func(d2t, t2d *safetensors.Tensor), ids ...int32) error {
		s := *spec
		s.DraftVocab = size
		x := draftvocab.Tensors(ids, v)
		if change != nil {
			change(&x[0], &x[1])
		}
		_, err := head.FromTensors(&s, m, head.Default(), append(x, tensors...)...)
		return err
	}
	if err := with(2, nil, 4, 9); err != nil {
		t.Fatalf("the valid one: %v", err)
	}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"another size":     {with(3, nil, 4, 9), "draft_vocab_size"},
		"beyond the vocab": {with(2, func(d, _ *safetensors.Tensor) { d.Data[8] = 200 }, 4, 9), "want 0 to 96"},
		"before it":        {with(2, func(d, _ *safetensors.Tensor) { d.Data[7] = 0xff }, 4, 9), "want"},
		"a token twice":    {with(2, func(d, _ *safetensors.Tensor) { d.Data[8] = 3 }, 4, 9), "want ascending"},
		"t2d disagrees":    {with(2, func(_, d *safetensors.Tensor) { d.Data[5] = 1 }, 4, 9), "differ at token 5"},
		"t2d of another":   {with(2, func(_, d *safetensors.Tensor) { d.Data, d.Shape = d.Data[:50], []int{50} }, 4, 9), "want BOOL [97]"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", name, c.err, c.want)
		}
	}
	s := *spec
	s.DraftVocab = 5
	if _, err := head.FromTensors(&s, m, head.Default(), tensors...); err == nil || !strings.Contains(err.Error(), `no tensor "d2t"`) {
		t.Errorf("without d2t: %v", err)
	}
	if err := head.Write(t.Context(), t.TempDir(), &s, identity.Tie{}, tensors...); err == nil || !strings.Contains(err.Error(), `no tensor "d2t"`) {
		t.Errorf("written without d2t: %v", err)
	}
	if err := head.Write(t.Context(), t.TempDir(), spec, identity.Tie{}, append(draftvocab.Tensors([]int32{1}, v), tensors...)...); err == nil || !strings.Contains(err.Error(), "draft_vocab_size is 0") {
		t.Errorf("written although the configuration has none: %v", err)
	}
}

// A lazily loaded model has the same bits as any other, and refuses bad weights before
// it runs.
func TestALazyModelEqualsAnyOther(t *testing.T) {
	dir := modeltest.Random(t, modeltest.Default(), 1)
	opt := model.Default()
	opt.Lazy = true
	lazy, err := model.Load(dir, device(t), opt)
	if err != nil {
		t.Fatal(err)
	}
	defer lazy.Close()
	eager, err := model.Load(dir, device(t), model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer eager.Close()
	spec := eager.Spec().DraftFor(false)
	tensors := modeltest.Tensors(spec, false, 4)[1:]
	var all [2][]float32
	for i, m := range []*model.Model{lazy, eager} {
		h, err := head.FromTensors(spec, m, head.Default(), tensors...)
		if err != nil {
			t.Fatal(err)
		}
		all[i] = draft(t, h, m)
	}
	if !slices.Equal(all[0], all[1]) {
		t.Error("other bits")
	}
	short := *eager.Spec()
	short.Layers++
	if _, err := model.New(&short, eager.Tensors(), device(t), opt); err == nil || !strings.Contains(err.Error(), "no tensor") {
		t.Errorf("a model without a layer: %v", err)
	}
}
