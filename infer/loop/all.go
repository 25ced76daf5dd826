package loop

import (
	"context"
	"fmt"

	"talf/infer"
)

// All answers requests side by side and returns their sequences. The first that fails is the
// error of all, and the others are cancelled.
func (l *Loop) All(ctx context.Context, reqs []infer.Request) ([]*infer.Sequence, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var first error
	hs := make([]*Handle, 0, len(reqs))
	for i, r := range reqs {
		h, err := l.Submit(ctx, r, Options{})
		if err != nil {
			first = fmt.Errorf("prompt %d: %w", i, err)
			cancel()
			break
		}
		hs = append(hs, h)
	}
	seqs := make([]*infer.Sequence, len(reqs))
	for i, h := range hs {
		var err error
		if seqs[i], err = h.Wait(nil); err != nil && first == nil {
			first = fmt.Errorf("prompt %d: %w", i, err)
			cancel()
		}
	}
	if first != nil {
		return nil, first
	}
	return seqs, nil
}
