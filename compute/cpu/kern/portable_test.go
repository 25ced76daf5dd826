package kern

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// portableBits is the hash of the portable kernels' results on fixed inputs. It must be the same
// on every architecture, at every GOAMD64 level and with every compiler: fusing a product with a
// sum changes it. A change of the arithmetic itself must change it too; the failing test prints
// the new value.
const portableBits = "ee30f9adfdf7f1bca5fe2c8ae99f2ed9fa614feb61f6b5d7420ca98508f5c3b6"

func TestPortableBitsAreTheSameEverywhere(t *testing.T) {
	r := rand.New(rand.NewPCG(16, 17))
	h := sha256.New()
	write := func(xs ...[]float32) {
		for _, x := range xs {
			for _, v := range x {
				u := math.Float32bits(v)
				if v != v {
					u = 0x7fc00000 // sign and payload of a NaN are the machine's own
				}
				h.Write(binary.LittleEndian.AppendUint32(nil, u))
			}
		}
	}
	// in returns n elements made from bits alone, with exponents within ±span of 1.
	in := func(n, span int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = math.Float32frombits(r.Uint32()&0x807fffff | uint32(127-span+r.IntN(2*span+1))<<23)
		}
		return x
	}
	f := &portable
	for _, span := range []int{0, 3, 20, 100} {
		const n = 1001
		a, b, c, d, e := in(n, span), in(n, span), in(n, span), in(n, span), in(n, span)
		write([]float32{f.Max(a), float32(f.ArgMax(a)), f.Dot(a, b), f.ExpSum(e, a, 0.5)}, e)
		if got, want := f.ExpTotal(a, 0.5), f.ExpSum(e, a, 0.5); !sameBits(got, want) {
			t.Errorf("ExpTotal is %v, ExpSum %v", got, want)
		}
		f.Exp(e, b)
		write(e)
		f.SiLUMul(e, a, b)
		write(e)
		f.SiLUMulGrad(d, e, a, b, c)
		write(d, e)
		f.Axpy(d, a[0], b)
		f.Rope(d[:1000], a[:500], b[:500])
		write(d)
		v := in(n, span)
		for i := range v {
			v[i] = max(v[i], -v[i])
		}
		f.AdamW(d, a, b, v, &Adam{LR: 3e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 3e-6, Scale: 0.7, C1: 10, C2: 20})
		write(d, b, v)
		o := make([]float32, 3*Panel)
		f.Gemm(o, Panel, a, 300, 1, in(300*Panel, span), Panel, 3, 300, false)
		f.Add(o, o, c)
		f.Mul(o, o, a)
		f.Scale(o, b[1])
		write(o)
		w := in(300*Panel, span)
		half := make([]uint16, BF16Len(Panel, 299))
		PackBF16(half, w, Panel, 299, 300)
		f.GemmBF16(o, Panel, a, 300, 1, half, 3, 299, false)
		write(o)
		octets, q := make([]byte, Q8Len(Panel, 299)), make([]uint32, 3*Q8ALen(299))
		PackQ8(octets, w, Panel, 299, 300)
		for planes := 1; planes <= 2; planes++ {
			for i := range 3 {
				f.QuantA(q[i*Q8ALen(299):], a[300*i:][:299], planes)
			}
			f.GemmQ8(o, Panel, q, Q8ALen(299), octets, 3, Q8Blocks(299), planes, planes == 2)
			write(o)
		}
		h.Write(octets)
	}
	if got := fmt.Sprintf("%x", h.Sum(nil)); got != portableBits {
		t.Errorf("hash of the portable results is %s, want %s", got, portableBits)
	}
}
