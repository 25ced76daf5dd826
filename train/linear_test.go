package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"talf/data"
	"talf/model"
	"talf/model/arch"
	"talf/model/safetensors"
	"talf/train/mix"
)

// A linear start solves the normal equations of its regression, (Σ z·zᵀ + λ·diag)·mapᵀ = Σ z·fᵀ, over the text to learn,
// for each row of a linear block; what an EAGLE head's layers add is zero, on every level of a tree, and it learns from there.
func TestALinearStartPredictsBest(t *testing.T) {
	target := tinyTarget(t, device(t, 2))
	for _, c := range []struct {
		network, loss string
		features      data.FeatureMode
		maps          []string
		zero          []string
	}{
		{"eagle", "hass:top=3", data.BF16, []string{"fc.weight"}, []string{"layers.0.self_attn.o_proj.weight", "layers.1.mlp.down_proj.weight"}},
		{"block:size=3,linear=on,taps=0+2", "dflash", data.None, []string{"rows.0.weight", "rows.1.weight", "rows.2.weight"}, nil},
	} {
		set := tinyData(t, target, 40, c.features)
		cfg := tinyConfig()
		cfg.Network, cfg.Loss, cfg.Layers, cfg.Held = c.network, c.loss, 2, 0
		h, _ := entered(t, cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir(), Linear: true})
		weights := map[string][]float32{}
		for _, a := range h.params.Export(nil) {
			weights[a.Name] = a.Data
		}
		for row, name := range c.maps {
			if worst := ridgeSlope(t, h, set, row, len(c.maps), weights[name]); worst > 1e-5 {
				t.Errorf("%s: the derivative of the ridge regression is %g of the largest product, want 0", name, worst)
			}
		}
		for _, name := range c.zero {
			if slices.ContainsFunc(weights[name], func(v float32) bool { return v != 0 }) || weights[name] == nil {
				t.Errorf("%s is not 0", name)
			}
		}
	}
}

// ridgeSlope returns the largest derivative of the ridge regression by the map [Hidden][2·Hidden] of a row, over the largest
// product of what it reads and what it is to give.
func ridgeSlope(t *testing.T, h *headTask, set *data.Set, row, rows int, weights []float32) float64 {
	w := h.spec.Hidden
	embed, err := h.job.Target.HostEmbed()
	if err != nil {
		t.Fatal(err)
	}
	gradient, cross, power := make([]float64, w*2*w), make([]float64, w*2*w), make([]float64, 2*w)
	r, err := set.Sequential(data.Split{Part: data.All})
	if err != nil {
		t.Fatal(err)
	}
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		f, err := h.features(t.Context(), rec, false)
		if err != nil {
			t.Fatal(err)
		}
		if h.spec.Block.On { // the last tap under the target's final norm
			norm, err := h.finalNorm()
			if err != nil {
				t.Fatal(err)
			}
			f = lastNormed(f, h.spec, norm)
		}
		for i := range len(rec.Tokens) - rows {
			z := append(append([]float32(nil), embed[int(rec.Tokens[i+1])*w:][:w]...), f[i*w:(i+1)*w]...)
			for j, x := range z {
				power[j] += float64(x) * float64(x)
			}
			for o := range w {
				got := 0.0
				for j, x := range z {
					got += float64(weights[o*2*w+j]) * float64(x)
				}
				want := float64(f[(i+1+row)*w+o])
				for j, x := range z {
					gradient[o*2*w+j] += (got - want) * float64(x)
					cross[o*2*w+j] += want * float64(x)
				}
			}
		}
	}
	largest, worst := 0.0, 0.0
	for i := range gradient {
		gradient[i] += linearRidge * power[i%(2*w)] * float64(weights[i])
		largest, worst = max(largest, math.Abs(cross[i])), max(worst, math.Abs(gradient[i]))
	}
	return worst / largest
}

// With a Markov head, rows solve their regressions of what it leaves, and what it adds solves its own of what the rows
// leave: nothing that either could say is left if its rank allows all. A smaller one keeps what predicts most.
func TestALinearStartWithAMarkovHeadPredictsBest(t *testing.T) {
	const w, ahead, n = 3, 3, 400
	r := rand.New(rand.NewPCG(3, 4))
	draw := func() (x [w]float64) {
		for i := range x {
			x[i] = r.NormFloat64()
		}
		return x
	}
	type sample struct {
		z    [2 * w]float64
		m, y [ahead][w]float64
	}
	var all []sample
	for range n {
		var s sample
		f := draw()
		copy(s.z[w:], f[:])
		for k := range ahead {
			s.m[k] = draw()
			for i := range w {
				s.m[k][i] += 0.5 * f[i]
				s.y[k][i] = f[(i+k)%w] + []float64{2, 1, 0.2}[i]*s.m[k][(i+1)%w] + 0.3*r.NormFloat64()
			}
		}
		copy(s.z[:w], s.m[0][:])
		all = append(all, s)
	}
	left := func(rank int) (left float64) {
		cols := (2 + 2*ahead - 1) * w
		s := &regression{w: w, ahead: ahead, by: &gram{in: 2 * w, cols: cols, sums: make([]float64, 2*w*cols)}, pair: &gram{in: w, cols: 2 * w, sums: make([]float64, w*2*w)}}
		sum := func(g *gram, row []float64) {
			for i := range g.in {
				for j, x := range row {
					g.sums[i*g.cols+j] += row[i] * x
				}
			}
		}
		for i := range all {
			x := &all[i]
			row := slices.Concat(x.z[:], x.y[0][:], x.y[1][:], x.y[2][:], x.m[1][:], x.m[2][:])
			sum(s.by, row)
			for k := 1; k < ahead; k++ {
				sum(s.pair, slices.Concat(x.m[k][:], x.y[k][:]))
			}
		}
		h := s.solve(rank)
		if h == nil {
			t.Fatal("no solution")
		}
		if _, got := h.in.Dims(); got != rank {
			t.Fatalf("rank %d, want %d", got, rank)
		}
		var byZ [ahead][2 * w][w]float64
		var byM [w][w]float64
		for i := range all {
			x := &all[i]
			for k := range ahead {
				for o := range w {
					d := x.y[k][o]
					for j := range 2 * w {
						d -= x.z[j] * h.rows[k].At(j, o)
					}
					for j := range w {
						for e := range rank {
							d -= x.m[k][j] * h.in.At(j, e) * h.out.At(o, e)
						}
					}
					left += d * d / n
					for j := range 2 * w {
						byZ[k][j][o] += d * x.z[j] / n
					}
					for j := range w {
						byM[j][o] += d * x.m[k][j] / n * float64(min(k, 1))
					}
				}
			}
		}
		for k := range ahead {
			for j := range 2 * w {
				for o := range w {
					if x := byZ[k][j][o]; math.Abs(x) > 0.05 || rank == w && math.Abs(byM[j%w][o]) > 0.05 {
						t.Errorf("rank %d, row %d: what is left goes with z[%d] by %g, with m by %g, want about 0", rank, k, j, x, byM[j%w][o])
					}
				}
			}
		}
		return left
	}
	if three, two, one := left(3), left(2), left(1); !(three < two && two < one) || three > 1.1*0.09*w*ahead {
		t.Errorf("left: %g, %g, %g by rank 3, 2 and 1", three, two, one)
	}
}

// A Markov head of more elements than there are hidden ones starts as one of as many: the rest add nothing.
func TestALinearStartFillsAMarkovHeadOfAnyRank(t *testing.T) {
	target := tinyTarget(t, device(t, 2))
	set := tinyData(t, target, 40, data.None)
	adds := func(rank int) []float64 {
		cfg := tinyConfig()
		cfg.Network, cfg.Loss, cfg.Held = fmt.Sprintf("block:size=3,linear=on,markov=vanilla,rank=%d", rank), "dflash", 0
		h, _ := entered(t, cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir(), Linear: true})
		weights := map[string][]float32{}
		for _, a := range h.params.Export(nil) {
			weights[a.Name] = a.Data
		}
		in, out, v := weights["markov_head.markov_w1.weight"], weights["markov_head.markov_w2.weight"], h.spec.Vocab
		var sums []float64
		for i := range v * v {
			sum := 0.0
			for j := range rank {
				sum += float64(in[i/v*rank+j]) * float64(out[i%v*rank+j])
			}
			sums = append(sums, sum)
		}
		return sums
	}
	w := target.Spec().Hidden
	full, more := adds(w), adds(w+3)
	largest := 0.0
	for i, x := range full {
		largest = max(largest, math.Abs(x))
		if math.Abs(x-more[i]) > 1e-5 {
			t.Fatalf("logit %d is %g with rank %d, %g with %d", i, x, w, more[i], w+3)
		}
	}
	if largest == 0 {
		t.Error("the Markov head adds nothing")
	}
}

// Of two runs of a few steps, that which starts as a linear prediction ends with the smaller loss on text held out.
func TestALinearStartHelps(t *testing.T) {
	target := tinyTarget(t, device(t, 2))
	set := tinyData(t, target, 60, data.BF16)
	var loss [2]float64
	for i, linear := range []bool{false, true} {
		cfg := tinyConfig()
		cfg.Loss, cfg.LR = "hass:top=3", 1e-4
		res, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir(), Linear: linear})
		if err != nil {
			t.Fatal(err)
		}
		loss[i] = res.Eval.Loss
	}
	if loss[1] >= loss[0] {
		t.Errorf("loss %.3f after a linear start, %.3f after a random one", loss[1], loss[0])
	}
}

func TestALinearStartExcludesAnotherHead(t *testing.T) {
	target := tinyTarget(t, device(t, 1))
	job := HeadJob{Target: target, Data: mix.Only(tinyData(t, target, 4, data.BF16)), Out: t.TempDir(), Linear: true, Init: "heads/eagle"}
	if _, err := Head(t.Context(), tinyConfig(), job); err == nil || !strings.Contains(err.Error(), "a linear start and the initial head heads/eagle") {
		t.Errorf("%v", err)
	}
}

// Of an input that is always zero the weight is zero, and of states that are not finite there is no linear start.
func TestRegressionsWithoutASolution(t *testing.T) {
	sums := []float64{4, 0, 2, 0, 0, 0} // w = 1: Σ z·[z, f'] for z = [2, 0] and f' = 1
	if fc := ridge(sums, 2, 3); fc == nil || math.Abs(fc.At(0, 0)-2/4.04) > 1e-12 || fc.At(1, 0) != 0 {
		t.Errorf("%v, want 2/4.04 and 0", fc)
	}
	if fc := ridge([]float64{math.NaN(), 0, 2, 0, 1, 0}, 2, 3); fc != nil {
		t.Errorf("%v of what is not a number", fc)
	}
}

// The final norm's output is computed from the output of the last layer as the target does, whose weights may be stored less
// 1. Both are rounded to bfloat16, to 0.4% of a state, which the norm passes on.
func TestLastStatesUnderTheFinalNorm(t *testing.T) {
	for _, offset := range []bool{false, true} {
		spec := tinySpec()
		spec.NormOffset = offset
		tensors := tinyTensors()
		name := spec.Weight(arch.FinalNorm, 0)
		at := slices.IndexFunc(tensors, func(t safetensors.Tensor) bool { return t.Name == name })
		weights := make([]float32, spec.Hidden)
		for i := range weights {
			weights[i] = 0.2 + float32(i)/10
		}
		tensors[at] = safetensors.F32(name, weights, spec.Hidden)
		target, err := model.New(spec, safetensors.Of("target", tensors...), device(t, 1), model.Default())
		if err != nil {
			t.Fatal(err)
		}
		h := &headTask{job: HeadJob{Target: target}, meta: data.Meta{Hidden: spec.Hidden, Features: data.None}, taps: []int{1, spec.Layers}}
		h.spec = spec.BlockFor(arch.Block{Size: 2, Taps: h.taps, Shift: true, Linear: true}, 0, 0)
		norm, err := h.finalNorm()
		if err != nil {
			t.Fatal(err)
		}
		f, err := h.features(t.Context(), &data.Record{Tokens: []int32{3, 9, 27, 1}}, true)
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range lastNormed(f, h.spec, norm) {
			if want := h.last[i]; !(math.Abs(float64(got-want)) <= 0.02*math.Abs(float64(want))+1e-3) {
				t.Errorf("offset %v: element %d is %g, want %g", offset, i, got, want)
			}
		}
		if err := target.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
