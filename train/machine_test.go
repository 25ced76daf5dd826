package train

import (
	"math"
	"strings"
	"testing"

	"talf/compute"
	"talf/model/arch"
	"talf/train/net"
)

// A tight device has so many bytes free.
type tight struct {
	compute.Device
	free int64
}

type tightPlan struct {
	compute.Planner
	free int64
}

func (p tightPlan) Free() (int64, error) { return p.free, nil }

func (d tight) Abilities() compute.DeviceAbilities {
	a := d.Device.Abilities()
	a.Account = tightPlan{a.Account, d.free}
	return a
}

// A head is refused before it is made if its weights, gradients and moments do not fit: 16 bytes of each weight.
func TestHeadsThatDoNotFitAreRefused(t *testing.T) {
	dev := device(t, 1)
	target := arch.Llama()
	target.Vocab, target.Hidden, target.Layers, target.Heads, target.KVHeads, target.HeadDim, target.FFN, target.MaxPos = 96, 32, 12, 4, 2, 8, 40, 64
	eagle3, part := target.Eagle3For(nil, 0), target.Eagle3For(nil, 24)
	eagle3.Layers, part.Layers = 1, 1
	for name, spec := range map[string]*arch.Spec{"EAGLE-1": target.DraftFor(true), "EAGLE-3": eagle3, "EAGLE-3 of 24 tokens": part} {
		p, err := net.New(dev.Queue(), spec)
		if err != nil {
			t.Fatal(err)
		}
		need := 16 * int64(p.Count())
		for _, free := range []int64{need, math.MaxInt64} {
			if err := net.Fits(spec, tight{dev, free}); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := net.Fits(spec, tight{dev, need - 1}); err == nil || !strings.Contains(err.Error(), "GiB free") {
			t.Errorf("%s, a byte too few: %v", name, err)
		}
	}
}
