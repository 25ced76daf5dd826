package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"talf/data"
	"talf/train/mix"
)

// A run that is lengthened, before its end or after, has the bits of one that was as long from the
// beginning if the steps that were made had the same learning rates. Otherwise it says that it has not, and
// is still a function of its lengths: where it is stopped again does not matter.
func TestALengthenedRun(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 40, data.BF16)
	var said []string
	run := func(cfg Config, out string, stop int) (Result, error) {
		t.Helper()
		job := HeadJob{Target: target, Data: mix.Only(set), Out: out, Warn: func(s string) { said = append(said, s) }}
		ctx := context.Background()
		if stop > 0 {
			ctx, job.Report = stopAfter(stop)
		}
		res, err := Head(ctx, cfg, job)
		if err != nil && !(stop > 0 && errors.Is(err, context.Canceled)) {
			t.Fatal(err)
		}
		return res, err
	}
	constant, falling, staged := tinyConfig(), tinyConfig(), stagedConfig()
	constant.Steps, constant.Warmup, constant.MinLR = 6, 2, 1
	falling.Steps, falling.Warmup = 6, 3
	staged.Stages[2].MinLR = 1
	for _, c := range []struct {
		name    string
		cfg     Config
		stop    int // 0: at the end
		differs string
	}{
		{"a constant rate", constant, 0, ""},
		{"a constant rate, interrupted", constant, 4, ""},
		{"in warm-up", falling, 3, ""},
		{"a falling rate", falling, 0, "lengthened from 6 to 9 steps: the learning rates of the first 6 were those of 6, the rest are those of 9"},
		{"a falling rate, interrupted", falling, 4, "lengthened from 6 to 9 steps: the learning rates of the first 4 were those of 6"},
		{"the last of three stages", staged, 0, ""},
		{"in the stage before", staged, 5, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			long := c.cfg
			if len(long.Stages) > 0 {
				long.Stages = append(long.Stages[:2:2], long.Stages[2])
				long.Stages[2].Steps += 3
			} else {
				long.Steps += 3
			}
			want, _ := run(long, t.TempDir(), 0)
			out := t.TempDir()
			short, _ := run(c.cfg, out, c.stop)
			said = nil
			res, _ := run(long, out, 0)
			if all := strings.Join(said, "; "); (c.differs == "") != (all == "") || !strings.Contains(all, c.differs) {
				t.Errorf("said %q, want %q", all, c.differs)
			}
			if !res.Done || res.Step != want.Step || len(logOf(t, out)) != want.Step {
				t.Errorf("%+v with %d lines in the log, want %d steps", res, len(logOf(t, out)), want.Step)
			}
			if same := bytes.Equal(weights(t, want.Dir), weights(t, res.Dir)); same != (c.differs == "") {
				t.Errorf("the weights are those of a run that was not lengthened: %v", same)
			}
			if c.differs == "" {
				return
			}
			// The same again, stopped once more on the way.
			again := t.TempDir()
			run(c.cfg, again, c.stop)
			run(long, again, short.Step+1)
			said = nil
			twice, _ := run(long, again, 0)
			if !bytes.Equal(weights(t, res.Dir), weights(t, twice.Dir)) || len(said) > 0 {
				t.Errorf("another result when it is stopped again, or said %q", said)
			}
		})
	}
}

func TestARunIsNotShortened(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	job := HeadJob{Target: target, Data: mix.Only(tinyData(t, target, 20, data.BF16)), Out: t.TempDir()}
	cfg := tinyConfig()
	cfg.Held, cfg.EvalEvery, cfg.Patience, cfg.LR, cfg.MinLR, cfg.Warmup = 0.3, 1, 2, 0, 1, 0 // nothing ever improves
	res, err := Head(context.Background(), cfg, job)
	if err != nil || res.Step != 3 {
		t.Fatalf("%+v, %v", res, err)
	}
	short, long := cfg, cfg
	short.Steps--
	long.Steps++
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{short, fmt.Sprintf("steps was %d, is %d", cfg.Steps, short.Steps)},
		{long, "2 evaluations found nothing better (patience)"},
	} {
		if _, err := Head(context.Background(), c.cfg, job); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d steps: %v, want %q", c.cfg.Steps, err, c.want)
		}
	}
}
