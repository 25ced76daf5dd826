package train

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"talf/checkpoints"
	"talf/compute"
	"talf/train/dist"
	"talf/train/internal/gg"
	"talf/train/net"
)

// A Group is the processes, called ranks, that train one run together: each runs its
// share of every step's micro-batches, and the gradients are summed. All ranks make the
// same calls in the same order, each from one goroutine. After an error a group is of
// no more use. See train/dist.
type Group interface {
	Rank() int // from 0
	Size() int
	// Reduce begins to replace x by the sum of all ranks' x, of the same bits on every
	// rank, and returns at once. x is the group's until Wait has returned.
	Reduce(x []float32)
	// Wait waits for the sums begun, or for the end of ctx, whose cause it returns.
	Wait(ctx context.Context) error
	// Gather returns the messages of all ranks, by rank.
	Gather(ctx context.Context, msg []byte) ([][]byte, error)
	// Broadcast replaces x by that of rank 0.
	Broadcast(ctx context.Context, x []float32) error
}

// ErrLost is the error of a run whose ranks did not all answer.
var ErrLost = errors.New("not all ranks answer")

// errStopped is the error of a rank that stops because another was interrupted.
var errStopped = fmt.Errorf("another rank was interrupted: %w", context.Canceled)

// grace is how long a rank that was interrupted waits for the others to stop, too.
const grace = 10 * time.Second

// A crew is a group as a run uses it.
type crew struct {
	Group
	patient context.Context // ends a grace after the run's own
	grace   time.Duration
	lost    error // once a rank did not answer
}

func newCrew(g Group) *crew {
	if g == nil {
		g = dist.Alone{}
	}
	return &crew{Group: g, patient: context.Background(), grace: grace}
}

// begin binds the crew to the run's context.
func (c *crew) begin(ctx context.Context) (end func()) {
	patient, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		end, look := time.NewTimer(c.grace), time.NewTicker(c.grace/200)
		defer end.Stop()
		defer look.Stop()
		for {
			select {
			case <-look.C:
				// Launchers kill soon after they interrupted: who has ended is not waited for.
				if len(c.ended()) == 0 {
					continue
				}
			case <-end.C:
			case <-patient.Done():
				return
			}
			cancel(ErrLost)
			return
		}
	})
	c.patient = patient
	return func() {
		stop()
		cancel(nil)
	}
}

// store opens the checkpoints, on rank 0.
func (c *crew) store(dir string, keep int) (*checkpoints.Store, error) {
	if c.Rank() != 0 {
		return nil, nil
	}
	return checkpoints.NewStore(dir, keep)
}

// start runs t if all ranks could make theirs; err is why this one could not.
func (t *trainer) start(ctx context.Context, g Group, err error) (Result, error) {
	if t != nil && t.store != nil {
		defer func() { _ = t.store.Close() }() // only the lock
	}
	if err := Agree(ctx, g, err); err != nil {
		return Result{}, err
	}
	return t.run(ctx)
}

func (c *crew) alone() bool { return c.Size() == 1 }

// missing says which ranks an error is due to, as far as the group knows.
func (c *crew) missing(err error) error {
	c.lost = fmt.Errorf("%w: %w", ErrLost, err)
	if errors.Is(err, ErrLost) {
		c.lost = fmt.Errorf("%w within %v", ErrLost, c.grace)
	}
	if ranks := c.ended(); len(ranks) > 0 {
		c.lost = fmt.Errorf("%w: rank %s has ended", ErrLost, strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ranks)), ", "), "[]"))
	}
	return c.lost
}

// ended returns the ranks of which the group knows that they have ended.
func (c *crew) ended() []int {
	if g, ok := c.Group.(interface{ Lost() []int }); ok {
		return g.Lost()
	}
	return nil
}

// wait waits for the sums begun.
func (c *crew) wait() error {
	if c.lost != nil {
		return c.lost
	}
	if err := c.Wait(c.patient); err != nil {
		return c.missing(err)
	}
	return nil
}

// A word is what a rank tells the others where all must agree.
type word struct {
	Err  string          `json:"err,omitempty"`
	Stop bool            `json:"stop,omitempty"` // the rank was interrupted
	Body json.RawMessage `json:"body,omitempty"`
}

// agree tells the other ranks how the rank fared. If any failed, all get the error of
// the first that did; else, if any was interrupted, all get a context.Canceled.
func (c *crew) agree(ctx context.Context, err error) error {
	_, err = c.exchange(ctx, nil, err)
	return err
}

// exchange is agree that also gives everyone the ranks' bodies, as JSON.
func (c *crew) exchange(ctx context.Context, body any, err error) ([]json.RawMessage, error) {
	if c.lost != nil {
		return nil, c.lost
	}
	w := word{Stop: ctx.Err() != nil && errors.Is(err, ctx.Err())}
	if err != nil && !w.Stop {
		w.Err = err.Error()
	}
	if c.alone() && err != nil {
		return nil, err
	}
	var merr error
	if body != nil && err == nil {
		if w.Body, merr = json.Marshal(body); merr != nil {
			panic("train: " + merr.Error()) // plain finite fields marshal
		}
	}
	if c.alone() {
		return []json.RawMessage{w.Body}, nil
	}
	msg, merr := json.Marshal(w)
	if merr != nil {
		panic("train: " + merr.Error())
	}
	got, gerr := c.Gather(c.patient, msg)
	if gerr != nil {
		return nil, c.missing(gerr)
	}
	all := make([]word, len(got))
	for r, b := range got {
		if uerr := json.Unmarshal(b, &all[r]); uerr != nil {
			return nil, fmt.Errorf("message of rank %d: %w", r, uerr)
		}
	}
	return settle(ctx, c.Rank(), all, err)
}

// settle makes one outcome of what the ranks said; err is the rank's own.
func settle(ctx context.Context, rank int, all []word, err error) ([]json.RawMessage, error) {
	first, same := -1, true
	stop := false
	bodies := make([]json.RawMessage, len(all))
	for r, w := range all {
		bodies[r], stop = w.Body, stop || w.Stop
		if w.Err != "" && first < 0 {
			first = r
		}
		same = same && w.Err == all[0].Err
	}
	switch {
	case first >= 0 && same:
		return nil, err // everyone's
	case first == rank:
		return nil, fmt.Errorf("rank %d: %w", rank, err)
	case first >= 0:
		return nil, fmt.Errorf("rank %d: %s", first, all[first].Err)
	case stop && ctx.Err() != nil:
		return nil, ctx.Err()
	case stop:
		return nil, errStopped
	}
	return bodies, nil
}

// Agree lets a rank fail only together with the others, before a run: the error is that
// of the first rank that has one.
func Agree(ctx context.Context, g Group, err error) error {
	c := newCrew(g)
	defer c.begin(ctx)()
	return c.agree(ctx, err)
}

// share returns how many of n micro-batches a rank runs, and the number of its first:
// equal parts, the first ranks' first.
func (c *crew) share(n int) (first, count int) {
	count = n / c.Size()
	return c.Rank() * count, count
}

// divides refuses a number of micro-batches that the ranks cannot share.
func (c *crew) divides(accum int) error {
	if n := c.Size(); accum%n != 0 {
		return fmt.Errorf("train: accum is %d, want a multiple of the %d ranks: the batches of a step are of all ranks together", accum, n)
	}
	return nil
}

// same compares what all ranks must have in common, part by part.
func (c *crew) same(ctx context.Context, what []string, parts []string) error {
	if c.alone() {
		return nil
	}
	bodies, err := c.exchange(ctx, parts, nil)
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
				return fmt.Errorf("rank %d has other %s than rank 0: %s, not %s", r, what[i], is, not)
			}
		}
	}
	return nil
}

// firstDifference cuts two texts down to their first words that differ.
func firstDifference(a, b string) (x, y string) {
	as, bs := strings.Fields(a), strings.Fields(b)
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return as[i], bs[i]
		}
	}
	return a, b
}

// hashWeights is a digest of all weights' bits.
func hashWeights(p *net.Params) string {
	h := sha256.New()
	var b []byte
	for _, t := range p.Tensors() {
		for at := 0; at < len(t.Data); at += 1 << 14 {
			b = b[:0]
			for _, x := range t.Data[at:min(at+1<<14, len(t.Data))] {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
			}
			h.Write(b)
		}
	}
	return fmt.Sprintf("%.12x", h.Sum(nil))
}

// bucketSize is how many gradients are summed over the ranks at a time, if no tensor is
// larger: enough that a message's latency counts for little, and few enough that the
// first are under way early.
const bucketSize = 1 << 20

// buckets sum gradients over the ranks in the order in which they become complete,
// while the backward pass goes on. The sums of all micro-batches lie in the buckets'
// memory, bucket by bucket.
type buckets struct {
	group Group
	mem   [][]float32
	of    []int // bucket of every parameter
	size  []int // parameters of every bucket
	left  []int // of them, those whose gradients the step still lacks
	next  int   // first bucket whose sum has not begun
}

// newBuckets also returns the tensors in which gradients are gathered, by parameter.
// order is that in which the backward pass completes them.
func newBuckets(g Group, q compute.Queue, params []*gg.Tensor, order []int) (*buckets, []*gg.Tensor, error) {
	b := &buckets{group: g, of: make([]int, len(params))}
	var sizes []int
	for _, p := range order {
		n := len(params[p].Data)
		if last := len(sizes) - 1; last < 0 || sizes[last]+n > bucketSize {
			sizes, b.size = append(sizes, 0), append(b.size, 0)
		}
		last := len(sizes) - 1
		sizes[last] += n
		b.size[last]++
		b.of[p] = last
	}
	for _, n := range sizes {
		b.mem = append(b.mem, make([]float32, n))
	}
	sums := make([]*gg.Tensor, len(params))
	used := make([]int, len(sizes))
	for _, p := range order {
		k, t := b.of[p], params[p]
		var err error
		if sums[p], err = gg.NewTensor(q, "sum."+t.Name, b.mem[k][used[k]:used[k]+len(t.Data)], t.Shape...); err != nil {
			return nil, nil, err
		}
		used[k] += len(t.Data)
	}
	b.left = make([]int, len(b.size))
	return b, sums, nil
}

// begin begins a step.
func (b *buckets) begin() {
	copy(b.left, b.size)
	b.next = 0
}

// complete says that the rank's sum of a parameter's gradients is.
func (b *buckets) complete(p int) {
	b.left[b.of[p]]--
	for b.next < len(b.mem) && b.left[b.next] == 0 {
		b.flush()
	}
}

func (b *buckets) flush() {
	b.group.Reduce(b.mem[b.next])
	b.next++
}

// rest begins what a step that went wrong did not: the other ranks wait for it.
func (b *buckets) rest() {
	for b.next < len(b.mem) {
		b.flush()
	}
}
