package dist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Group is a set of processes, called ranks, that train one run together: each runs its share
// of every step's micro-batches, and the gradients are summed. All ranks make the same calls in
// the same order, each from one goroutine. After an error a group can no longer be used.
type Group interface {
	Rank() int // from 0
	Size() int
	// Reduce starts to replace x by the sum of x over all ranks, with the same bits on
	// every rank, and returns at once. The group owns x until Wait has returned.
	Reduce(x []float32)
	// Wait waits until the sums that were started are done. If ctx ends first, it
	// returns the cause.
	Wait(ctx context.Context) error
	// Gather returns the messages of all ranks, by rank.
	Gather(ctx context.Context, msg []byte) ([][]byte, error)
	// Broadcast replaces x by rank 0's.
	Broadcast(ctx context.Context, x []float32) error
}

// ErrLost is the error of a run in which not all ranks answered.
var ErrLost = errors.New("not all ranks answer")

// errStopped is the error of a rank that stops because another was interrupted.
var errStopped = fmt.Errorf("another rank was interrupted: %w", context.Canceled)

// Peers is a group as one run uses it: ranks tell each other how they fared, so that they fail,
// stop and continue together, and a rank that was interrupted waits for the others only for a
// limited time. One goroutine uses it.
type Peers struct {
	group Group
	// Grace is how long an interrupted rank waits for the others to stop, too.
	Grace time.Duration

	lost        error // once a rank did not answer
	interrupted sync.Once
	deadline    time.Time // a grace after the first interruption was noticed
}

// NewPeers returns the group as a run uses it, with a grace of ten seconds; nil stands for this
// process alone.
func NewPeers(g Group) *Peers {
	if g == nil {
		g = Alone{}
	}
	return &Peers{group: g, Grace: 10 * time.Second}
}

// Rank returns this process's number, from 0.
func (p *Peers) Rank() int { return p.group.Rank() }

// Size returns the number of ranks.
func (p *Peers) Size() int { return p.group.Size() }

// Alone reports whether there is only one rank.
func (p *Peers) Alone() bool { return p.Size() == 1 }

// Lost returns the error of the operation in which a rank did not answer, nil if all have
// answered so far. All later operations return it, too.
func (p *Peers) Lost() error { return p.lost }

// Reduce implements Group.
func (p *Peers) Reduce(x []float32) { p.group.Reduce(x) }

// Wait waits for the sums that were started, for the grace beyond the end of ctx.
func (p *Peers) Wait(ctx context.Context) error {
	return p.patiently(ctx, p.group.Wait)
}

// Broadcast implements Group, and continues for the grace beyond the end of ctx.
func (p *Peers) Broadcast(ctx context.Context, x []float32) error {
	return p.patiently(ctx, func(ctx context.Context) error { return p.group.Broadcast(ctx, x) })
}

// patiently runs an operation of the group that outlives ctx by the rest of the grace: ranks are
// interrupted at slightly different times, and must agree on the step after which they stop.
func (p *Peers) patiently(ctx context.Context, operation func(context.Context) error) error {
	if p.lost != nil {
		return p.lost
	}
	patient, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { p.expire(patient, cancel) })
	defer stop()
	if err := operation(patient); err != nil {
		return p.missing(err)
	}
	return nil
}

// expire cancels an operation at the end of the grace, or once a rank is known to have
// ended: launchers kill soon after they interrupt, so there is no time to wait for it.
func (p *Peers) expire(operation context.Context, cancel context.CancelCauseFunc) {
	p.interrupted.Do(func() { p.deadline = time.Now().Add(p.Grace) })
	end, look := time.NewTimer(time.Until(p.deadline)), time.NewTicker(p.Grace/200)
	defer end.Stop()
	defer look.Stop()
	for {
		select {
		case <-look.C:
			if len(p.ended()) == 0 {
				continue
			}
		case <-end.C:
		case <-operation.Done():
			return
		}
		cancel(ErrLost)
		return
	}
}

// missing records the ranks that caused an error, as far as the group knows.
func (p *Peers) missing(err error) error {
	p.lost = fmt.Errorf("%w: %w", ErrLost, err)
	if errors.Is(err, ErrLost) {
		p.lost = fmt.Errorf("%w within %v", ErrLost, p.Grace)
	}
	if ranks := p.ended(); len(ranks) > 0 {
		p.lost = fmt.Errorf("%w: rank %s has ended", ErrLost, strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ranks)), ", "), "[]"))
	}
	return p.lost
}

// ended returns the ranks that the group knows to have ended.
func (p *Peers) ended() []int {
	if g, ok := p.group.(interface{ Lost() []int }); ok {
		return g.Lost()
	}
	return nil
}

// A report is what a rank tells the others when all must agree.
type report struct {
	Err  string          `json:"err,omitempty"`
	Stop bool            `json:"stop,omitempty"` // the rank was interrupted
	Body json.RawMessage `json:"body,omitempty"`
}

// Agree tells the other ranks how this one fared. If any failed, all get the error of the first
// that did; otherwise, if any was interrupted, all get a context.Canceled.
func (p *Peers) Agree(ctx context.Context, err error) error {
	_, err = p.Exchange(ctx, nil, err)
	return err
}

// Exchange is like Agree, and also gives every rank the bodies of all, as JSON, by rank.
func (p *Peers) Exchange(ctx context.Context, body any, err error) ([]json.RawMessage, error) {
	if p.lost != nil {
		return nil, p.lost
	}
	own := report{Stop: ctx.Err() != nil && errors.Is(err, ctx.Err())}
	if err != nil && !own.Stop {
		own.Err = err.Error()
	}
	if p.Alone() && err != nil {
		return nil, err
	}
	if body != nil && err == nil {
		own.Body = mustMarshal(body)
	}
	if p.Alone() {
		return []json.RawMessage{own.Body}, nil
	}
	var got [][]byte
	lost := p.patiently(ctx, func(ctx context.Context) (err error) {
		got, err = p.group.Gather(ctx, mustMarshal(own))
		return err
	})
	if lost != nil {
		return nil, lost
	}
	all := make([]report, len(got))
	for r, b := range got {
		if err := json.Unmarshal(b, &all[r]); err != nil {
			return nil, fmt.Errorf("message of rank %d: %w", r, err)
		}
	}
	return p.settle(ctx, all, err)
}

// fetchPiece is how many bytes Fetch passes on at a time. Messages of MPI are shorter than the weights of a large head,
// and every rank receives each.
const fetchPiece = 16 << 20

// Fetch returns msg of rank from, of any length, to rank 0. If that rank has none, all get err, which says why.
func (p *Peers) Fetch(ctx context.Context, from int, msg []byte, err error) (all []byte, _ error) {
	bodies, err := p.Exchange(ctx, len(msg), err)
	if err != nil {
		return nil, err
	}
	left := 0
	if err := json.Unmarshal(bodies[from], &left); err != nil {
		return nil, fmt.Errorf("length of a message of %s: %w", p.Name(from), err)
	}
	for ; left > 0; left -= fetchPiece {
		var piece []byte
		if p.Rank() == from {
			piece, msg = msg[:min(len(msg), fetchPiece)], msg[min(len(msg), fetchPiece):]
		}
		err := p.patiently(ctx, func(ctx context.Context) error {
			got, err := p.group.Gather(ctx, piece)
			if err == nil && p.Rank() == 0 {
				all = append(all, got[from]...)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// A meeting is a Group within one process, whose ranks can give each other more than messages. See (*Member).Once.
type meeting interface {
	Once(ctx context.Context, give any, f func(given []any) any) (any, error)
}

// Near reports whether there are several ranks, all in this process, so that they can meet.
func (p *Peers) Near() bool {
	_, ok := p.group.(meeting)
	return ok && !p.Alone()
}

// Meet calls rank 0's f once, with what all ranks give, by rank, and returns what it returns to all of them. The ranks
// are Near.
func (p *Peers) Meet(ctx context.Context, give any, f func(given []any) any) (got any, _ error) {
	err := p.patiently(ctx, func(ctx context.Context) (err error) {
		got, err = p.group.(meeting).Once(ctx, give, f)
		return err
	})
	return got, err
}

// A RankError is the error of one rank, or of several, but not all, and says which is the first of them.
type RankError struct {
	Rank int
	Well int // the first rank that has no error, −1 if all have one
	Err  error
	name string
}

func (e *RankError) Error() string { return e.name + ": " + e.Err.Error() }

func (e *RankError) Unwrap() error { return e.Err }

// Name returns what errors call a rank.
func (p *Peers) Name(rank int) string {
	if g, ok := p.group.(interface{ Name(rank int) string }); ok && g.Name(rank) != "" {
		return g.Name(rank)
	}
	return fmt.Sprintf("rank %d", rank)
}

func mustMarshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("dist: " + err.Error()) // bodies are plain structs of finite numbers
	}
	return b
}

// settle turns the ranks' reports into one outcome; err is this rank's own error.
func (p *Peers) settle(ctx context.Context, all []report, err error) ([]json.RawMessage, error) {
	first, same := -1, true
	stop := false
	bodies := make([]json.RawMessage, len(all))
	for r, x := range all {
		bodies[r], stop = x.Body, stop || x.Stop
		if x.Err != "" && first < 0 {
			first = r
		}
		same = same && x.Err == all[0].Err
	}
	switch {
	case first >= 0 && same:
		return nil, err // everyone's
	case first >= 0:
		failed := &RankError{Rank: first, Well: slices.IndexFunc(all, func(x report) bool { return x.Err == "" }), name: p.Name(first), Err: err}
		if first != p.Rank() {
			failed.Err = errors.New(all[first].Err)
		}
		return nil, failed
	case stop && ctx.Err() != nil:
		return nil, ctx.Err()
	case stop:
		return nil, errStopped
	}
	return bodies, nil
}

// Agree is for a rank that may fail before a run begins: all ranks of g get the error of the
// first that has one.
func Agree(ctx context.Context, g Group, err error) error {
	return NewPeers(g).Agree(ctx, err)
}

// Interrupted reports whether err, returned by an operation of a run, means an interruption of
// this rank (whose context is ctx) or of another, or the loss of one. The run should then save
// what it has learned so far.
func Interrupted(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, errStopped) || errors.Is(err, ErrLost)
}

// Share divides n micro-batches equally among the ranks, in order, and returns the first that
// this rank runs, and how many.
func (p *Peers) Share(n int) (first, count int) {
	count = n / p.Size()
	return p.Rank() * count, count
}

// Same compares what all ranks must have in common, part by part; what names the parts.
func (p *Peers) Same(ctx context.Context, what, parts []string) error {
	if p.Alone() {
		return nil
	}
	bodies, err := p.Exchange(ctx, parts, nil)
	if err != nil {
		return err
	}
	for r, b := range bodies {
		var other, zero []string
		if err := json.Unmarshal(bodies[0], &zero); err != nil {
			return err
		}
		if err := json.Unmarshal(b, &other); err != nil {
			return err
		}
		for i := range what {
			if zero[i] != other[i] {
				is, not := firstDifference(other[i], zero[i])
				return fmt.Errorf("%s has other %s than %s: %s, not %s", p.Name(r), what[i], p.Name(0), is, not)
			}
		}
	}
	return nil
}

// firstDifference cuts two texts down to the first word in which they differ.
func firstDifference(a, b string) (x, y string) {
	as, bs := strings.Fields(a), strings.Fields(b)
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return as[i], bs[i]
		}
	}
	return a, b
}
