package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"talf/checkpoints"
	"talf/compute"
	"talf/model"
	"talf/model/arch"
	"talf/model/head"
	"talf/model/identity"
	"talf/model/safetensors"
	"talf/train/internal/gg"
	"talf/train/loss"
	"talf/train/net"
)

// A published is an EAGLE-3 or block head to start from. The run's head has its network.
type published struct {
	spec  *arch.Spec
	vocab []int32             // the target's tokens that it predicts; nil: all
	embed *safetensors.Tensor // its own embedding, in memory; nil: the target's
}

// openTapped calls f with the EAGLE-3 or block head that path refers to, in any layout. ok is false if it
// is another head, or if it cannot be read, which err says.
func openTapped(path string, f func(d *checkpoints.Draft) error) (ok bool, err error) {
	err = checkpoints.Read(path, func(dir string) error {
		d, err := checkpoints.OpenDraft(dir)
		if err != nil {
			return err
		}
		if ok = d.Spec.Eagle3.On || d.Spec.Block.On; ok {
			err = f(d)
		}
		return errors.Join(err, d.Close())
	})
	return ok, err
}

// NetworkOf returns the network, as net.ParseNetwork reads it, of the head at path, that of EAGLE if its kind cannot be
// told: whoever loads the head says why.
func NetworkOf(path string) string {
	network := "eagle"
	_, _ = openTapped(path, func(d *checkpoints.Draft) error {
		switch b := &d.Spec.Block; {
		case b.Linear:
			network = net.NetworkOf(d.Spec, b.Taps)
		case b.On:
			network = "block"
		default:
			network = "eagle3"
		}
		return nil
	})
	return network
}

// readTapped returns the EAGLE-3 or block head that path refers to, nil if it is another one. An error may say that it is
// no head at all, or only that of EAGLE-1 and 2 which cannot be read in this way.
func readTapped(path string) (*published, error) {
	var p published
	ok, err := openTapped(path, func(d *checkpoints.Draft) (err error) {
		p.spec, p.vocab = d.Spec, d.Vocab
		if p.spec.Block.On {
			p.spec.Block.OwnLMHead = false // copies of the target's, as its embedding is
			return nil
		}
		if t, ok := d.Tensor(p.spec.Weight(arch.Embed, 0)); ok {
			x, err := t.Float32s()
			if err != nil {
				return err
			}
			own := safetensors.F32(t.Name, x, t.Shape...)
			p.embed = &own
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("initial head: %w", err)
	case !ok:
		return nil, nil
	}
	return &p, nil
}

// network decides which network the run's head has, and completes the configuration and the job by
// it: an initial head's own if that is an EAGLE-3 or block head, else Config.Network's.
func (h *headTask) network() error {
	target, cfg := h.job.Target.Spec(), &h.cfg
	n, err := net.ParseNetwork(cfg.Network)
	if err != nil {
		return fmt.Errorf("train: %w", err)
	}
	var unread error
	if h.job.Init != "" {
		h.init, unread = readTapped(h.job.Init)
	}
	if p := h.init; p != nil {
		h.spec = p.spec
		if h.taps, err = p.spec.TapsOf(target); err != nil {
			return fmt.Errorf("initial head: %s: %w", h.job.Init, err)
		}
		if p.spec.Vocab != target.Vocab {
			return fmt.Errorf("initial head: %s: vocab_size is %d, but the target's is %d", h.job.Init, p.spec.Vocab, target.Vocab)
		}
		own := net.NetworkOf(p.spec, h.taps)
		if name, _, _ := strings.Cut(own, ":"); cfg.Network != "" && cfg.Network != name && h.completed(&n) != own {
			return fmt.Errorf("initial head: %s is %s, not %s as asked", h.job.Init, own, cfg.Network)
		}
		if h.job.Vocab != nil && !slices.Equal(h.job.Vocab, p.vocab) {
			return fmt.Errorf("initial head: %s predicts other tokens than the draft vocabulary of %d that was given: leave the latter out", h.job.Init, len(h.job.Vocab))
		}
		cfg.Network, h.job.Vocab, cfg.Layers, cfg.FCBias = own, p.vocab, p.spec.Layers, p.spec.FCBias
		return h.writable()
	}
	for _, s := range h.stages {
		name, _, _ := strings.Cut(s.Loss, ":")
		if of := networkOfLoss[name]; cfg.Network == "" && of != "" {
			if n, err = net.ParseNetwork(of); err != nil {
				return err
			}
		}
	}
	if h.job.Init != "" && n.Tapped() { // initFrom reads a head of EAGLE-1 and 2
		if unread != nil {
			return unread
		}
		return fmt.Errorf("initial head: %s is of EAGLE-1's or 2's kind, not %s as asked", h.job.Init, cmp.Or(cfg.Network, n.Name))
	}
	var stored []int
	if len(h.job.Data) > 0 {
		stored = h.job.Data[0].Set.Meta().Taps
	}
	if h.spec, err = n.Spec(target, cfg.Layers, len(h.job.Vocab), cfg.FCBias, stored); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	if h.taps, err = h.spec.TapsOf(target); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	cfg.Network = net.NetworkOf(h.spec, h.taps)
	return h.writable()
}

// completed returns what a specification would be with all that it leaves open as the initial head has it; "" if
// no head can be like that.
func (h *headTask) completed(n *net.Network) string {
	target, p := h.job.Target.Spec(), h.init
	s, err := n.Spec(target, p.spec.Layers, len(p.vocab), p.spec.FCBias, h.taps)
	if err != nil {
		return ""
	}
	at, err := s.TapsOf(target)
	if err != nil {
		return ""
	}
	return net.NetworkOf(s, at)
}

// networkOfLoss are the networks that losses imply.
var networkOfLoss = map[string]string{"eagle3": "eagle3", "dflash": "block", "dpace": "block", "dspark": "block"}

// writable refuses a network that no checkpoint could hold, which an initial head or the data may ask
// for.
func (h *headTask) writable() error {
	if _, err := head.Config(h.spec); err != nil {
		return fmt.Errorf("train: network %s: %w", h.cfg.Network, err)
	}
	return nil
}

// checkNetwork refuses losses and options that only heads with the target's own features have.
func (h *headTask) checkNetwork(plan loss.Plan) error {
	switch {
	case h.spec.Block.On && h.job.Linear && !h.spec.Block.Linear:
		return errors.New("a block head with layers predicts no hidden states, and cannot start as a linear prediction of them: want linear=on")
	case h.spec.Block.On:
		return h.checkBlock(plan)
	case h.taps == nil:
	case plan.Regress != 0:
		return errors.New("an EAGLE-3 head predicts no features: want w_reg=0")
	case plan.Temp != 1 && !h.spec.Eagle3.TargetLMHead:
		return fmt.Errorf("temp=%v is for heads with their target's LM head: want 1", plan.Temp)
	case h.job.Linear:
		return errors.New("an EAGLE-3 head predicts no hidden states, and cannot start as a linear prediction of them")
	}
	return nil
}

// initTapped sets the weights of a new EAGLE-3 or block head: random ones, with the target's LM head (the
// rows of the draft vocabulary) and final norm where the sizes fit, or those of the initial head.
func (h *headTask) initTapped(ctx context.Context) error {
	if h.init != nil {
		_, err := openTapped(h.job.Init, func(d *checkpoints.Draft) error {
			if err := h.checkInit(d.Dir, func() (identity.Tie, error) { return d.Target, nil }); err != nil {
				return err
			}
			return h.params.Import(safetensors.Of(d.Dir, d.Tensors...))
		})
		if err != nil {
			return fmt.Errorf("initial head: %w", err)
		}
		return nil
	}
	h.params.Init(h.cfg.Seed)
	if h.job.Linear {
		return h.initLinear(ctx)
	}
	s := h.job.Target.Spec()
	own := h.params.OwnLMHead() != nil
	if s.LayerNorm || !own && !h.spec.Block.On || h.spec.Block.Linear {
		return nil
	}
	var rows []float32 // a block head has the target's LM head, which is given normed states
	var err error
	if own {
		if rows, err = h.hostLMHead(); err != nil {
			return err
		}
	}
	norm, err := h.finalNorm()
	if err != nil {
		return err
	}
	h.params.SetOutput(rows, norm)
	return nil
}

// finalNorm returns the weights of the target's final norm.
func (h *headTask) finalNorm() ([]float32, error) {
	norm, err := h.job.Target.Tensors().Get(h.job.Target.Spec().Weight(arch.FinalNorm, 0))
	if err != nil {
		return nil, err
	}
	w, err := norm.Float32s()
	if err == nil && h.job.Target.Spec().NormOffset {
		for i := range w {
			w[i]++ // a head's norms multiply by their weights
		}
	}
	return w, err
}

// ownEmbed returns the embedding that the head is fed with: an initial head's own, or the target's.
func (h *headTask) ownEmbed(q compute.Queue) (*gg.Tensor, error) {
	if h.init != nil && h.init.embed != nil {
		x, err := h.init.embed.Float32s()
		if err != nil {
			return nil, err
		}
		return gg.NewTensor(q, "embed", x, h.init.embed.Shape...)
	}
	table, err := h.job.Target.PackEmbed()
	if err != nil {
		return nil, err
	}
	return frozen(q, "embed", table, h.job.Target.HostEmbed)
}

// storedEmbed returns the embedding that checkpoints contain: the target's, for other systems, or an
// EAGLE-3 head's own. Readers of EAGLE-3 heads take the target's where there is none.
func (h *headTask) storedEmbed() (*safetensors.Tensor, error) {
	if h.init != nil {
		return h.init.embed, nil
	}
	if h.taps != nil {
		return nil, nil
	}
	target := h.job.Target
	t, err := model.Plain(target.Tensors(), target.Spec().Weight(arch.Embed, 0))
	t.Name = h.spec.Weight(arch.Embed, 0)
	return &t, err
}

// packLMHead packs the LM head that the head predicts with: its own as it is now, or the target's, with what stands
// beside it as that is now.
func (h *headTask) packLMHead() (compute.Weight, error) {
	own, beside := h.params.OwnLMHead(), h.params.Beside()
	switch {
	case beside != nil:
		own = h.lm
	case own == nil && h.job.Target.Spec().LogitScale != 0:
		return h.packHead(h.hostLMHead)
	case own == nil:
		return h.job.Target.PackLMHead(h.cfg.lmHead(), h.job.Vocab)
	}
	own.Pull()
	if beside != nil {
		beside.Pull()
	}
	if err := h.queue.Sync(context.Background()); err != nil {
		return nil, err
	}
	if beside != nil {
		own = gg.Beside(own, beside)
	}
	w, err := h.job.Target.Device().Pack(compute.F32, own.Matrix())
	if err != nil {
		return nil, fmt.Errorf("pack the LM head: %w", err)
	}
	return w, nil
}
