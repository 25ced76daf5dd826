package dist

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Link returns how long a message of the given size takes. Messages are sent one after
// another.
type Link func(bytes int) time.Duration

// Together calls run for all members of a group within this process, such as the devices of one machine, each on a goroutine of
// its own, and returns what the first returns. Errors call members by their names.
func Together[N ~string, R any](names []N, run func(rank int, m *Member) (R, error)) (R, error) {
	ms := Local(len(names), nil)
	results, errs := make([]R, len(ms)), make([]error, len(ms))
	for _, n := range names {
		ms[0].hub.names = append(ms[0].hub.names, string(n))
	}
	var wg sync.WaitGroup
	for i, m := range ms {
		wg.Go(func() { results[i], errs[i] = run(i, m) })
	}
	wg.Wait()
	return results[0], errs[0]
}

// Local returns the members of a group within this process, by rank. Each is for one goroutine.
// Sums are computed in the order of the ranks. link may be nil.
func Local(n int, link Link) []*Member {
	h := &hub{n: n, link: link, rounds: map[int]*round{}, gone: make([]bool, n), sent: make(chan struct{})}
	close(h.sent)
	ms := make([]*Member, n)
	for i := range ms {
		ms[i] = &Member{hub: h, rank: i}
	}
	return ms
}

// A Member is one rank of a Local group.
type Member struct {
	hub     *hub
	rank    int
	at      int // operations started
	pending []*round
}

type hub struct {
	n     int
	link  Link
	names []string // of the ranks; nil: they have none

	mu     sync.Mutex
	rounds map[int]*round // that some member has not joined yet
	gone   []bool
	sent   chan struct{} // closed when the last message has arrived
}

// A round is one operation of all members.
type round struct {
	kind  string
	size  int // numbers; −1: any
	nums  [][]float32
	bytes [][]byte
	given []any
	once  func(given []any) any // rank 0's
	got   any                   // what it returned
	here  int
	err   error
	done  chan struct{}
}

// Rank returns the member's number, from 0.
func (m *Member) Rank() int { return m.rank }

// Size returns the number of members.
func (m *Member) Size() int { return m.hub.n }

// Name returns what errors call a rank, "" if it has no name.
func (m *Member) Name(rank int) string {
	if m.hub.names == nil {
		return ""
	}
	return m.hub.names[rank]
}

// Reduce implements Group.
func (m *Member) Reduce(x []float32) {
	m.pending = append(m.pending, m.join("reduces", len(x), x, nil, nil, nil))
}

// Wait implements Group.
func (m *Member) Wait(ctx context.Context) error {
	for len(m.pending) > 0 {
		if err := m.pending[0].wait(ctx); err != nil {
			return err
		}
		m.pending = m.pending[1:]
	}
	return nil
}

// Gather implements Group.
func (m *Member) Gather(ctx context.Context, msg []byte) ([][]byte, error) {
	r := m.join("gathers", -1, nil, slices.Clone(msg), nil, nil)
	return r.bytes, r.wait(ctx)
}

// Broadcast implements Group.
func (m *Member) Broadcast(ctx context.Context, x []float32) error {
	return m.join("broadcasts", len(x), x, nil, nil, nil).wait(ctx)
}

// Once calls f, that of rank 0, with what all members give, by rank, and returns to each of them what f returns. It is for what
// processes could not give each other.
func (m *Member) Once(ctx context.Context, give any, f func(given []any) any) (any, error) {
	r := m.join("meets", -1, nil, nil, give, f)
	if err := r.wait(ctx); err != nil {
		return nil, err
	}
	return r.got, nil
}

// Leave removes the member as if its process had been killed.
func (m *Member) Leave() {
	m.hub.mu.Lock()
	defer m.hub.mu.Unlock()
	m.hub.gone[m.rank] = true
}

// Lost returns the ranks that left.
func (m *Member) Lost() (ranks []int) {
	m.hub.mu.Lock()
	defer m.hub.mu.Unlock()
	for i, g := range m.hub.gone {
		if g {
			ranks = append(ranks, i)
		}
	}
	return ranks
}

func (r *round) wait(ctx context.Context) error {
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
	}
	select {
	case <-r.done: // what is done counts, though nobody looked before the end of ctx
		return r.err
	default:
		return context.Cause(ctx)
	}
}

// join adds the member's part to its next round. The round starts when the last member
// has joined it.
func (m *Member) join(kind string, size int, x []float32, msg []byte, give any, once func([]any) any) *round {
	h := m.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.rounds[m.at]
	if r == nil {
		r = &round{kind: kind, size: size, nums: make([][]float32, h.n), bytes: make([][]byte, h.n), given: make([]any, h.n), done: make(chan struct{})}
		h.rounds[m.at] = r
	}
	if r.kind != kind || r.size != size {
		r.err = fmt.Errorf("operation %d: rank %d %s %d numbers where another %s %d", m.at, m.rank, kind, size, r.kind, r.size)
	}
	r.nums[m.rank], r.bytes[m.rank], r.given[m.rank] = x, msg, give
	if m.rank == 0 {
		r.once = once
	}
	if r.here++; r.here < h.n {
		m.at++
		return r
	}
	delete(h.rounds, m.at)
	m.at++
	before, after := h.sent, make(chan struct{})
	h.sent = after
	go func() {
		defer func() {
			if v := recover(); v != nil { // the members get it, and the next rounds go on
				r.err = fmt.Errorf("%s: panic: %v\n%s", r.kind, v, debug.Stack())
			}
			close(r.done)
			close(after)
		}()
		<-before
		if h.link != nil {
			time.Sleep(h.link(r.len()))
		}
		if r.err == nil {
			r.run()
		}
	}()
	return r
}

func (r *round) len() (bytes int) {
	for i := range r.nums {
		bytes = max(bytes, 4*len(r.nums[i])+len(r.bytes[i]))
	}
	return bytes
}

func (r *round) run() {
	switch r.kind {
	case "meets":
		r.got = r.once(r.given)
	case "reduces":
		r.inPieces(func(lo, hi int) {
			sum := r.nums[0][lo:hi]
			for _, x := range r.nums[1:] {
				for i, v := range x[lo:hi] {
					sum[i] += v
				}
			}
			for _, x := range r.nums[1:] {
				copy(x[lo:hi], sum)
			}
		})
	case "broadcasts":
		r.inPieces(func(lo, hi int) {
			for _, x := range r.nums[1:] {
				copy(x[lo:hi], r.nums[0][lo:hi])
			}
		})
	}
}

// piece is how many numbers one goroutine sums at a time: they stay in its core's cache.
const piece = 1 << 13

// inPieces calls f for all pieces of a round's numbers, on all processors.
func (r *round) inPieces(f func(lo, hi int)) {
	n := len(r.nums[0])
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), (n+piece-1)/piece) {
		wg.Go(func() {
			for {
				lo := int(next.Add(piece)) - piece
				if lo >= n {
					return
				}
				f(lo, min(lo+piece, n))
			}
		})
	}
	wg.Wait()
}
