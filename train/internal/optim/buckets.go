package optim

import (
	"math"

	"talf/compute"
	"talf/train/internal/gg"
)

// bucketSize is how many gradients a bucket has, unless a single tensor is larger: enough that a
// message's latency matters little, and few enough that the first sums start early.
const bucketSize = 1 << 20

// A Reducer starts to sum a slice over all ranks (see dist.Group).
type Reducer interface{ Reduce([]float32) }

// Buckets, unless they are nil, sum gradients over the ranks in the order in which the backward pass
// completes them, while it is still running. The gradients of all micro-batches of a
// step are added up in the buckets' memory.
type Buckets struct {
	group Reducer
	mem   [][]float32
	sums  []*gg.Tensor // by parameter: parts of mem, and a device's memory if it has its own
	in    [][]int      // the parameters in each bucket
	of    []int        // bucket of each parameter
	left  []int        // of those, how many still lack their gradient in this step
	next  int          // first bucket whose sum has not started
}

// NewBuckets lays out the gradients of params. order is that in which the backward pass
// completes them. It also returns, by parameter, the tensors in which gradients are to be
// accumulated.
func NewBuckets(g Reducer, q compute.Queue, params []*gg.Tensor, order []int) (*Buckets, []*gg.Tensor, error) {
	b := &Buckets{group: g, of: make([]int, len(params))}
	var sizes []int
	for _, p := range order {
		n := len(params[p].Data)
		if last := len(sizes) - 1; last < 0 || sizes[last]+n > bucketSize {
			sizes, b.in = append(sizes, 0), append(b.in, nil)
		}
		last := len(sizes) - 1
		sizes[last] += n
		b.in[last] = append(b.in[last], p)
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
	b.left, b.sums = make([]int, len(b.in)), sums
	return b, sums, nil
}

// Reset prepares for a step.
func (b *Buckets) Reset() {
	for k, params := range b.in {
		b.left[k] = len(params)
	}
	b.next = 0
}

// Complete says that this rank's gradient of parameter p is complete. Buckets start
// their sums in order, each as soon as it is full.
func (b *Buckets) Complete(p int) {
	b.left[b.of[p]]--
	for b.next < len(b.mem) && b.left[b.next] == 0 {
		b.reduceNext()
	}
}

// Fetch copies the gradients of a device with its own memory, all of them complete, to the buckets, and starts the sum of
// each while the next is copied.
func (b *Buckets) Fetch() {
	if b == nil {
		return
	}
	for b.next < len(b.mem) {
		for _, p := range b.in[b.next] {
			b.sums[p].Pull()
		}
		b.reduceNext()
	}
}

// Return copies the sums, all of them done, to where the optimiser reads them, if that is a device's memory.
func (b *Buckets) Return() {
	if b == nil {
		return
	}
	for _, t := range b.sums {
		t.Push()
	}
}

// Norm returns the norm of the sums, all of them done, from the host's memory: what Update returns up to rounding, also
// once the device is lost.
func (b *Buckets) Norm() float64 {
	sum := 0.0
	for _, m := range b.mem {
		for _, x := range m {
			sum += float64(float64(x) * float64(x))
		}
	}
	return math.Sqrt(sum)
}

func (b *Buckets) reduceNext() {
	b.group.Reduce(b.mem[b.next])
	b.next++
}

// ReduceRest starts the sums that a failed step did not reach: the other ranks wait
// for them.
func (b *Buckets) ReduceRest() {
	if b == nil {
		return
	}
	for b.next < len(b.mem) {
		b.reduceNext()
	}
}
