package optim_test

import (
	"math"
	"testing"

	"talf/compute/cpu"
	"talf/train/internal/gg"
	"talf/train/internal/optim"
)

// doubler is two ranks with the same gradients.
type doubler struct{}

func (doubler) Reduce(x []float32) {
	for i := range x {
		x[i] *= 2
	}
}

// A rank whose device is lost in an update writes the norm that the others have: that of the sums over the ranks.
func TestTheNormOfTheSumsIsThatOfTheUpdate(t *testing.T) {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	q := dev.Queue()
	var params []*gg.Tensor
	for i, n := range []int{700, 3, 1 << 20, 41} { // several buckets
		p, err := gg.NewTensor(q, string(rune('a'+i)), make([]float32, n), n)
		if err != nil {
			t.Fatal(err)
		}
		params = append(params, p)
	}
	b, sums, err := optim.NewBuckets(doubler{}, q, params, []int{2, 0, 3, 1})
	if err != nil {
		t.Fatal(err)
	}
	opt, err := optim.New(optim.Config{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Clip: 1}, q, params)
	if err != nil {
		t.Fatal(err)
	}
	opt.GatherIn(sums)
	b.Reset()
	for i, s := range sums {
		for j := range s.Data {
			s.Data[j] = float32(math.Sin(float64(i + j)))
		}
		b.Complete(i)
	}
	b.ReduceRest()
	got := b.Norm()
	want, ok := opt.Update(nil, 1e-3)
	if !ok || want < 1 || math.Abs(got-want) > 1e-6*want {
		t.Errorf("norm %v, want %v", got, want)
	}
}
