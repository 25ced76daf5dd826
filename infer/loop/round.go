package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"talf/infer"
)

// round admits what there is room for and runs one step of the engine. It reports whether there
// was anything to do. The caller owns the loop.
func (l *Loop) round() (busy bool) {
	defer l.guard("a round", &busy)
	l.reap()
	l.admit()
	l.mu.Lock()
	l.seqs, l.live = l.seqs[:0], 0
	for _, h := range l.running {
		l.seqs = append(l.seqs, h.seq)
		if h.cause == nil {
			l.live++
		}
	}
	ctx, stopped := l.pass, l.err != nil
	if l.live == 0 && len(l.running) > 0 {
		stopped = true // all were cancelled since they were reaped
	}
	l.mu.Unlock()
	if len(l.seqs) == 0 || stopped {
		return len(l.seqs) > 0 && l.why() == nil
	}
	l.engine.Config.PassRows = l.passRows()
	l.settle(l.engine.Step(ctx, l.seqs))
	return true
}

// passRows returns the rows that the next pass may have if it has draft trees: theirs, and as many of prompts as keep
// within the bounds of the configuration.
func (l *Loop) passRows() int {
	if l.config.Stretch == 0 && l.config.Delay == 0 {
		return 0
	}
	trees, prompts := l.control.Prompts(l.config.Stretch, l.config.Delay.Seconds())
	return trees + min(prompts, l.engine.Config.PrefillChunk)
}

// guard makes a panic the end of the loop, and sets end. It must be deferred itself.
func (l *Loop) guard(op string, end *bool) {
	if v := recover(); v != nil {
		l.breakDown(&infer.PanicError{Op: op, Value: v, Stack: debug.Stack()})
		*end = true
	}
}

// release gives memory that no request uses back to the system.
func (l *Loop) release() {
	var broken bool
	defer l.guard("release memory", &broken)
	l.engine.ReleaseKV()
	kv := l.engine.Target.KV()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.KV = kv
}

// reap closes what was cancelled, after which a pass that was cut short may be run again.
func (l *Loop) reap() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live = 0 // until the next pass: what is cancelled before it cuts none
	if l.pass.Err() != nil && l.err == nil {
		// Even if nobody is left to close: a request may end in the pass in which it is cancelled.
		l.pass, l.cut = context.WithCancel(context.Background())
	}
	cancelled := func(h *Handle) bool { return h.cause != nil }
	if !slices.ContainsFunc(l.running, cancelled) && !slices.ContainsFunc(l.waiting, cancelled) {
		return
	}
	take := func(h *Handle) bool {
		if h.cause != nil {
			h.seq.Cancel(h.cause) // it has run: what has not left the queue when it was cancelled
			l.ending = append(l.ending, h)
		}
		return h.cause != nil
	}
	l.running = slices.DeleteFunc(l.running, take)
	l.waiting = slices.DeleteFunc(l.waiting, take)
	l.end()
}

// end closes and finishes those that are ending. The caller holds the mutex. If the target panics, they
// are still in the list.
func (l *Loop) end() {
	l.closeEnding()
	l.stats.KV = l.engine.Target.KV()
	for _, h := range l.ending {
		l.finish(h, h.seq.Snapshot(), h.seq.Err())
	}
	clear(l.ending)
	l.ending = l.ending[:0]
	l.drained()
}

// closeEnding closes the sequences of those that are ending, without the mutex that the caller holds: their drafters are
// told of rounds that they have not seen, and what a drafter calls may cancel requests.
func (l *Loop) closeEnding() {
	l.mu.Unlock()
	defer l.mu.Lock()
	for _, h := range l.ending {
		l.engine.Close(h.seq)
	}
}

// admit begins waiting requests while there is room.
func (l *Loop) admit() {
	for {
		l.mu.Lock()
		h := l.pick()
		l.mu.Unlock()
		if h == nil {
			return
		}
		if !l.fits(h) {
			if !l.displace(h) {
				return
			}
			continue
		}
		seq, err := h.seq, error(nil)
		if seq == nil {
			seq, err = l.engine.Open(h.req)
		}
		l.mu.Lock()
		if !l.unqueue(h) {
			// It was cancelled while it was opened.
			l.mu.Unlock()
			if seq != nil {
				l.engine.Close(seq)
			}
			continue
		}
		if err != nil {
			l.finish(h, infer.Snapshot{Reason: infer.Failed}, err)
			l.mu.Unlock()
			continue
		}
		if h.seq == nil {
			h.mu.Lock()
			h.admitted = time.Now()
			h.mu.Unlock()
			l.stats.PromptTokens += seq.Stats().Prompt
			l.stats.CachedTokens += seq.Stats().Cached
		}
		h.seq = seq
		at, _ := slices.BinarySearchFunc(l.running, h, byRank)
		l.running = slices.Insert(l.running, at, h)
		l.mu.Unlock()
	}
}

// byRank orders by priority, then by arrival.
func byRank(a, b *Handle) int {
	return cmp.Or(cmp.Compare(b.opt.Priority, a.opt.Priority), cmp.Compare(a.id, b.id))
}

// pick returns the waiting request that is to be admitted next: of the highest priority; among
// these one that has run before, since it holds what a reader has begun to read; then of the
// tenant with the fewest running requests; then the oldest.
func (l *Loop) pick() (best *Handle) {
	if l.err != nil {
		return nil
	}
	var mine map[string]int
	running := func(h *Handle) int {
		if mine == nil {
			mine = map[string]int{}
			for _, r := range l.running {
				mine[r.req.Tenant]++
			}
		}
		return mine[h.req.Tenant]
	}
	fresh := func(h *Handle) int {
		if h.seq == nil {
			return 1
		}
		return 0
	}
	for _, h := range l.waiting {
		if h.cause != nil {
			continue // until it is reaped
		}
		if best == nil || cmp.Or(
			cmp.Compare(best.opt.Priority, h.opt.Priority),
			cmp.Compare(fresh(h), fresh(best)),
			fresh(h)*cmp.Compare(running(h), running(best)),
			cmp.Compare(h.id, best.id)) < 0 {
			best = h
		}
	}
	return best
}

// fits reports whether there is room for h. A request that runs alone always has some.
func (l *Loop) fits(h *Handle) bool {
	if len(l.running) == 0 {
		return true
	}
	if len(l.running) >= l.config.MaxRunning {
		return false
	}
	kv := l.engine.Target.KV()
	if kv.Total == 0 {
		return true
	}
	// What runs will take more: the rest of its prompt, a tree, and a block for its next tokens.
	taken := 0
	for _, r := range l.running {
		n := r.length()
		taken += kv.Takes(n-1-r.seq.Pending(), n+r.seq.Tree(), l.chunk) + 1
	}
	need := func(from int) int { return kv.Takes(from, h.length()+1, l.chunk) + 1 + kv.State }
	if free := kv.Free - taken; need(0) > free {
		// What a kept prefix has of it is there already.
		return need(l.engine.Kept(h.req.Tenant, h.tokens())/kv.BlockTokens*kv.BlockTokens) <= free
	}
	return true
}

// length is the number of tokens so far.
func (h *Handle) length() int {
	if h.seq == nil {
		return len(h.req.Prompt)
	}
	return len(h.seq.Prompt()) + len(h.seq.Tokens())
}

func (h *Handle) tokens() []int32 {
	if h.seq == nil {
		return h.req.Prompt
	}
	return slices.Concat(h.seq.Prompt(), h.seq.Tokens())
}

// displace preempts the last running sequence for h, if h has a higher priority.
func (l *Loop) displace(h *Handle) bool {
	last := l.running[len(l.running)-1]
	if last.opt.Priority >= h.opt.Priority {
		return false
	}
	l.engine.Preempt(last.seq)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stats.Preemptions++
	l.running = l.running[:len(l.running)-1]
	l.requeue(last)
	return true
}

// requeue puts what was preempted back into the queue, in the order of arrival.
func (l *Loop) requeue(h *Handle) {
	at, _ := slices.BinarySearchFunc(l.waiting, h, func(a, b *Handle) int { return cmp.Compare(a.id, b.id) })
	l.waiting = slices.Insert(l.waiting, at, h)
}

// settle publishes what a step did.
func (l *Loop) settle(err error) {
	if err != nil && !l.recovered(err) {
		return
	}
	if err == nil {
		l.failed = 0
	}
	p := l.engine.LastPass()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &l.stats
	s.Budget = l.engine.Config.PassRows
	l.pace.add(&p, l.control)
	s.Pace = l.pace.pace()
	if p.Rows > 0 {
		s.Passes++
	}
	s.Rows, s.PromptRows, s.Preemptions, s.Delayed = s.Rows+p.Rows, s.PromptRows+p.Prompt, s.Preemptions+p.Dropped, s.Delayed+p.Delayed
	s.Draft, s.Verify, s.Busy = s.Draft+p.Draft, s.Verify+p.Verify, s.Busy+p.Took
	stay := l.running[:0]
	for _, h := range l.running {
		s.count(h)
		switch _, done := h.seq.Done(); {
		case done:
			l.ending = append(l.ending, h)
			continue
		case h.seq.Preempted():
			l.requeue(h)
		default:
			stay = append(stay, h)
		}
		h.publish(h.seq.Snapshot(), nil)
	}
	clear(l.running[len(stay):])
	l.running = stay
	l.end()
}

// retries is how often a step that fails is tried again before the loop looks for the sequence
// that makes it fail.
const retries = 2

// recovered deals with a step that failed. It reports whether there is something to settle.
func (l *Loop) recovered(err error) bool {
	l.mu.Lock()
	l.stats.Failed++
	cut := l.pass.Err() != nil
	l.mu.Unlock()
	var p *infer.PanicError
	if errors.As(err, &p) {
		l.breakDown(err)
		return false
	}
	if cut {
		return false // all of its requests were cancelled: they are reaped next
	}
	if l.failed++; l.failed <= retries {
		return false
	}
	l.failed = 0
	for _, s := range l.seqs {
		if err := l.engine.Step(l.pass, []*infer.Sequence{s}); err != nil {
			if errors.As(err, &p) {
				l.breakDown(err)
				return false
			}
			if l.pass.Err() == nil {
				s.Fail(err)
			}
		}
	}
	return true
}

// breakDown ends everything, because the state of the model is unknown.
func (l *Loop) breakDown(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = fmt.Errorf("%w: %w", ErrBroken, err)
		close(l.closed)
	}
	all := slices.Concat(l.running, l.waiting, l.ending)
	l.running, l.waiting, l.ending = nil, nil, nil
	for _, h := range all {
		if h.ended {
			continue
		}
		end, err := infer.Snapshot{Reason: infer.Failed}, l.err
		if h.seq != nil {
			h.seq.Fail(err) // unless it has ended
			end, err = h.seq.Snapshot(), h.seq.Err()
		}
		l.finish(h, end, err)
	}
}
