package micro

import (
	"testing"
	"testing/synctest"
	"time"

	"talf/compute"
)

const pause = 2 * time.Millisecond

// A slow device pauses in every product and every attention.
type slow struct{ compute.Device }

func (slow) Queue() compute.Queue { return slowQueue{} }

type slowQueue struct{ compute.Queue }

func (slowQueue) Abilities() compute.Abilities { return compute.Abilities{Peaks: slowPeaks{}} }

func (slowQueue) Linear(_, _ compute.Buffer, _ *compute.Linear, _ compute.Epilogue, _ int) {
	time.Sleep(pause)
}

func (slowQueue) Attend(_, _ compute.Buffer, _ compute.KV, _ int, _ *compute.Attention, _ *compute.Step) {
	time.Sleep(pause)
}

type slowPeaks struct{ compute.Peaker }

func (slowPeaks) LinearPeaks(_, _, _ compute.Buffer, _ *compute.Linear, _ int) { time.Sleep(pause) }

func TestEveryProductIsTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewTimed(slow{})
		q := d.Queue()
		for name, x := range map[string]struct {
			run            func()
			linear, attend time.Duration
		}{
			"Linear":      {func() { q.Linear(nil, nil, nil, compute.Store, 1) }, pause, 0},
			"LinearPeaks": {func() { q.Abilities().Peaks.LinearPeaks(nil, nil, nil, nil, 1) }, pause, 0},
			"Attend":      {func() { q.Attend(nil, nil, nil, 0, nil, nil) }, 0, pause},
		} {
			x.run()
			if l, a := d.take(); l != x.linear || a != x.attend {
				t.Errorf("%s: %v of products and %v of attention", name, l, a)
			}
		}
		if l, a := d.take(); l != 0 || a != 0 {
			t.Errorf("%v and %v are left once they were taken", l, a)
		}
	})
}
