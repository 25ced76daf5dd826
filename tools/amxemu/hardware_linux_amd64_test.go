package main

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"talf/tools/amxemu/hardware"
)

func needFlag(t *testing.T, flag string) {
	t.Helper()
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil || !bytes.Contains(b, []byte(" "+flag+" ")) {
		t.Skipf("this processor has no %s", flag)
	}
}

// operands returns 16 lanes of factors, bfloat16 in the high half of a word, and of terms:
// products around the smallest normal number, with terms that cancel them, that leave a
// subnormal number, or that are arbitrary bits.
func operands(r *rand.Rand) (a, b [16]uint32, c [16]float32) {
	for i := range c {
		a[i], b[i] = r.Uint32()&0x807f0000|uint32(127-63-r.IntN(14))<<23, r.Uint32()&0x807f0000|uint32(127-63-r.IntN(14))<<23
		p := math.Float32frombits(a[i]) * math.Float32frombits(b[i])
		switch r.IntN(6) {
		case 0:
			c[i] = math.Float32frombits(r.Uint32()&0x807fffff | uint32(r.IntN(6))<<23)
		case 1:
			c[i] = math.Float32frombits(math.Float32bits(-p) + r.Uint32N(64) - 32)
		case 2:
			c[i] = math.Float32frombits(math.Float32bits(2*p) ^ r.Uint32N(2)<<31)
		case 3: // down to the edge at which rounding decides
			n := math.Float32frombits(0x00800000 | r.Uint32N(2)<<31)
			c[i] = n
			a[i], b[i] = 0x00800000|r.Uint32N(2)<<31, uint32(127-20-r.IntN(8))<<23|r.Uint32()&0x7f0000
		case 4:
			a[i], b[i], c[i] = r.Uint32()&0xffff0000, r.Uint32()&0xffff0000, math.Float32frombits(r.Uint32())
		}
	}
	return a, b, c
}

func sameFloat(a, b float32) bool {
	return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b
}

// The emulator's sums and fused multiply-adds are those of this processor with DAZ and FTZ on,
// as Intel's text requires of TDPBF16PS.
func TestArithmeticIsTheProcessorsWithFlushing(t *testing.T) {
	needFlag(t, "avx512f")
	r := rand.New(rand.NewPCG(21, 22))
	for range 20000 {
		a, b, c := operands(r)
		var x, y, sum [16]float32
		for i := range x {
			x[i], y[i] = math.Float32frombits(a[i]), math.Float32frombits(b[i])
		}
		z := c
		hardware.FMA(&z, &x, &y)
		hardware.Add(&sum, &x, &c)
		for i := range z {
			u := math.Float32bits(c[i])
			if want := fma(daz(a[i]), daz(b[i]), daz(u)); !sameFloat(want, z[i]) {
				t.Fatalf("%x * %x + %x is %x, the processor's %x", x[i], y[i], c[i], want, z[i])
			}
			if want := add(daz(a[i]), daz(u)); !sameFloat(want, sum[i]) {
				t.Fatalf("%x + %x is %x, the processor's %x", x[i], c[i], want, sum[i])
			}
		}
	}
}

// AVX-512's dot product of bfloat16 follows the rules of TDPBF16PS in another order: the odd
// product is added to the term, then the even one.
func TestArithmeticIsThatOfTheProcessorsBF16(t *testing.T) {
	needFlag(t, "avx512_bf16")
	r := rand.New(rand.NewPCG(23, 24))
	for range 20000 {
		odd, oddB, c := operands(r)
		even, evenB, _ := operands(r)
		var x, y [16]uint32
		for i := range x {
			x[i], y[i] = odd[i]|even[i]>>16, oddB[i]|evenB[i]>>16
		}
		z := c
		hardware.Dot(&z, &x, &y)
		for i := range z {
			want := fma(daz(odd[i]), daz(oddB[i]), daz(math.Float32bits(c[i])))
			if want = fma(daz(even[i]), daz(evenB[i]), want); !sameFloat(want, z[i]) {
				t.Fatalf("%#x · %#x + %x is %x, the processor's %x", x[i], y[i], c[i], want, z[i])
			}
		}
	}
}
