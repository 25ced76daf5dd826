package infer

import (
	"errors"

	"talf/internal/slab"
	"talf/model"
)

// A Fallback is a kind of reason for which a round that was to have a draft had none.
type Fallback uint8

// The kinds.
const (
	FallbackSource  Fallback = iota // the draft model's pass failed
	FallbackPanic                   // the draft model panicked, and is not asked again
	FallbackMemory                  // the pool of keys and values was full
	FallbackNumbers                 // the target's numbers for the draft were not finite
	FallbackBudget                  // the draft would have cost more than it was expected to gain
	NumFallbacks    = iota
)

// String returns a word for metrics and logs.
func (f Fallback) String() string {
	return [NumFallbacks]string{"source_failed", "source_panicked", "kv_full", "not_finite", "budget"}[f]
}

// Why is a sentence for whoever asked, which says nothing of the machine.
func (f Fallback) Why() string {
	return [NumFallbacks]string{
		"the draft model failed", "the draft model broke, and is not asked again", "there was no memory left for keys and values",
		"numbers of the model's were not finite", "a draft would have cost more time than it was expected to gain",
	}[f]
}

// ErrBudget is why a round has no draft if a budget gave its rows to others, or to none.
var ErrBudget = errors.New("infer: a draft would cost more time than it is expected to gain")

// FallbackOf returns the kind of an error of Sequence.Undrafted.
func FallbackOf(err error) Fallback {
	var panicked *PanicError
	var odd *model.NonFiniteError
	switch {
	case errors.Is(err, ErrBudget):
		return FallbackBudget
	case errors.As(err, &panicked):
		return FallbackPanic
	case errors.Is(err, model.ErrKVFull):
		return FallbackMemory
	case errors.As(err, &odd):
		return FallbackNumbers
	}
	return FallbackSource
}

// fellBack counts a round that has no draft because of err.
func (s *Sequence) fellBack(err error) { *slab.At(&s.stats.Fallbacks, int(FallbackOf(err)))++ }
