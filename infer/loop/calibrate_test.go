package loop_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"talf/infer"
	"talf/infer/draft/drafttest"
	"talf/infer/loop"
)

// Calibration runs trees of one node to hundreds, ends in time, and leaves nothing behind.
func TestCalibrationIsBoundedAndLeavesNothing(t *testing.T) {
	for _, x := range []struct {
		long   time.Duration
		passes int // at most
		rows   int // of the largest tree
	}{{time.Hour, 40, 256}, {0, 8, 1}} {
		w, most, passes := newWorld(0), 0, 0
		w.score = func(jobs []infer.Job) error {
			passes++
			for _, j := range jobs {
				most = max(most, j.Tree.Len())
			}
			return nil
		}
		costs := &drafttest.Costs{
			Pass: func(rows int) time.Duration { return time.Duration(rows) * time.Millisecond },
			Step: func(rows int) time.Duration { return time.Duration(rows) * time.Microsecond },
		}
		src := &drafttest.Source{Target: w.Target, Agree: 1}
		l, err := loop.New(&infer.Engine{Target: costs.Target(w), Config: infer.Default(), Clock: costs.Now}, loop.Default())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Calibrate(t.Context(), costs.Source(src), x.long); err != nil {
			t.Fatal(err)
		}
		if passes > x.passes || most != x.rows || src.Passes == 0 {
			t.Errorf("within %v: %d passes of up to %d rows, want at most %d of up to %d; %d of the draft model", x.long, passes, most, x.passes, x.rows, src.Passes)
		}
		if s := l.Stats(); s.Submitted != 0 || s.Running != 0 || len(s.Methods) != 0 || len(w.used) != 0 {
			t.Errorf("calibration left %+v and %v", s, w.used)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.Calibrate(ended, nil, time.Hour); err == nil {
			t.Error("calibration went on after its context had ended")
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		before := passes
		for range 20 {
			if err := l.Calibrate(t.Context(), nil, time.Hour); !errors.Is(err, loop.ErrClosed) {
				t.Errorf("calibration of a loop that is closed: error %v, want %v", err, loop.ErrClosed)
			}
		}
		if passes != before {
			t.Errorf("calibration ran %d passes with an engine that it no longer has", passes-before)
		}
	}
}
