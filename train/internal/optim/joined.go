package optim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"talf/compute"
	"talf/train/internal/gg"
)

// ErrSums is the error of gradients that could not be summed from device to device. No device is lost, and none made the step.
var ErrSums = errors.New("gradients of the devices")

// Ranks are devices of this process that train one run (see dist.Peers).
type Ranks interface {
	Meet(ctx context.Context, give any, f func(given []any) any) (any, error)
	Exchange(ctx context.Context, body any, err error) ([]json.RawMessage, error)
	Name(rank int) string
	Lost() error
}

// Joined are ranks that sum gradients without the host's memory.
type Joined struct {
	ranks Ranks
	sums  compute.Sums
}

// Join joins the ranks' devices, of which dev is this rank's. told learns what sums, or why they are not joined and nothing is returned.
func Join(ctx context.Context, ranks Ranks, dev compute.Device, told func(by string, why error)) (*Joined, error) {
	type joined struct {
		sums compute.Sums
		why  error
	}
	got, err := ranks.Meet(ctx, dev, func(given []any) any {
		var all []compute.Device
		for _, d := range given {
			all = append(all, d.(compute.Device))
		}
		joiner := dev.Abilities().Join
		if joiner == nil {
			return joined{why: fmt.Errorf("%s joins no others", dev.Name())}
		}
		sums, why := joiner.Join(all)
		return joined{sums, why}
	})
	if err != nil {
		return nil, err
	}
	j := got.(joined)
	if j.why != nil {
		told("", j.why)
		return nil, nil
	}
	told(j.sums.By(), nil)
	return &Joined{ranks: ranks, sums: j.sums}, nil
}

// Arithmetic is what a run's arithmetic ends with if j, which may be nil, sums its gradients.
func (j *Joined) Arithmetic() string {
	if j == nil {
		return ""
	}
	return ", " + j.sums.By()
}

// Close parts the devices, once all ranks are here: none may be closed before. A nil Joined has nothing to part.
func (j *Joined) Close() {
	if j == nil || j.ranks.Lost() != nil {
		return
	}
	_, _ = j.ranks.Meet(context.Background(), nil, func([]any) any { // the run is over
		_ = j.sums.Close()
		return nil
	})
}

// Update is that of o, after the gradients of all ranks were summed. All of them have run their batches. If a device fails, no rank
// makes the step, and all have the same error. A nil Joined sums nothing.
func (j *Joined) Update(ctx context.Context, o *AdamW, nodes []*gg.Node, lr float64) (norm float64, ok bool, err error) {
	if j == nil {
		norm, ok = o.Update(nodes, lr)
		return norm, ok, nil
	}
	if norm, err = j.sum(ctx, o, nodes); err != nil {
		return norm, false, err
	}
	return norm, o.Apply(nodes, lr, norm), nil
}

// sum replaces the gradients by their sums over the ranks, and returns the norm, which all ranks compute and compare.
func (j *Joined) sum(ctx context.Context, o *AdamW, nodes []*gg.Node) (norm float64, _ error) {
	got, err := j.ranks.Meet(ctx, o.Gradients(nodes), func(given []any) any {
		var bufs [][]compute.Buffer
		for _, g := range given {
			bufs = append(bufs, g.([]compute.Buffer))
		}
		return j.sums.Sum(ctx, bufs)
	})
	if err != nil {
		return 0, err
	}
	failed, _ := got.(error)
	if failed == nil {
		norm = o.Norm(nodes)
	}
	bodies, err := j.ranks.Exchange(ctx, math.Float64bits(norm), o.q.Sync(context.Background())) // JSON has no infinities
	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		return 0, fmt.Errorf("%w: %w", ErrSums, failed)
	}
	for r, b := range bodies {
		var bits uint64
		if err := json.Unmarshal(b, &bits); err != nil {
			return 0, fmt.Errorf("gradients' norm of %s: %w", j.ranks.Name(r), err)
		}
		if bits != math.Float64bits(norm) {
			return 0, fmt.Errorf("%w: %s has other sums than this one: their norm is %g, here %g", ErrSums, j.ranks.Name(r), math.Float64frombits(bits), norm)
		}
	}
	return norm, nil
}
