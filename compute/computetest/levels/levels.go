// Package levels is the part of the conformance suite that is about levels of a draft tree in one pass: a device's
// test is one call of Run.
package levels

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"talf/compute"
)

// A bench is a device under test, a source of random values and a store of keys and values.
type bench struct {
	*testing.T
	dev  compute.Device
	q    compute.Queue
	r    *rand.Rand
	kv   compute.KV
	attn compute.Attention
}

const (
	heads, kvHeads, headDim = 4, 2, 8
	width                   = (heads + 2*kvHeads) * headDim // of a row of queries, keys and values
	hidden                  = 24
	blocks                  = 9 // the first four are a prefix's
	positions               = 4 * compute.BlockLen
)

// Run compares the device's Chooser with sorting on the host, through three levels of a draft tree in one
// pass: ties, tokens without probability, and rows of every operation that takes what was chosen.
func Run(t *testing.T, d compute.Device) {
	b := &bench{T: t, dev: d, q: d.Queue(), r: rand.New(rand.NewPCG(7, 11))}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	kv, err := d.NewKV(compute.KVConfig{Layers: 1, KVHeads: kvHeads, HeadDim: headDim})
	if err == nil {
		err = kv.Grow(blocks)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.kv, b.attn = kv, compute.Attention{Rope: b.buffer(b.random(2*positions*headDim), 2*positions, headDim), RotDim: headDim}
	all := make([]int32, blocks*compute.BlockLen)
	for i := range all {
		all[i] = int32(i)
	}
	b.write(all...)
	can := b.q.Abilities()
	if can.Choose == nil {
		t.Fatal("the device has no Chooser")
	}
	for i, c := range []struct{ n, k, m, vocab, prefix int }{{1, 1, 1, 7, 3}, {4, 4, 4, 9, 40}, {4, 4, 4, 9, 126}, {3, 5, 15, 30, 0}, {10, 10, 10, 97, 70}, {10, 10, 10, 97, 126}, {30, 10, 30, 40, 31}} {
		b.Logf("%+v", c)
		chosen(b, can, c.n, c.k, c.m, c.vocab, c.prefix, i == 3)
	}
	// What was read earlier: log-probabilities that are none, and one that rounding put above 0.
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	early := compute.Choice{
		N: 2, K: 3, M: 5, IDs: []int32{5, 6, 7, 8, 9, 10}, LogProb: []float32{-1, nan, inf, 1e-7, -1, -1},
		Score: []float64{-1, -1}, Anc: []uint64{3, 5}, Stride: 1, Row: 40, Node: 3, Best: chosenRoom(5, 1),
	}
	can.Replay.Pass(2)
	if !can.Choose.Choose(&early) {
		b.Fatal("Choose refuses a level")
	}
	if err := b.q.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
	sameChoice(b, 0, &early)

	far := compute.Choice{N: 33, K: 32, M: 1, Stride: 1, IDs: make([]int32, 33*32), LogProb: make([]float32, 33*32), Score: make([]float64, 33), Anc: make([]uint64, 33)}
	far.Best = chosenRoom(1, 1)
	can.Replay.Pass(33)
	if can.Choose.Choose(&far) {
		b.Errorf("Choose takes %d candidates", far.N*far.K)
	}
	if err := b.q.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func chosenRoom(m, stride int) compute.Chosen {
	return compute.Chosen{Tokens: make([]int32, m), Rows: make([]int32, m), Score: make([]float64, m), Anc: make([]uint64, m*stride)}
}

// chosen runs a level of n nodes and two of m. With few, rows have one likely token or none.
func chosen(b *bench, can compute.Abilities, n, k, m, vocab, prefix int, few bool) {
	const levels = 3
	total := 1 + n + (levels-1)*m
	stride := (total + 63) / 64
	table := b.random(vocab * width)
	weight := b.weight(table, vocab)
	states, gathered, embedded := b.random(total*hidden), b.alloc(compute.F32, levels*max(n, m), hidden), b.alloc(compute.F32, levels*max(n, m), width)
	source := b.buffer(states, total, hidden)
	own := make([]int32, total)
	for i, p := range b.r.Perm((blocks - 4) * compute.BlockLen)[:total] {
		own[i] = int32(4*compute.BlockLen + p)
	}

	// The first level is the host's: children of the root, whose key and value are there.
	anc := make([]uint64, n*stride)
	score, logits := make([]float64, n), make([]compute.Buffer, levels)
	for i := range n {
		anc[i*stride] = 1
		anc[i*stride+(1+i)/64] |= 1 << ((1 + i) % 64)
		score[i] = -float64(i/2) / 3
	}
	for l := range logits {
		rows := n
		if l > 0 {
			rows = m
		}
		x := b.random(rows * vocab)
		for i := range x {
			x[i] = float32(math.Round(float64(x[i]))) // ties
			if few && i%vocab > i/vocab {
				x[i] = float32(math.Inf(-1))
			}
		}
		logits[l] = b.buffer(x, rows, vocab)
	}
	if err := b.q.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}

	at := func(level int) (first, rows int) { // node
		if level == 0 {
			return 1, n
		}
		return 1 + n + (level-1)*m, m
	}
	choices := make([]compute.Choice, levels-1)
	step := func(level int, late bool, mask []uint64) *compute.Step {
		first, rows := at(level)
		s := &compute.Step{Rows: rows, Heads: heads}
		sp := compute.Span{N: rows, Prefix: prefix, Blocks: []int32{2, 0, 3, 1}[:(prefix+compute.BlockLen-1)/compute.BlockLen], From: first, Own: own[:first+rows], Stride: stride}
		sp.Anc = make([]uint64, (first+rows)*stride)
		for i := range rows {
			s.Pos, s.Slot = append(s.Pos, int32(prefix+level+1)), append(s.Slot, own[first+i])
			to := sp.Anc[(first+i)*stride:][:stride]
			if copy(to, mask[i*stride:]); late {
				// Their number alone: the first nodes stand for those that are chosen.
				clear(to)
				for a := range level + 2 {
					to[a/64] |= 1 << (a % 64)
				}
			}
		}
		if late {
			sp.Late = mask
		}
		s.Spans = []compute.Span{sp}
		return s
	}
	outs, qkvs := make([]compute.Buffer, levels), make([]compute.Buffer, levels)
	for l := range levels {
		_, rows := at(l)
		outs[l], qkvs[l] = b.alloc(compute.F32, rows, heads*headDim), b.alloc(compute.F32, rows, width)
	}
	for range 3 { // as it is launched, recorded and replayed
		can.Replay.Pass(n + (levels-1)*m)
		for l := range levels {
			first, rows := at(l)
			qkv := qkvs[l]
			tokens, mask := make([]int32, rows), anc
			for i := range tokens {
				tokens[i] = int32(i % vocab) // keys that differ
			}
			if l > 0 {
				best := choices[l-1].Best
				b.q.Gather(gathered, l*max(n, m), 0, source, best.Rows)
				tokens, mask = best.Tokens, best.Anc
			}
			b.q.Embed(qkv, 0, weight, tokens)
			b.q.Gather(embedded, l*max(n, m), 0, qkv, span(rows))
			b.q.Attend(outs[l], qkv, b.kv, 0, &b.attn, step(l, l > 0, mask))
			ids, logp := make([]int32, rows*k), make([]float32, rows*k)
			can.Replay.ReadTopK(ids, logp, logits[l], k, rows)
			if l == levels-1 {
				break
			}
			c := &choices[l]
			*c = compute.Choice{N: rows, K: k, M: m, IDs: ids, LogProb: logp, Score: score, Anc: anc, Stride: stride, Row: first, Node: first + rows, Best: chosenRoom(m, stride)}
			if l > 0 {
				c.Score, c.Anc = choices[l-1].Best.Score, choices[l-1].Best.Anc
			}
			if !can.Choose.Choose(c) {
				b.Fatal("Choose refuses a level")
			}
		}
		if err := b.q.Sync(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	for l := range choices {
		sameChoice(b, l, &choices[l])
	}
	for l := 1; l < levels; l++ {
		best, rows := choices[l-1].Best, m
		var want, embeds []float32
		for i := range rows {
			want = append(want, states[int(best.Rows[i])*hidden:][:hidden]...)
			embeds = append(embeds, table[int(best.Tokens[i])*width:][:width]...)
		}
		b.same("rows of what was chosen", b.read(gathered, (l*max(n, m)+rows)*hidden)[l*max(n, m)*hidden:], want)
		// Embeddings before attention rotated them would be the table's: values are not rotated.
		got := b.read(embedded, (l*max(n, m)+rows)*width)[l*max(n, m)*width:]
		b.same("embeddings of what was chosen", got, embeds)
		qkv, dst := b.buffer(embeds, rows, width), b.alloc(compute.F32, rows, heads*headDim)
		b.q.Attend(dst, qkv, b.kv, 0, &b.attn, step(l, false, best.Anc))
		b.same("attention of what was chosen", b.read(outs[l], rows*heads*headDim), b.read(dst, rows*heads*headDim))
	}
}

// span returns 0, 1, … n−1.
func span(n int) []int32 {
	x := make([]int32, n)
	for i := range x {
		x[i] = int32(i)
	}
	return x
}

// sameChoice compares what was chosen with the host's choice.
func sameChoice(b *bench, level int, c *compute.Choice) {
	b.Helper()
	score := make([]float64, c.N*c.K)
	order := make([]int, c.N*c.K)
	for i := range order {
		order[i], score[i] = i, math.Inf(-1)
		if p := c.LogProb[i]; p > float32(math.Inf(-1)) {
			score[i] = c.Score[i/c.K] + min(float64(p), 0)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int {
		switch {
		case score[i] > score[j]:
			return -1
		case score[i] < score[j]:
			return 1
		}
		return 0
	})
	for i, o := range order[:c.M] {
		mask := slices.Clone(c.Anc[o/c.K*c.Stride:][:c.Stride])
		mask[(c.Node+i)/64] |= 1 << ((c.Node + i) % 64)
		got := &c.Best
		if got.Tokens[i] != c.IDs[o] || got.Rows[i] != int32(c.Row+o/c.K) || math.Float64bits(got.Score[i]) != math.Float64bits(score[o]) || !slices.Equal(got.Anc[i*c.Stride:][:c.Stride], mask) {
			b.Fatalf("level %d, choice %d is token %d of row %d with score %v and ancestors %x, want token %d of row %d with %v and %x", level, i,
				got.Tokens[i], got.Rows[i], got.Score[i], got.Anc[i*c.Stride:][:c.Stride], c.IDs[o], c.Row+o/c.K, score[o], mask)
		}
	}
}

// write puts random keys and values into slots.
func (b *bench) write(slots ...int32) {
	for _, slot := range slots {
		b.q.Attend(b.alloc(compute.F32, 1, heads*headDim), b.buffer(b.random(width), 1, width), b.kv, 0, &b.attn, &compute.Step{
			Rows: 1, Heads: heads, Pos: []int32{0}, Slot: []int32{slot},
			Spans: []compute.Span{{N: 1, Own: []int32{slot}, Anc: []uint64{1}, Stride: 1}},
		})
	}
}

func (b *bench) random(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(b.r.NormFloat64())
	}
	return x
}

func (b *bench) alloc(t compute.DType, shape ...int) compute.Buffer {
	b.Helper()
	buf, err := b.dev.Alloc(t, shape...)
	if err != nil {
		b.Fatal(err)
	}
	return buf
}

func (b *bench) buffer(x []float32, shape ...int) compute.Buffer {
	b.Helper()
	buf := b.alloc(compute.F32, shape...)
	b.q.Write(buf, x)
	return buf
}

func (b *bench) read(buf compute.Buffer, n int) []float32 {
	b.Helper()
	x := make([]float32, n)
	b.q.Read(x, buf, 0)
	if err := b.q.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
	return x
}

// weight packs rows of width elements as float32.
func (b *bench) weight(x []float32, rows int) compute.Weight {
	b.Helper()
	data := make([]byte, 0, 4*len(x))
	for _, v := range x {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	w, err := b.dev.Pack(compute.F32, compute.Matrix{Rows: rows, Cols: width, Type: compute.F32, Data: data})
	if err != nil {
		b.Fatal(err)
	}
	return w
}

func (b *bench) same(what string, got, want []float32) {
	b.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			b.Fatalf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}
