package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"

	"talf/compute"
	"talf/data"
	"talf/model/arch"
	"talf/train/internal/gg"
	"talf/train/mix"
)

const (
	// linearPositions bound the time. A prediction from two vectors of 4096 elements has 1/32 of as many unknowns, and what
	// it loses on other text by learning them from so few, in squares, is as small a share.
	linearPositions = 1 << 18
	// linearRidge is the share by which the power of every input is overstated, without which inputs that hardly vary would
	// be given any weight.
	linearRidge = 0.01
)

// initLinear makes the head the linear map that best predicts, over the text to learn, what the target computes next from
// what the head reads, f_i and the embedding of x_{i+1}, by ridge regression. Of an EAGLE head, fc then gives f_{i+1}, and the
// layers add nothing yet; row k of a linear block head gives f_{i+1+k}.
func (h *headTask) initLinear(ctx context.Context) error {
	ahead, read := 1, func(f []float32) []float32 { return f }
	var norm []float32
	if b := &h.spec.Block; b.On {
		target := h.job.Target.Spec()
		if last := b.Taps[len(b.Taps)-1]; last != target.Layers {
			return fmt.Errorf("the linear start reads the output of the target's last layer: the taps end with %d, want %d", last, target.Layers)
		}
		if target.LayerNorm {
			return errors.New("the linear start of a block reads the target's last state under an RMS norm, and this target has LayerNorm")
		}
		var err error
		if norm, err = h.finalNorm(); err != nil {
			return err
		}
		ahead, read = b.Size, func(f []float32) []float32 { return lastNormed(f, h.spec, norm) }
	}
	sums, err := h.moments(ctx, ahead, read)
	if err != nil {
		return err
	}
	solved := make(chan *linearHead, 1)
	go func() { solved <- sums.solve(h.spec.Block.Rank) }() // takes seconds, in which nothing can stop it
	select {
	case <-ctx.Done():
		return ctx.Err()
	case best := <-solved:
		switch {
		case best == nil:
			return errors.New("no linear head fits the data: want hidden states that are finite, and not all alike")
		case norm == nil:
			h.params.Linear(func(out, in int) float32 { return float32(best.rows[0].At(in, out)) })
			return nil
		}
		h.params.LinearRows(norm, func(row, out, in int) float32 { return float32(best.rows[row].At(in, out)) })
		if best.in == nil {
			return nil
		}
		return h.linearMarkov(ctx, best.in, best.out)
	}
}

// linearMarkov sets a Markov head that adds m·in·outᵀ, both [Hidden][up to rank], to the hidden state before the LM head.
func (h *headTask) linearMarkov(ctx context.Context, in, out *mat.Dense) error {
	narrow := func(m *mat.Dense) blas32.General {
		rows, cols := m.Dims()
		x := blas32.General{Rows: rows, Cols: cols, Stride: cols, Data: make([]float32, rows*cols)}
		for i := range x.Data {
			x.Data[i] = float32(m.At(i/cols, i%cols))
		}
		return x
	}
	times := func(rows []float32, m blas32.General) []float32 {
		x := blas32.General{Rows: len(rows) / m.Rows, Cols: m.Rows, Stride: m.Rows, Data: rows}
		y := blas32.General{Rows: x.Rows, Cols: m.Cols, Stride: m.Cols, Data: make([]float32, x.Rows*m.Cols)}
		blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, x, m, 0, y)
		return y.Data
	}
	lm, err := h.hostLMHead()
	if err != nil {
		return err
	}
	first, second := narrow(in), narrow(out)
	var w1 []float32
	for ids := range slices.Chunk(tokens(h.spec.Vocab), 1024) { // of a large vocabulary, all at once would be much
		e, err := gg.Lookup(ctx, h.queue, h.table, ids)
		if err != nil {
			return err
		}
		w1 = append(w1, times(e, first)...)
	}
	h.params.SetMarkov(w1, times(lm, second), first.Cols)
	return nil
}

// tokens returns all tokens of a vocabulary.
func tokens(vocab int) []int32 {
	ids := make([]int32, vocab)
	for i := range ids {
		ids[i] = int32(i)
	}
	return ids
}

// lastNormed returns the last taps of features under a norm: what the target's LM head reads.
func lastNormed(f []float32, spec *arch.Spec, norm []float32) []float32 {
	w, all := spec.Hidden, spec.FeatureSize()
	out := make([]float32, 0, len(f)/all*w)
	for ; len(f) > 0; f = f[all:] {
		var sum float64
		x := f[all-w : all]
		for _, v := range x {
			sum += float64(v) * float64(v)
		}
		scale := float32(1 / math.Sqrt(sum/float64(w)+float64(spec.NormEps)))
		for i, v := range x {
			out = append(out, v*scale*norm[i])
		}
	}
	return out
}

// A gram sums products of rows: of their first in elements with all of them.
type gram struct {
	h          *headTask
	in, cols   int
	sums       []float64 // [in][cols]
	rows, part *gg.Tensor
	n          int // rows that are not summed yet
}

func (h *headTask) newGram(in, cols int) (*gram, error) {
	g := &gram{h: h, in: in, cols: cols, sums: make([]float64, in*cols)}
	var err error
	if g.rows, err = gg.NewTensor(h.queue, "rows of the regression", make([]float32, h.cfg.Rows*cols), h.cfg.Rows, cols); err != nil {
		return nil, err
	}
	g.part, err = gg.NewTensor(h.queue, "their products", make([]float32, len(g.sums)), in, cols)
	return g, err
}

// add appends a row, which parts make side by side.
func (g *gram) add(ctx context.Context, parts ...[]float32) error {
	row := g.rows.Data[g.n*g.cols:][:g.cols]
	for _, p := range parts {
		row = row[copy(row, p):]
	}
	if g.n++; g.n < g.h.cfg.Rows {
		return nil
	}
	return g.flush(ctx)
}

// flush sums the rows that are there.
func (g *gram) flush(ctx context.Context) error {
	if g.n == 0 {
		return nil
	}
	g.rows.Push()
	z := compute.Mat{Buf: g.rows.Buf, Rows: g.in, Cols: g.n, Stride: g.cols, T: true}
	g.h.ops.Gemm(compute.Mat{Buf: g.part.Buf, Rows: g.in, Cols: g.cols, Stride: g.cols}, z, compute.Mat{Buf: g.rows.Buf, Rows: g.n, Cols: g.cols, Stride: g.cols}, 0)
	g.part.Pull()
	if err := g.h.queue.Sync(ctx); err != nil {
		return err
	}
	for i, x := range g.part.Data {
		g.sums[i] += float64(x)
	}
	g.n = 0
	return ctx.Err()
}

// LinearMemory returns how many bytes the linear start of a head takes at most: the sums of its regression in float64, those of
// a batch in float32 here and on the device, the solution, and three squares of what solves for it.
func LinearMemory(spec *arch.Spec) int64 {
	ahead := 1
	if spec.Block.On {
		ahead = spec.Block.Size
	}
	in, cols := 2*int64(spec.Hidden), linearCols(spec, ahead)
	return in*cols*(8+4+4) + in*(cols-in)*8 + 3*in*in*8
}

// linearCols is the length of the rows that a regression sums products of.
func linearCols(spec *arch.Spec, ahead int) int64 {
	vectors := 2 + ahead
	if spec.Block.Markov == arch.VanillaMarkov {
		vectors += ahead - 1
	}
	return int64(vectors * spec.Hidden)
}

// A regression is the sums of what predicts the target's next states. With z = [embedding of x_{i+1}, f_i], y_k = f_{i+1+k} and
// m_k the embedding of x_{i+1+k}, they are Σ z·[z, y_0 …, m_1 …]ᵀ, and Σ m_k·[m_k, y_k]ᵀ over k > 0.
type regression struct {
	w, ahead int
	by, pair *gram // pair is nil without a Markov head
}

// moments sums over the text; read makes f of the features of a text.
func (h *headTask) moments(ctx context.Context, ahead int, read func(features []float32) []float32) (*regression, error) {
	w := h.spec.Hidden
	s := &regression{w: w, ahead: ahead}
	var err error
	if h.spec.Block.Markov == arch.VanillaMarkov && ahead > 1 {
		if s.pair, err = h.newGram(w, 2*w); err != nil {
			return nil, err
		}
	}
	if s.by, err = h.newGram(2*w, int(linearCols(h.spec, ahead))); err != nil {
		return nil, err
	}
	r, err := mix.NewReader(h.job.Data, h.cfg.Seed, h.split(data.Train), h.limit, 0)
	if err != nil {
		return nil, err
	}
	for left := min(linearPositions, int64(float64(h.job.Data.Tokens())*(1-h.cfg.Held))); left > 0; {
		rec, err := r.Next()
		if err != nil {
			return nil, err
		}
		left -= int64(len(rec.Tokens))
		f, err := h.features(ctx, rec.Record, false)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rec.Place, err)
		}
		e, err := gg.Lookup(ctx, h.queue, h.table, rec.Tokens)
		if err != nil {
			return nil, err
		}
		f = read(f)
		for i := range len(rec.Tokens) - ahead {
			parts := [][]float32{e[(i+1)*w:][:w], f[i*w : (i+1+ahead)*w]}
			if s.pair != nil {
				parts = append(parts, e[(i+2)*w:(i+1+ahead)*w])
			}
			if err := s.by.add(ctx, parts...); err != nil {
				return nil, err
			}
			for k := 1; k < ahead && s.pair != nil; k++ {
				if err := s.pair.add(ctx, e[(i+1+k)*w:][:w], f[(i+1+k)*w:][:w]); err != nil {
					return nil, err
				}
			}
		}
	}
	if s.pair != nil {
		if err := s.pair.flush(ctx); err != nil {
			return nil, err
		}
	}
	return s, s.by.flush(ctx)
}

// A linearHead predicts y_k = z·rows[k], [2·w][w], and with a Markov head + m_k·in·outᵀ, both [w][rank].
type linearHead struct {
	rows    []*mat.Dense
	in, out *mat.Dense
}

// solve returns the head that predicts best with a Markov head of so many elements; nil if there is none. Of the latter,
// what z predicts of m_k is taken away first (Frisch and Waugh), and what its elements can hold is that which predicts most.
func (s *regression) solve(rank int) *linearHead {
	w, cols := s.w, s.by.cols
	all := ridge(s.by.sums, 2*w, cols)
	if all == nil {
		return nil
	}
	part := func(m *mat.Dense, k int) *mat.Dense { // columns of the k-th of what is predicted
		rows, _ := m.Dims()
		return m.Slice(0, rows, k*w, (k+1)*w).(*mat.Dense)
	}
	h := &linearHead{}
	for k := range s.ahead {
		h.rows = append(h.rows, part(all, k))
	}
	if s.pair == nil {
		return h
	}
	products := mat.NewDense(2*w, cols, s.by.sums).Slice(0, 2*w, 2*w, cols).(*mat.Dense)
	for k := 1; k < s.ahead; k++ {
		var less mat.Dense
		zm := part(products, s.ahead+k-1).T()
		for j, of := range []int{s.ahead + k - 1, k} {
			less.Mul(zm, part(all, of))
			for r := range w {
				for c := range w {
					s.pair.sums[r*2*w+j*w+c] -= less.At(r, c)
				}
			}
		}
	}
	markov := ridge(s.pair.sums, w, 2*w)
	if markov == nil {
		return nil
	}
	// What the map predicts of y, in squares by direction: markovᵀ·Σ m·mᵀ·markov, and the product of the last two is Σ m·yᵀ.
	var told mat.Dense
	told.Mul(markov.T(), mat.NewDense(w, 2*w, s.pair.sums).Slice(0, w, w, 2*w))
	squares := mat.NewSymDense(w, nil)
	for r := range w {
		for c := r; c < w; c++ {
			squares.SetSym(r, c, (told.At(r, c)+told.At(c, r))/2)
		}
	}
	var eigen mat.EigenSym
	if !eigen.Factorize(squares, true) {
		return nil
	}
	var v mat.Dense
	eigen.VectorsTo(&v) // the largest come last
	h.in, h.out = &mat.Dense{}, mat.DenseCopyOf(v.Slice(0, w, w-min(rank, w), w))
	h.in.Mul(markov, h.out)
	var kept mat.Dense
	kept.Mul(h.in, h.out.T())
	for r := range w { // m_0 is a part of z
		for c := range w {
			h.rows[0].Set(r, c, h.rows[0].At(r, c)-kept.At(r, c))
		}
	}
	for k := 1; k < s.ahead; k++ {
		var less mat.Dense
		less.Mul(part(all, s.ahead+k-1), &kept)
		h.rows[k].Sub(h.rows[k], &less)
	}
	return h
}

// ridge returns the map [in][cols−in] that predicts best, given sums [in][cols], whose power it overstates; nil if there is
// none.
func ridge(sums []float64, in, cols int) *mat.Dense {
	for i := range in {
		d := &sums[i*cols+i]
		if *d *= 1 + linearRidge; *d == 0 {
			*d = 1 // of an input that is always zero any weight is as good as none
		}
	}
	var power, inverse mat.SymDense
	power.SetRawSymmetric(blas64.Symmetric{N: in, Stride: cols, Data: sums, Uplo: blas.Upper})
	var chol mat.Cholesky
	if !chol.Factorize(&power) || chol.InverseTo(&inverse) != nil {
		return nil // or too near to having none
	}
	var fc mat.Dense
	fc.Mul(mat.DenseCopyOf(&inverse), mat.NewDense(in, cols, sums).Slice(0, in, in, cols)) // thrice as fast as chol.SolveTo
	return &fc
}
