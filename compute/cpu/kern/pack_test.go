package kern

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func fill(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func TestPanelsHoldEveryElementAndZeros(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 200 {
		outs, k, pad := 1+r.IntN(100), 1+r.IntN(70), r.IntN(5)
		rows := fill(r, outs*(k+pad))
		cols := make([]float32, k*(outs+pad))
		want := make([]float32, PanelLen(outs, k))
		for o := range outs {
			for i := range k {
				v := rows[o*(k+pad)+i]
				cols[i*(outs+pad)+o] = v
				want[o/Panel*Panel*k+i*Panel+o%Panel] = v
			}
		}
		got := make([]float32, len(want))
		for name, pack := range map[string]func(){
			"PackRows": func() { PackRows(got, rows, outs, k, k+pad) },
			"PackCols": func() { PackCols(got, cols, k, outs, outs+pad) },
		} {
			for i := range got {
				got[i] = -7
			}
			if pack(); !slices.Equal(got, want) {
				t.Errorf("%s of %d outputs, depth %d, padding %d differs", name, outs, k, pad)
			}
		}
	}
}

func TestEveryHalfIsWidenedExactly(t *testing.T) {
	for u := range 1 << 16 {
		src := binary.LittleEndian.AppendUint16(nil, uint16(u))
		var got [1]float32
		FromF16(got[:], src)
		frac, e := u&0x3ff, u>>10&31
		want := math.Ldexp(float64(1024+frac), e-25)
		switch {
		case e == 0:
			want = math.Ldexp(float64(frac), -24)
		case e == 31 && frac == 0:
			want = math.Inf(1)
		case e == 31:
			want = math.NaN()
		}
		if u>>15 == 1 {
			want = -want
		}
		if !sameBits(got[0], float32(want)) {
			t.Fatalf("FromF16(%#04x) = %v, want %v", u, got[0], want)
		}
		FromBF16(got[:], src)
		if math.Float32bits(got[0]) != uint32(u)<<16 {
			t.Fatalf("FromBF16(%#04x) = %v", u, got[0])
		}
		if b := int(BF16(got[0])); b != u && got[0] == got[0] {
			t.Fatalf("BF16(FromBF16(%#04x)) = %#04x", u, b)
		}
	}
}

func TestBF16IsTheNearest(t *testing.T) {
	for _, c := range []struct {
		x    uint32
		want uint16
	}{
		{0x3f800000, 0x3f80},
		{0x3f807fff, 0x3f80},
		{0x3f808000, 0x3f80},
		{0x3f808001, 0x3f81},
		{0x3f818000, 0x3f82},
		{0x7f7fffff, 0x7f80},
		{0xff800000, 0xff80},
		{0x7f800001, 0x7fc0},
		{0x00008000, 0x0000},
		{0x00018000, 0x0002},
	} {
		if got := BF16(math.Float32frombits(c.x)); got != c.want {
			t.Errorf("BF16(%#08x) = %#04x, want %#04x", c.x, got, c.want)
		}
	}
}
