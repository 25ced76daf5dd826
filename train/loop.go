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
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"talf/checkpoints"
	"talf/compute"
	"talf/model/safetensors"
	"talf/train/internal/gg"
	"talf/train/net"
	"talf/train/profile"
)

// A Progress is reported after every step.
type Progress struct {
	Step, Steps int
	Stage       int     // index
	Loss        float64 // of the step, per position
	LR, Norm    float64
	Positions   int     // of the step that counted
	Seconds     float64 // that the step took
	Waited      float64 // of them, for other ranks: what of their messages and work computing did not hide
	Eval        *Eval   // on the steps that were evaluated
}

// An Eval is what the held-out sequences say.
type Eval struct {
	Loss      float64     `json:"loss"` // sum of the levels' losses per position; of a language model: per token
	Positions int         `json:"positions"`
	Levels    []LevelEval `json:"levels"`
	// Of a head: the tokens of a target pass, the target's own included, that the
	// stored trees let expect if the head drafts as many tokens below every node as
	// the trees have on a level. Tau is for sampling at temperature 1, TauGreedy for
	// temperature 0; both are lower bounds (see headEval.tau).
	Tau       float64 `json:"tau,omitempty"`
	TauGreedy float64 `json:"tau_greedy,omitempty"`
}

// score is what the best checkpoint has most of.
func (e *Eval) score() float64 {
	if e.Tau > 0 {
		return e.Tau
	}
	return -e.Loss
}

// A LevelEval is one level of the label trees: level 0 is the text itself.
type LevelEval struct {
	Loss float64 `json:"loss"` // mean cross-entropy of a node
	Top1 float64 `json:"top1"` // share of nodes whose most likely token is the target's
	Rows int     `json:"rows"`
	// Covered is the share of the labels' mass that a draft vocabulary has; 0: there
	// is none.
	Covered float64 `json:"covered,omitempty"`
}

// A Result says where a run ended.
type Result struct {
	Step int     `json:"step"`
	Dir  string  `json:"dir"`            // the last checkpoint; of ranks beside the first, which writes it, ""
	Best string  `json:"best,omitempty"` // the best of the checkpoints that were evaluated
	Loss float64 `json:"loss,omitempty"` // of the last step; 0 if there was none left to make
	Eval *Eval   `json:"eval,omitempty"` // nil if nothing is held out
	Done bool    `json:"done"`           // all steps were made
}

// A task is what differs between heads and language models.
type task interface {
	// enter makes what stage i runs on, with the data at their beginning.
	enter(i int) (program, error)
	// init sets the weights that a run begins with.
	init() error
	// begin reads the next step's micro-batches and returns how many of them are
	// this rank's and how many positions of all ranks count.
	begin() (micro, count int, err error)
	// fill puts the rank's micro-batch i of the step into the graph; step counts
	// from 1 in every stage.
	fill(ctx context.Context, i, step int) error
	// eval evaluates this rank's share of what is held out.
	eval(ctx context.Context) (evalShare, error)
	// place is where the next begin starts reading.
	place() (json.RawMessage, error)
	seek(json.RawMessage) error
	// describe fills in what a checkpoint needs beside weights and moments.
	describe(*checkpoints.Checkpoint) error
	// culprit names the data of micro-batch i that make the graph's loss or
	// gradients infinite or no numbers, or returns "".
	culprit(ctx context.Context, i int) string
}

// A program is the graph of a stage.
type program struct {
	graph *gg.Graph
	nodes []*gg.Node // of the parameters
	total *gg.Node
}

// trainer is a run.
type trainer struct {
	cfg    Config
	stages []Stage
	task   task
	params *net.Params
	queue  compute.Queue
	crew   *crew
	store  *checkpoints.Store // of rank 0; nil on the others
	report func(Progress)
	prof   *profile.Recorder // or nil
	log    *metrics          // of rank 0

	program
	opt     *optimiser // of the stage: its step counts from the stage's beginning
	buckets *buckets   // nil if there is one rank
	state   trainerState

	saved    int             // step of the last checkpoint, −1: none
	last     json.RawMessage // place before the step in progress
	identity []byte          // what a checkpoint must agree with to be continued
	// arithmetic must agree as well: see HeadJob.
	arithmetic string
	kept       bool  // keep has kept a step of this run
	owed       error // of this rank, which the others do not know yet

	rescued   bool // see rescue
	rescueDir string
	rescueErr error
}

// trainerState is trainer.json.
type trainerState struct {
	Step     int             `json:"step"`
	Config   Config          `json:"config"`
	Identity json.RawMessage `json:"identity"` // target, data, sizes
	Place    json.RawMessage `json:"place"`    // in the data
	// Arithmetic is HeadJob's.
	Arithmetic string `json:"arithmetic,omitempty"`

	Stage int      `json:"stage,omitempty"` // index
	Begun int      `json:"begun,omitempty"` // steps before the stage
	Best  *best    `json:"best,omitempty"`  // of all evaluations
	Peak  *float64 `json:"peak,omitempty"`  // best score of the stage
	Stale int      `json:"stale,omitempty"` // evaluations of the stage since then
	// Pending is the step's entry of the log, where its evaluation was interrupted.
	Pending *metric `json:"pending,omitempty"`
}

// best is a checkpoint and its score, see (*Eval).score.
type best struct {
	Step  int     `json:"step"`
	Score float64 `json:"score"`
}

// step returns the steps made.
func (t *trainer) step() int { return t.state.Begun + t.opt.step }

// ended reports whether the stage has no step left to make.
func (t *trainer) ended() bool {
	return t.opt.step >= t.stages[t.state.Stage].Steps || t.cfg.Patience > 0 && t.state.Stale >= t.cfg.Patience
}

// planned returns the steps of the whole run, if no further stage ends early.
func (t *trainer) planned() int {
	n := t.state.Begun
	for _, s := range t.stages[t.state.Stage:] {
		n += s.Steps
	}
	return n
}

func (t *trainer) final() bool { return t.state.Stage+1 == len(t.stages) }

// enter begins stage i with the weights as they are: fresh moments, data and
// schedule, as a run of its own would.
func (t *trainer) enter(i int) (err error) {
	if t.program, err = t.task.enter(i); err != nil {
		return err
	}
	t.prof.Watch(t.graph)
	if t.crew.alone() {
		t.opt, err = newOptimiser(t.cfg, t.queue, t.params.Tensors())
		return err
	}
	cfg := t.cfg
	cfg.Accum = 1 // gradients are gathered in the buckets
	if t.opt, err = newOptimiser(cfg, t.queue, t.params.Tensors()); err != nil {
		return err
	}
	var sums []*gg.Tensor
	if t.buckets, sums, err = newBuckets(t.crew, t.queue, t.params.Tensors(), t.graph.GradOrder()); err != nil {
		return err
	}
	t.opt.gatherIn(sums)
	return nil
}

// broadcast gives all ranks what tensors of rank 0 hold.
func (t *trainer) broadcast(ts ...*gg.Tensor) error {
	for _, x := range ts {
		if err := t.crew.Broadcast(t.crew.patient, x.Data); err != nil {
			return t.crew.missing(err)
		}
	}
	return nil
}

// advance goes on to the next stage. A stage that ended early hands over the best
// weights so far, any other its last.
func (t *trainer) advance(ctx context.Context) error {
	s := &t.state
	early := t.opt.step < t.stages[s.Stage].Steps
	at := t.step()
	if early && s.Best != nil && s.Best.Step != at {
		err := t.crew.agree(ctx, t.importBest())
		if err == nil {
			err = t.broadcast(t.params.Tensors()...)
		}
		if err != nil {
			return fmt.Errorf("best weights so far: %w", err)
		}
	}
	s.Stage, s.Begun, s.Peak, s.Stale = s.Stage+1, at, nil, 0
	return t.crew.agree(ctx, t.enter(s.Stage))
}

// importBest reads the best weights so far, on rank 0.
func (t *trainer) importBest() error {
	if t.store == nil {
		return nil
	}
	set, err := safetensors.Open(filepath.Join(t.store.Path(t.state.Best.Step), checkpoints.WeightsFile))
	if err != nil {
		return err
	}
	err = t.params.Import(set)
	return errors.Join(err, set.Close())
}

// run goes on from the newest checkpoint of the store, or from step 0, and is
// profiled if it should be.
func (t *trainer) run(ctx context.Context) (Result, error) {
	defer t.crew.begin(ctx)()
	if err := t.crew.agree(ctx, t.prof.Start()); err != nil {
		t.prof.Abandon()
		return Result{}, err
	}
	res, err := t.learn(ctx)
	if perr := t.prof.Stop(); perr != nil {
		err = errors.Join(err, perr)
	}
	return res, err
}

func (t *trainer) learn(ctx context.Context) (Result, error) {
	if err := t.resume(ctx); err != nil {
		return Result{}, err
	}
	if err := t.crew.agree(ctx, t.openLog()); err != nil {
		return Result{}, err
	}
	defer t.log.close()
	res := Result{Step: t.step()}
	if m := t.state.Pending; m != nil {
		// The step was made, its evaluation was not: a checkpoint says so.
		t.state.Pending, t.saved = nil, -1
		if err := t.finish(ctx, t.progress(*m), &res); err != nil {
			return res, err
		}
	}
	for !t.ended() || !t.final() {
		if t.ended() {
			if err := t.advance(ctx); err != nil {
				return res, fmt.Errorf("stage %d: %w", t.state.Stage+1, err)
			}
		}
		p, err := t.make(ctx)
		if err != nil {
			if !t.stops(ctx, err) {
				return res, err
			}
			// Interrupted: keep what was learnt before the step in progress.
			dir, serr := t.rescue()
			res.Step, res.Dir = t.step(), dir
			return res, errors.Join(err, serr)
		}
		if err := t.finish(ctx, p, &res); err != nil {
			return res, err
		}
	}
	var err error
	if !t.kept { // there was nothing left to learn
		if res.Dir, err = t.keep(ctx); err != nil {
			return res, err
		}
	}
	if res.Eval == nil {
		if res.Eval, err = t.evaluate(ctx); err != nil {
			if t.stops(ctx, err) {
				return res, err
			}
			return res, fmt.Errorf("evaluate at step %d: %w", res.Step, err)
		}
	}
	if b := t.state.Best; b != nil && t.store != nil {
		res.Best = t.store.Path(b.Step)
	}
	if err := t.crew.agree(ctx, t.owed); err != nil { // of the last step
		return res, err
	}
	res.Done = true
	return res, nil
}

// stops reports whether an error is an interruption, of this rank or another, or the
// loss of one: what is learnt is kept then.
func (t *trainer) stops(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, errStopped) || errors.Is(err, ErrLost)
}

func (t *trainer) openLog() (err error) {
	if t.store == nil {
		return nil
	}
	written := t.step()
	if t.state.Pending != nil {
		written--
	}
	t.log, err = openMetrics(filepath.Join(t.store.Dir(), MetricsFile), written)
	return err
}

// finish evaluates, logs and saves a step that was made, as far as it is due. If
// the evaluation is interrupted, a checkpoint keeps the step and what is owed.
func (t *trainer) finish(ctx context.Context, p Progress, res *Result) (err error) {
	res.Step, res.Loss = p.Step, p.Loss
	improved := false
	if t.opt.step == t.stages[t.state.Stage].Steps || t.cfg.EvalEvery > 0 && p.Step%t.cfg.EvalEvery == 0 {
		m := p.metric()
		t.state.Pending = &m
		if p.Eval, err = t.evaluate(ctx); err != nil {
			if !t.stops(ctx, err) {
				return fmt.Errorf("evaluate at step %d: %w", p.Step, err)
			}
			dir, serr := t.rescue()
			res.Dir = dir
			return errors.Join(err, serr)
		}
		t.state.Pending = nil
		if p.Eval != nil {
			res.Eval = p.Eval
			improved = t.judge(p.Step, p.Eval.score())
		}
	}
	if t.log != nil {
		if err := t.log.write(p.metric()); err != nil {
			t.owed = err
		}
	}
	if improved || t.ended() || t.cfg.SaveEvery > 0 && p.Step%t.cfg.SaveEvery == 0 {
		if res.Dir, err = t.keep(ctx); err != nil {
			return err
		}
		if improved && t.store != nil {
			t.owed = t.store.SetBest(p.Step)
		}
	}
	if t.owed != nil && t.crew.alone() {
		return t.owed
	}
	if t.report != nil {
		t.report(p)
	}
	return nil
}

// evaluate evaluates what is held out, each rank its share, with the bits of one
// process; nil if nothing is.
func (t *trainer) evaluate(ctx context.Context) (*Eval, error) {
	s, err := t.task.eval(ctx)
	if err != nil && ctx.Err() != nil {
		_, _ = t.rescue() // its error comes again
	}
	bodies, err := t.crew.exchange(ctx, s, err)
	if err != nil {
		return nil, err
	}
	return mergeEval(bodies)
}

// judge takes an evaluation's score and reports whether it is the best so far.
func (t *trainer) judge(step int, score float64) bool {
	s := &t.state
	if s.Peak == nil || score > *s.Peak {
		s.Peak, s.Stale = &score, 0
	} else {
		s.Stale++
	}
	if s.Best != nil && score <= s.Best.Score {
		return false
	}
	s.Best = &best{Step: step, Score: score}
	return true
}

// make makes one optimiser step.
func (t *trainer) make(ctx context.Context) (p Progress, err error) {
	start, last := time.Now(), t.step()+1 == t.planned()
	t.prof.BeginStep(last)
	defer t.prof.EndStep(last)
	at := t.step() + 1
	stage := t.stages[t.state.Stage]
	micro, losses, err := t.gradients(ctx, &p)
	waiting := time.Now()
	if p.Loss, err = t.combine(ctx, losses, err); err != nil {
		return p, err
	}
	if !t.crew.alone() {
		p.Waited = time.Since(waiting).Seconds()
	}
	if !finite(p.Loss) {
		return p, t.diverged(ctx, at, micro, fmt.Sprintf("the loss is %v", p.Loss))
	}
	var ok bool
	if p.Norm, ok = t.opt.update(t.nodes, stage.Rate(t.opt.step+1)); !ok {
		return p, t.diverged(ctx, at, micro, fmt.Sprintf("the gradients' norm is %v", p.Norm))
	}
	if t.last, err = t.task.place(); err != nil {
		return p, err
	}
	p.Step, p.Steps, p.Stage, p.LR = t.step(), t.planned(), t.state.Stage, stage.Rate(t.opt.step)
	p.Seconds = time.Since(start).Seconds()
	return p, nil
}

// gradients runs this rank's micro-batches of the next step and returns how many there
// are, and their losses. The sums over the ranks begin on the way.
func (t *trainer) gradients(ctx context.Context, p *Progress) (micro int, losses []float64, err error) {
	if t.buckets != nil {
		t.buckets.begin()
		defer t.graph.OnGrad(nil)
	}
	if err := t.owed; err != nil {
		return 0, nil, err
	}
	if t.last, err = t.task.place(); err != nil {
		return 0, nil, err
	}
	if err := ctx.Err(); err != nil {
		return 0, nil, err
	}
	at := t.step() + 1
	err = t.prof.Span("read", func() (err error) {
		micro, p.Positions, err = t.task.begin()
		return err
	})
	if err != nil {
		return 0, nil, fmt.Errorf("read step %d: %w", at, err)
	}
	for i := range micro {
		if err := t.prof.Span("pack", func() error { return t.task.fill(ctx, i, t.opt.step+1) }); err != nil {
			return micro, losses, fmt.Errorf("step %d: %w", at, err)
		}
		last := t.buckets != nil && i+1 == micro
		if last {
			t.graph.OnGrad(func(j int) {
				t.opt.gatherOne(i, j, t.nodes)
				t.buckets.complete(j)
			})
		}
		if err := t.graph.Run(ctx); err != nil {
			return micro, losses, fmt.Errorf("step %d: %w", at, err)
		}
		losses = append(losses, float64(t.total.Scalar()))
		if !last {
			t.opt.gather(i, t.nodes)
		}
	}
	return micro, losses, nil
}

// combine ends the sums over the ranks of a step and returns the sum of all losses, in
// the order of the micro-batches. err is why this rank did not make its part: the
// others are told, after sums that count for nothing.
func (t *trainer) combine(ctx context.Context, losses []float64, err error) (sum float64, _ error) {
	if t.crew.alone() {
		for _, x := range losses {
			sum += x
		}
		return sum, err
	}
	t.buckets.rest()
	if err != nil && ctx.Err() != nil {
		// What is saved needs no other rank, and the time to save it may be short.
		_, _ = t.rescue() // its error comes again
	}
	if err := t.crew.wait(); err != nil {
		return 0, err
	}
	bits := make([]uint64, len(losses)) // JSON has no infinities
	for i, x := range losses {
		bits[i] = math.Float64bits(x)
	}
	bodies, err := t.crew.exchange(ctx, bits, err)
	if err != nil {
		return 0, err
	}
	for r, b := range bodies {
		if err := json.Unmarshal(b, &bits); err != nil {
			return 0, fmt.Errorf("losses of rank %d: %w", r, err)
		}
		for _, x := range bits {
			sum += math.Float64frombits(x)
		}
	}
	return sum, nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// diverged explains why a step has a loss or gradients that are infinite or no
// numbers: the first operation that made one, if it was not their sum, and the
// data. The weights are those of the step before, and no checkpoint is touched.
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
	b, err := t.blame(ctx, micro)
	bodies, err := t.crew.exchange(ctx, b, err)
	if err != nil {
		return fmt.Errorf("step %d: %s: %w", step, what, err)
	}
	for r, raw := range bodies {
		var b blame
		if err := json.Unmarshal(raw, &b); err != nil {
			return fmt.Errorf("step %d: %s: rank %d: %w", step, what, r, err)
		}
		if b.What != "" {
			return fail(what+b.What, cmp.Or(b.Advice, advice))
		}
	}
	return fail(what, advice)
}

// A blame is what a rank found in its micro-batches that is infinite or no number.
type blame struct {
	What   string `json:"what"` // "": nothing
	Advice string `json:"advice"`
}

func (t *trainer) blame(ctx context.Context, micro int) (b blame, err error) {
	for i := range micro {
		if err := t.task.fill(ctx, i, t.opt.step+1); err != nil {
			return b, err
		}
		op, err := t.graph.FirstNonFinite(ctx)
		if err != nil {
			return b, err
		}
		if op == "" {
			continue
		}
		b.What = ", first in " + op
		if strings.HasPrefix(op, gg.FrozenPrefix) {
			b.Advice = "the target holds it"
			return b, nil
		}
		if strings.HasPrefix(op, gg.InputPrefix) {
			b.Advice = "the data hold it; preprocess the text again"
		}
		if c := t.task.culprit(ctx, i); c != "" {
			b.What += ", with " + c
		}
		return b, nil
	}
	return b, nil
}

// keep is save, on all ranks: none goes on if rank 0 could not write, or if the ranks
// no longer have the same weights. Where a rank does not answer, rank 0 saves alone.
func (t *trainer) keep(ctx context.Context) (dir string, err error) {
	if !t.crew.alone() {
		if err := t.sameWeights(ctx); err != nil {
			if t.crew.lost != nil {
				var serr error
				dir, serr = t.rescue()
				err = errors.Join(err, serr)
			}
			return dir, fmt.Errorf("save step %d: %w", t.step(), err)
		}
	}
	err = t.owed
	if err == nil && t.store != nil {
		dir, err = t.save()
	}
	if err := t.crew.agree(ctx, err); err != nil {
		return dir, err
	}
	t.kept, t.saved = true, t.step()
	return dir, nil
}

// sameWeights compares the ranks' weights, bit by bit.
func (t *trainer) sameWeights(ctx context.Context) error {
	return t.crew.same(ctx, []string{"weights"}, []string{hashWeights(t.params)})
}

// rescue saves the last finished step when a run is interrupted, once, on rank 0 and
// without asking the others, which may be gone.
func (t *trainer) rescue() (dir string, err error) {
	if t.store == nil {
		return "", nil
	}
	if !t.rescued {
		t.rescued = true
		t.rescueDir, t.rescueErr = t.save()
	}
	return t.rescueDir, t.rescueErr
}

// save writes a checkpoint of the last finished step, unless there is one.
func (t *trainer) save() (string, error) {
	at := t.step()
	if t.saved == at && t.state.Pending == nil {
		return t.store.Latest()
	}
	fail := func(err error) (string, error) { return "", fmt.Errorf("save step %d: %w", at, err) }
	for _, p := range t.params.Tensors() {
		if s := t.opt.ops.SumSquares(p.Buf); !finite(s) {
			return fail(fmt.Errorf("weight %s is not finite: the run has diverged; try a smaller lr", p.Name))
		}
	}
	t.state.Step, t.state.Config, t.state.Identity, t.state.Place, t.state.Arithmetic = at, t.cfg, t.identity, t.last, t.arithmetic
	state, err := json.Marshal(t.state)
	if err != nil {
		return fail(err)
	}
	c := &checkpoints.Checkpoint{State: append(state, '\n'), Optimizer: t.opt.tensors()}
	c.Step, c.Hidden, c.Vocab = at, t.params.Spec.Hidden, t.params.Spec.Vocab
	for _, a := range t.params.Export(nil) {
		c.Weights = append(c.Weights, safetensors.F32(a.Name, a.Data, a.Shape...))
	}
	if err := t.queue.Sync(context.Background()); err != nil { // a device lost on the way; an interrupted run is saved
		return fail(err)
	}
	if err := t.task.describe(c); err != nil {
		return fail(err)
	}
	// What the log says of a saved step must not be lost: it is not made again.
	if err := t.log.sync(); err != nil {
		return "", err
	}
	dir, err := t.store.Save(c)
	if err == nil {
		t.saved = at
	}
	return dir, err
}

// resume goes on from what rank 0 has in its store, or begins.
func (t *trainer) resume(ctx context.Context) error {
	t.saved = -1
	// What makes the steps must be the same everywhere, from the beginning.
	if err := t.crew.same(ctx, []string{"configuration", "target, data or sizes"},
		[]string{fmt.Sprintf("%+v", t.cfg), string(t.identity)}); err != nil {
		return err
	}
	st, from, err := t.load()
	if from != nil {
		defer func() { _ = from.Close() }() // only read
	}
	bodies, err := t.crew.exchange(ctx, st, err)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(bodies[0], &st); err != nil {
		return fmt.Errorf("the checkpoint of rank 0: %w", err)
	}
	if st == nil {
		err := t.task.init()
		if err == nil {
			err = t.enter(0)
		}
		if err := t.crew.agree(ctx, err); err != nil {
			return err
		}
		return t.begun(ctx)
	}
	if err := t.broadcast(t.params.Tensors()...); err != nil {
		return err
	}
	t.state = *st
	if err := t.crew.agree(ctx, t.goOn(st, from)); err != nil {
		return err
	}
	if err := t.broadcast(append(slices.Clone(t.opt.m), t.opt.v...)...); err != nil {
		return err
	}
	t.last, t.saved = st.Place, st.Step
	return t.begun(ctx)
}

// begun makes sure that all ranks begin alike.
func (t *trainer) begun(ctx context.Context) error {
	if t.crew.alone() {
		return nil
	}
	return t.crew.same(ctx, []string{"initial weights", "order of gradients"},
		[]string{hashWeights(t.params), fmt.Sprint(t.graph.GradOrder())})
}

// load reads the newest checkpoint of the store, if there is one, and takes its
// weights. The state is nil if there is none, and on ranks without a store.
func (t *trainer) load() (*trainerState, *checkpoints.State, error) {
	if t.store == nil {
		return nil, nil, nil
	}
	dir, err := t.store.Latest()
	if err != nil || dir == "" {
		return nil, nil, err
	}
	s, err := checkpoints.Open(dir)
	if err != nil {
		return nil, nil, err
	}
	st := trainerState{Config: Default()} // what an older run does not say was so
	path := filepath.Join(dir, checkpoints.StateFile)
	if err := json.Unmarshal(s.Trainer, &st); err != nil {
		return nil, s, fmt.Errorf("%s: %w", path, err)
	}
	if a, b := st.Config, t.cfg; !a.sameRun(b) {
		return nil, s, fmt.Errorf("%s: the run began with another configuration (%s): use it, or another directory", path, t.difference(a))
	}
	if !equalJSON(st.Identity, t.identity) {
		return nil, s, fmt.Errorf("%s: the run began with another target, other data or other sizes (%s, now %s): use them, or another directory", path, st.Identity, t.identity)
	}
	if st.Arithmetic != t.arithmetic {
		return nil, s, fmt.Errorf("%s: the run began with the arithmetic of %s, now of %s, with which it would not go on with the same bits: use what it began with, or another directory",
			path, cmp.Or(st.Arithmetic, theCPU), cmp.Or(t.arithmetic, theCPU))
	}
	if st.Stage < 0 || st.Stage >= len(t.stages) || st.Begun < 0 || st.Step < st.Begun || st.Step-st.Begun > t.stages[st.Stage].Steps {
		return nil, s, fmt.Errorf("%s: step %d of stage %d, which began after step %d: no such place in the run", path, st.Step, st.Stage, st.Begun)
	}
	return &st, s, t.params.Import(s.Weights)
}

// theCPU is what has no name as arithmetic.
const theCPU = "the CPU"

// difference says in what the configuration of a checkpoint differs from the run's.
func (t *trainer) difference(was Config) string {
	a, b := was, t.cfg
	if a.Accum == b.Accum {
		return a.diff(b)
	}
	n := t.crew.Size()
	how := fmt.Sprintf("a step had %d batches of all ranks together, now %d", a.Accum, b.Accum)
	if n > 1 {
		how += fmt.Sprintf(", of %d ranks with %d each", n, b.Accum/n)
	}
	if n > 1 || a.Accum > 1 {
		var fit []string
		for r := 1; r <= min(a.Accum, 64); r++ {
			if a.Accum%r == 0 {
				fit = append(fit, fmt.Sprintf("%d × %d", r, a.Accum/r))
			}
		}
		how += "; ranks × accum may be " + strings.Join(fit, ", ")
	}
	return how
}

// goOn enters the stage of a checkpoint where it was left. from is nil on ranks that
// get the moments from rank 0.
func (t *trainer) goOn(st *trainerState, from *checkpoints.State) error {
	if err := t.enter(st.Stage); err != nil {
		return err
	}
	t.opt.step = st.Step - st.Begun
	if from == nil {
		return t.task.seek(st.Place)
	}
	if err := t.opt.restore(from.Optimizer, st.Step-st.Begun); err != nil {
		return err
	}
	if err := t.task.seek(st.Place); err != nil {
		return fmt.Errorf("%s: %w", checkpoints.StateFile, err)
	}
	if b := st.Best; b != nil {
		return t.store.SetBest(b.Step)
	}
	return nil
}

// sameRun reports whether two configurations make the same bits. How often a run is
// evaluated and saved may change on the way; with patience it then ends its stages
// by the new evaluations.
func (c Config) sameRun(d Config) bool {
	d.EvalEvery, d.SaveEvery, d.Keep = c.EvalEvery, c.SaveEvery, c.Keep
	return reflect.DeepEqual(c, d)
}

// diff names the first field in which two configurations differ.
func (c Config) diff(d Config) string {
	var a, b map[string]any
	for _, x := range []struct {
		c  Config
		to *map[string]any
	}{{c, &a}, {d, &b}} {
		raw, err := json.Marshal(x.c)
		if err == nil {
			err = json.Unmarshal(raw, x.to)
		}
		if err != nil {
			panic("train: " + err.Error()) // plain fields marshal
		}
	}
	keys := slices.Collect(maps.Keys(a))
	for k := range b {
		if _, ok := a[k]; !ok {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		if !reflect.DeepEqual(a[k], b[k]) {
			return fmt.Sprintf("%s was %v, is %v", k, shown(a[k]), shown(b[k]))
		}
	}
	return "equal"
}

// shown is a field for a message: one that was left out has no value.
func shown(v any) any {
	if v == nil {
		return "not given"
	}
	return v
}

func equalJSON(a, b json.RawMessage) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	p, err1 := json.Marshal(x)
	q, err2 := json.Marshal(y)
	return err1 == nil && err2 == nil && string(p) == string(q)
}

// MetricsFile is the log beside the checkpoints: one JSON object per step.
const MetricsFile = "metrics.jsonl"

// metrics appends steps to the log.
type metrics struct{ f *os.File }

// A metric is a line of the log.
type metric struct {
	Step      int     `json:"step"`
	Stage     int     `json:"stage,omitempty"` // index
	Loss      float64 `json:"loss"`
	LR        float64 `json:"lr"`
	Norm      float64 `json:"grad_norm"`
	Positions int     `json:"positions"`
	Seconds   float64 `json:"seconds"`
	Eval      *Eval   `json:"eval,omitempty"`
}

// metric is the log's line of p.
func (p Progress) metric() metric {
	return metric{p.Step, p.Stage, p.Loss, p.LR, p.Norm, p.Positions, p.Seconds, p.Eval}
}

// progress is what a line of the log says.
func (t *trainer) progress(m metric) Progress {
	return Progress{Step: m.Step, Steps: t.planned(), Stage: m.Stage, Loss: m.Loss, LR: m.LR, Norm: m.Norm, Positions: m.Positions, Seconds: m.Seconds}
}

// ReadMetrics reads the log of a run: the directory of its checkpoints, or the file.
func ReadMetrics(path string) ([]Progress, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		path = filepath.Join(path, MetricsFile)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	var all []Progress
	for len(b) > 0 {
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		var m metric
		if err := json.Unmarshal(line, &m); err != nil || m.Step < 1 {
			if !whole {
				break // a line being written, or torn by a crash
			}
			return nil, fmt.Errorf("read metrics: %s:%d: want an object with a step from 1: %.80q", path, len(all)+1, line)
		}
		all = append(all, Progress{
			Step: m.Step, Stage: m.Stage, Loss: m.Loss, LR: m.LR, Norm: m.Norm, Positions: m.Positions, Seconds: m.Seconds, Eval: m.Eval,
		})
		b = rest
	}
	return all, nil
}

// openMetrics opens the log and drops the steps after step, which will be made
// again.
func openMetrics(path string, step int) (*metrics, error) {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open metrics: %w", err)
	}
	keep := 0
	for at := 0; at < len(old); {
		end := at
		for end < len(old) && old[end] != '\n' {
			end++
		}
		var m metric
		if end == len(old) || json.Unmarshal(old[at:end], &m) != nil || m.Step > step {
			break
		}
		at = end + 1
		keep = at
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, fmt.Errorf("open metrics: %w", err)
	}
	if err = f.Truncate(int64(keep)); err == nil {
		_, err = f.Seek(int64(keep), 0)
	}
	if err != nil {
		return nil, fmt.Errorf("open metrics: %w", errors.Join(err, f.Close()))
	}
	return &metrics{f}, nil
}

func (m *metrics) write(line metric) error {
	b, err := json.Marshal(line)
	if err == nil {
		_, err = m.f.Write(append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

// sync makes what was written outlast a crash of the machine.
func (m *metrics) sync() error {
	if err := m.f.Sync(); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

func (m *metrics) close() {
	if m != nil {
		_ = m.f.Close() // synced with every checkpoint
	}
}
