package model_test

import (
	"errors"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/model"
	"talf/model/modeltest"
)

// A limited device is the CPU with as much memory as a test gives it.
type limited struct {
	compute.Device
	free   int64
	allocs int
}

func (d *limited) WeightBytes(as compute.DType, kept compute.Kept, out, in int) int64 {
	return map[compute.DType]int64{compute.F32: 4, compute.BF16: 2, compute.Q8: 1}[as] * int64(out*in)
}

func (d *limited) KVBytes(c compute.KVConfig, blocks int) int64 {
	return int64(2*c.Layers*c.KVHeads*c.HeadDim*c.Type.Size()) * int64(blocks*compute.BlockLen)
}

func (d *limited) Abilities() compute.DeviceAbilities { return compute.DeviceAbilities{Plan: d} }

func (d *limited) WorkBytes(compute.KVConfig, int, int, int, int) int64 { return 1000 }

func (d *limited) Free() (int64, error) { return d.free, nil }

func (d *limited) Alloc(t compute.DType, shape ...int) (compute.Buffer, error) {
	d.allocs++
	return d.Device.Alloc(t, shape...)
}

func TestMemoryIsPlannedBeforeAModelIsLoaded(t *testing.T) {
	c := modeltest.Default()
	c.MaxPos = 4096
	dir := modeltest.Random(t, c, 1)
	inner, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	dev := &limited{Device: inner, free: 1 << 40}
	opt := model.Default()
	opt.MaxRows, opt.Positions = 64, 2048
	m, err := model.Load(dir, dev, opt)
	if err != nil {
		t.Fatal(err)
	}
	spec := m.Spec()
	f := model.Plan(spec, dev, opt)
	// Everything is allocated when the model is loaded: decoding allocates nothing
	// more.
	if blocks := m.KV().Held; blocks*compute.BlockLen < opt.Positions {
		t.Errorf("%d blocks are reserved for %d positions", blocks, opt.Positions)
	}
	taken := dev.allocs
	seq := m.NewSeq()
	for range 3 {
		if _, err := seq.Append(t.Context(), []int32{1, 2, 3}, nil, model.WantLast); err != nil {
			t.Fatal(err)
		}
	}
	// Only the hidden states of two passes and the rows with logits grow with a pass.
	if n := dev.allocs - taken; n > 3 {
		t.Errorf("decoding allocates memory %d times", n)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}

	half := opt
	half.Positions = 1024
	bf16 := opt
	bf16.DType = compute.BF16
	for _, x := range []struct {
		name string
		free int64
		want []string
	}{
		{"half the positions", model.Plan(spec, dev, half).Total(), []string{"2048 positions", "what would: 1024 positions"}},
		{"weights of fewer bits", model.Plan(spec, dev, bf16).Total(), []string{"weights as BF16"}},
		{"nothing", 1, []string{"nothing smaller would", "0.0 MiB of"}},
	} {
		t.Run(x.name, func(t *testing.T) {
			dev.free, taken = x.free, dev.allocs
			_, err := model.Load(dir, dev, opt)
			if err == nil {
				t.Fatalf("%d bytes are enough, the plan is %+v", x.free, f)
			}
			for _, want := range append(x.want, "does not fit") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v\nlacks %q", err, want)
				}
			}
			if dev.allocs != taken {
				t.Error("memory was allocated anyway")
			}
		})
	}
	opt.Positions = -1
	if err := opt.Validate(); err == nil || errors.Unwrap(err) != nil {
		t.Errorf("-1 positions: %v", err)
	}
}

// An accounted device is the CPU on a machine with as much memory as a test gives it.
type accounted struct {
	*cpu.Device
	free int64
}

func (d *accounted) Free() (int64, error) { return d.free, nil }

func (d *accounted) Abilities() compute.DeviceAbilities {
	can := d.Device.Abilities()
	can.Account = d
	return can
}

// On a device that reserves nothing, a model that cannot run is refused with the figures of its
// account before anything is loaded, also if that is postponed, and half of what a model leaves
// is for keys and values. What the account says of weights and blocks is what they take.
func TestAModelIsHeldToTheAccountOfMemory(t *testing.T) {
	inner, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	c := modeltest.Default()
	c.MaxPos = 4096
	dir := modeltest.Random(t, c, 1)
	for _, as := range dtypes {
		for _, kv := range []compute.DType{compute.F32, compute.BF16} {
			dev := &accounted{inner, 1 << 30}
			opt := model.Default()
			opt.DType, opt.KV = as, kv
			m, err := model.Load(dir, dev, opt)
			if err != nil {
				t.Fatal(err)
			}
			f := model.Plan(m.Spec(), dev, opt)
			embed := dev.WeightBytes(as, compute.NotKept, c.Vocab, c.Hidden) // of which a pass reads only rows
			sums := dev.WeightBytes(compute.F32, compute.NotKept, 1, c.Vocab)
			if got := int64(m.WeightBytes()) + embed + sums; got != f.Weights {
				t.Errorf("%v: weights take %d bytes, the account says %d", as, got, f.Weights)
			}
			block := dev.KVBytes(compute.KVConfig{Layers: c.Layers, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Type: kv}, 1)
			if got, want := int64(m.KV().Total), (dev.free-f.Total())/2/block; got != want {
				t.Errorf("%v, %v: a pool of %d blocks, want %d", as, kv, got, want)
			}
			opt.Positions = 256
			least := model.Plan(m.Spec(), dev, opt).Total()
			opt.Positions = 0
			dev.free = least
			if m, err = model.Load(dir, dev, opt); err != nil || m.KV().Total < 256/compute.BlockLen {
				t.Errorf("%v, %v: with %d bytes: %v", as, kv, least, err)
			}
			dev.free = least - 1
			_, err = model.Load(dir, dev, opt)
			if err == nil || !strings.Contains(err.Error(), "does not fit") || !strings.Contains(err.Error(), "to work with") {
				t.Errorf("%v, %v: with a byte less: %v", as, kv, err)
			}
			opt.Lazy = true
			if m, err = model.Load(dir, dev, opt); err != nil {
				t.Fatal(err)
			}
			if _, err := m.NewSeq().Append(t.Context(), []int32{1}, nil, model.WantNone); err == nil || !strings.Contains(err.Error(), "does not fit") {
				t.Errorf("%v, %v: when it first runs with a byte less: %v", as, kv, err)
			}
		}
	}
}
