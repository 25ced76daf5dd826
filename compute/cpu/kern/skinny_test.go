package kern

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// A product is one kernel over panels of packed weights, each read once per pass.
type product struct {
	name  string
	bytes int // of a panel
	panel func(f *Funcs, c []float32, b []byte, rows int)
	tiles bool // only class AMX has it
}

// skinnyK is the depth of the products measured.
const skinnyK = 1024

func products(rows int) []product {
	const k = skinnyK
	r := rand.New(rand.NewPCG(41, 42))
	a := fill(r, rows*k)
	half := func(b []byte) []uint16 { return unsafe.Slice((*uint16)(unsafe.Pointer(&b[0])), BF16PanelLen(k)) }
	// acts returns the rows of a as a table's round makes them, once for each table.
	acts := func(n int, round func(f *Funcs) func([]uint32, []float32, int), planes int) func(f *Funcs) []uint32 {
		var of *Funcs
		x := make([]uint32, rows*n)
		return func(f *Funcs) []uint32 {
			for i := 0; i < rows && of != f; i++ {
				round(f)(x[i*n:][:n], a[i*k:][:k], planes)
			}
			of = f
			return x
		}
	}
	ps := []product{
		{
			name: "f32", bytes: 4 * PanelLen(Panel, k),
			panel: func(f *Funcs, c []float32, b []byte, rows int) {
				f.Gemm(c, Panel, a, k, 1, unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), Panel*k), Panel, rows, k, false)
			},
		},
		{
			name: "bf16", bytes: 2 * BF16PanelLen(k),
			panel: func(f *Funcs, c []float32, b []byte, rows int) {
				f.GemmBF16(c, Panel, a, k, 1, half(b), rows, k, false)
			},
		},
	}
	dots := acts(PairsALen(k), func(*Funcs) func([]uint32, []float32, int) {
		return func(dst []uint32, x []float32, _ int) { RoundPairs(dst, x) }
	}, 0)
	ps = append(ps, product{
		name: "bf16dp", bytes: 2 * BF16PanelLen(k),
		panel: func(f *Funcs, c []float32, b []byte, rows int) {
			f.GemmPairs(c, Panel, dots(f), PairsALen(k), half(b), rows, k, false)
		},
	})
	for planes := 2; planes > 0; planes-- {
		name := map[int]string{1: " one plane"}[planes]
		n := BF16ALen(k, planes)
		split := acts(n, func(f *Funcs) func([]uint32, []float32, int) { return f.SplitA }, planes)
		quant := acts(Q8ALen(k), func(f *Funcs) func([]uint32, []float32, int) { return f.QuantA }, planes)
		ps = append(ps, product{
			name: "bf16 tiles" + name, bytes: 2 * BF16PanelLen(k), tiles: true,
			panel: func(f *Funcs, c []float32, b []byte, rows int) {
				f.GemmSplit(c, Panel, split(f), n, half(b), rows, k, planes, false)
			},
		}, product{
			name: "q8" + name, bytes: Q8PanelLen(k),
			panel: func(f *Funcs, c []float32, b []byte, rows int) {
				f.GemmQ8(c, Panel, quant(f), Q8ALen(k), b, rows, Q8Blocks(k), planes, false)
			},
		})
	}
	return ps
}

// BenchmarkSkinny multiplies few rows by weights that are read once, from the second-level cache
// and from memory: GB/s of weights and time relative to one row's. "raw" reads the same bytes
// without using them. A pass over the weights is timed in parts of about a megabyte; all counts
// of rows take turns, and each part counts with its shortest time, so that other users of the
// machine's memory disturb less.
func BenchmarkSkinny(b *testing.B) {
	counts := []int{0, 1, 2, 4, 8, 16, 32, 48, 64} // 0 is raw
	for _, m := range []struct {
		name        string
		bytes, reps int
	}{{"L2", 1 << 20, 100}, {"DRAM", 384 << 20, 4}} {
		w := weightMemory(b, m.bytes)[:m.bytes]
		r := rand.New(rand.NewPCG(43, 44))
		words := unsafe.Slice((*uint32)(unsafe.Pointer(&w[0])), len(w)/4)
		for i := range min(len(words), 1<<18) {
			words[i] = r.Uint32()&0x8fff8fff | 0x30003000 // every format's weights are numbers
		}
		for i := 1 << 18; i < len(words); i *= 2 {
			copy(words[i:], words[:i])
		}
		b.Run(m.name, func(b *testing.B) {
			everyShape(b, func(b *testing.B, f *Funcs) {
				if f.Class == Portable {
					b.Skip("plain Go does not reach the memory's speed")
				}
				c := make([]float32, 64*Panel)
				for _, p := range products(64) {
					b.Run(p.name, func(b *testing.B) {
						if p.tiles && f.GemmSplit == nil {
							b.Skip("this class has no tiles")
						}
						n := len(w) / p.bytes
						group := max(1, 1<<20/p.bytes)
						times := make([][]time.Duration, len(counts))
						for i := range times {
							times[i] = make([]time.Duration, (n+group-1)/group)
						}
						for b.Loop() {
							for rep := range m.reps {
								for i, rows := range counts {
									for g := range times[i] {
										t := time.Now()
										for j := g * group; j < min(n, (g+1)*group); j++ {
											if w := w[j*p.bytes:][:p.bytes]; rows == 0 {
												readAll(w)
											} else {
												p.panel(f, c, w, rows)
											}
										}
										if d := time.Since(t); rep == 0 || d < times[i][g] {
											times[i][g] = d
										}
									}
								}
							}
						}
						var line strings.Builder
						var one time.Duration
						for i, rows := range counts {
							var s time.Duration
							for _, d := range times[i] {
								s += d
							}
							gb := float64(n*p.bytes) / s.Seconds() / 1e9
							switch rows {
							case 0:
								fmt.Fprintf(&line, "raw %.1f GB/s", gb)
							case 1:
								one = s
								fallthrough
							default:
								fmt.Fprintf(&line, ", n=%d %.1f (%.2f)", rows, gb, s.Seconds()/one.Seconds())
							}
						}
						b.Log(line.String())
						b.ReportMetric(0, "ns/op")
					})
				}
			})
		})
	}
}

var sink float32

// readAll reads b with the fastest kernel that only reads.
func readAll(b []byte) {
	f, _ := For(Best())
	sink += f.Max(unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), len(b)/4))
}
