package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"talf/checkpoints"
	"talf/compute"
	"talf/data"
	"talf/model"
	"talf/model/arch"
	"talf/model/draftvocab"
	"talf/model/head"
	"talf/model/identity"
	"talf/model/safetensors"
	"talf/train/dist"
	"talf/train/internal/batch"
	"talf/train/internal/gg"
	"talf/train/internal/origin"
	"talf/train/loss"
	"talf/train/mix"
	"talf/train/net"
)

// A HeadJob is a draft head to train.
type HeadJob struct {
	Target *model.Model // does not change; its embedding and LM head are the head's, too
	Data   mix.Shares   // labels that preprocessing made with this target
	Out    string       // directory of checkpoints, where a stopped run continues
	Init   string       // head to start from: an EAGLE directory or a directory of checkpoints; "": random weights
	// Linear starts an EAGLE-1/2 head as the linear map that predicts the target's next hidden state best in Data. Init is
	// "" then.
	Linear bool
	// Losses are losses besides those of train/loss, by the names that Config.Loss and
	// Stage.Loss call them. A run continues only with a loss of the same name.
	Losses map[string]loss.Loss
	// Vocab are the target's tokens that the head predicts, ascending; nil: all.
	Vocab []int32
	Force bool // train even if the data or Init belong to another target
	// Warn, if not nil, is called with what a resumed run cannot use, such as a damaged checkpoint; and, before an
	// interrupted run saves what it learnt, with how much that is.
	Warn func(string)
	// Features says where the target's hidden states come from; "" is FeaturesAuto.
	Features Features
	Report   func(Progress)
	// Profile is a directory for cpu.pprof and heap.pprof, which go tool pprof reads; "": none.
	Profile string
	// Arithmetic names what computes if its last bits differ from the CPU's; "" is the
	// CPU. A run continues only with the same one.
	Arithmetic string
	// Joined, if not nil, lets devices of this process sum gradients themselves. It is called with what sums, or with
	// the reason why the host does.
	Joined func(by string, why error)
	// Group is the ranks that train together; nil is this process alone. Only rank 0
	// uses Out. Target, Data and Init must be the same on all ranks.
	Group dist.Group
}

// Head trains a draft head. When ctx ends, it saves a checkpoint and returns ctx's error. All
// ranks of a group call it, and return the same error.
func Head(ctx context.Context, cfg Config, job HeadJob) (Result, error) {
	if err := cfg.Validate(); err != nil {
		return Result{}, err
	}
	return launch(ctx, job.Group, func() (*trainer, error) {
		_, t, err := newHeadTask(cfg, job)
		return t, err
	})
}

// headTask trains a head.
type headTask struct {
	machine
	cfg    Config
	stages []Stage
	job    HeadJob
	spec   *arch.Spec
	meta   data.Meta  // of the first set: what all sets have in common
	taps   []int      // of the target that an EAGLE-3 or block head reads; nil: another head, which reads features
	init   *published // an EAGLE-3 or block head to start from, or nil
	stored []int      // layers whose states the sets hold, among them taps
	// recompute says that a set does not hold the hidden states that the head reads, but others.
	recompute bool
	params    *net.Params
	limit     int // positions of a sequence that are used, at most

	vocab     *batch.Vocabulary // that the head predicts
	table, lm *gg.Tensor        // the target's embedding, and its LM head (the vocabulary's rows)
	whole     compute.Buffer    // the target's LM head, all rows, once exact labels need it
	rope      compute.Buffer
	embed     *safetensors.Tensor // stored with the head, or nil
	eval      *headEval

	// Of the stage in progress:
	stage  int
	graph  *gg.Graph
	batch  *batch.Batch
	terms  []loss.Term
	total  *gg.Node
	source *mix.Reader

	early  int            // of the loss: see mix.Learnt
	micro  [][]mix.Sample // this rank's
	before int            // sequences of the step that come before those, on other ranks
	count  int            // positions of the step that count, on all ranks
	feat   []float32
	noisy  []float32
	exact  bool      // labels come from the target's features
	last   []float32 // those of the sequence that was read last
	final  []float32 // memory for them, if the head reads other states
}

func newHeadTask(cfg Config, job HeadJob) (*headTask, *trainer, error) {
	target := job.Target
	h := &headTask{cfg: cfg, stages: cfg.Plan(), job: job}
	if err := h.network(); err != nil {
		return nil, nil, err
	}
	cfg, job = h.cfg, h.job
	spec := h.spec
	var err error
	if h.vocab, err = batch.NewVocabulary(job.Vocab, spec.Vocab); err != nil {
		return nil, nil, err
	}
	if err := h.check(); err != nil {
		return nil, nil, err
	}
	dev := target.Device()
	if h.machine, err = newMachine(cfg, dev, dist.NewPeers(job.Group)); err != nil {
		return nil, nil, err
	}
	q := h.queue
	if err := net.Trains(spec, dev.Name(), q.Abilities()); err != nil {
		return nil, nil, err
	}
	ahead := h.meta.Depth // positions after the text
	if spec.Block.On {
		ahead = max(ahead, spec.Block.Size)
	}
	h.limit = max(1, min(cfg.Rows, spec.MaxPos-ahead))
	if err := net.Fits(spec, dev); err != nil {
		return nil, nil, err
	}
	if h.params, err = net.New(q, spec); err != nil {
		return nil, nil, err
	}
	if h.table, err = h.ownEmbed(q); err != nil {
		return nil, nil, err
	}
	if h.params.Beside() != nil {
		if h.lm, err = h.plainLMHead(); err != nil {
			return nil, nil, err
		}
	}
	w, err := h.packLMHead()
	if err != nil {
		return nil, nil, err
	}
	if h.params.OwnLMHead() == nil && h.lm == nil {
		if h.lm, err = frozen(q, "lm_head", w, h.hostLMHead); err != nil {
			return nil, nil, err
		}
	}
	positions := h.limit + ahead
	h.rope = h.ops.Host(spec.Rope.Table(spec.HeadDim, 0, positions), positions, spec.HeadDim)
	if h.embed, err = h.storedEmbed(); err != nil {
		return nil, nil, err
	}
	if h.eval, err = newHeadEval(dev, q, h, w); err != nil {
		return nil, nil, err
	}
	vocab := ""
	if h.vocab != nil {
		vocab = h.vocab.String()
	}
	t, err := h.trainer(cfg, job.Out)
	if err != nil {
		return nil, nil, err
	}
	t.task, t.params, t.report, t.profile, t.origin, t.arithmetic, t.warn, t.joined = h, h.params, job.Report, job.Profile, origin.Head(target.Function(), job.Data.ID(), vocab), job.Arithmetic, job.Warn, job.Joined
	return h, t, nil
}

// check refuses data and losses that do not fit together, before any work is done.
func (h *headTask) check() error {
	if len(h.job.Data) == 0 {
		return errors.New("train: no data")
	}
	if h.job.Linear && h.job.Init != "" {
		return fmt.Errorf("train: a linear start and the initial head %s: want one of them", h.job.Init)
	}
	if err := h.job.Features.Validate(); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	h.meta = h.job.Data[0].Set.Meta()
	for i, s := range h.job.Data {
		m := s.Set.Meta()
		of := "the data"
		if len(h.job.Data) > 1 {
			of = fmt.Sprintf("set %d of the data", i+1)
		}
		if t := h.job.Target.Spec(); m.Hidden != t.Hidden || m.Vocab != t.Vocab {
			return fmt.Errorf("%s are of a target with hidden size %d and vocabulary %d, but this one has %d and %d", of, m.Hidden, m.Vocab, t.Hidden, t.Vocab)
		}
		if d := m.Tie().Against(h.job.Target.Spec().Canonical(), h.job.Target.Origin()); d != nil && !h.job.Force {
			return fmt.Errorf("%s were labelled by another target: %s (force to train all the same)", of, d.Since("the labels were made"))
		}
		if a := h.meta; m.Branch != a.Branch || m.Depth != a.Depth || m.Labels != a.Labels || m.K != a.K {
			return fmt.Errorf("%s have trees of %d nodes on %d levels with labels %s %d, the first set %d on %d with %s %d: only equal ones mix",
				of, m.Branch, m.Depth, m.Labels, m.K, a.Branch, a.Depth, a.Labels, a.K)
		}
		if !h.holds(m) {
			if h.job.Features == FeaturesStored {
				return fmt.Errorf("%s hold no features for this head: recompute them with the target", of)
			}
			if m.Features != data.None && h.job.Features != FeaturesRecompute && h.job.Warn != nil {
				h.job.Warn(of + " hold other hidden states than this head reads: the target runs over the text again")
			}
			h.recompute = h.recompute || m.Features != data.None
		} else {
			h.stored = m.Taps
		}
		if s.Set.Len() == 0 {
			return fmt.Errorf("%s hold no sequence", of)
		}
		if len(h.job.Data) > 1 && !(s.Weight > 0 && s.Weight <= 1e6) {
			return fmt.Errorf("%s have weight %v, want more than 0 to 1e6", of, s.Weight)
		}
	}
	if h.vocab != nil && len(h.vocab.IDs) < h.meta.Branch {
		return fmt.Errorf("draft vocabulary of %d tokens, want at least the %d that the data's trees have below a node", len(h.vocab.IDs), h.meta.Branch)
	}
	for _, s := range h.stages {
		l, err := h.lossOf(s)
		if err != nil {
			return err
		}
		p, err := l.Plan(h.labelling())
		if err == nil {
			err = h.checkNetwork(p)
		}
		if err == nil {
			err = h.checkTrees(p)
		}
		if err == nil {
			err = h.checkExact(p)
		}
		if err != nil {
			return fmt.Errorf("loss %s: %w", s.Loss, err)
		}
	}
	return nil
}

// checkTrees refuses losses over trees if the text to learn has none, and an evaluation of text that has none.
func (h *headTask) checkTrees(p loss.Plan) error {
	for _, s := range h.job.Data {
		switch share := s.Set.Meta().TreeShare; {
		case share == 0:
		case h.cfg.Held > share:
			return fmt.Errorf("held-out is %v, want at most %v: only the last sequences of the data have trees to evaluate on", h.cfg.Held, share)
		case p.Levels > 1 && !p.Text:
			return fmt.Errorf("it learns from trees, and only the last %.4g%% of the data's sequences have any", 100*share)
		}
	}
	return nil
}

// lossOf returns the loss of a stage.
func (h *headTask) lossOf(s Stage) (loss.Loss, error) {
	if l, ok := h.job.Losses[s.Loss]; ok {
		return l, nil
	}
	return loss.Parse(s.Loss)
}

func (h *headTask) build(i int) (program, error) {
	q := h.queue
	l, err := h.lossOf(h.stages[i])
	if err != nil {
		return program{}, err
	}
	plan, err := l.Plan(h.labelling())
	if err != nil {
		return program{}, err
	}
	lm, err := h.tempered(q, plan.Temp)
	if err != nil {
		return program{}, err
	}
	g, err := gg.New(q)
	if err != nil {
		return program{}, err
	}
	if h.cfg.DType == BF16 {
		if err := g.Stash(); err != nil {
			return program{}, err
		}
	}
	h.stage, h.graph, h.early = i, g, plan.Early
	h.batch = batch.New(g, h.params, h.table, h.rope, h.meta, plan, h.vocab, h.cfg.Rows, h.blocks(h.cfg.Rows))
	if h.exact = plan.Exact; h.exact {
		if h.whole == nil {
			if h.whole, err = h.wholeLMHead(); err != nil {
				return program{}, fmt.Errorf("loss %s: %w", h.stages[i].Loss, err)
			}
		}
		h.batch.Exact(h.ops, h.whole)
	}
	h.terms = loss.Terms(l, h.batch.Inputs(g, lm))
	var ls []*gg.Loss
	for i := range h.terms {
		ls = append(ls, h.terms[i].Loss)
	}
	h.total = g.Total(ls...)
	if err := g.Compile(h.total, h.batch.Head.Nodes...); err != nil {
		return program{}, err
	}
	if h.source, err = mix.NewReader(h.job.Data, h.cfg.Seed, h.split(data.Train), h.limit, h.early); err != nil {
		return program{}, err
	}
	return program{graph: g, nodes: h.batch.Head.Nodes, total: h.total}, nil
}

// tempered returns the LM head divided by temp: its logits are those at temperature temp.
func (h *headTask) tempered(q compute.Queue, temp float32) (*gg.Tensor, error) {
	if temp == 1 { // always, if the head has an LM head of its own
		return h.lm, nil
	}
	host := func() ([]float32, error) {
		f, err := h.hostLMHead()
		for i := range f {
			f[i] /= temp
		}
		return f, err
	}
	w, err := h.packHead(host)
	if err != nil {
		return nil, err
	}
	return frozen(q, "lm_head", w, host)
}

// packHead packs an LM head [tokens][Hidden].
func (h *headTask) packHead(host func() ([]float32, error)) (compute.Weight, error) {
	f, err := host()
	if err != nil {
		return nil, err
	}
	t, err := gg.NewTensor(h.queue, "lm_head", f, len(f)/h.spec.Hidden, h.spec.Hidden)
	if err != nil {
		return nil, err
	}
	w, err := h.job.Target.Device().Pack(h.cfg.lmHead(), t.Matrix())
	if err != nil {
		return nil, fmt.Errorf("pack the LM head: %w", err)
	}
	return w, nil
}

// frozen returns the contents of w, without a second copy if the device's operations accept a
// weight as a buffer.
func frozen(q compute.Queue, name string, w compute.Weight, host func() ([]float32, error)) (*gg.Tensor, error) {
	if t := gg.Packed(name, w, host); t != nil {
		return t, nil
	}
	f, err := host()
	if err != nil {
		return nil, err
	}
	return gg.NewTensor(q, name, f, w.Out(), w.In())
}

// hostLMHead returns the rows of the target's LM head that the head predicts with, multiplied by
// the factor of the target's logits.
func (h *headTask) hostLMHead() ([]float32, error) {
	f, err := h.scaledLMHead()
	return h.vocab.Rows(f), err
}

// scaledLMHead returns all rows.
func (h *headTask) scaledLMHead() ([]float32, error) {
	f, err := h.job.Target.HostLMHead()
	if err != nil {
		return nil, err
	}
	if scale := h.job.Target.Spec().LogitScale; scale != 0 {
		for i := range f {
			f[i] *= scale
		}
	}
	return f, nil
}

func (h *headTask) split(p data.Part) data.Split { return data.Split{Part: p, Fraction: h.cfg.Held} }

func (h *headTask) initWeights(ctx context.Context) error {
	if h.taps != nil {
		return h.initTapped(ctx)
	}
	if h.job.Init == "" {
		h.params.Init(h.cfg.Seed)
		if h.job.Linear {
			return h.initLinear(ctx)
		}
		return nil
	}
	if err := checkpoints.Read(h.job.Init, h.initFrom); err != nil {
		return fmt.Errorf("initial head: %w", err)
	}
	return nil
}

// initFrom reads the weights of the head in dir.
func (h *headTask) initFrom(dir string) error {
	spec, err := arch.LoadDraft(dir)
	if err != nil {
		return err
	}
	set, err := safetensors.OpenDir(dir)
	if err != nil {
		return err
	}
	defer func() { _ = set.Close() }() // only read
	if err := h.checkInit(dir, func() (identity.Tie, error) { return identity.TieOf(set.Metadata()) }); err != nil {
		return err
	}
	if spec.Layers != h.spec.Layers {
		return fmt.Errorf("%s: num_hidden_layers is %d, want %d", filepath.Join(dir, checkpoints.ConfigFile), spec.Layers, h.spec.Layers)
	}
	if spec.Heads != h.spec.Heads || spec.KVHeads != h.spec.KVHeads || spec.HeadDim != h.spec.HeadDim || spec.NormEps != h.spec.NormEps || !spec.Rope.Equal(&h.spec.Rope) {
		return fmt.Errorf("%s: heads, norm or rotary positions differ from the target's", filepath.Join(dir, checkpoints.ConfigFile))
	}
	return h.params.Import(set)
}

// checkInit refuses an initial head that belongs to another target, unless forced, and a checkpoint
// that is damaged. A head that did not come from a checkpoint may still have a tie to its target.
func (h *headTask) checkInit(dir string, tie func() (identity.Tie, error)) error {
	opt := head.Options{Force: h.job.Force, Warn: h.job.Warn}
	m, err := checkpoints.ReadManifest(dir)
	switch {
	case err != nil:
		return err
	case m != nil:
		if err := m.CheckTarget(dir, h.job.Target, opt); err != nil {
			return err
		}
		return m.Verify(context.Background(), dir, checkpoints.ConfigFile, checkpoints.WeightsFile)
	}
	t, err := tie()
	if err == nil {
		err = head.CheckTie(t, h.job.Target, opt)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// readStep packs sequences in the source's order: each micro-batch takes them until the
// next one does not fit.
func (h *headTask) readStep() (micro, count int, err error) {
	h.micro, h.before, h.count = h.micro[:0], 0, 0
	first, own := h.peers.Share(h.cfg.Accum)
	for i := range h.cfg.Accum {
		var recs []mix.Sample
		used, counted := 0, 0
		for {
			r, err := h.source.Next()
			if err != nil {
				return 0, 0, err
			}
			n := mix.Span(r.Record, h.limit, h.early)
			if used+n > h.cfg.Rows {
				h.source.Back(r)
				break
			}
			used += n
			recs = append(recs, r)
			counted += mix.Counted(r.Record, h.limit, h.early)
		}
		if h.spec.Block.On {
			counted = h.blocks(counted)
		}
		h.count += counted
		if i >= first && i < first+own {
			h.micro = append(h.micro, recs)
		} else if i < first {
			h.before += len(recs)
		}
	}
	return len(h.micro), h.count, nil
}

func (h *headTask) fill(ctx context.Context, i, step int) error {
	seq := h.before
	for _, m := range h.micro[:i] {
		seq += len(m)
	}
	return h.pack(ctx, h.micro[i], step, seq)
}

// pack puts samples into the graph; the first is number seq of the step.
func (h *headTask) pack(ctx context.Context, samples []mix.Sample, step, seq int) error {
	h.batch.Reset()
	var anchors *batch.Anchors
	if h.spec.Block.On {
		anchors = batch.NewAnchors(h.spec.Block.Size, h.limit, h.early)
	}
	can := h.queue.Abilities() // of which labels are computed
	can.Until(ctx)
	defer can.Until(context.Background())
	for j, r := range samples {
		feat, err := h.features(ctx, r.Record, h.exact)
		if err != nil {
			return err
		}
		in := feat
		if h.cfg.Noise > 0 {
			h.noisy = append(h.noisy[:0], feat...)
			batch.Noise(h.noisy, len(r.Tokens), h.cfg.Noise, h.cfg.Seed, uint64(step), uint64(seq+j))
			in = h.noisy
		}
		h.batch.Final(h.last)
		if anchors != nil {
			h.batch.Choose(anchors.Draw(r.Record, h.cfg.Seed, uint64(step), uint64(seq+j)))
		}
		err = h.batch.Add(r.Record, in, feat, h.limit)
		if cerr := ctx.Err(); cerr != nil {
			return cerr
		}
		if err != nil {
			return fmt.Errorf("%s: %w", r.Place, err)
		}
	}
	for k := range h.terms {
		h.terms[k].Set(h.batch.Mask[h.terms[k].Level], float64(h.count))
	}
	return nil
}

// nonFinite packs the sequences of a micro-batch one by one.
func (h *headTask) nonFinite(ctx context.Context, i int) string {
	for _, s := range h.micro[i] {
		if h.pack(ctx, []mix.Sample{s}, 0, 0) != nil {
			return ""
		}
		if op, err := h.graph.FirstNonFinite(ctx); err != nil {
			return ""
		} else if op != "" {
			return s.Place.String()
		}
	}
	return ""
}

func (h *headTask) place() (json.RawMessage, error) { return h.source.Place() }

func (h *headTask) seek(raw json.RawMessage) error { return h.source.Seek(raw) }

func (h *headTask) describe(c *checkpoints.Checkpoint) error {
	conf, err := head.Config(h.spec)
	if err != nil {
		return err
	}
	c.Kind, c.Config = checkpoints.KindHead, conf
	c.Model, c.Tokenizer, c.Loss, c.Data = h.job.Target.Identity(), h.meta.Tokenizer, h.stages[h.stage].Loss, h.job.Data.ID()
	if h.embed != nil {
		c.Weights = append(c.Weights, *h.embed)
	}
	if h.vocab != nil {
		c.DraftVocab = len(h.vocab.IDs)
		c.Weights = append(c.Weights, draftvocab.Tensors(h.vocab.IDs, h.spec.Vocab)...)
	}
	return nil
}
