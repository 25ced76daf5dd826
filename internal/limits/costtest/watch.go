package costtest

import (
	"context"
	"time"
)

// A Watch is a context that measures how much processor time of its thread passes between two
// looks at it, which a busy machine does not change. Its goroutine is locked to the thread.
type Watch struct {
	context.Context
	began, last, longest time.Duration
}

// NewWatch returns a Watch that ends with ctx.
func NewWatch(ctx context.Context) *Watch {
	now := threadTime()
	return &Watch{Context: ctx, began: now, last: now}
}

// Err looks at the context.
func (w *Watch) Err() error {
	w.look()
	return w.Context.Err()
}

// Times returns the processor time since the beginning, and the longest without a look. The time
// since the last look counts too.
func (w *Watch) Times() (all, longest time.Duration) {
	w.look()
	return w.last - w.began, w.longest
}

func (w *Watch) look() {
	now := threadTime()
	w.longest = max(w.longest, now-w.last)
	w.last = now
}
