package train

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// makeStep makes one step of the optimiser.
func (t *trainer) makeStep(ctx context.Context) (p Progress, err error) {
	start, at := time.Now(), t.step()+1
	stage := t.stages[t.state.Stage]
	micro, losses, err := t.gradients(ctx, &p)
	waiting := time.Now()
	if p.Loss, err = t.combine(ctx, losses, err); err != nil {
		return p, err
	}
	if !t.peers.Alone() {
		p.Waited = time.Since(waiting).Seconds()
	}
	if !finite(p.Loss) {
		return p, t.diverged(ctx, at, micro, fmt.Sprintf("the loss is %v", p.Loss))
	}
	var ok bool
	if p.Norm, ok, err = t.sums.Update(ctx, t.opt, t.nodes, stage.Rate(t.opt.Step()+1)); err != nil {
		return p, fmt.Errorf("step %d: %w", at, err)
	}
	if !ok && t.buckets != nil && t.failedDevice() {
		p.Norm = t.buckets.Norm()
		t.opt.SetStep(at - t.state.Begun) // as the others, who made the step
	} else if !ok {
		return p, t.diverged(ctx, at, micro, fmt.Sprintf("the gradients' norm is %v", p.Norm))
	}
	if t.place, err = t.task.place(); err != nil {
		return p, err
	}
	p.Step, p.Steps, p.Stage, p.LR = t.step(), t.planned(), t.state.Stage, stage.Rate(t.opt.Step())
	p.Seconds = time.Since(start).Seconds()
	return p, nil
}

// gradients runs this rank's micro-batches of the next step and returns how many there
// are, and their losses. Sums over the ranks start as gradients become complete.
func (t *trainer) gradients(ctx context.Context, p *Progress) (micro int, losses []float64, err error) {
	if t.buckets != nil {
		t.buckets.Reset()
		defer t.graph.OnGrad(nil)
	}
	if err := t.failed; err != nil {
		return 0, nil, err
	}
	if t.place, err = t.task.place(); err != nil {
		return 0, nil, err
	}
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	at := t.step() + 1
	if micro, p.Positions, err = t.task.readStep(); err != nil {
		return 0, nil, fmt.Errorf("read step %d: %w", at, err)
	}
	for i := range micro {
		if err := t.task.fill(ctx, i, t.opt.Step()+1); err != nil {
			return micro, losses, fmt.Errorf("step %d: %w", at, err)
		}
		last := t.buckets != nil && i+1 == micro && !t.remote
		if last {
			t.graph.OnGrad(func(j int) {
				t.opt.GatherOne(i, j, t.nodes)
				t.buckets.Complete(j)
			})
		}
		if err := t.graph.Run(ctx); err != nil {
			return micro, losses, fmt.Errorf("step %d: %w", at, err)
		}
		losses = append(losses, float64(t.total.Scalar()))
		if !last {
			t.opt.Gather(i, t.nodes)
		}
	}
	if t.remote && !t.peers.Alone() {
		// A device is given all of a pass before it is waited for, so its gradients are complete together.
		t.buckets.Fetch()
		if err := t.queue.Sync(context.Background()); err != nil {
			return micro, losses, fmt.Errorf("step %d: %w", at, err)
		}
	}
	return micro, losses, nil
}

// failedDevice reports whether this rank's device, one of several with memory of their own, was lost when the step was
// made. The other ranks made it, and learn of it in their next step.
func (t *trainer) failedDevice() bool {
	if !t.remote || t.peers.Alone() {
		return false
	}
	t.failed = t.queue.Sync(context.Background())
	return t.failed != nil
}

// combine completes the sums of a step over the ranks and returns the sum of all losses, in the
// order of the micro-batches. err is why this rank could not run its share: it still takes part
// in the sums, whose results are dropped, and then tells the others.
func (t *trainer) combine(ctx context.Context, losses []float64, err error) (sum float64, _ error) {
	if t.peers.Alone() {
		for _, x := range losses {
			sum += x
		}
		return sum, err
	}
	t.buckets.ReduceRest()
	if err != nil && ctx.Err() != nil {
		// Saving needs no other rank, and there may be little time for it.
		_, _ = t.saveInEmergency() // the error is remembered and returned by the next call
	}
	if err := t.peers.Wait(ctx); err != nil {
		return 0, err
	}
	bits := make([]uint64, len(losses)) // JSON has no infinities
	for i, x := range losses {
		bits[i] = math.Float64bits(x)
	}
	bodies, err := t.peers.Exchange(ctx, bits, err)
	if err != nil {
		return 0, err
	}
	for r, b := range bodies {
		if err := json.Unmarshal(b, &bits); err != nil {
			return 0, fmt.Errorf("losses of rank %d: %w", r, err)
		}
		for _, x := range bits {
			sum += math.Float64frombits(x)
		}
	}
	t.buckets.Return()
	return sum, nil
}
