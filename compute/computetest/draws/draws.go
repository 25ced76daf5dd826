// Package draws is the part of the conformance suite that is about tokens drawn on a device: a device's test is one
// call of Run.
package draws

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"talf/compute"
)

// within is how far float64 sums of weights in another order may put a quantile off.
const within = 1e-12

// Run compares the device's Drawer with sums of math.Exp: rows of one token and of more than a block's, logits that are not
// finite, ties, any temperature, quantiles at both ends. A row's token is the same in any company.
func Run(t *testing.T, d compute.Device) {
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	b := &bench{T: t, dev: d, q: d.Queue(), r: rand.New(rand.NewPCG(11, 3))}
	if b.can = b.q.Abilities(); b.can.Draw == nil {
		t.Fatal("the device has no Drawer")
	}
	for _, c := range []struct{ rows, vocab int }{{1, 1}, {3, 7}, {9, 128}, {4, 300}, {17, 4097}, {2, 9000}} {
		t.Logf("%+v", c)
		drawn(b, c.rows, c.vocab)
	}
	farthest(b)
	embedded(b)
}

type bench struct {
	*testing.T
	dev compute.Device
	q   compute.Queue
	can compute.Abilities
	r   *rand.Rand
}

func (b *bench) buffer(x []float32, shape ...int) compute.Buffer {
	b.Helper()
	buf, err := b.dev.Alloc(compute.F32, shape...)
	if err != nil {
		b.Fatal(err)
	}
	b.q.Write(buf, x)
	return buf
}

// draw draws from rows of logits in one pass.
func (b *bench) draw(logits []float32, draws []compute.Draw, then func(tokens []int32)) []int32 {
	b.Helper()
	n := len(draws)
	buf := b.buffer(logits, n, len(logits)/n)
	tokens := make([]int32, n)
	b.can.Replay.Pass(n)
	if !b.can.Draw.Draw(tokens, buf, draws, n) {
		b.Fatalf("Draw refuses %d rows", n)
	}
	if then != nil {
		then(tokens)
	}
	if err := b.q.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
	return tokens
}

// row fills a row of logits of a kind, and says how it is drawn from.
func (b *bench) row(x []float32, kind int) compute.Draw {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	d := compute.Draw{By: []float64{1, 1 / 0.7, 0.3, 2.5}[b.r.IntN(4)], U: b.r.Float64()}
	scale := []float64{1, 4, 300}[b.r.IntN(3)]
	for i := range x {
		x[i] = float32(scale * b.r.NormFloat64())
	}
	switch kind {
	case 1: // all alike
		for i := range x {
			x[i] = -3
		}
	case 2:
		d.U = 0
	case 3:
		d.U = math.Nextafter(1, 0)
	case 4: // some are none
		for i := range x {
			if b.r.IntN(3) == 0 {
				x[i] = []float32{-inf, nan}[i%2]
			}
		}
	case 5: // several are infinite
		for range 3 {
			x[b.r.IntN(len(x))] = inf
		}
	case 6: // nothing is a number
		for i := range x {
			x[i] = nan
		}
	case 7:
		for i := range x {
			x[i] = []float32{-inf, nan}[b.r.IntN(2)]
		}
	case 8:
		d.By = math.MaxFloat64
		x[len(x)/2] = largest(x)
	case 9:
		d.By = 0
	}
	return d
}

func largest(x []float32) float32 {
	top := float32(math.Inf(-1))
	for _, v := range x {
		if v > top {
			top = v
		}
	}
	return top
}

// weights are those of a row's tokens.
func weights(x []float32, by float64) []float64 {
	w, top := make([]float64, len(x)), largest(x)
	for i, v := range x {
		switch {
		case math.IsInf(float64(top), 0):
			if v == top || i == 0 && top < 0 {
				w[i] = 1
			}
		case v == v:
			w[i] = math.Exp((float64(v) - float64(top)) * by)
		}
	}
	return w
}

func drawn(b *bench, rows, vocab int) {
	b.Helper()
	logits, draws := make([]float32, rows*vocab), make([]compute.Draw, rows)
	for r := range draws {
		draws[r] = b.row(logits[r*vocab:][:vocab], r%10)
	}
	tokens := b.draw(logits, draws, nil)
	for r, token := range tokens {
		x, d := logits[r*vocab:][:vocab], draws[r]
		if d.By == 0 {
			if token != -1 {
				b.Fatalf("row %d of %d has token %d, and none was asked for", r, rows, token)
			}
			continue
		}
		if token < 0 || int(token) >= vocab {
			b.Fatalf("row %d of %d: token %d of %d", r, rows, token, vocab)
		}
		w := weights(x, d.By)
		var before, sum float64
		for i, v := range w {
			if sum += v; i < int(token) {
				before += v
			}
		}
		if w[token] == 0 || before > (d.U+within)*sum || before+w[token] < (d.U-within)*sum {
			b.Fatalf("row %d of %d, %+v: token %d of %d, of weight %g behind %g of %g", r, rows, d, token, vocab, w[token], before, sum)
		}
		if vocab > 5000 && r > 0 {
			continue
		}
		if alone := b.draw(x, []compute.Draw{d}, nil); alone[0] != token {
			b.Fatalf("row %d of %d, %+v: token %d, alone %d", r, rows, d, token, alone[0])
		}
	}
}

// farthest draws behind all that a block may keep of a vocabulary of 256k tokens at one time.
func farthest(b *bench) {
	b.Helper()
	const vocab, first, want = 262_300, 262_150, 262_280
	x := make([]float32, vocab)
	for i := range x {
		x[i] = -20
	}
	for i := first; i < vocab; i++ {
		x[i] = 0
	}
	// Tokens have the weight 1 from first on, and all before them less than a thousandth.
	d := compute.Draw{By: 1, U: (want - first + 0.5) / (vocab - first)}
	if tokens := b.draw(x, []compute.Draw{d}, nil); tokens[0] != want {
		b.Fatalf("token %d of %d, want %d", tokens[0], vocab, want)
	}
}

// embedded looks drawn tokens up in the pass that draws them.
func embedded(b *bench) {
	b.Helper()
	const rows, vocab, width = 5, 40, 3
	logits, draws := make([]float32, rows*vocab), make([]compute.Draw, rows)
	for r := range draws {
		draws[r] = b.row(logits[r*vocab:][:vocab], 0)
	}
	var data []byte
	for i := range vocab * width {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(i)))
	}
	table, err := b.dev.Pack(compute.F32, compute.Matrix{Rows: vocab, Cols: width, Type: compute.F32, Data: data})
	if err != nil {
		b.Fatal(err)
	}
	dst := b.buffer(make([]float32, rows*width), rows, width)
	tokens := b.draw(logits, draws, func(tokens []int32) { b.q.Embed(dst, 0, table, tokens) })
	got := make([]float32, rows*width)
	b.q.Read(got, dst, 0)
	if err := b.q.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
	for i, v := range got {
		if want := float32(int(tokens[i/width])*width + i%width); v != want {
			b.Fatalf("element %d of row %d, token %d, is %v, want %v", i%width, i/width, tokens[i/width], v, want)
		}
	}
}
