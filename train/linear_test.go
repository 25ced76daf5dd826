package train

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"talf/data"
	"talf/train/mix"
	"talf/train/net"
)

// A linear start solves the normal equations of its regression, (Σ z·zᵀ + λ·diag)·fcᵀ = Σ z·fᵀ, over the text to learn;
// what its layers add is zero, on every level of a tree, and it learns from there.
func TestALinearStartPredictsBest(t *testing.T) {
	target := tinyTarget(t, device(t, 2))
	set := tinyData(t, target, 40, data.BF16)
	cfg := tinyConfig()
	cfg.Loss, cfg.Layers, cfg.Held = "hass:top=3", 2, 0
	h, _ := entered(t, cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir(), Linear: true})
	w := target.Spec().Hidden
	embed, err := target.HostEmbed()
	if err != nil {
		t.Fatal(err)
	}
	arrays := h.params.Export(nil)
	weights := arrays[slices.IndexFunc(arrays, func(a net.Array) bool { return a.Name == "fc.weight" })].Data
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
		f := make([]float32, len(rec.Tokens)*w)
		data.DecodeBF16(f, rec.Features)
		for i := range len(rec.Tokens) - 1 {
			z := append(append([]float32(nil), embed[int(rec.Tokens[i+1])*w:][:w]...), f[i*w:(i+1)*w]...)
			for j, x := range z {
				power[j] += float64(x) * float64(x)
			}
			for o := range w {
				got := 0.0
				for j, x := range z {
					got += float64(weights[o*2*w+j]) * float64(x)
				}
				want := float64(f[(i+1)*w+o])
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
	if worst > 1e-5*largest {
		t.Errorf("the derivative of the ridge regression is %g where products are up to %g, want 0", worst, largest)
	}
	for _, x := range arrays {
		if x.Name != "layers.0.self_attn.o_proj.weight" && x.Name != "layers.1.mlp.down_proj.weight" {
			continue
		}
		for _, v := range x.Data {
			if v != 0 {
				t.Fatalf("%s has %v, want 0", x.Name, v)
			}
		}
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
	if fc := ridge(sums, 1); fc == nil || math.Abs(fc.At(0, 0)-2/4.04) > 1e-12 || fc.At(1, 0) != 0 {
		t.Errorf("%v, want 2/4.04 and 0", fc)
	}
	if fc := ridge([]float64{math.NaN(), 0, 2, 0, 1, 0}, 1); fc != nil {
		t.Errorf("%v of what is not a number", fc)
	}
}
