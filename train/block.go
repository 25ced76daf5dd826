package train

import (
	"errors"
	"fmt"

	"talf/data"
	"talf/train/internal/batch"
	"talf/train/internal/gg"
	"talf/train/loss"
)

// labelling returns what losses need to know.
func (h *headTask) labelling() loss.Labelling {
	l := batch.Labelling(h.meta, h.vocab)
	if h.spec.Block.On {
		l.Drafts = h.spec.Block.Drafts()
	}
	return l
}

// blocks returns how many blocks are drawn in so many positions that count; 0: the head has none.
func (h *headTask) blocks(counted int) int {
	if !h.spec.Block.On {
		return 0
	}
	return batch.Blocks(counted, h.spec.Block.Size)
}

// checkBlock refuses losses that do not fit a block head.
func (h *headTask) checkBlock(plan loss.Plan) error {
	b := &h.spec.Block
	switch {
	case plan.Regress != 0:
		return errors.New("a block head predicts no features: want w_reg=0")
	case plan.Text && !plan.Once:
		return errors.New("its passes feed a head its own features, which a block head does not read")
	case plan.Temp != 1 && (b.Chained() || b.Confidence):
		return fmt.Errorf("temp=%v is for heads without a Markov head, a selector or a confidence head: want 1", plan.Temp)
	case b.Confidence && !plan.Tail && !plan.Exact && h.meta.Labels != data.Full:
		return errors.New("a confidence head learns from all of the target's probability: want labels=tail or full")
	case b.Linear && plan.Levels < b.Size:
		return fmt.Errorf("it teaches %d rows of a linear block, whose %d share no weights: want size=%[1]d, or trees as deep", plan.Levels, b.Size)
	case plan.Path && b.Linear:
		return errors.New("path=on is for heads with layers, whose rows see those above them")
	case plan.Path && b.Markov != "":
		return errors.New("path=on is for heads without a Markov head, which knows the token before already")
	case plan.Path && b.Group > 0:
		return errors.New("path=on is for heads without convolutions, which read the row before")
	case plan.Path && !b.CausalIn(0):
		return errors.New("path=on is for causal block heads: tokens would see those below them")
	}
	return nil
}

// plainLMHead returns the rows of the target's LM head that others stand beside, in float32.
func (h *headTask) plainLMHead() (*gg.Tensor, error) {
	f, err := h.hostLMHead()
	if err != nil {
		return nil, err
	}
	return gg.NewTensor(h.queue, "lm_head", f, len(f)/h.spec.Hidden, h.spec.Hidden)
}
