package train

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/checkpoints"
	"talf/data"
	"talf/model/head"
	"talf/model/safetensors"
	"talf/train/loss"
	"talf/train/mix"
)

// everySecond is a draft vocabulary of half of the tiny target's tokens.
func everySecond() (ids []int32) {
	for id := int32(1); id < 40; id += 2 {
		ids = append(ids, id)
	}
	return ids
}

// trained returns the head's own tensors in a checkpoint, by name.
func trained(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	set, err := safetensors.Open(filepath.Join(dir, checkpoints.WeightsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	out := map[string][]byte{}
	for _, name := range set.Names() {
		x, _ := set.Tensor(name)
		out[name] = bytes.Clone(x.Data)
	}
	return out
}

// The vocabulary of all tokens gives the same bits as none, whatever the loss and the labels,
// and the same evaluation.
func TestTheVocabularyOfAllTokensIsNone(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 30, data.BF16)
	var every []int32
	for id := range int32(40) {
		every = append(every, id)
	}
	for _, l := range []string{"eagle", "hass:top=3", "talf", "talf:outside=renorm", "eagle:outside=mask,labels=ignore"} {
		cfg := tinyConfig()
		cfg.Loss, cfg.Steps = l, 3
		none, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		all, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir(), Vocab: every})
		if err != nil {
			t.Fatal(err)
		}
		a, b := trained(t, none.Dir), trained(t, all.Dir)
		if len(b) != len(a)+2 || b["d2t"] == nil || b["t2d"] == nil {
			t.Errorf("%s: %d tensors, without a vocabulary %d", l, len(b), len(a))
		}
		for name := range a {
			if !bytes.Equal(a[name], b[name]) {
				t.Errorf("%s: %s differs", l, name)
			}
		}
		for i := range all.Eval.Levels {
			if all.Eval.Levels[i].Covered != 1 {
				t.Errorf("%s: level %d covers %v", l, i, all.Eval.Levels[i].Covered)
			}
			all.Eval.Levels[i].Covered = 0
		}
		if all.Eval.Loss != none.Eval.Loss || all.Eval.Tau != none.Eval.Tau || !slices.Equal(all.Eval.Levels, none.Eval.Levels) {
			t.Errorf("%s: evaluation %+v, without %+v", l, all.Eval, none.Eval)
		}
	}
}

// Gradients through the draft vocabulary equal central differences of the loss.
func TestGradientsOverADraftVocabulary(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 20, data.BF16)
	for _, l := range []string{"eagle:w_reg=0", "hass:top=2,feed=flow,w_reg=0,outside=renorm", "talf", "talf:outside=renorm,labels=ignore", "talf:outside=mask"} {
		cfg := tinyConfig()
		cfg.Loss, cfg.Accum = l, 1
		h, tr := entered(t, cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir(), Vocab: everySecond()})
		if _, _, err := h.readStep(); err != nil {
			t.Fatal(err)
		}
		// value sums the rows in float64: the graph's own sum is float32.
		value := func() float64 {
			if err := h.fill(context.Background(), 0, 1); err != nil {
				t.Fatal(err)
			}
			if err := h.graph.Run(context.Background()); err != nil {
				t.Fatal(err)
			}
			sum := 0.0
			for i := range h.terms {
				x := &h.terms[i]
				for r, y := range x.RowLoss() {
					sum += float64(x.Weight) * float64(h.batch.Mask[x.Level][r]) / float64(h.count) * float64(y)
				}
			}
			return sum
		}
		value()
		r := rand.New(rand.NewPCG(7, 8))
		tensors := h.params.Tensors()
		var dirs [][]float32
		want := 0.0
		for i, n := range tr.nodes {
			g := n.Grad()
			d := make([]float32, len(tensors[i].Data))
			for j := range d {
				d[j] = g[j] + float32(r.NormFloat64()*0.02)
				want += float64(d[j]) * float64(g[j])
			}
			dirs = append(dirs, d)
		}
		const eps = 4e-3
		at := func(s float32) float64 {
			for i, d := range dirs {
				for j := range d {
					tensors[i].Data[j] += s * d[j]
				}
			}
			return value()
		}
		up := at(eps)
		down := at(-2 * eps)
		if got := (up - down) / (2 * eps); want == 0 || math.Abs(got-want) > 1e-2*math.Abs(want) {
			t.Errorf("%s: differences give %v, the gradient %v", l, got, want)
		}
	}
}

// The head is fed only tokens that it can draft: a pass of HASS takes x_{i+1} at position i, a
// node its own token, and neither has a row if that token, or an earlier one on the path, is
// outside the draft vocabulary.
func TestRowsAreFedTokensOfTheDraftVocabulary(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 20, data.BF16)
	for _, l := range []string{"hass:top=2", "talf"} {
		cfg := tinyConfig()
		cfg.Loss, cfg.Accum = l, 1
		h, _ := entered(t, cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir(), Vocab: everySecond()})
		if _, _, err := h.readStep(); err != nil {
			t.Fatal(err)
		}
		if err := h.fill(context.Background(), 0, 1); err != nil {
			t.Fatal(err)
		}
		in := func(id int32) bool { return slices.Contains(everySecond(), id) }
		levels, nodes := h.batch.Head.Levels, h.meta.Nodes()
		want := make([][]int32, len(levels)) // tokens of the rows
		left := 0
		for _, rec := range h.micro[0] {
			r := rec.Record
			n := mix.Span(r, h.limit, 0)
			if l == "talf" {
				for i := range n {
					want[0] = append(want[0], r.Tokens[i+1])
					depth, fed := make([]int, nodes), make([]bool, nodes)
					fed[0] = true
					for j := 1; j < nodes && r.LossMask[i+2]; j++ {
						at := (i+1)*nodes + j
						up := r.TreeParents[at]
						depth[j], fed[j] = depth[up]+1, fed[up] && in(r.TreeTokens[at])
						if fed[j] {
							want[depth[j]] = append(want[depth[j]], r.TreeTokens[at])
						} else {
							left++
						}
					}
				}
				continue
			}
			fed := make([][]bool, len(levels))
			for l := range levels {
				fed[l] = make([]bool, n)
				for i := l; i < n; i++ {
					counts := l == 0 // or a position that counts is reached from here
					for j := i; j < n && j-i < len(levels)-l; j++ {
						counts = counts || r.LossMask[j+2]
					}
					if !counts {
						continue
					}
					if fed[l][i] = l == 0 || fed[l-1][i-1] && in(r.Tokens[i+1]); fed[l][i] {
						want[l] = append(want[l], r.Tokens[i+1])
					} else {
						left++
					}
				}
			}
		}
		if left == 0 || len(want[1]) == 0 {
			t.Fatalf("%s: %d rows left out of %d on level 1: nothing is tested", l, left, len(want[1]))
		}
		for i, lv := range levels {
			if !slices.Equal(lv.IDs, want[i]) {
				t.Errorf("%s, level %d: rows take %v, want %v", l, i, lv.IDs, want[i])
			}
		}
	}
}

// A run with a draft vocabulary stops and continues with the same bits, loads for its target,
// and cannot be continued with another vocabulary.
func TestARunWithADraftVocabularyContinues(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 30, data.None)
	cfg := tinyConfig()
	cfg.SaveEvery = 0
	job := HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir(), Vocab: everySecond()}
	whole, err := Head(context.Background(), cfg, job)
	if err != nil {
		t.Fatal(err)
	}
	if l := whole.Eval.Levels[0]; l.Covered < 0.3 || l.Covered > 0.7 || whole.Eval.Levels[1].Rows >= 4*l.Rows {
		t.Errorf("half of random labels, and branches below them: %+v", whole.Eval.Levels)
	}
	for _, stop := range []int{1, 4} {
		again := job
		again.Out = t.TempDir()
		ctx, report := stopAfter(stop)
		again.Report = report
		if _, err := Head(ctx, cfg, again); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		again.Report = nil
		res, err := Head(context.Background(), cfg, again)
		if err != nil {
			t.Fatal(err)
		}
		sameFiles(t, "after a stop", files(t, whole.Dir), files(t, res.Dir))
	}
	m, err := checkpoints.ReadManifest(whole.Dir)
	if err != nil || m.DraftVocab != 20 {
		t.Errorf("the manifest says %d tokens, %v", m.DraftVocab, err)
	}
	h, err := checkpoints.LoadHead(job.Out, target, head.Default())
	if err != nil {
		t.Fatal(err)
	}
	if h.Outputs() != 20 || !slices.Equal(h.DraftVocab(), everySecond()) {
		t.Errorf("it loads with %d tokens, %v", h.Outputs(), h.DraftVocab())
	}
	for _, other := range [][]int32{nil, everySecond()[1:]} {
		bad := job
		bad.Vocab = other
		if _, err := Head(context.Background(), cfg, bad); err == nil || !strings.Contains(err.Error(), "draft_vocab") {
			t.Errorf("continued with another vocabulary: %v", err)
		}
	}
	// A head that predicts other tokens can start from its weights.
	from := job
	from.Out, from.Init, from.Vocab = t.TempDir(), job.Out, nil
	if _, err := Head(context.Background(), cfg, from); err != nil {
		t.Errorf("begun with it: %v", err)
	}
}

func TestDraftVocabulariesThatNoHeadCanHaveAreRefused(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 20, data.None)
	for name, c := range map[string]struct {
		ids  []int32
		loss string
		want string
	}{
		"beyond the target's":  {[]int32{1, 2, 3, 40}, "talf", "want 0 to 39"},
		"twice":                {[]int32{1, 2, 2, 3}, "talf", "want ascending"},
		"fewer than branches":  {[]int32{1, 2, 3}, "talf", "at least the 4"},
		"none":                 {[]int32{}, "talf", "no tokens"},
		"an unknown treatment": {everySecond(), "talf:outside=keep", "want drop, renorm or mask"},
	} {
		cfg := tinyConfig()
		cfg.Loss = c.loss
		if _, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir(), Vocab: c.ids}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", name, err, c.want)
		}
	}
	full, err := loss.Parse("talf:temp=2")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := full.Plan(loss.Labelling{Depth: 3, DraftVocab: 20}); err == nil || !strings.Contains(err.Error(), "outside=renorm") {
		t.Errorf("tempered and dropped: %v", err)
	}
}

// Evaluations find the likeliest of the vocabulary's tokens, as the target's ids.
func TestAnEvaluationSpeaksOfTheTargetsTokens(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 20, data.None)
	h, tr, err := newHeadTask(tinyConfig(), HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir(), Vocab: everySecond()})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.store.Close()
	lm, err := target.HostLMHead()
	if err != nil {
		t.Fatal(err)
	}
	const rows, hid = 70, 16
	r := rand.New(rand.NewPCG(3, 4))
	x := make([]float32, rows*hid)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	k := h.eval.score.k
	top, err := h.eval.score.append(t.Context(), nil, x)
	if err != nil {
		t.Fatal(err)
	}
	h.vocab.Target(top)
	for i := range rows {
		z := func(id int32) (sum float64) {
			for j := range hid {
				sum += float64(x[i*hid+j]) * float64(lm[int(id)*hid+j])
			}
			return sum
		}
		want := everySecond()
		slices.SortFunc(want, func(a, b int32) int { return cmp.Compare(z(b), z(a)) })
		if got := top[i*k : (i+1)*k]; !slices.Equal(got, want[:k]) {
			t.Errorf("row %d: %v, want %v", i, got, want[:k])
		}
	}
}
