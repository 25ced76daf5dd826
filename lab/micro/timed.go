// Package micro measures the parts that decoding is made of: matrix products, and passes by
// number of rows.
package micro

import (
	"time"

	"talf/compute"
)

// A Timed is a device that sums up where its queues spend their time. It suits devices whose
// operations have finished when they return.
type Timed struct {
	compute.Device
	linear, attend time.Duration
}

// NewTimed returns a timed device that runs on dev. Load the models to be measured on it; from
// then on only the goroutine that runs them may use it.
func NewTimed(dev compute.Device) *Timed { return &Timed{Device: dev} }

// Queue returns a queue of the inner device whose matrix products and attention are timed.
func (t *Timed) Queue() compute.Queue {
	q := &timedQueue{Queue: t.Device.Queue(), t: t}
	if q.can = q.Queue.Abilities(); q.can.Peaks != nil {
		q.can.Peaks = &timedPeaks{q.can.Peaks, t}
	}
	return q
}

// take returns the times since the last call.
func (t *Timed) take() (linear, attend time.Duration) {
	linear, attend = t.linear, t.attend
	t.linear, t.attend = 0, 0
	return linear, attend
}

type timedQueue struct {
	compute.Queue
	can compute.Abilities
	t   *Timed
}

// Abilities returns those of the inner queue: models take the same path on it as
// without the clock.
func (q *timedQueue) Abilities() compute.Abilities { return q.can }

type timedPeaks struct {
	compute.Peaker
	t *Timed
}

func (p *timedPeaks) LinearPeaks(dst, peaks, x compute.Buffer, l *compute.Linear, n int) {
	since := time.Now()
	p.Peaker.LinearPeaks(dst, peaks, x, l, n)
	p.t.linear += time.Since(since)
}

func (q *timedQueue) Linear(dst, x compute.Buffer, l *compute.Linear, epi compute.Epilogue, n int) {
	since := time.Now()
	q.Queue.Linear(dst, x, l, epi, n)
	q.t.linear += time.Since(since)
}

func (q *timedQueue) Attend(dst, qkv compute.Buffer, kv compute.KV, layer int, a *compute.Attention, s *compute.Step) {
	since := time.Now()
	q.Queue.Attend(dst, qkv, kv, layer, a, s)
	q.t.attend += time.Since(since)
}
