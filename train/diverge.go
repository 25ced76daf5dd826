package train

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"talf/train/internal/gg"
)

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// diverged explains why the loss or the gradients of a step (what says which) are infinite or
// NaN: it names the first operation with such an output, and the data. The weights are still
// those of the step before, and no checkpoint is touched.
func (t *trainer) diverged(ctx context.Context, step, micro int, what string) error {
	fail := func(what, advice string) error { return fmt.Errorf("step %d: %s: %s", step, what, advice) }
	const advice = "the run has diverged; try a smaller lr"
	for _, p := range t.params.Tensors() {
		p.Pull()
		for j, x := range p.Data {
			if !finite(float64(x)) {
				return fail(fmt.Sprintf("%s: weight %s[%d] is %v since the step before", what, p.Name, j, x), advice)
			}
		}
	}
	own, err := t.findNonFinite(ctx, micro)
	bodies, err := t.peers.Exchange(ctx, own, err)
	if err != nil {
		return fmt.Errorf("step %d: %s: %w", step, what, err)
	}
	for r, raw := range bodies {
		var f finding
		if err := json.Unmarshal(raw, &f); err != nil {
			return fmt.Errorf("step %d: %s: rank %d: %w", step, what, r, err)
		}
		if f.What != "" {
			return fail(what+f.What, cmp.Or(f.Advice, advice))
		}
	}
	return fail(what, advice) // only the sum of the losses or gradients overflows
}

// A finding is the first infinity or NaN in a rank's micro-batches.
type finding struct {
	What   string `json:"what"` // "": there is none
	Advice string `json:"advice"`
}

func (t *trainer) findNonFinite(ctx context.Context, micro int) (f finding, err error) {
	for i := range micro {
		if err := t.task.fill(ctx, i, t.opt.Step()+1); err != nil {
			return f, err
		}
		op, err := t.graph.FirstNonFinite(ctx)
		if err != nil {
			return f, err
		}
		if op == "" {
			continue
		}
		f.What = ", first in " + op
		if strings.HasPrefix(op, gg.FrozenPrefix) {
			f.Advice = "the target holds it"
			return f, nil
		}
		if strings.HasPrefix(op, gg.InputPrefix) {
			f.Advice = "the data hold it; preprocess the text again"
		}
		if where := t.task.nonFinite(ctx, i); where != "" {
			f.What += ", with " + where
		}
		return f, nil
	}
	return f, nil
}
