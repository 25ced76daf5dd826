package train

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"path/filepath"
	"slices"

	"talf/checkpoints"
	"talf/compute"
	"talf/model/arch"
	"talf/model/safetensors"
	"talf/train/dist"
	"talf/train/internal/gg"
	"talf/train/internal/origin"
	"talf/train/net"
)

// An LMJob is a small language model to train: a target for demonstrations, or a draft
// model.
type LMJob struct {
	Device compute.Device
	Spec   *arch.Spec // from arch.Llama, sizes filled in; no biases
	Init   string     // directory of a model of this Spec to start from, or of a run's checkpoints; "": random weights
	Docs   [][]int32  // tokenised documents, with BOS and EOS where they are wanted
	Window int        // how many tokens a prediction sees at most; longer documents are cut
	Out    string     // directory of checkpoints, where a stopped run continues
	// Extra are files to put next to the weights, by name: the tokenizer's.
	Extra  map[string][]byte
	Report func(Progress)
	Warn   func(string) // as HeadJob's
	// Profile is a directory for cpu.pprof and heap.pprof, which go tool pprof reads; "": none.
	Profile string
	// Arithmetic is the same as HeadJob's.
	Arithmetic string
	Joined     func(by string, why error) // HeadJob's
	Group      dist.Group                 // as HeadJob's; Spec and Docs must be the same on all ranks
}

// LM trains a language model on next-token cross-entropy. When ctx ends, it saves a
// checkpoint and returns ctx's error. checkpoints.ExportLM makes a model directory from
// the last checkpoint.
func LM(ctx context.Context, cfg Config, job LMJob) (Result, error) {
	if err := cfg.Validate(); err != nil {
		return Result{}, err
	}
	return launch(ctx, job.Group, func() (*trainer, error) {
		_, t, err := newLMTask(cfg, job)
		return t, err
	})
}

// A window is the tokens [from, to) of a document, as inputs. The token at to is the last
// one to predict.
type window struct{ doc, from, to int }

func (w window) String() string {
	return fmt.Sprintf("document %d, tokens %d to %d", w.doc, w.from, w.to)
}

// lmTask trains a language model.
type lmTask struct {
	machine
	cfg    Config
	job    LMJob
	params *net.Params
	rope   compute.Buffer

	// Of the stage in progress:
	graph *gg.Graph
	lm    *net.LM
	in    *lmBatch

	evalGraph *gg.Graph
	evalLM    *net.LM
	evalIn    *lmBatch
	evalLoss  *gg.Loss

	train, held []window
	order       []int32 // of the training windows in this epoch
	at          lmPlace
	micro       [][]window // this rank's
	count       int        // positions of the step, on all ranks
}

// lmPlace is where the next step begins.
type lmPlace struct {
	Epoch uint64 `json:"epoch"`
	Next  int    `json:"next"` // windows of the epoch used so far
}

// An lmBatch is the rows of a batch: inputs, and the tokens to predict.
type lmBatch struct {
	level  *net.Level
	labels compute.SoftLabels
	mask   []float32
	scale  []float32
}

func newLMBatch(l *net.Level) *lmBatch {
	return &lmBatch{level: l, labels: compute.SoftLabels{K: 1}}
}

func (b *lmBatch) reset() {
	b.level.Reset()
	b.labels.IDs, b.labels.Prob, b.mask = b.labels.IDs[:0], b.labels.Prob[:0], b.mask[:0]
}

func (b *lmBatch) add(doc []int32, w window) {
	first := int32(b.level.Rows.N)
	for i := w.from; i < w.to; i++ {
		b.level.Add(doc[i], int32(i-w.from), first)
		b.labels.IDs, b.labels.Prob = append(b.labels.IDs, doc[i+1]), append(b.labels.Prob, 1)
		b.mask = append(b.mask, 1)
	}
}

func newLMTask(cfg Config, job LMJob) (*lmTask, *trainer, error) {
	spec := job.Spec
	if job.Window < 1 || job.Window > cfg.Rows || job.Window > spec.MaxPos {
		return nil, nil, fmt.Errorf("train: window is %d, want 1 to %d (rows) and %d (positions of the model)", job.Window, cfg.Rows, spec.MaxPos)
	}
	for i, d := range job.Docs {
		for j, id := range d {
			if id < 0 || int(id) >= spec.Vocab {
				return nil, nil, fmt.Errorf("document %d: token %d is %d, want 0 to %d", i, j, id, spec.Vocab-1)
			}
		}
	}
	l := &lmTask{cfg: cfg, job: job}
	var err error
	if l.machine, err = newMachine(cfg, job.Device, dist.NewPeers(job.Group)); err != nil {
		return nil, nil, err
	}
	q := l.queue
	held := int(math.Ceil(cfg.Held * float64(len(job.Docs))))
	held = min(held, max(0, len(job.Docs)-1))
	for i, d := range job.Docs {
		for from := 0; from < len(d)-1; from += job.Window {
			w := window{i, from, min(from+job.Window, len(d)-1)}
			if i < len(job.Docs)-held {
				l.train = append(l.train, w)
			} else {
				l.held = append(l.held, w)
			}
		}
	}
	if len(l.train) == 0 {
		return nil, nil, errors.New("no training document has two tokens")
	}
	if l.params, err = net.New(q, spec); err != nil {
		return nil, nil, err
	}
	rope := l.ops.Host(spec.Rope.Table(spec.HeadDim, 0, job.Window), job.Window, spec.HeadDim)
	l.rope = rope
	if l.evalGraph, err = gg.New(q); err != nil {
		return nil, nil, err
	}
	// The evaluation's graph has no gradients.
	l.evalLM = net.NewLM(l.evalGraph, l.params, rope, cfg.Rows)
	l.evalIn = newLMBatch(l.evalLM.Level)
	l.evalLoss = l.evalGraph.SoftCE(l.evalLM.Level.Out, l.evalLM.Head, &l.evalIn.labels, &l.evalIn.scale)
	l.evalGraph.Keep(l.evalLM.Level.Out)
	if err := l.evalGraph.CompileForward(); err != nil {
		return nil, nil, err
	}
	t, err := l.trainer(cfg, job.Out)
	if err != nil {
		return nil, nil, err
	}
	t.task, t.params, t.report, t.profile, t.origin, t.arithmetic, t.warn, t.joined = l, l.params, job.Report, job.Profile, origin.LM(job.Spec, job.Docs, job.Window), job.Arithmetic, job.Warn, job.Joined
	return l, t, nil
}

func (l *lmTask) initWeights(ctx context.Context) error {
	if l.job.Init == "" {
		l.params.Init(l.cfg.Seed)
		return nil
	}
	err := checkpoints.Read(l.job.Init, func(dir string) error { return l.initFrom(ctx, dir) })
	if err != nil {
		return fmt.Errorf("initial model: %w", err)
	}
	return nil
}

// initFrom reads the weights of the model in dir.
func (l *lmTask) initFrom(ctx context.Context, dir string) error {
	spec, err := arch.Load(dir)
	if err != nil {
		return err
	}
	has, want := spec.Canonical(), l.job.Spec.Canonical()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !bytes.Equal(has[name], want[name]) {
			return fmt.Errorf("%s: %s is %s, want %s as in the model to train",
				filepath.Join(dir, checkpoints.ConfigFile), name, cmp.Or(string(has[name]), "missing"), want[name])
		}
	}
	m, err := checkpoints.ReadManifest(dir)
	if err == nil && m != nil {
		err = m.Verify(ctx, dir, checkpoints.ConfigFile, checkpoints.WeightsFile)
	}
	if err != nil {
		return err
	}
	set, err := safetensors.OpenDir(dir)
	if err != nil {
		return err
	}
	defer func() { _ = set.Close() }() // only read
	return l.params.Import(set)
}

func (l *lmTask) build(int) (program, error) {
	g, err := gg.New(l.queue)
	if err != nil {
		return program{}, err
	}
	if l.cfg.DType == BF16 {
		if err := g.Stash(); err != nil {
			return program{}, err
		}
	}
	l.graph, l.at = g, lmPlace{}
	l.lm = net.NewLM(g, l.params, l.rope, l.cfg.Rows)
	l.in = newLMBatch(l.lm.Level)
	total := g.SoftCE(l.lm.Level.Out, l.lm.Head, &l.in.labels, &l.in.scale)
	l.draw()
	return program{graph: g, nodes: l.lm.Nodes, total: total.Node}, g.Compile(total.Node, l.lm.Nodes...)
}

// draw shuffles the windows of the epoch (Fisher-Yates), drawing one number for each.
func (l *lmTask) draw() {
	l.order = l.order[:0]
	for i := range l.train {
		l.order = append(l.order, int32(i))
	}
	r := rand.New(rand.NewPCG(l.cfg.Seed, l.at.Epoch))
	for i := len(l.order) - 1; i > 0; i-- {
		j, _ := bits.Mul64(r.Uint64(), uint64(i)+1)
		l.order[i], l.order[j] = l.order[j], l.order[i]
	}
}

func (l *lmTask) readStep() (micro, count int, err error) {
	l.micro, l.count = l.micro[:0], 0
	first, own := l.peers.Share(l.cfg.Accum)
	for i := range l.cfg.Accum {
		var ws []window
		used := 0
		for {
			if l.at.Next == len(l.order) {
				l.at = lmPlace{Epoch: l.at.Epoch + 1}
				l.draw()
			}
			w := l.train[l.order[l.at.Next]]
			if used+w.to-w.from > l.cfg.Rows {
				break
			}
			used += w.to - w.from
			l.at.Next++
			ws = append(ws, w)
		}
		l.count += used
		if i >= first && i < first+own {
			l.micro = append(l.micro, ws)
		}
	}
	return len(l.micro), l.count, nil
}

func (l *lmTask) fill(_ context.Context, i, _ int) error {
	l.pack(l.micro[i])
	return nil
}

func (l *lmTask) pack(ws []window) {
	l.in.reset()
	for _, w := range ws {
		l.in.add(l.job.Docs[w.doc], w)
	}
	l.in.scale = l.in.scale[:0]
	for range l.in.mask {
		l.in.scale = append(l.in.scale, float32(1/float64(l.count)))
	}
}

// nonFinite packs the windows of a micro-batch one by one.
func (l *lmTask) nonFinite(ctx context.Context, i int) string {
	for _, w := range l.micro[i] {
		l.pack([]window{w})
		if op, err := l.graph.FirstNonFinite(ctx); err != nil {
			return ""
		} else if op != "" {
			return w.String()
		}
	}
	return ""
}

func (l *lmTask) evaluate(ctx context.Context) (s evalShare, err error) {
	s.Levels = 1
	if len(l.held) == 0 {
		return s, nil
	}
	// The LM head has changed since the last evaluation: pack it again.
	var w *gg.Tensor
	for _, t := range l.params.Tensors() {
		if t.Name == "lm_head" || t.Name == "embed" {
			w = t // the last of the two is the LM head
		}
	}
	w.Pull()
	packed, err := l.job.Device.Pack(compute.F32, w.Matrix())
	if err != nil {
		return s, err
	}
	score, err := newScorer(l.job.Device, l.job.Device.Queue(), packed, 1)
	if err != nil {
		return s, err
	}
	n := len(l.held)
	if l.cfg.EvalSeqs > 0 {
		n = min(n, l.cfg.EvalSeqs)
	}
	for at := 0; at < n; s.Held++ {
		l.evalIn.reset()
		first := at
		for ; at < n && l.evalIn.level.Rows.N+l.held[at].to-l.held[at].from <= l.cfg.Rows; at++ {
			l.evalIn.add(l.job.Docs[l.held[at].doc], l.held[at])
		}
		if s.Held%l.peers.Size() != l.peers.Rank() {
			continue
		}
		l.evalIn.scale = append(l.evalIn.scale[:0], l.evalIn.mask...)
		if err := l.evalGraph.Run(ctx); err != nil {
			return s, err
		}
		p := newEvalPart(s.Held, 1)
		for i, x := range l.evalLoss.RowLoss() {
			if !finite(float64(x)) {
				op, err := l.evalGraph.FirstNonFinite(ctx)
				if err != nil {
					return s, err
				}
				w := l.held[first]
				for ; i >= w.to-w.from; w = l.held[first] {
					i -= w.to - w.from
					first++
				}
				return s, fmt.Errorf("%s: the loss is %v, first in %s", w, x, op)
			}
			p.Loss[0] += float64(x)
			p.Rows[0]++
		}
		p.Positions = p.Rows[0]
		top, err := score.append(ctx, nil, l.evalLM.Level.Out.Data())
		if err != nil {
			return s, err
		}
		p.Hits[0] = hits(top, 1, l.evalIn.labels.IDs, l.evalIn.mask)
		s.Parts = append(s.Parts, p)
	}
	return s, nil
}

func (l *lmTask) place() (json.RawMessage, error) { return json.Marshal(l.at) }

func (l *lmTask) seek(raw json.RawMessage) error {
	var at lmPlace
	if err := json.Unmarshal(raw, &at); err != nil {
		return fmt.Errorf("place in the data: %w", err)
	}
	if at.Next < 0 || at.Next > len(l.train) {
		return fmt.Errorf("place in the data: window %d of %d", at.Next, len(l.train))
	}
	l.at = at
	l.draw()
	return nil
}

func (l *lmTask) describe(c *checkpoints.Checkpoint) error {
	conf, err := l.job.Spec.LlamaConfig("float32")
	if err != nil {
		return err
	}
	c.Kind, c.Config, c.Extra, c.Data, c.Loss = checkpoints.KindLM, conf, l.job.Extra, origin.Docs(l.job.Docs), "lm"
	return nil
}
