package kern

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

var compacts = []*Compact{Q5_0, IQ4NL, Q4_1, Q5_1, Q5K, IQ4XS, MXFP4}

// randomCompact returns a panel of depth k of random integers and scales, and what they stand for, exact. Scales are
// ordinary, or any bits.
func randomCompact(r *rand.Rand, f *Compact, k int, any bool) (u []byte, w [Panel][]float64) {
	u = make([]byte, f.PanelLen(k))
	half := func(b []byte) float64 {
		h := uint16(r.IntN(2)<<15 | (5+r.IntN(12))<<10 | r.IntN(1<<10))
		if any {
			h = uint16(r.Uint32())
		}
		binary.LittleEndian.PutUint16(b, h)
		return float64(fromF16(h))
	}
	most := 16
	if f.fifth {
		most = 32
	}
	for j := range Panel {
		q, s := make([]byte, k), make([]byte, k/f.Block*f.Scales)
		for i := range q {
			q[i] = byte(r.IntN(most))
		}
		for b := range k / f.Block {
			s := s[b*f.Scales:][:f.Scales]
			q := q[b*f.Block:][:f.Block]
			value := func(i int) float64 { return float64(f.values[q[i]]) }
			add := func(i int, v float64) { w[j] = append(w[j], v) }
			switch f {
			case Q5_0:
				d := half(s)
				for i := range q {
					add(i, d*(float64(q[i])-16))
				}
			case IQ4NL:
				d := half(s)
				for i := range q {
					add(i, d*value(i))
				}
			case Q4_1, Q5_1:
				d, m := half(s), half(s[2:])
				for i := range q {
					add(i, d*float64(q[i])+m)
				}
			case MXFP4:
				e := r.IntN(256)
				if !any {
					e = 120 + r.IntN(16)
				}
				d := math.Ldexp(1, e-128)
				binary.LittleEndian.PutUint16(s, uint16(math.Float32bits(float32(d))>>16))
				for i := range q {
					add(i, d*value(i))
				}
			case Q5K:
				d, dm := half(s), half(s[2:])
				for i := range 16 {
					s[4+i] = byte(r.IntN(64))
				}
				for i := range q {
					add(i, d*float64(s[4+i/32])*float64(q[i])-dm*float64(s[12+i/32]))
				}
			case IQ4XS:
				d := half(s)
				for i := range 8 {
					s[2+i] = byte(r.IntN(64) - 32)
				}
				for i := range q {
					add(i, d*float64(int8(s[2+i/32]))*value(i))
				}
			}
		}
		packRow(f, u, j, q, s)
	}
	return u, w
}

// Panels hold the integers and scales of each output: they decode to the exact values, rounded once.
func TestCompactPanelsHaveTheirWeights(t *testing.T) {
	r := rand.New(rand.NewPCG(61, 1))
	for _, f := range compacts {
		for _, any := range []bool{false, true} {
			const k = 2 * Q4KBlock
			u, w := randomCompact(r, f, k, any)
			row := make([]float32, k)
			for j := range Panel {
				f.Unpack(row, u, j)
				for i, w := range w[j] {
					if !sameBits(row[i], float32(w)) && !(row[i] == 0 && w == 0) {
						t.Fatalf("%s, output %d, k=%d: %v, want %v", f.Name, j, i, row[i], w)
					}
				}
			}
		}
	}
}

// Every class unpacks what plain Go does, and nothing beyond it.
func TestCompactBlocksUnpackAsInPlainGo(t *testing.T) {
	r := rand.New(rand.NewPCG(62, 1))
	for _, f := range compacts {
		for blocks := 1; blocks <= 3; blocks++ {
			u, _ := randomCompact(r, f, blocks*f.Block, true)
			n := blocks * f.Block / Q8Block * f.unpacked()
			got, want := make([]byte, n+64), make([]byte, n+64)
			for i := range got {
				got[i], want[i] = 0xa5, 0xa5
			}
			f.unpackGo(want, u, blocks)
			f.unpack(got, u, blocks)
			if f.Minima { // of NaNs only what they are
				for at := 0; at < n; at += Q8MBlockLen {
					for i := at; i < at+q8mScales; i += 4 {
						g, w := math.Float32frombits(binary.LittleEndian.Uint32(got[i:])), math.Float32frombits(binary.LittleEndian.Uint32(want[i:]))
						if g != g && w != w {
							copy(got[i:i+4], want[i:])
						}
					}
				}
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s, %d blocks: other bytes than in plain Go", f.Name, blocks)
			}
		}
	}
}

// compareCompact compares a product with the portable one, each with its own rounded activations, and for
// formats without minima also with the same weights' in q8.
func compareCompact(t *testing.T, r *rand.Rand, f *Funcs, format *Compact, what string, rows, k, planes int, next source) {
	t.Helper()
	ldc, ars := Panel+r.IntN(9), Q8ALen(k)+r.IntN(9)
	u, _ := randomCompact(r, format, k, r.IntN(4) == 0)
	a := make([]float32, rows*k)
	for i := range a {
		a[i] = next()
	}
	var acts [2][]uint32
	for i, f := range []*Funcs{&portable, f} {
		acts[i] = make([]uint32, rows*ars)
		for j := range rows {
			f.QuantA(acts[i][j*ars:][:Q8ALen(k)], a[j*k:][:k], planes)
		}
	}
	got, scratch := newGuarded(r, (rows-1)*ldc+Panel), make([]byte, CompactScratch)
	for i := range got.x { // what is there does not matter
		got.x[i] = next()
	}
	want := append([]float32(nil), got.x...)
	portable.GemmCompact(format, want, ldc, acts[0], ars, u, rows, k, planes, scratch)
	for i := range scratch {
		scratch[i] = byte(r.Uint32())
	}
	f.GemmCompact(format, got.x, ldc, acts[1], ars, u, rows, k, planes, scratch)
	what = fmt.Sprintf("%v %s, %s, %d planes, %d rows, k=%d, strides %d %d", f.Class, format.Name, what, planes, rows, k, ars, ldc)
	equal(t, what, got.x, want)
	got.check(t, what)
	if format.Minima {
		return
	}
	q8 := make([]byte, Q8PanelLen(k))
	format.unpackGo(q8, u, k/format.Block)
	f.GemmQ8(got.x, ldc, acts[1], ars, q8, rows, k/Q8Block, planes, false)
	equal(t, what+": the same weights in q8", got.x, want)
}

func TestCompactProductsHaveThePortableBits(t *testing.T) {
	everyTable(t, func(t *testing.T, f *Funcs) {
		r := rand.New(rand.NewPCG(63, 1))
		for name, next := range sources(r) {
			for rows := 1; rows <= 40; rows++ {
				if testing.Short() && (rows > 13 && rows%9 > 0 || f.Class == Portable && rows > 2) {
					continue
				}
				for _, format := range compacts {
					k := format.Block * (1 + r.IntN(2+Q4KBlock/format.Block)) // chunks that are not whole, too
					compareCompact(t, r, f, format, name, rows, k, 1+r.IntN(2), next)
				}
			}
		}
		f.GemmCompact(Q4_1, nil, Panel, nil, 1, nil, 0, 0, 1, nil) // no rows: nothing is touched
	})
}

// Products are near those of the exact weights and activations: what is left is the rounding of activations.
func TestCompactProductsAreAccurate(t *testing.T) {
	const k, rows = 4 * Q4KBlock, 3
	r := rand.New(rand.NewPCG(64, 1))
	f, err := For(Best())
	if err != nil {
		t.Fatal(err)
	}
	x := fill(r, rows*k)
	for _, format := range compacts {
		u, w := randomCompact(r, format, k, false)
		for planes, bound := range map[int]float64{1: 1.2e-2, 2: 6e-5} {
			a, c := make([]uint32, rows*Q8ALen(k)), make([]float32, rows*Panel)
			for i := range rows {
				f.QuantA(a[i*Q8ALen(k):], x[i*k:][:k], planes)
			}
			f.GemmCompact(format, c, Panel, a, Q8ALen(k), u, rows, k, planes, make([]byte, CompactScratch))
			want := make([]float64, rows*Panel)
			for i := range rows {
				for j := range Panel {
					for l, v := range w[j] {
						want[i*Panel+j] += v * float64(x[i*k+l])
					}
				}
			}
			if e := relative(c, want); !(e < bound) {
				t.Errorf("%s, %d planes: error %.2e, want below %.0e", format.Name, planes, e, bound)
			}
		}
	}
}

func BenchmarkCompact(b *testing.B) {
	const k, panels = 1024, 4096
	for _, format := range append([]*Compact{nil}, compacts...) {
		name, size := "q8", Q8PanelLen(k)
		if format != nil {
			name, size = format.Name, format.PanelLen(k)
		}
		for _, rows := range []int{1, 8, 16} {
			b.Run(fmt.Sprintf("%s/rows=%d", name, rows), func(b *testing.B) {
				everyClass(b, func(b *testing.B, f *Funcs) {
					if f.Class == Portable {
						b.Skip("slow")
					}
					r := rand.New(rand.NewPCG(1, 1))
					x, w := fill(r, k), make([]byte, panels*size)
					for i := range w {
						w[i] = byte(i) & 0x3f
					}
					a, c, scratch := make([]uint32, rows*Q8ALen(k)), make([]float32, rows*Panel), make([]byte, CompactScratch)
					for i := range rows {
						f.QuantA(a[i*Q8ALen(k):], x, 2)
					}
					for b.Loop() {
						for p := range panels {
							if u := w[p*size:]; format == nil {
								f.GemmQ8(c, Panel, a, Q8ALen(k), u, rows, k/Q8Block, 2, false)
							} else {
								f.GemmCompact(format, c, Panel, a, Q8ALen(k), u, rows, k, 2, scratch)
							}
						}
					}
					s := b.Elapsed().Seconds() / float64(b.N)
					b.ReportMetric(s*1e9/(panels*k/Q8Block), "ns/block")
					b.ReportMetric(float64(len(w))/s/1e9, "GB/s")
					b.ReportMetric(0, "ns/op")
				})
			})
		}
	}
}
