package ggml

import (
	"crypto/sha256"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// plain is the error of the simplest rule for a block: the range of each group cut in 15 steps, with
// scales in float32.
func plain(x []float32, centred bool) (e float64) {
	for g := 0; g < len(x); g += 32 {
		lo, hi, far := 0.0, 0.0, 0.0
		for _, v := range x[g:][:32] {
			lo, hi = min(lo, float64(v)), max(hi, float64(v))
			if math.Abs(float64(v)) > math.Abs(far) {
				far = float64(v)
			}
		}
		for _, v := range x[g:][:32] {
			d, low := (hi-lo)/15, -lo
			if centred {
				d = far / -8
				low = 8 * d
			}
			if d == 0 {
				continue
			}
			off := float64(v) - (d*level((float64(v)+low)/d) - low)
			e += off * off
		}
	}
	return e
}

// Blocks are nearer to random weights than those of the simplest rule, although their scales are
// coarser, and the bits are the same on every machine.
func TestEncodedBlocksAreNear(t *testing.T) {
	for _, c := range []struct {
		name   string
		most   float64 // of the plain rule's error
		digest string
	}{{"Q4_0", 0.90, "2e5f5e2fec209fe5"}, {"Q4_K", 0.90, "95d2e5ee8246733c"}} {
		b := Blocks(c.name)
		r := rand.New(rand.NewPCG(61, 1))
		sum := sha256.New()
		var got, want float64
		for range 200 {
			x, y := make([]float32, 256), make([]float32, 256)
			for i := range x {
				x[i] = float32(r.NormFloat64() * 0.02)
			}
			raw := make([]byte, 256/b.Elems*b.Size)
			b.Encode(raw, x)
			sum.Write(raw)
			b.Float32s(y, raw)
			for i := range x {
				got += math.Pow(float64(x[i])-float64(y[i]), 2)
			}
			want += plain(x, c.name == "Q4_0")
		}
		t.Logf("%s: %.3f of the plain rule's squared error", c.name, got/want)
		if !(got <= c.most*want) {
			t.Errorf("%s: %.3f of the plain rule's squared error, want at most %v", c.name, got/want, c.most)
		}
		if d := fmt.Sprintf("%x", sum.Sum(nil)[:8]); d != c.digest {
			t.Errorf("%s: digest %s, want %s", c.name, d, c.digest)
		}
	}
}

// What a block can hold comes back, and so do zeros, one sign, and what is not a number.
func TestEncodedBlocksComeBack(t *testing.T) {
	x := make([]float32, 256)
	for name, f := range map[string]func(i int) float32{
		"zeros":     func(int) float32 { return 0 },
		"constant":  func(int) float32 { return -0.5 },
		"levels":    func(i int) float32 { return float32(i%16-8) * 0.25 },
		"one-sided": func(i int) float32 { return float32(i%16) * 0.125 },
	} {
		for _, b := range []*Type{Blocks("Q4_0"), Blocks("Q4_K")} {
			for i := range x {
				x[i] = f(i)
			}
			raw, y := make([]byte, 256/b.Elems*b.Size), make([]float32, 256)
			b.Encode(raw, x)
			b.Float32s(y, raw)
			off := 0.0
			for i := range x {
				off = max(off, math.Abs(float64(x[i]-y[i])))
			}
			if limit := map[bool]float64{true: 0.12, false: 0.004}[name == "one-sided" && b.Name == "Q4_0"]; off > limit {
				t.Errorf("%s, %s: off by %v, want at most %v", b.Name, name, off, limit)
			}
		}
	}
	for _, b := range []*Type{Blocks("Q4_0"), Blocks("Q4_K")} {
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
			x[3] = bad
			raw := make([]byte, 256/b.Elems*b.Size)
			b.Encode(raw, x)
			if i, v := b.Find(raw, math.MaxFloat32); i < 0 || v == v {
				t.Errorf("%s of %v: element %d is %v, want a NaN", b.Name, bad, i, v)
			}
		}
	}
}
