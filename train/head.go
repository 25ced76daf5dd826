package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"talf/checkpoints"
	"talf/compute"
	"talf/data"
	"talf/model"
	"talf/model/arch"
	"talf/model/head"
	"talf/model/safetensors"
	"talf/train/internal/gg"
	"talf/train/loss"
	"talf/train/net"
)

// A HeadJob is a draft head to be trained.
type HeadJob struct {
	Target *model.Model // frozen: its embedding and LM head are the head's
	Data   *data.Set    // what preprocessing made of text with this target
	Out    string       // directory of checkpoints; a run that was stopped there goes on
	Init   string       // head to begin with: an EAGLE directory or a directory of checkpoints; "": random weights
	Force  bool         // train although data or Init belong to other weights
	Report func(Progress)
}

// Head trains a draft head. When ctx ends it saves a checkpoint and returns
// ctx's error.
func Head(ctx context.Context, cfg Config, job HeadJob) (Result, error) {
	if err := cfg.Validate(); err != nil {
		return Result{}, err
	}
	h, t, err := newHeadTask(cfg, job)
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = t.store.Close() }() // only the lock
	if h.fresh {
		if err := h.init(); err != nil {
			return Result{}, err
		}
	}
	return t.run(ctx)
}

// headTask trains a head.
type headTask struct {
	cfg    Config
	job    HeadJob
	spec   *arch.Spec
	meta   data.Meta
	params *net.Params
	batch  *headBatch
	terms  []loss.Term
	limit  int // positions of a sequence that are used
	fresh  bool

	eval0 *headEval
	embed safetensors.Tensor // the target's, for other systems

	reader *data.Reader
	ahead  *data.Record // read, but does not fit the step that was being filled
	before data.State   // place of ahead
	micro  [][]*data.Record
	count  int
	feat   []float32
	noisy  []float32
}

func newHeadTask(cfg Config, job HeadJob) (*headTask, *trainer, error) {
	target := job.Target
	spec := target.Spec().DraftFor(false)
	meta := job.Data.Meta()
	l, err := loss.Parse(cfg.Loss)
	if err != nil {
		return nil, nil, err
	}
	if meta.Hidden != spec.Hidden || meta.Vocab != spec.Vocab {
		return nil, nil, fmt.Errorf("the data are of a target with hidden size %d and vocabulary %d, but this one has %d and %d", meta.Hidden, meta.Vocab, spec.Hidden, spec.Vocab)
	}
	if hash := target.Hash(); meta.Target != hash && !job.Force {
		return nil, nil, fmt.Errorf("the data were labelled by a target with weight hash %.12s…, but this one has %.12s… (force to train all the same)", meta.Target, hash)
	}
	if job.Data.Len() == 0 {
		return nil, nil, errors.New("the data hold no sequence")
	}
	plan, err := l.Plan(labelling(meta))
	if err != nil {
		return nil, nil, fmt.Errorf("loss %s: %w", cfg.Loss, err)
	}
	dev := target.Device()
	q := dev.Queue()
	ops, ok := q.(compute.TrainOps)
	if !ok {
		return nil, nil, fmt.Errorf("device %s cannot train", dev.Name())
	}
	h := &headTask{cfg: cfg, job: job, spec: spec, meta: meta}
	h.limit = max(1, min(cfg.Rows, spec.MaxPos-meta.Depth))
	if h.params, err = net.New(q, spec); err != nil {
		return nil, nil, err
	}
	table, err := frozen(q, "embed", target.HostEmbed, spec)
	if err != nil {
		return nil, nil, err
	}
	lm, err := frozen(q, "lm_head", target.HostLMHead, spec)
	if err != nil {
		return nil, nil, err
	}
	w, err := pack(dev, lm)
	if err != nil {
		return nil, nil, err
	}
	warm, err := tempered(q, dev, lm, plan.Temp)
	if err != nil {
		return nil, nil, err
	}
	positions := h.limit + meta.Depth
	rope := ops.Host(spec.Rope.Table(spec.HeadDim, 0, positions), positions, spec.HeadDim)
	if h.embed, err = target.Tensors().Get(target.Spec().Names.Embed + ".weight"); err != nil {
		return nil, nil, err
	}
	h.embed.Name = spec.Names.Embed + ".weight"

	g, err := gg.New(q)
	if err != nil {
		return nil, nil, err
	}
	h.batch = newHeadBatch(g, h.params, table, rope, meta, plan, cfg.Rows)
	h.terms = l.Build(h.batch.inputs(g, warm))
	var ls []*gg.Loss
	for i := range h.terms {
		ls = append(ls, h.terms[i].Loss)
	}
	total := g.Total(ls...)
	if err := g.Compile(total, h.batch.head.Nodes...); err != nil {
		return nil, nil, err
	}
	if h.eval0, err = newHeadEval(dev, q, h, table, lm, w, rope); err != nil {
		return nil, nil, err
	}
	if h.reader, err = job.Data.Shuffled(cfg.Seed, h.split(data.Train)); err != nil {
		return nil, nil, err
	}
	opt, err := newOptimiser(cfg, q, h.params.Tensors())
	if err != nil {
		return nil, nil, err
	}
	identity, err := json.Marshal(map[string]any{"kind": checkpoints.KindHead, "target": target.Hash(), "data": job.Data.ID()})
	if err != nil {
		return nil, nil, err
	}
	store, err := checkpoints.NewStore(job.Out, cfg.Keep)
	if err != nil {
		return nil, nil, err
	}
	dir, err := store.Latest()
	if err != nil {
		return nil, nil, errors.Join(err, store.Close())
	}
	h.fresh = dir == ""
	return h, &trainer{
		cfg: cfg, task: h, graph: g, params: h.params, nodes: h.batch.head.Nodes, total: total,
		opt: opt, store: store, report: job.Report, identity: identity,
	}, nil
}

// pack packs the LM head once, not at every step.
func pack(dev compute.Device, lm *gg.Tensor) (compute.Weight, error) {
	w, err := dev.Pack(compute.F32, lm.Matrix())
	if err != nil {
		return nil, fmt.Errorf("pack the LM head: %w", err)
	}
	if b, ok := w.(compute.Buffer); ok {
		lm.Buf = b
	}
	return w, nil
}

// tempered returns lm over temp, whose logits are those of lm at a temperature.
func tempered(q compute.Queue, dev compute.Device, lm *gg.Tensor, temp float32) (*gg.Tensor, error) {
	if temp == 1 {
		return lm, nil
	}
	f := make([]float32, len(lm.Data))
	for i, x := range lm.Data {
		f[i] = x / temp
	}
	t, err := gg.NewTensor(q, "lm_head", f, lm.Shape...)
	if err != nil {
		return nil, err
	}
	_, err = pack(dev, t)
	return t, err
}

func frozen(q compute.Queue, name string, get func() ([]float32, error), spec *arch.Spec) (*gg.Tensor, error) {
	f, err := get()
	if err != nil {
		return nil, err
	}
	return gg.NewTensor(q, name, f, spec.Vocab, spec.Hidden)
}

func (h *headTask) split(p data.Part) data.Split { return data.Split{Part: p, Fraction: h.cfg.Held} }

// init sets the weights that a run begins with.
func (h *headTask) init() error {
	if h.job.Init == "" {
		h.params.Init(h.cfg.Seed)
		return nil
	}
	dir, err := checkpoints.Find(h.job.Init)
	if err != nil {
		return fmt.Errorf("initial head: %w", err)
	}
	m, err := checkpoints.ReadManifest(dir)
	if err != nil {
		return fmt.Errorf("initial head: %w", err)
	}
	if err := m.CheckTarget(dir, h.job.Target.Hash(), h.spec.Hidden, h.spec.Vocab, h.job.Force); err != nil {
		return fmt.Errorf("initial head: %w", err)
	}
	spec, err := arch.LoadDraft(dir)
	if err != nil {
		return fmt.Errorf("initial head: %w", err)
	}
	if spec.Heads != h.spec.Heads || spec.KVHeads != h.spec.KVHeads || spec.HeadDim != h.spec.HeadDim || spec.NormEps != h.spec.NormEps || spec.Rope != h.spec.Rope {
		return fmt.Errorf("initial head: %s: heads, norm or rotary positions differ from the target's", filepath.Join(dir, checkpoints.ConfigFile))
	}
	set, err := safetensors.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("initial head: %w", err)
	}
	defer func() { _ = set.Close() }() // only read
	// A head that did not come from a checkpoint may still say whose it is.
	if of := set.Metadata()[head.MetaTarget]; of != "" && of != h.job.Target.Hash() && !h.job.Force {
		return fmt.Errorf("initial head: %s: trained for a target with weight hash %.12s…, but this one has %.12s… (force to begin with it all the same)", dir, of, h.job.Target.Hash())
	}
	if err := h.params.Import(set); err != nil {
		return fmt.Errorf("initial head: %w", err)
	}
	return nil
}

// next returns the next sequence that has a position to learn from.
func (h *headTask) next() (*data.Record, data.State, error) {
	if r := h.ahead; r != nil {
		h.ahead = nil
		return r, h.before, nil
	}
	ends := 0
	for {
		at := h.reader.State()
		r, err := h.reader.Next()
		switch {
		case errors.Is(err, io.EOF):
			if ends++; ends == 2 {
				return nil, at, errors.New("no training sequence has a position that counts")
			}
		case err != nil:
			return nil, at, err
		case span(r, h.limit) > 0:
			return r, at, nil
		}
	}
}

// begin packs sequences in the reader's order: each micro-batch takes them until
// the next does not fit.
func (h *headTask) begin() (micro, count int, err error) {
	h.micro, h.count = h.micro[:0], 0
	for len(h.micro) < h.cfg.Accum {
		var recs []*data.Record
		used := 0
		for {
			r, at, err := h.next()
			if err != nil {
				return 0, 0, err
			}
			n := span(r, h.limit)
			if used+n > h.cfg.Rows {
				h.ahead, h.before = r, at
				break
			}
			used += n
			recs = append(recs, r)
			h.count += counted(r, h.limit)
		}
		h.micro = append(h.micro, recs)
	}
	return len(h.micro), h.count, nil
}

func (h *headTask) fill(ctx context.Context, i, step int) error {
	h.batch.reset()
	seq := 0
	for _, m := range h.micro[:i] {
		seq += len(m)
	}
	for j, r := range h.micro[i] {
		feat, err := h.features(ctx, r)
		if err != nil {
			return err
		}
		in := feat
		if h.cfg.Noise > 0 {
			h.noisy = append(h.noisy[:0], feat...)
			noise(h.noisy, len(r.Tokens), h.cfg.Noise, h.cfg.Seed, uint64(step), uint64(seq+j))
			in = h.noisy
		}
		if err := h.batch.add(r, in, feat, h.limit); err != nil {
			return err
		}
	}
	for k := range h.terms {
		h.terms[k].Set(h.batch.mask[h.terms[k].Level], float64(h.count))
	}
	return nil
}

// features returns f [T][H] as the data hold it, or runs the target. The values
// are rounded to bfloat16 either way, so both give the same head.
func (h *headTask) features(ctx context.Context, r *data.Record) ([]float32, error) {
	n := len(r.Tokens) * h.meta.Hidden
	if cap(h.feat) < n {
		h.feat = make([]float32, n)
	}
	h.feat = h.feat[:n]
	if h.meta.Features == data.BF16 {
		data.DecodeBF16(h.feat, r.Features)
		return h.feat, nil
	}
	s := h.job.Target.NewSeq()
	defer s.Close()
	const chunk = 256
	for at := 0; at < len(r.Tokens); at += chunk {
		end := min(at+chunk, len(r.Tokens))
		out, err := s.Append(ctx, r.Tokens[at:end], nil, model.WantNone)
		if err != nil {
			return nil, fmt.Errorf("recompute features: %w", err)
		}
		out.ReadHidden(h.feat[at*h.meta.Hidden:end*h.meta.Hidden], out.HiddenRow(0, 0))
	}
	data.DecodeBF16(h.feat, data.AppendBF16(nil, h.feat))
	return h.feat, nil
}

func (h *headTask) place() (json.RawMessage, error) {
	st := h.reader.State()
	if h.ahead != nil {
		st = h.before
	}
	return json.Marshal(st)
}

func (h *headTask) seek(raw json.RawMessage) error {
	var st data.State
	if err := json.Unmarshal(raw, &st); err != nil {
		return fmt.Errorf("place in the data: %w", err)
	}
	r, err := h.job.Data.Resume(st)
	if err != nil {
		return err
	}
	h.reader, h.ahead = r, nil
	return nil
}

func (h *headTask) describe(c *checkpoints.Checkpoint) error {
	conf, err := head.Config(h.spec)
	if err != nil {
		return err
	}
	c.Kind, c.Config = checkpoints.KindHead, conf
	c.Target, c.Tokenizer, c.Loss, c.Data = h.job.Target.Hash(), h.meta.Tokenizer, h.cfg.Loss, h.job.Data.ID()
	c.Weights = append(c.Weights, h.embed)
	return nil
}
