package infer

import (
	"talf/compute"
	"talf/model/sample"
)

// Sampling is the Processor of a request's sampling parameters: bias, penalties, temperature,
// top-k, top-p, min-p. It belongs to one sequence.
type Sampling struct{ s *sample.Sampler }

// NewSampling returns a processor of p for the answer to a prompt of the given number of tokens.
func NewSampling(p sample.Params, prompt int) (*Sampling, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return &Sampling{sample.New(p, prompt)}, nil
}

// Argmax returns the most likely token after bias and penalties.
func (s *Sampling) Argmax(logits []float32, context []int32) int32 {
	return s.s.Argmax(logits, context)
}

// Plain reports whether there is no bias and no penalty.
func (s *Sampling) Plain() bool { return s.s.Plain() }

// Dist sets dst to the distribution that the token after context is drawn from.
func (s *Sampling) Dist(dst Dist, logits []float32, context []int32) {
	s.s.Dist64(dst, logits, context)
}

// Abilities: it finds quantiles.
func (s *Sampling) Abilities() ProcessorAbilities { return ProcessorAbilities{Quantile: s} }

// Quantile returns the token at quantile u of the distribution.
func (s *Sampling) Quantile(logits []float32, context []int32, u float64) int32 {
	return s.s.Quantile(logits, u, context)
}

// Wish returns what a pass may be asked for instead, if logits are drawn from as they are.
func (s *Sampling) Wish(u float64) (compute.Draw, bool) {
	by, ok := s.s.Scale()
	return compute.Draw{By: by, U: u}, ok
}
