package train

import (
	"context"
	"errors"
	"fmt"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"

	"talf/compute"
	"talf/data"
	"talf/train/internal/gg"
	"talf/train/mix"
)

const (
	// linearPositions are twice as many as a prediction from two vectors of 4096 elements has unknowns.
	linearPositions = 1 << 14
	// linearRidge is the share by which the power of every input is overstated, without which inputs that hardly vary would
	// be given any weight.
	linearRidge = 0.01
)

// initLinear makes the head the linear map that best predicts, over the text to learn, the target's next hidden state f_{i+1}
// from what the head reads, f_i and the embedding of x_{i+1}: fc solves the normal equations of this ridge regression, and
// the layers add nothing yet.
func (h *headTask) initLinear(ctx context.Context) error {
	sums, err := h.moments(ctx)
	if err != nil {
		return err
	}
	solved := make(chan *mat.Dense, 1)
	go func() { solved <- ridge(sums, h.spec.Hidden) }() // takes seconds, in which nothing can stop it
	select {
	case <-ctx.Done():
		return ctx.Err()
	case fc := <-solved:
		if fc == nil {
			return errors.New("no linear head fits the data: want hidden states that are finite, and not all alike")
		}
		h.params.Linear(func(out, in int) float32 { return float32(fc.At(in, out)) })
		return nil
	}
}

// moments returns Σ z·[z, f_{i+1}]ᵀ over the text, [2·Hidden][3·Hidden], for z = [embedding of x_{i+1}, f_i].
func (h *headTask) moments(ctx context.Context) ([]float64, error) {
	w := h.spec.Hidden
	sums := make([]float64, 2*w*3*w)
	rows, err := gg.NewTensor(h.queue, "rows of the regression", make([]float32, h.cfg.Rows*3*w), h.cfg.Rows, 3*w)
	if err != nil {
		return nil, err
	}
	part, err := gg.NewTensor(h.queue, "their products", make([]float32, len(sums)), 2*w, 3*w)
	if err != nil {
		return nil, err
	}
	n := 0
	add := func() error {
		rows.Push()
		z := compute.Mat{Buf: rows.Buf, Rows: 2 * w, Cols: n, Stride: 3 * w, T: true}
		h.ops.Gemm(compute.Mat{Buf: part.Buf, Rows: 2 * w, Cols: 3 * w, Stride: 3 * w}, z, compute.Mat{Buf: rows.Buf, Rows: n, Cols: 3 * w, Stride: 3 * w}, 0)
		part.Pull()
		if err := h.queue.Sync(ctx); err != nil {
			return err
		}
		for i, x := range part.Data {
			sums[i] += float64(x)
		}
		n = 0
		return ctx.Err()
	}
	r, err := mix.NewReader(h.job.Data, h.cfg.Seed, h.split(data.Train), h.limit, 0)
	if err != nil {
		return nil, err
	}
	for left := min(linearPositions, h.job.Data.Tokens()); left > 0; {
		s, err := r.Next()
		if err != nil {
			return nil, err
		}
		left -= int64(len(s.Tokens))
		f, err := h.features(ctx, s.Record, false)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Place, err)
		}
		e, err := gg.Lookup(ctx, h.queue, h.table, s.Tokens)
		if err != nil {
			return nil, err
		}
		for i := range len(s.Tokens) - 1 {
			row := rows.Data[n*3*w:][:3*w]
			copy(row[:w], e[(i+1)*w:])
			copy(row[w:], f[i*w:(i+2)*w])
			if n++; n == h.cfg.Rows {
				if err := add(); err != nil {
					return nil, err
				}
			}
		}
	}
	if n == 0 {
		return sums, nil
	}
	return sums, add()
}

// ridge returns the map [2·w][w] that predicts best, given the sums of moments; nil if there is none.
func ridge(sums []float64, w int) *mat.Dense {
	for i := range 2 * w {
		d := &sums[i*3*w+i]
		if *d *= 1 + linearRidge; *d == 0 {
			*d = 1 // of an input that is always zero any weight is as good as none
		}
	}
	var power mat.SymDense
	power.SetRawSymmetric(blas64.Symmetric{N: 2 * w, Stride: 3 * w, Data: sums, Uplo: blas.Upper})
	var chol mat.Cholesky
	if !chol.Factorize(&power) {
		return nil
	}
	var fc mat.Dense
	if err := chol.SolveTo(&fc, mat.NewDense(2*w, 3*w, sums).Slice(0, 2*w, 2*w, 3*w)); err != nil {
		return nil // it is too near to having none
	}
	return &fc
}
