package infer

import (
	"slices"

	"talf/model/sample"
)

// Sampling is the Processor of a request's sampling parameters: repetition
// penalty, temperature, top-k, top-p, min-p. It belongs to one sequence at a time.
type Sampling struct {
	s   *sample.Sampler
	row []float32
}

// NewSampling returns a processor for p.
func NewSampling(p sample.Params) (*Sampling, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return &Sampling{s: sample.New(p)}, nil
}

// Argmax is the most likely token after penalties.
func (s *Sampling) Argmax(logits []float32, context []int32) int32 {
	return s.s.Argmax(logits, context)
}

// Dist is what the token after context is drawn from.
func (s *Sampling) Dist(dst Dist, logits []float32, context []int32) {
	s.row = slices.Grow(s.row[:0], len(logits))[:len(logits)]
	s.s.Dist(s.row, logits, context)
	for i, p := range s.row {
		dst[i] = float64(p)
	}
}
