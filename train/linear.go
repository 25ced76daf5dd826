package train

import (
	"context"
	"errors"
	"fmt"

	"gonum.org/v1/gonum/mat"

	"talf/data"
	"talf/train/internal/gg"
	"talf/train/mix"
)

const (
	// linearPositions are so many for a prediction from twice 4096 values to be determined.
	linearPositions = 1 << 14
	// linearRidge is the share by which the power of every input is overstated, without which inputs that hardly vary would
	// be given any weight.
	linearRidge = 0.01
)

// initLinear makes the head the linear map that best predicts, over the text to learn, the target's next hidden state f_{i+1}
// from what the head reads, f_i and the embedding of x_{i+1}: fc solves the normal equations of this ridge regression, and
// the layers add nothing yet.
func (h *headTask) initLinear(ctx context.Context) error {
	r, err := mix.NewReader(h.job.Data, h.cfg.Seed, h.split(data.Train), h.limit, 0)
	if err != nil {
		return err
	}
	w := h.spec.Hidden
	power, cross := mat.NewSymDense(2*w, nil), mat.NewDense(2*w, w, nil) // Σ z·zᵀ and Σ z·f_{i+1}ᵀ for z = [embedding, f_i]
	for left := min(linearPositions, h.job.Data.Tokens()); left > 0; {
		s, err := r.Next()
		if err != nil {
			return err
		}
		left -= int64(len(s.Tokens))
		if len(s.Tokens) < 2 {
			continue
		}
		f, err := h.features(ctx, s.Record, false)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Place, err)
		}
		e, err := gg.Lookup(ctx, h.queue, h.table, s.Tokens[1:])
		if err != nil {
			return err
		}
		n := len(s.Tokens) - 1
		z, next := mat.NewDense(n, 2*w, nil), mat.NewDense(n, w, nil)
		for i := range n {
			widen(z.RawRowView(i)[:w], e[i*w:])
			widen(z.RawRowView(i)[w:], f[i*w:])
			widen(next.RawRowView(i), f[(i+1)*w:])
		}
		power.SymRankK(power, 1, z.T())
		var c mat.Dense
		c.Mul(z.T(), next)
		cross.Add(cross, &c)
	}
	for i := range 2 * w {
		d := power.At(i, i) * (1 + linearRidge)
		if d == 0 {
			d = 1 // of an input that is always zero any weight is as good as none
		}
		power.SetSym(i, i, d)
	}
	var chol mat.Cholesky
	if !chol.Factorize(power) {
		return errors.New("a linear head cannot be fitted to the data: some hidden states are not finite")
	}
	var fc mat.Dense
	if err := chol.SolveTo(&fc, cross); err != nil {
		return fmt.Errorf("a linear head cannot be fitted to the data: %w", err)
	}
	h.params.Linear(func(out, in int) float32 { return float32(fc.At(in, out)) })
	return nil
}

// widen sets dst to the first values of x.
func widen(dst []float64, x []float32) {
	for i := range dst {
		dst[i] = float64(x[i])
	}
}
