package kern

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// An integerFormat is one of panels of integers.
type integerFormat struct {
	name         string
	block, bytes int    // consecutive k, and their bytes of a panel
	ints         []byte // the largest and the smallest integers, as rows have them
	scales       int    // bytes of the scales of a block of a row
	pack         func(u []byte, j int, q, s []byte)
	gemm         func(f *Funcs, c []float32, ldc int, a []uint32, ars int, b []byte, rows, k, planes int)
}

func integerFormats() []integerFormat {
	of := func(block int, gemm func(f *Funcs) func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool)) func(*Funcs, []float32, int, []uint32, int, []byte, int, int, int) {
		return func(f *Funcs, c []float32, ldc int, a []uint32, ars int, b []byte, rows, k, planes int) {
			gemm(f)(c, ldc, a, ars, b, rows, k/block, planes, false)
		}
	}
	type product = func(c []float32, ldc int, a []uint32, ars int, b []byte, rows, blocks, planes int, acc bool)
	formats := []integerFormat{
		{"q8", Q8Block, Q8BlockLen, []byte{127, 0x80}, 2, PackQ8Row, of(Q8Block, func(f *Funcs) product { return f.GemmQ8 })},
		{"q4", Q8Block, Q4BlockLen, []byte{15, 0}, 2, packQ4Row, of(Q8Block, func(f *Funcs) product { return f.GemmQ4 })},
		{"q4k", Q4KBlock, Q4KBlockLen, []byte{15, 0}, Q4KScales, packQ4KRow, of(Q4KBlock, func(f *Funcs) product { return f.GemmQ4K })},
		{"q6k", Q6KBlock, Q6KBlockLen, []byte{63, 0}, Q6KScales, PackQ6KRow, of(Q6KBlock, func(f *Funcs) product { return f.GemmQ6K })},
	}
	scratch := make([]byte, CompactScratch)
	for _, m := range compacts {
		most := byte(15)
		if m.fifth {
			most = 31
		}
		formats = append(formats, integerFormat{
			m.Name, m.Block, m.Len,
			[]byte{most, 0},
			m.Scales, func(u []byte, j int, q, s []byte) { packRow(m, u, j, q, s) },
			func(f *Funcs, c []float32, ldc int, a []uint32, ars int, b []byte, rows, k, planes int) {
				f.GemmCompact(m, c, ldc, a, ars, b, rows, k, planes, scratch)
			},
		})
	}
	return formats
}

// The largest sums that integers can come to: every weight and every activation is one of the two furthest from
// zero, everywhere, by turns or at random. None saturates, and none wraps.
func TestSumsOfTheLargestIntegers(t *testing.T) {
	const k, rows = 2 * Q4KBlock, 13
	r := rand.New(rand.NewPCG(47, 48))
	patterns := []func(i int) int{
		func(int) int { return 0 }, func(int) int { return 1 }, func(i int) int { return i % 2 }, func(i int) int { return i / 2 % 2 },
		func(int) int { return r.IntN(2) },
	}
	lda := Q8ALen(k)
	var x [rows][k]float32
	for i := range rows {
		for j := range k {
			x[i][j] = []float32{1, -1}[patterns[i%len(patterns)](j)]
			if i >= 2*len(patterns) {
				x[i][j] = -x[i][j]
			}
		}
	}
	for _, m := range integerFormats() {
		u := make([]byte, k/m.block*m.bytes)
		for j := range Panel {
			q, s := make([]byte, k), bytes.Repeat([]byte{0x3c}, k/m.block*m.scales) // every scale is finite
			for i := range q {
				q[i] = m.ints[patterns[j%len(patterns)](i+j/16)]
			}
			m.pack(u, j, q, s)
		}
		for planes := 1; planes <= 2; planes++ {
			product := func(f *Funcs) []float32 {
				a, c := make([]uint32, rows*lda), make([]float32, rows*Panel)
				for i := range x {
					f.QuantA(a[i*lda:], x[i][:], planes)
				}
				m.gemm(f, c, Panel, a, lda, u, rows, k, planes)
				return c
			}
			want := product(&portable)
			for _, f := range others(t) {
				equal(t, fmt.Sprintf("%v %s, %d planes", f.Class, m.name, planes), product(f), want)
			}
		}
	}
}

// mulChain multiplies x by y n times, a multiple of 8, each of which takes three cycles on every processor of these
// classes.
//
//go:noinline
func mulChain(x, y uint64, n int) uint64 {
	for range n / 8 {
		x *= y
		x *= y
		x *= y
		x *= y
		x *= y
		x *= y
		x *= y
		x *= y
	}
	return x
}

// BenchmarkIntegerRate multiplies rows by panels of integers that stay in the second level of the cache, and shows
// products of two integers per cycle. All counts of rows take turns, and each counts with its shortest time; a chain of
// multiplications between them says how long a cycle is. VPMADDWD of 32 bytes makes 16 products, and VPMADDUBSW 32.
func BenchmarkIntegerRate(b *testing.B) {
	const k, panels, reps = 1024, 8, 60
	counts := []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128}
	most := counts[len(counts)-1]
	r := rand.New(rand.NewPCG(45, 46))
	x, c := fill(r, most*k), make([]float32, most*Panel)
	lda, formats := Q8ALen(k), integerFormats()
	everyClass(b, func(b *testing.B, f *Funcs) {
		if f.Class == Portable {
			b.Skip("plain Go")
		}
		for planes := 2; planes > 0; planes-- {
			a := make([]uint32, most*lda)
			for i := range most {
				f.QuantA(a[i*lda:], x[i*k:][:k], planes)
			}
			for _, m := range formats {
				size := k / m.block * m.bytes
				w := make([]byte, panels*size)
				for i := range w {
					w[i] = byte(r.Uint32()) &^ 0x40 // scales are finite
				}
				b.Run(fmt.Sprintf("planes=%d/%s", planes, m.name), func(b *testing.B) {
					best, cycle := make([]time.Duration, len(counts)), 0.0
					var s uint64 = 3
					for b.Loop() {
						for rep := range reps {
							for i, rows := range counts {
								since := time.Now()
								for p := range panels {
									m.gemm(f, c, Panel, a, lda, w[p*size:], rows, k, planes)
								}
								if d := time.Since(since); rep == 0 || d < best[i] {
									best[i] = d
								}
							}
							const chain = 16000
							since := time.Now()
							s = mulChain(s, 5, chain)
							if d := float64(time.Since(since)) / chain / 3; rep == 0 || d < cycle {
								cycle = d
							}
						}
					}
					sink += float32(s)
					var line strings.Builder
					fmt.Fprintf(&line, "%.2f GHz", 1/cycle)
					for i, rows := range counts {
						fmt.Fprintf(&line, ", n=%d %.1f", rows, float64(rows*panels*Panel*k)*cycle/float64(best[i]))
					}
					b.Log(line.String())
					b.ReportMetric(0, "ns/op")
				})
			}
		}
	})
}
