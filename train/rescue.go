package train

import (
	"context"
	"errors"
	"slices"

	"talf/train/dist"
	"talf/train/internal/gg"
	"talf/train/internal/optim"
)

// rescue ends a run that failed with err. If the device of one of several ranks was lost, another has the weights and
// moments of the last finished step, and rank 0 saves them.
func (t *trainer) rescue(ctx context.Context, res Result, err error) (Result, error) {
	var failed *dist.RankError
	if !t.remote || !errors.Is(err, optim.ErrSums) && (!errors.As(err, &failed) || failed.Well < 0) {
		return res, err
	}
	if failed != nil && failed.Rank == 0 {
		values := slices.Concat(t.params.Tensors(), t.opt.Moments())
		own, lost := []byte(nil), error(nil)
		if t.peers.Rank() == failed.Well {
			own, lost = gg.Bytes(values), t.queue.Sync(context.Background()) // what could not be read is an older step's
		}
		all, cerr := t.peers.Fetch(ctx, failed.Well, own, lost)
		if cerr != nil || t.peers.Rank() != 0 || t.queue.Sync(context.Background()) == nil { // it is not the device
			return res, errors.Join(err, cerr)
		}
		if cerr := gg.Detach(values, all); cerr != nil {
			return res, errors.Join(err, cerr)
		}
		t.detached = true
	}
	dir, serr := t.saveInEmergency()
	if t.store != nil {
		res.Step, res.Dir = t.step(), dir
	}
	return res, errors.Join(err, serr)
}
