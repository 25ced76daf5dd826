package loop

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"talf/infer"
)

// A Handle is a request that was submitted. Its methods may be called from any goroutine, but
// one reads at a time.
type Handle struct {
	loop      *Loop
	id        uint64 // in the order of arrival
	req       infer.Request
	opt       Options
	ctx       context.Context // whose end cancels it
	stop      func() bool     // forgets the context
	timer     *time.Timer     // of MaxWait
	submitted time.Time

	// Guarded by the loop's mutex.
	seq   *infer.Sequence // the owner's until done
	count counted         // of seq, as it is in the loop's statistics
	cause error           // why it is cancelled
	ended bool

	mu       sync.Mutex
	snap     infer.Snapshot
	err      error
	admitted time.Time
	first    time.Time
	last     time.Time

	changed chan struct{}
	done    chan struct{}

	// The reader's.
	read infer.Reader
	deaf error // of emit
}

// Cancel ends the request with the given cause, nil for context.Canceled. What it holds is given
// back after the pass in progress, or within a layer if nobody else is in it. A request that has
// ended stays as it is.
func (h *Handle) Cancel(cause error) {
	if cause == nil {
		cause = context.Canceled
	}
	l := h.loop
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.ended || h.cause != nil {
		return
	}
	h.cause = cause
	if h.seq == nil && l.unqueue(h) {
		l.finish(h, infer.Snapshot{Reason: infer.Cancelled}, cause)
		return
	}
	if l.live > 0 && slices.Contains(l.running, h) {
		if l.live--; l.live == 0 {
			l.cut() // nobody in the pass waits for it
		}
	}
	l.signal()
}

// expire ends a request that has waited too long for its first pass.
func (h *Handle) expire() {
	l := h.loop
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.ended || h.cause != nil || h.seq != nil || !l.unqueue(h) {
		return
	}
	l.stats.Expired++
	l.finish(h, infer.Snapshot{Reason: infer.Cancelled}, fmt.Errorf("%w: %v", ErrQueueTimeout, h.opt.MaxWait))
}

// unqueue takes h out of the queue and reports whether it was there.
func (l *Loop) unqueue(h *Handle) bool {
	i := slices.Index(l.waiting, h)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	return i >= 0
}

// finish publishes the end of h. The caller holds the loop's mutex and has taken h out of its
// lists.
func (l *Loop) finish(h *Handle, end infer.Snapshot, err error) {
	h.ended = true
	l.stats.Ended[end.Reason]++
	l.drained()
	h.stop()
	if h.timer != nil {
		h.timer.Stop()
	}
	h.publish(end, err)
	close(h.done)
}

// publish hands the output so far to the reader.
func (h *Handle) publish(s infer.Snapshot, err error) {
	h.mu.Lock()
	if len(s.Tokens) > len(h.snap.Tokens) {
		h.last = time.Now()
		if len(h.snap.Tokens) == 0 {
			h.first = h.last
		}
	}
	h.snap, h.err = s, err
	h.mu.Unlock()
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// poll returns what is new; ok is false if nothing is, and ended says that nothing will be.
func (h *Handle) poll() (d infer.Delta, ok, ended bool) {
	h.mu.Lock()
	s := h.snap
	h.mu.Unlock()
	d, ok = h.read.Next(&s)
	return d, ok, s.Reason != ""
}

// Next returns what the request has emitted since the last call, and waits until there is something. Rounds
// that the reader was too slow for come as one delta. The last one has the reason for the end; after it the
// error is io.EOF. Some goroutine has to run the loop.
func (h *Handle) Next(ctx context.Context) (infer.Delta, error) {
	for {
		d, ok, ended := h.poll()
		switch {
		case ok:
			return d, nil
		case ended:
			return d, io.EOF
		}
		select {
		case <-h.changed:
		case <-ctx.Done():
			return d, context.Cause(ctx)
		}
	}
}

// Wait calls emit, unless it is nil, with what is new until the request ends, and returns the
// sequence, nil if it never began, and why it failed or was cancelled. An error of emit cancels
// the request. If nobody runs the loop, Wait does, and calls emit between the rounds: with other
// requests in the loop, that is for an emit which takes no time.
func (h *Handle) Wait(emit func(infer.Delta) error) (*infer.Sequence, error) {
	l, leading := h.loop, false
	defer func() {
		if leading {
			l.leave() // also if emit panics
		}
	}()
	for {
		if h.deliver(emit) {
			seq, err := h.Result()
			if h.deaf != nil {
				err = h.deaf
			}
			return seq, err
		}
		select {
		case <-h.changed:
		case l.own <- struct{}{}:
			leading = true
			for !h.deliver(emit) {
				if h.ctx.Err() != nil {
					h.Cancel(context.Cause(h.ctx)) // the goroutine that does so may come rounds later
				}
				l.round()
			}
		}
	}
}

// deliver calls emit with what is new and reports whether that was the last.
func (h *Handle) deliver(emit func(infer.Delta) error) (ended bool) {
	d, ok, ended := h.poll()
	if ok && emit != nil && h.deaf == nil {
		if err := emit(d); err != nil {
			h.deaf = fmt.Errorf("emit: %w", err)
			h.Cancel(h.deaf)
		}
	}
	return ended
}

// Done is closed when the request has ended.
func (h *Handle) Done() <-chan struct{} { return h.done }

// Result returns the sequence of a request that has ended, nil if it never began, and why it
// failed or was cancelled.
func (h *Handle) Result() (*infer.Sequence, error) {
	<-h.done
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seq, h.err
}

// Times say when a request came, was admitted for the first time, emitted its first token and its last so
// far. They are zero for what has not happened.
type Times struct{ Submitted, Admitted, First, Last time.Time }

// Times returns h's.
func (h *Handle) Times() Times {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Times{h.submitted, h.admitted, h.first, h.last}
}

// PromptRead returns how many tokens of the prompt have run, or were kept of an earlier one. The last token of a prompt runs with
// the first round. There are fewer again after a preemption.
func (h *Handle) PromptRead() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.snap.Read
}

// Answer submits a request and waits for its end. ctx, if it ends first, cancels it.
func (l *Loop) Answer(ctx context.Context, req infer.Request, emit func(infer.Delta) error) (*infer.Sequence, error) {
	h, err := l.Submit(ctx, req, Options{})
	if err != nil {
		return nil, err
	}
	return h.Wait(emit)
}
