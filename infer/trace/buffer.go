package trace

import (
	"sync"
	"time"

	"talf/infer"
	"talf/internal/limits"
)

// A Buffer records the rounds of a sequence for a reader elsewhere. If the reader is slow, rounds
// are left out rather than waited for or kept without bound. Its methods may be called from any
// goroutine.
type Buffer struct {
	rec   Recorder
	began time.Time

	mu      sync.Mutex
	rounds  []Numbered
	nodes   int // of rounds
	number  int
	dropped int
}

// A Numbered step is a round with its place among all rounds of the sequence, from 1. Numbers
// that are missing are those of rounds that were left out.
type Numbered struct {
	Round int
	After time.Duration // since NewBuffer
	Step  *Step
}

// NewBuffer returns an empty buffer.
func NewBuffer(r Recorder) *Buffer { return &Buffer{rec: r, began: time.Now()} }

// Round records one round, or leaves it out if limits.TraceNodes wait already; it can serve as
// infer.Request.Trace. It waits for nobody and never fails.
func (b *Buffer) Round(r infer.Round) error {
	n, after := r.Proposal.Tree.Len(), time.Since(b.began)
	b.mu.Lock()
	b.number++
	number, full := b.number, b.nodes > 0 && b.nodes+n > limits.TraceNodes
	if full {
		b.dropped++
	}
	b.mu.Unlock()
	if full { // what nobody sees costs nothing
		return nil
	}
	s := b.rec.Step(r)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rounds, b.nodes = append(b.rounds, Numbered{number, after, s}), b.nodes+n
	return nil
}

// Take removes what has been recorded and returns it.
func (b *Buffer) Take() []Numbered {
	b.mu.Lock()
	defer b.mu.Unlock()
	rounds := b.rounds
	b.rounds, b.nodes = nil, 0
	return rounds
}

// Dropped returns how many rounds were left out so far.
func (b *Buffer) Dropped() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}
