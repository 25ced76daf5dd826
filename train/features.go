package train

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"talf/compute"
	"talf/data"
	"talf/internal/slab"
	"talf/model"
	"talf/model/arch"
	"talf/train/loss"
)

// Features says where a head's input features, the target's hidden states, come from.
// Either way they are rounded to bfloat16, and the head gets the same bits.
type Features string

// The sources of features.
const (
	FeaturesAuto      Features = "auto"      // the data, or the target if the data have none
	FeaturesStored    Features = "stored"    // the data; sets without features are refused
	FeaturesRecompute Features = "recompute" // the target, run over the text again
)

// Validate refuses unknown sources.
func (f Features) Validate() error {
	switch f {
	case "", FeaturesAuto, FeaturesStored, FeaturesRecompute:
		return nil
	}
	return fmt.Errorf("features is %q, want %s, %s or %s", string(f), FeaturesAuto, FeaturesStored, FeaturesRecompute)
}

// Shape returns the head of such a run, and the layers before which it reads the target's states; nil if it
// reads the last hidden states. It uses the job's Target, Init and Vocab.
func Shape(cfg Config, job HeadJob) (*arch.Spec, []int, error) {
	h := &headTask{cfg: cfg, stages: cfg.Plan(), job: job}
	err := h.network()
	return h.spec, h.taps, err
}

// holds reports whether the data of a set have what the head reads: the states of its layers, and perhaps those of
// others. Of the sets that have them, all must have the same layers.
func (h *headTask) holds(m data.Meta) bool {
	if h.taps == nil {
		return m.Features == data.BF16
	}
	if m.Features != data.Taps || h.stored != nil && !slices.Equal(m.Taps, h.stored) {
		return false
	}
	return !slices.ContainsFunc(h.taps, func(b int) bool { return !slices.Contains(m.Taps, b) })
}

// decode writes what the head reads of stored features to dst.
func (h *headTask) decode(dst []float32, stored []byte) {
	if h.taps == nil || slices.Equal(h.stored, h.taps) {
		data.DecodeBF16(dst, stored)
		return
	}
	w := h.meta.Hidden
	for len(dst) > 0 {
		for _, b := range h.taps {
			at := 2 * w * slices.Index(h.stored, b)
			data.DecodeBF16(dst[:w], stored[at:at+2*w])
			dst = dst[w:]
		}
		stored = stored[2*w*len(h.stored):]
	}
}

// features returns what the head reads [T][FeatureSize], f or the states at the taps: as the data
// hold it, or from a run of the target. See Features. f itself [T][Hidden] is h.last afterwards, if
// last asks for it.
func (h *headTask) features(ctx context.Context, r *data.Record, last bool) ([]float32, error) {
	width := h.meta.Hidden * max(1, len(h.taps))
	n := len(r.Tokens) * width
	if cap(h.feat) < n {
		h.feat = make([]float32, n)
	}
	h.feat = h.feat[:n]
	apart := last && h.taps != nil // f is not what the head reads
	h.last = h.feat
	if len(r.Features) > 0 && !h.recompute && h.job.Features != FeaturesRecompute && !apart {
		h.decode(h.feat, r.Features)
		return h.feat, nil
	}
	if apart {
		h.last = slab.Resize(h.final, len(r.Tokens)*h.meta.Hidden)
		h.final = h.last
	}
	target := h.job.Target
	if h.taps != nil {
		before := target.Taps()
		if err := target.Tap(h.taps...); err != nil {
			return nil, err
		}
		defer func() { _ = target.Tap(before...) }() // they were accepted before
	}
	s := target.NewSeqOf(h.meta.Reach(len(r.Tokens))) // as when it was labelled
	defer s.Close()
	const chunk = 256
	for at := 0; at < len(r.Tokens); at += chunk {
		end := min(at+chunk, len(r.Tokens))
		out, err := s.Append(ctx, r.Tokens[at:end], nil, model.WantNone)
		if err != nil {
			return nil, fmt.Errorf("recompute features: %w", err)
		}
		if dst, row := h.feat[at*width:end*width], out.HiddenRow(0, 0); h.taps != nil {
			out.ReadTaps(dst, row)
			if apart {
				out.ReadHidden(h.last[at*h.meta.Hidden:end*h.meta.Hidden], row)
			}
		} else {
			out.ReadHidden(dst, row)
		}
	}
	data.DecodeBF16(h.feat, data.AppendBF16(nil, h.feat))
	if apart {
		data.DecodeBF16(h.last, data.AppendBF16(nil, h.last))
	}
	return h.feat, nil
}

// checkExact refuses exact labels where the target's LM head and what features are asked for do not
// give them.
func (h *headTask) checkExact(plan loss.Plan) error {
	switch {
	case !plan.Exact:
	case h.job.Target.Spec().LogitCap != 0:
		return errors.New("labels=full: the target caps its logits, which its LM head alone does not give: want tail")
	case h.taps != nil && h.job.Features == FeaturesStored:
		return fmt.Errorf("labels=full of a head that reads states of layers needs the target's last hidden states, which data with its features do not hold: features is %q, want %s or %s",
			string(FeaturesStored), FeaturesAuto, FeaturesRecompute)
	}
	return nil
}

// wholeLMHead returns the target's LM head over its whole vocabulary, which gives exact labels.
func (h *headTask) wholeLMHead() (compute.Buffer, error) {
	if h.vocab == nil && h.lm != nil {
		return h.lm.Buf, nil
	}
	host := func() ([]float32, error) { return h.scaledLMHead() }
	w, err := h.packHead(host)
	if err != nil {
		return nil, err
	}
	t, err := frozen(h.queue, "lm_head", w, host)
	if err != nil {
		return nil, err
	}
	return t.Buf, nil
}
