//go:build gpu && linux && cgo

package cuda_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"talf/compute"
	"talf/compute/cuda"
)

// TestAttentionOnTensorCores runs a prompt in one pass, token by token, and as a branch of a tree, around the end of a chunk
// of 128 positions. All have the same bits, and are what float64 makes of keys and values in bf16: queries and
// weights have 16 bits. In the second shape one row has more queries than a tile; in the last ones heads have more than 128
// elements, the first of them not a multiple of 8.
func TestAttentionOnTensorCores(t *testing.T) {
	for _, g := range []struct{ heads, kvHeads, dim int }{{4, 2, 40}, {20, 1, 12}, {1, 1, 134}, {2, 1, 256}} {
		t.Run(fmt.Sprintf("%d heads", g.heads), func(t *testing.T) {
			const n, alone, deep = 134, 124, 8 // positions, of which one pass each from alone on; nodes of a branch
			d := device(t)
			defer d.Close()
			q := d.Queue()
			kv, err := d.NewKV(compute.KVConfig{Layers: 1, KVHeads: g.kvHeads, HeadDim: g.dim, Type: compute.BF16})
			if err != nil {
				t.Fatal(err)
			}
			const blocks = 2 * n / compute.BlockLen
			if err := kv.Grow(blocks); err != nil {
				t.Fatal(err)
			}
			alloc := func(rows, width int) compute.Buffer {
				b, err := d.Alloc(compute.F32, rows, width)
				if err != nil {
					t.Fatal(err)
				}
				return b
			}
			a := &compute.Attention{Rope: alloc(1, 1)} // nothing is rotated
			width, heads := g.heads*g.dim, g.heads+2*g.kvHeads
			r := rand.New(rand.NewPCG(7, 11))
			random := func(rows int) []float32 {
				x := make([]float32, rows*heads*g.dim)
				for i := range x {
					x[i] = float32(r.NormFloat64())
				}
				return x
			}
			// attend appends a tree, whose nodes' parents are so many nodes before them, at prefix.
			attend := func(x []float32, prefix, back int) []float32 {
				rows := len(x) / (heads * g.dim)
				words := (rows + 63) / 64
				sp := compute.Span{N: rows, Prefix: prefix, Anc: make([]uint64, rows*words), Stride: words}
				for b := range int32(blocks) {
					sp.Blocks = append(sp.Blocks, b)
				}
				s := &compute.Step{Rows: rows, Heads: g.heads}
				for i := range rows {
					for at := i; at >= 0; at -= back {
						sp.Anc[i*words+at/64] |= 1 << (at % 64)
					}
					s.Pos, s.Slot = append(s.Pos, int32(prefix+i/back)), append(s.Slot, int32(prefix+i))
				}
				sp.Own = s.Slot
				s.Spans = []compute.Span{sp}
				qkv, dst := alloc(rows, heads*g.dim), alloc(rows, width)
				q.Write(qkv, x)
				q.Attend(dst, qkv, kv, 0, a, s)
				out := make([]float32, rows*width)
				q.Read(out, dst, 0)
				if err := q.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				return out
			}
			same := func(what string, got, want []float32) {
				t.Helper()
				for i, v := range got {
					if math.Float32bits(v) != math.Float32bits(want[i]) {
						t.Fatalf("%s: element %d is %g, in one pass %g", what, i, v, want[i])
					}
				}
			}
			text, ld := random(n), heads*g.dim
			all := attend(text, 0, 1)
			for p := alone; p < n; p++ {
				same(fmt.Sprintf("position %d", p), attend(text[p*ld:][:ld], p, 1), all[p*width:][:width])
			}
			var nodes []float32 // of two branches in turn
			other := random(deep)
			for i := range deep {
				nodes = append(append(nodes, text[(alone+i)*ld:][:ld]...), other[i*ld:][:ld]...)
			}
			tree := attend(nodes, alone, 2)
			for i := range deep {
				same(fmt.Sprintf("node %d", 2*i), tree[2*i*width:][:width], all[(alone+i)*width:][:width])
			}

			stored := func(row, head, e int) float64 { // keys, then values
				v := math.Float32bits(text[row*ld+(g.heads+head)*g.dim+e])
				return float64(math.Float32frombits((v + 0x7fff + v>>16&1) &^ 0xffff))
			}
			for _, p := range []int{0, 1, 17, 127, 128, n - 1} {
				for h := range g.heads {
					head := h / (g.heads / g.kvHeads)
					weights, sum := make([]float64, p+1), 0.0
					for i := range weights {
						for e := range g.dim {
							weights[i] += float64(text[p*ld+h*g.dim+e]) * stored(i, head, e) / math.Sqrt(float64(g.dim))
						}
						weights[i] = math.Exp(weights[i])
						sum += weights[i]
					}
					for e := range g.dim {
						want := 0.0
						for i, w := range weights {
							want += w / sum * stored(i, g.kvHeads+head, e)
						}
						if got := float64(all[p*width+h*g.dim+e]); !(math.Abs(got-want) <= 5e-5) {
							t.Fatalf("position %d, head %d, element %d is %g, want %g", p, h, e, got, want)
						}
					}
				}
			}
		})
	}
}

// Every row has each chunk that it sees in one item. A prompt has one item a chunk for rows that one
// block serves, though each of them ends elsewhere; rows of a tree share what is before it.
func TestItemsOfAttention(t *testing.T) {
	const prefix, n = 200, 40
	for _, c := range []struct {
		name         string
		back, window int
		late         bool
		want         int // items
	}{
		// Sixteen rows to a bunch: two chunks, of which the prefix has one and a half.
		{"a prompt", 1, 0, false, 3 * 2},
		{"two branches", 2, 0, false, 3 + n},
		{"a tree that the device chooses", 1, 0, true, 3 + n},
		// Rows see from position 155 on at first, and at last from 194 on.
		{"a prompt with a window", 1, 46, false, 3},
		{"a prompt whose windows leave a chunk", 1, 80, false, 3 + 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			sp := compute.Span{N: n, Prefix: prefix, Blocks: make([]int32, (prefix+31)/32), Anc: make([]uint64, n), Stride: 1}
			s := &compute.Step{Rows: n, Heads: 8}
			for i := range n {
				for at := i; at >= 0; at -= c.back {
					sp.Anc[i] |= 1 << at
				}
				s.Pos, s.Slot = append(s.Pos, int32(prefix+i/c.back)), append(s.Slot, int32(prefix+i))
			}
			if c.late {
				sp.Late = slices.Clone(sp.Anc)
			}
			sp.Own = s.Slot
			s.Spans = []compute.Span{sp}
			items := cuda.Items(s, 4, c.window)
			seen := map[[2]int]int{} // by row and chunk
			for _, it := range items {
				for i := range it[1] {
					seen[[2]int{it[0] + i, it[2]}]++
				}
			}
			for i := range n {
				end, first := prefix+i/c.back+1, 0
				if c.window > 0 {
					first = max(0, end-c.window)
				}
				for chunk := first / 128; chunk*128 < end; chunk++ {
					if k := seen[[2]int{i, chunk}]; k != 1 {
						t.Errorf("row %d has chunk %d %d times", i, chunk, k)
					}
				}
			}
			if len(items) != c.want {
				t.Errorf("%d items, want %d: %v", len(items), c.want, items)
			}
		})
	}
}
