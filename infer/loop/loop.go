// Package loop serves any number of requests with one engine: continuous batching.
//
// An engine, its target and its sources belong to one goroutine at a time. A Loop ensures that: requests are
// submitted, cancelled and read from any goroutine, and whoever owns the loop admits them, runs the passes
// that they share, and publishes what they emit. No reader is called from within a pass, and none can delay
// one: a Handle keeps the output so far, so that a slow reader loses nothing and costs only the text of its
// own request.
//
// The owner is the goroutine in Run, as in a server. If there is none, a goroutine that waits for its own
// request owns the loop until that request ends, and then passes it on: a program with one request decodes it
// in its own goroutine, without switching goroutines in any round.
//
// What ends one request (its context, its deadline, a panic of its parts, numbers that are not
// finite, too little memory) ends no other, and the output of a request does not depend on which
// others there are.
package loop

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"talf/infer"
	"talf/infer/draft/auto"
)

// Errors of requests. They are wrapped.
var (
	ErrQueueFull    = errors.New("loop: the queue is full")
	ErrQueueTimeout = errors.New("loop: the request waited too long in the queue")
	ErrTooLarge     = errors.New("loop: the request needs more keys and values than the pool has")
	ErrDraining     = errors.New("loop: no more requests are taken")
	ErrClosed       = errors.New("loop: it is closed")
	ErrBroken       = errors.New("loop: the model failed")
)

// A Config bounds a loop.
type Config struct {
	MaxRunning int // sequences that share a pass
	MaxQueue   int // requests that wait for their first pass
	// Stretch bounds how much prompts delay running answers: a pass that reads prompts takes at most about
	// this many times as long as one that does not. 0 sets no bound. The costs are measured as passes run.
	// Output never depends on it.
	Stretch float64
	// Delay, if not 0, is the longest that such a pass should take, in place of Stretch.
	Delay time.Duration
	// Global shares the rows of passes among the drafts of all requests by what they are expected
	// to gain: trees shrink as more requests run, and end where drafts do not pay. Without it each
	// method decides for its request.
	Global bool
}

// Default returns the bounds of a server.
func Default() Config { return Config{MaxRunning: 16, MaxQueue: 256, Stretch: 3, Global: true} }

// Offline returns no bounds: for programs in which nobody waits for the next token.
func Offline() Config { return Config{MaxRunning: math.MaxInt, MaxQueue: math.MaxInt} }

// Validate checks the ranges.
func (c Config) Validate() error {
	switch {
	case c.MaxRunning < 1:
		return fmt.Errorf("loop: most running sequences is %d, want at least 1", c.MaxRunning)
	case c.MaxQueue < 0:
		return fmt.Errorf("loop: most waiting requests is %d, want 0 or more", c.MaxQueue)
	case c.Stretch != 0 && !(c.Stretch > 1):
		return fmt.Errorf("loop: stretch is %v, want more than 1, or 0 for no bound", c.Stretch)
	case c.Delay < 0:
		return fmt.Errorf("loop: delay is %v, want 0 or more", c.Delay)
	}
	return nil
}

// A Loop serves requests. Its methods may be called from any goroutine.
type Loop struct {
	engine *infer.Engine
	config Config
	own    chan struct{} // holds a value while a goroutine owns the loop
	wake   chan struct{} // something was submitted or cancelled
	closed chan struct{}

	mu      sync.Mutex
	waiting []*Handle // in the order of arrival; some have run before and were preempted
	running []*Handle // in the order of rank
	ending  []*Handle // done or cancelled, and not closed yet
	next    uint64
	drain   chan struct{} // not nil: no more requests; closed when the last has ended
	err     error         // why no requests are taken
	live    int           // requests of the pass in progress that are not cancelled; 0 between passes
	pass    context.Context
	cut     context.CancelFunc
	stats   Stats

	// The owner's.
	seqs    []*infer.Sequence
	control *auto.Controller
	pace    pacer
	failed  int // steps in a row
	chunk   int // most tokens of a prompt in a pass
}

// New returns a loop over e, which belongs to it from now on.
func New(e *infer.Engine, c Config) (*Loop, error) {
	if err := errors.Join(c.Validate(), e.Config.Validate()); err != nil {
		return nil, err
	}
	l := &Loop{
		engine: e, config: c, chunk: e.Config.PrefillChunk,
		own: make(chan struct{}, 1), wake: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	// An engine that has been in a loop knows what its passes cost.
	if l.control, _ = e.Control.(*auto.Controller); l.control == nil {
		l.control = auto.New()
		e.Control = l.control
	}
	e.Config.Shared = c.Global
	l.pass, l.cut = context.WithCancel(context.Background())
	l.stats.Ended, l.stats.Methods, l.stats.KV = map[infer.Reason]int{}, map[string]*Drafting{}, e.Target.KV()
	return l, nil
}

// Options say how a request is scheduled. They never change its output.
type Options struct {
	// Priority is the rank among requests: higher ones are admitted first, and take the memory
	// of lower ones if there is too little. Among equals, those whose tenant has the fewest
	// running requests are admitted first, and of these those that came first.
	Priority int
	// MaxWait, if not 0, is the longest that it waits for its first pass.
	MaxWait time.Duration
}

// Submit hands in a request. It ends when ctx does, if not before: ctx carries its deadline. A request that
// could not be answered is refused at once; ErrQueueFull, ErrTooLarge, ErrDraining and ErrClosed are not
// mistakes in the request.
func (l *Loop) Submit(ctx context.Context, req infer.Request, opt Options) (*Handle, error) {
	if err := l.engine.Check(&req); err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	h := &Handle{
		loop: l, req: req, opt: opt, submitted: time.Now(), ctx: ctx,
		changed: make(chan struct{}, 1), done: make(chan struct{}),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refusal(&req); err != nil {
		l.stats.Refused++
		return nil, err
	}
	l.next++
	h.id = l.next
	l.waiting = append(l.waiting, h)
	l.stats.Submitted++
	h.stop = context.AfterFunc(ctx, func() { h.Cancel(context.Cause(ctx)) })
	if opt.MaxWait > 0 {
		h.timer = time.AfterFunc(opt.MaxWait, h.expire)
	}
	l.signal()
	return h, nil
}

// refusal returns why no request, or not this one, is taken.
func (l *Loop) refusal(req *infer.Request) error {
	fresh := 0
	for _, h := range l.waiting {
		if h.seq == nil {
			fresh++
		}
	}
	switch kv := l.stats.KV; {
	case l.err != nil:
		return l.err
	case l.drain != nil:
		return ErrDraining
	case fresh >= l.config.MaxQueue && fresh+len(l.running) >= l.config.MaxRunning:
		return fmt.Errorf("%w: %d requests wait, %d run", ErrQueueFull, fresh, len(l.running))
	case kv.Total > 0:
		// The last token needs no position of its own.
		most := min(len(req.Prompt)+req.MaxTokens, l.engine.Target.Shape().MaxLen) - 1
		if need := kv.Takes(0, most, l.chunk); need > kv.Total {
			return fmt.Errorf("%w: %d tokens take %d blocks of %d", ErrTooLarge, most, need, kv.Total)
		}
	}
	return nil
}

// Context returns the most tokens of a prompt and its answer: as many as the target has positions,
// or as the pool has room for if that is less, in a request that has it alone.
func (l *Loop) Context() int {
	most := l.engine.Target.Shape().MaxLen
	l.mu.Lock()
	defer l.mu.Unlock()
	if kv := l.stats.KV; kv.Total > 0 {
		most = min(most, kv.Positions(l.chunk)+1) // the last token needs no position of its own
	}
	return most
}

func (l *Loop) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run owns the loop until ctx ends or the loop is closed, and returns why. Requests that have not
// ended then stay as they are, for another Run.
func (l *Loop) Run(ctx context.Context) error {
	if err := l.take(ctx); err != nil {
		return err
	}
	defer l.leave()
	busy := true // since the idle timer was set
	var idle <-chan time.Time
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if l.round() {
			busy = true
			continue
		}
		if busy {
			busy, idle = false, time.After(rest)
		}
		select {
		case <-l.wake:
		case <-idle:
			l.release()
		case <-l.closed:
			return l.why()
		case <-ctx.Done():
		}
	}
}

// take makes the caller the owner of a loop that is not closed, once there is no other.
func (l *Loop) take(ctx context.Context) error {
	select {
	case l.own <- struct{}{}:
	case <-l.closed:
		return l.why()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := l.why(); err != nil { // any of the cases that are ready may be chosen
		l.leave()
		return err
	}
	return nil
}

// leave makes room for another owner.
func (l *Loop) leave() { <-l.own }

// rest is how long a loop has nothing to do before it gives the memory of past requests back. A
// client that sends one request after another should find it mapped.
const rest = 5 * time.Second

func (l *Loop) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Drain takes no more requests and waits until all have ended, or until ctx has. Some goroutine has to run
// the loop.
func (l *Loop) Drain(ctx context.Context) error {
	l.mu.Lock()
	if l.drain == nil {
		l.drain = make(chan struct{})
		l.drained()
	}
	drained := l.drain
	l.mu.Unlock()
	select {
	case <-drained:
		return nil
	case <-l.closed:
		return l.why()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// drained tells Drain if nothing is left.
func (l *Loop) drained() {
	if l.drain == nil || len(l.waiting)+len(l.running)+len(l.ending) > 0 {
		return
	}
	select {
	case <-l.drain:
	default:
		close(l.drain)
	}
}

// Close cancels all requests with ErrClosed and gives back what they hold. The engine is the
// caller's again.
func (l *Loop) Close() error {
	l.mu.Lock()
	if l.err == nil {
		l.err = ErrClosed
		close(l.closed)
	}
	all := slices.Concat(l.running, l.waiting)
	l.mu.Unlock()
	for _, h := range all {
		h.Cancel(ErrClosed)
	}
	l.own <- struct{}{} // which an owner soon gives up: there is nothing left for it
	l.reap()
	l.leave()
	return nil
}
