package model_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cpu/kern"
	"talf/model"
	"talf/model/arch"
	"talf/model/head"
	"talf/model/modeltest"
	"talf/model/safetensors"
	"talf/tree"
)

var nan, inf = float32(math.NaN()), float32(math.Inf(1))

// planted returns the tensors of a random model with one element of each named tensor replaced,
// or all of them if the place is negative.
func planted(c modeltest.Config, plants map[string]plant) *safetensors.Set {
	var all []safetensors.Tensor
	for _, t := range modeltest.Tensors(c.Spec(), false, 1) {
		if p, ok := plants[t.Name]; ok {
			x, err := t.Float32s()
			if err != nil {
				panic(err)
			}
			for i := range x {
				if p.at < 0 || i == p.at {
					x[i] = p.x
				}
			}
			t = safetensors.F32(t.Name, x, t.Shape...)
		}
		all = append(all, t)
	}
	return safetensors.Of("planted", all...)
}

type plant struct {
	at int
	x  float32
}

const (
	inputNorm1 = "model.layers.1.input_layernorm.weight"
	embedding  = "model.embed_tokens.weight"
	lmHead     = "lm_head.weight"
	down0      = "model.layers.0.mlp.down_proj.weight"
	finalNorm  = "model.norm.weight"
)

// mute hides a device's ability to check logits.
type mute struct{ compute.Device }

type muteQueue struct{ compute.Queue }

func (d mute) Queue() compute.Queue { return muteQueue{d.Device.Queue()} }

func (q muteQueue) Abilities() compute.Abilities {
	can := q.Queue.Abilities()
	can.Check = nil
	return can
}

// likeliest returns the log probability of the most likely token of each row, as devices compute it.
func likeliest(logits []float32, vocab int) (logp []float32) {
	for row := range slices.Chunk(logits, vocab) {
		most, sum := math.Inf(-1), 0.0
		for _, x := range row {
			if float64(x) > most {
				most = float64(x)
			}
		}
		for _, x := range row {
			sum += math.Exp(float64(x) - most)
		}
		logp = append(logp, float32(-math.Log(sum)))
	}
	return logp
}

// A pass over numbers that are not finite fails the segment that has them, with the layer and the
// weight that they come from, and no other segment of the batch.
func TestLogitsThatAreNotFiniteAreTracedToTheirSource(t *testing.T) {
	ctx := context.Background()
	c := modeltest.Default() // of two layers
	h := c.Hidden
	const bad = 42 // a token that only one of the sequences has
	cases := []struct {
		name   string
		plants map[string]plant
		all    bool // every segment fails
		layer  int
		says   []string
	}{
		{"a norm", map[string]plant{inputNorm1: {7, nan}}, true, 1, []string{"layer 1 ", inputNorm1, "element [7] is NaN"}},
		{"a projection", map[string]plant{down0: {5*c.FFN + 3, inf}}, true, 0, []string{"layer 0 ", down0, "element [5 3] is +Inf"}},
		{"an embedding", map[string]plant{embedding: {bad*h + 2, inf}}, false, -1, []string{"embedding of token 42 at position 1", "element [42 2] is +Inf"}},
		{"one logit", map[string]plant{lmHead: {13*h + 5, nan}}, true, 2, []string{"that of token 13 is NaN", "final norm or the LM head", lmHead, "element [13 5]"}},
		{"the final norm", map[string]plant{finalNorm: {-1, nan}}, true, 2, []string{"final norm or the LM head", finalNorm}},
		{"an overflow", map[string]plant{down0: {-1, 3e38}}, true, 0, []string{"layer 0 ", "all weights are finite"}},
	}
	opt := model.Default()
	opt.AllowNonFinite = true
	opt.MaxRows = 4 // several steps a pass
	for _, x := range cases {
		for _, hidden := range []bool{false, true} {
			cpu := device(t, kern.Best(), 2)
			dev := compute.Device(cpu)
			if hidden {
				dev = mute{cpu}
			}
			m := must[*model.Model](t)(model.New(c.Spec(), planted(c, x.plants), dev, opt))
			first, second := m.NewSeq(), m.NewSeq()
			broken, sound := chainOf([]int32{3, bad, 5}), chainOf([]int32{3, 4, 5, 6, 7})
			score := func(batch ...model.Segment) *model.Output {
				return must[*model.Output](t)(m.Forward(ctx, batch))
			}
			want := make([]float32, 5*c.Vocab)
			score(model.Segment{Rows: second.Branch(0), Tree: sound, Want: model.WantAll}).ReadLogits(want, 0)
			second.Close()

			second = m.NewSeq()
			out := score(
				model.Segment{Rows: first.Branch(0), Tree: broken, Want: model.WantLast},
				model.Segment{Rows: second.Branch(0), Tree: sound, Want: model.WantAll},
			)
			err := out.Err(0)
			var e *model.NonFiniteError
			if !errors.As(err, &e) {
				t.Fatalf("%s: error %v, want a NonFiniteError", x.name, err)
			}
			if e.Segment != 0 || e.Node != 2 || e.Layer != x.layer || (e.Weight == nil) != slices.Contains(x.says, "all weights are finite") {
				t.Errorf("%s: %+v, want node 2 of segment 0 and layer %d", x.name, e, x.layer)
			}
			for _, s := range x.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%s: error %q, want %q in it", x.name, err, s)
				}
			}
			if (out.Err(1) != nil) != x.all {
				t.Errorf("%s: the other segment: error %v", x.name, out.Err(1))
			}
			got := make([]float32, 5*c.Vocab) // the output outlives the search
			out.ReadLogits(got, 1)
			if err := sameBits(got, want); err != nil {
				t.Errorf("%s: the other segment: %v", x.name, err)
			}

			// A device that has read the likely tokens ahead finds the same.
			rows := make([]float32, 6*c.Vocab)
			out.ReadLogits(rows, 0)
			out.ReadAhead(likeliest(rows, c.Vocab))
			if (out.Err(0) == nil) || (out.Err(1) != nil) != x.all {
				t.Errorf("%s: errors %v and %v after likely tokens were read ahead", x.name, out.Err(0), out.Err(1))
			}

			// What has run stays, and a text fails in the same way.
			if _, err := m.NewSeq().Append(ctx, []int32{3, bad, 5}, nil, model.WantLast); !errors.As(err, &e) || e.Layer != x.layer {
				t.Errorf("%s: Append: error %v", x.name, err)
			}
		}
	}
}

// A row from which a token can be chosen is no error, whatever its numbers are: tokens of −Inf
// are impossible, and squares may overflow.
func TestExtremeLogitsAreNoError(t *testing.T) {
	c := modeltest.Default()
	for _, p := range []plant{{13*c.Hidden + 5, 1e30}, {13*c.Hidden + 5, -1e30}} {
		m := must[*model.Model](t)(model.New(c.Spec(), planted(c, map[string]plant{lmHead: p}), device(t, kern.Best(), 1), model.Default()))
		if _, err := m.NewSeq().Append(context.Background(), []int32{3, 4, 5}, nil, model.WantAll); err != nil {
			t.Errorf("%v: %v", p, err)
		}
	}
}

// A sequence that was full of NaN leaves nothing behind in the blocks that it gives back.
func TestBlocksOfABrokenSequenceAreUsedAgain(t *testing.T) {
	ctx := context.Background()
	c := modeltest.Default()
	set := planted(c, map[string]plant{embedding: {42*c.Hidden + 2, nan}})
	for _, kv := range []compute.DType{compute.F32, compute.BF16} {
		opt := model.Default()
		opt.AllowNonFinite, opt.KV = true, kv
		m := must[*model.Model](t)(model.New(c.Spec(), set, device(t, kern.Best(), 1), opt))
		prompt := []int32{3, 1, 4, 1, 5}
		scored := func() []float32 {
			s := m.NewSeq()
			defer s.Close()
			must[*model.Output](t)(s.Append(ctx, prompt, nil, model.WantNone))
			tr := tree.New(9, 8) // with siblings, so that slots are not one run
			for i := range 7 {
				tr.Add(i/2, int32(10+i))
			}
			out := must[*model.Output](t)(m.Forward(ctx, []model.Segment{{Rows: s.Branch(5), Tree: tr, Want: model.WantAll}}))
			if err := out.Err(0); err != nil {
				t.Fatalf("%v: %v", kv, err)
			}
			x := make([]float32, 8*c.Vocab)
			out.ReadLogits(x, 0)
			return x
		}
		want := scored()
		s := m.NewSeq()
		broken := slices.Repeat([]int32{42}, 3*compute.BlockLen)
		must[*model.Output](t)(s.Append(ctx, broken, nil, model.WantNone))
		s.Close()
		if err := sameBits(scored(), want); err != nil {
			t.Errorf("%v: after the blocks held NaN: %v", kv, err)
		}
	}
}

// Weights that are not finite, or too large for the type that they are kept in, are refused with
// their tensor and place, unless they are allowed. Heads are never refused, but say so.
func TestWeightsThatAreNotFiniteAreRefused(t *testing.T) {
	c := modeltest.Default()
	spec := c.Spec()
	dev := device(t, kern.Best(), 1)
	for _, x := range []struct {
		name  string
		plant plant
		as    compute.DType
		says  string
	}{
		{inputNorm1, plant{7, nan}, compute.F32, "element [7] is NaN"},
		{embedding, plant{42*c.Hidden + 2, -inf}, compute.F32, "element [42 2] is -Inf"},
		{lmHead, plant{0, inf}, compute.Q8, "element [0 0] is +Inf"},
		{down0, plant{1, 3.4e38}, compute.F32, ""},
		{down0, plant{1, 3.4e38}, compute.BF16, "want at most 3.39"},
		{down0, plant{1, 1e7}, compute.Q8, "want at most 8.31901e+06 in magnitude"},
		{down0, plant{1, 8e6}, compute.Q8, ""},
		{finalNorm, plant{1, 1e7}, compute.Q8, ""},
	} {
		set := planted(c, map[string]plant{x.name: x.plant})
		opt := model.Default()
		opt.DType = x.as
		m, err := model.New(spec, set, dev, opt)
		if x.says == "" {
			if err != nil || m.Flaw() != nil {
				t.Errorf("%s of %v as %v: %v, %v", x.name, x.plant.x, x.as, err, m.Flaw())
			}
			continue
		}
		var e *safetensors.ValueError
		if !errors.As(err, &e) || e.Tensor != x.name || !strings.Contains(err.Error(), x.says) {
			t.Errorf("%s of %v as %v: error %v, want %q", x.name, x.plant.x, x.as, err, x.says)
		}
		opt.Lazy = true
		m = must[*model.Model](t)(model.New(spec, set, dev, opt))
		if _, err := m.NewSeq().Append(context.Background(), []int32{1}, nil, model.WantNone); !errors.As(err, &e) {
			t.Errorf("%s, when it first runs: error %v", x.name, err)
		}
		opt.AllowNonFinite, opt.Lazy = true, false
		if m, err = model.New(spec, set, dev, opt); err != nil || m.Flaw() == nil {
			t.Errorf("%s, allowed: %v, flaw %v", x.name, err, m.Flaw())
		}
	}

	target := must[*model.Model](t)(model.New(spec, planted(c, nil), dev, model.Default()))
	draft := spec.DraftFor(true)
	tensors := modeltest.Tensors(draft, false, 1)
	sound := must[*head.Head](t)(head.FromTensors(draft, target, head.Default(), tensors...))
	for i := range tensors {
		if tensors[i].Name == draft.Weight(arch.Down, 0) {
			x := must[[]float32](t)(tensors[i].Float32s())
			x[3] = nan
			tensors[i] = safetensors.F32(tensors[i].Name, x, tensors[i].Shape...)
		}
	}
	broken := must[*head.Head](t)(head.FromTensors(draft, target, head.Default(), tensors...))
	if sound.Flaw() != nil || broken.Flaw() == nil {
		t.Errorf("flaws of heads: %v and %v, want none and one", sound.Flaw(), broken.Flaw())
	}
}
