package train

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"talf/checkpoints"
	"talf/train/internal/origin"
)

// resume continues from rank 0's newest checkpoint, or starts a new run.
func (t *trainer) resume(ctx context.Context) error {
	t.saved, t.identity = saved{step: -1}, t.origin.JSON()
	if err := t.peers.Same(ctx, []string{"configuration", "target, data or sizes", "arithmetic"},
		[]string{fmt.Sprintf("%+v", t.cfg), string(t.origin.JSON()), t.arithmetic}); err != nil {
		return err
	}
	st, from, err := t.load(ctx)
	if from != nil {
		defer func() { _ = from.Close() }() // only read
	}
	bodies, err := t.peers.Exchange(ctx, st, err)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(bodies[0], &st); err != nil {
		return fmt.Errorf("the checkpoint of rank 0: %w", err)
	}
	if st == nil {
		err := t.task.initWeights(ctx)
		if err == nil {
			err = t.beginStage(0)
		}
		if err := t.peers.Agree(ctx, err); err != nil {
			return err
		}
		return t.checkSameStart(ctx)
	}
	if err := t.broadcast(ctx, t.params.Tensors()); err != nil {
		return err
	}
	t.state = *st
	if err := t.peers.Agree(ctx, t.restore(st, from)); err != nil {
		return err
	}
	if err := t.broadcast(ctx, t.opt.Moments()); err != nil {
		return err
	}
	t.place, t.saved = st.Place, saved{st.Step, st.Pending != nil}
	return t.checkSameStart(ctx)
}

// checkSameStart refuses ranks that start from different weights, or would sum
// gradients in different orders.
func (t *trainer) checkSameStart(ctx context.Context) error {
	if t.peers.Alone() {
		return nil
	}
	return t.peers.Same(ctx, []string{"initial weights", "order of gradients"},
		[]string{t.params.Hash(), fmt.Sprint(t.graph.GradOrder())})
}

// load opens the newest checkpoint of the store and imports its weights. The state is
// nil if there is no checkpoint, and on ranks without a store.
func (t *trainer) load(ctx context.Context) (*trainerState, *checkpoints.State, error) {
	if t.store == nil {
		return nil, nil, nil
	}
	s, err := t.store.OpenNewest(ctx, t.warn)
	if err != nil || s == nil {
		return nil, nil, err
	}
	st := trainerState{Config: Default()} // fields that an older version did not write had these values
	path := filepath.Join(s.Dir, checkpoints.StateFile)
	if err := json.Unmarshal(s.Trainer, &st); err != nil {
		return nil, s, fmt.Errorf("%s: %w", path, err)
	}
	if a, b := st.Config, t.cfg; !a.lengthened(b).sameRun(b) {
		return nil, s, fmt.Errorf("%s: the run began with another configuration (%s): use it, or another directory", path, t.difference(a))
	}
	if err := t.origin.Check(st.Identity); err != nil {
		return nil, s, fmt.Errorf("%s: %w: use what it began with, or another directory", path, err)
	}
	t.identity = st.Identity
	if st.Arithmetic != t.arithmetic {
		return nil, s, fmt.Errorf("%s: the run began with the arithmetic of %s, now of %s, with which it would not go on with the same bits: use what it began with, or another directory",
			path, cmp.Or(st.Arithmetic, theCPU), cmp.Or(t.arithmetic, theCPU))
	}
	if st.Stage < 0 || st.Stage >= len(t.stages) || st.Begun < 0 || st.Step < st.Begun || st.Step-st.Begun > t.stages[st.Stage].Steps {
		return nil, s, fmt.Errorf("%s: step %d of stage %d, which began after step %d: no such place in the run", path, st.Step, st.Stage, st.Begun)
	}
	if err := t.lengthen(&st); err != nil {
		return nil, s, fmt.Errorf("%s: %w", path, err)
	}
	if b := st.Best; b != nil && !t.store.Has(b.Step) {
		t.warn(fmt.Sprintf("the best checkpoint, %s, was deleted: the best from here on counts", t.store.Path(b.Step)))
		st.Best = nil
		if err := t.store.ForgetBest(); err != nil {
			return nil, s, err
		}
	}
	return &st, s, t.params.Import(s.Weights)
}

// lengthen says what a run promises that goes on for longer than a checkpoint of it was planned for. Its
// learning rate follows the new length from here on, so it has the bits of a run that was as long from the
// beginning if the steps that are made had the same rates: in warm-up, or if the rate does not fall.
func (t *trainer) lengthen(st *trainerState) error {
	was, now := st.Config.Plan(), t.stages
	last := len(now) - 1
	if was[last].Steps == now[last].Steps {
		return nil
	}
	if t.cfg.Patience > 0 && st.Stage == last && st.Stale >= t.cfg.Patience {
		return fmt.Errorf("the run has ended because %d evaluations found nothing better (patience): it can't be lengthened from %d to %d steps",
			st.Stale, was[last].Steps, now[last].Steps)
	}
	if st.Stage < last {
		return nil
	}
	made := st.Step - st.Begun
	for i := 1; i <= made; i++ {
		if was[last].Rate(i) != now[last].Rate(i) {
			t.warn(fmt.Sprintf("lengthened from %d to %d steps: the learning rates of the first %d were those of %[1]d, the rest are those of %[2]d (%.2[4]g in the next step), so the weights differ from those of %[2]d steps in one go; without decay of the rate (min-lr 1) they would not",
				was[last].Steps, now[last].Steps, made, now[last].Rate(made+1)))
			break
		}
	}
	return nil
}

// theCPU names the arithmetic that is stored as "".
const theCPU = "the CPU"

// restore begins the stage of a checkpoint and moves to its step. from is nil on ranks that get
// the moments from rank 0.
func (t *trainer) restore(st *trainerState, from *checkpoints.State) error {
	if err := t.beginStage(st.Stage); err != nil {
		return err
	}
	t.opt.SetStep(st.Step - st.Begun)
	if from == nil {
		return t.task.seek(st.Place)
	}
	if err := t.opt.Restore(from.Optimizer, st.Step-st.Begun); err != nil {
		return err
	}
	if err := t.task.seek(st.Place); err != nil {
		return fmt.Errorf("%s: %w", checkpoints.StateFile, err)
	}
	if b := st.Best; b != nil {
		if err := t.store.SetBest(b.Step); err != nil {
			return err
		}
	}
	return t.store.Prune()
}

// difference says how the configuration of a checkpoint differs from the run's.
func (t *trainer) difference(was Config) string {
	if was.Accum == t.cfg.Accum {
		return origin.Difference(was, t.cfg)
	}
	n := t.peers.Size()
	how := fmt.Sprintf("a step had %d batches of all ranks together, now %d", was.Accum, t.cfg.Accum)
	if n > 1 {
		how += fmt.Sprintf(", of %d ranks with %d each", n, t.cfg.Accum/n)
	}
	if n > 1 || was.Accum > 1 {
		var fit []string
		for r := 1; r <= min(was.Accum, 64); r++ {
			if was.Accum%r == 0 {
				fit = append(fit, fmt.Sprintf("%d × %d", r, was.Accum/r))
			}
		}
		how += "; ranks × accum may be " + strings.Join(fit, ", ")
	}
	return how
}

// lengthened returns c with the length of d's last stage, if that is longer.
func (c Config) lengthened(d Config) Config {
	last := len(c.Stages) - 1
	switch {
	case last != len(d.Stages)-1:
	case last < 0:
		c.Steps = max(c.Steps, d.Steps)
	default:
		c.Stages = slices.Clone(c.Stages)
		c.Stages[last].Steps = max(c.Stages[last].Steps, d.Stages[last].Steps)
	}
	return c
}

// sameRun reports whether two configurations give the same bits. How often a run is
// evaluated and saved may change between its parts; with patience, stages then end by
// the new evaluations.
func (c Config) sameRun(d Config) bool {
	d.EvalEvery, d.SaveEvery, d.Keep = c.EvalEvery, c.SaveEvery, c.Keep
	return reflect.DeepEqual(c, d)
}
