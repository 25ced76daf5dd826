package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"talf/checkpoints"
	"talf/internal/units"
	"talf/model/safetensors"
)

// An emergency is the outcome of saveInEmergency.
type emergency struct {
	handled bool
	dir     string
	err     error
}

// checkpoint saves the last finished step on rank 0. No rank continues if rank 0 could not
// write, or if the ranks no longer have the same weights. If a rank does not answer, rank 0
// saves without it.
func (t *trainer) checkpoint(ctx context.Context) (dir string, err error) {
	if !t.peers.Alone() {
		digest := t.params.Hash()
		if t.remote { // a device that is lost has no weights to compare
			if err := t.peers.Agree(ctx, t.queue.Sync(context.Background())); err != nil {
				return dir, fmt.Errorf("save step %d: %w", t.step(), err)
			}
		}
		if err := t.peers.Same(ctx, []string{"weights"}, []string{digest}); err != nil {
			if t.peers.Lost() != nil {
				var serr error
				dir, serr = t.saveInEmergency()
				err = errors.Join(err, serr)
			}
			return dir, fmt.Errorf("save step %d: %w", t.step(), err)
		}
	}
	err = t.failed
	if err == nil && t.store != nil {
		dir, err = t.save()
	}
	if err := t.peers.Agree(ctx, err); err != nil {
		return dir, err
	}
	t.checkpointed, t.saved = true, t.now()
	return dir, nil
}

// saveInEmergency saves the last finished step on rank 0 when a run is interrupted,
// without asking the other ranks, which may be gone. Only the first call saves; later
// ones return what it did. A new run that has made no step has nothing to save: it begins
// with the same weights again.
func (t *trainer) saveInEmergency() (dir string, err error) {
	if t.store == nil {
		return "", nil
	}
	e := &t.emergency
	if !e.handled && t.now() != (saved{}) {
		e.handled = true
		if t.saved != t.now() {
			size := uint64(0) // of weights and two moments
			for _, x := range t.params.Tensors() {
				size += 3 * 4 * uint64(len(x.Data))
			}
			t.warn(fmt.Sprintf("saving step %d, %s: quitting before that is done loses the work since step %d",
				t.step(), units.Bytes(size), max(0, t.saved.step)))
		}
		e.dir, e.err = t.save()
	}
	return e.dir, e.err
}

// now is what a checkpoint would have that is written now.
func (t *trainer) now() saved { return saved{t.step(), t.state.Pending != nil} }

// save writes a checkpoint of the last finished step, unless there is one.
func (t *trainer) save() (string, error) {
	at := t.step()
	if t.saved == t.now() {
		return t.store.Latest()
	}
	fail := func(err error) (string, error) { return "", fmt.Errorf("save step %d: %w", at, err) }
	for _, p := range t.params.Tensors() {
		if !p.Finite(t.ops) {
			return fail(fmt.Errorf("weight %s is not finite: the run has diverged; try a smaller lr", p.Name))
		}
	}
	t.state.Step, t.state.Config, t.state.Identity, t.state.Place, t.state.Arithmetic = at, t.cfg, t.identity, t.place, t.arithmetic
	state, err := json.Marshal(t.state)
	if err != nil {
		return fail(err)
	}
	c := &checkpoints.Checkpoint{State: append(state, '\n'), Optimizer: t.opt.Tensors()}
	c.Step, c.Hidden, c.Vocab = at, t.params.Spec.Hidden, t.params.Spec.Vocab
	for _, a := range t.params.Export(nil) {
		c.Weights = append(c.Weights, safetensors.F32(a.Name, a.Data, a.Shape...))
	}
	// Tensors were read from the device: find out whether that failed. An interrupted
	// run is saved, too, so its context does not count here.
	if !t.detached {
		if err := t.queue.Sync(context.Background()); err != nil {
			return fail(err)
		}
	}
	if err := t.task.describe(c); err != nil {
		return fail(err)
	}
	// The log must contain every saved step, because that step is not made again.
	if err := t.log.Sync(); err != nil {
		return "", err
	}
	dir, err := t.store.Save(c)
	if err == nil {
		t.saved = t.now()
	}
	return dir, err
}
