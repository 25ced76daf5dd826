package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"talf/checkpoints"
	"talf/compute"
	"talf/internal/jsonl"
	"talf/model/safetensors"
	"talf/train/dist"
	"talf/train/internal/gg"
	"talf/train/internal/optim"
	"talf/train/internal/origin"
	"talf/train/net"
)

// A Progress is reported after every step.
type Progress struct {
	Step, Steps int
	Stage       int     // index
	Loss        float64 // of the step, per position
	LR, Norm    float64 // learning rate; norm of the gradients before clipping
	Positions   int     // of the step that counted
	Seconds     float64 // that the step took
	Waited      float64 // seconds spent waiting for other ranks: communication that computing did not hide
	Eval        *Eval   // of steps after which the run was evaluated
}

// A Result says where a run stopped.
type Result struct {
	Step int    `json:"step"`
	Dir  string `json:"dir"`            // the last checkpoint; "" on all ranks but the first, which writes it
	Best string `json:"best,omitempty"` // the best of the checkpoints that were evaluated
	// BestStep is Best's, and BestScore its τ̂ (Eval.Tau), or of a language model its negative loss.
	BestStep  int     `json:"best_step,omitempty"`
	BestScore float64 `json:"best_score,omitempty"`
	Loss      float64 `json:"loss,omitempty"` // of the last step; 0 if there was none left to make
	Eval      *Eval   `json:"eval,omitempty"` // nil if nothing is held out
	Done      bool    `json:"done"`           // all steps were made
}

// A task is what differs between training heads and language models.
type task interface {
	// build builds the graph of a stage and moves to the start of the data.
	build(stage int) (program, error)
	// initWeights sets the weights of a new run.
	initWeights(ctx context.Context) error
	// readStep reads the next step's micro-batches. It returns how many of them this
	// rank runs, and how many positions count, over all ranks.
	readStep() (micro, count int, err error)
	// fill puts this rank's micro-batch i of the step into the graph. Steps are counted
	// from 1 in every stage.
	fill(ctx context.Context, i, step int) error
	// evaluate evaluates this rank's share of the held-out sequences.
	evaluate(ctx context.Context) (evalShare, error)
	// place returns where the next readStep starts in the data, and seek moves there.
	place() (json.RawMessage, error)
	seek(json.RawMessage) error
	// describe fills in what a checkpoint stores besides weights and moments.
	describe(*checkpoints.Checkpoint) error
	// nonFinite names the sequence of micro-batch i that makes the graph's loss or
	// gradients infinite or NaN; "" if no single one does.
	nonFinite(ctx context.Context, i int) string
}

// A program is the graph of a stage.
type program struct {
	graph *gg.Graph
	nodes []*gg.Node // of the parameters
	total *gg.Node   // the loss
}

// A trainer is one run.
type trainer struct {
	machine
	cfg     Config
	stages  []Stage
	task    task
	params  *net.Params
	store   *checkpoints.Store // of rank 0; nil on the others
	report  func(Progress)
	profile string     // directory; "": none
	log     *jsonl.Log // of rank 0; nil on the others

	program
	opt     *optim.AdamW   // its steps count from the start of the stage
	buckets *optim.Buckets // nil if there is one rank, or sums
	sums    *optim.Joined  // nil: the group sums in the host's memory
	joined  func(by string, why error)
	state   trainerState

	// place is where the step in progress starts in the data.
	place json.RawMessage
	// origin (target, data and sizes) and arithmetic (see HeadJob) must be those of a
	// checkpoint for the run to continue from it. identity is origin as its checkpoints have it.
	origin     origin.Origin
	identity   json.RawMessage
	arithmetic string
	warn       func(string)

	saved        saved // the last checkpoint
	checkpointed bool  // this process has written, or agreed to, a checkpoint
	failed       error // of this rank's last step; the others learn of it in the next
	detached     bool  // the device is lost, and weights and moments are those of another rank
	emergency    emergency
}

// trainerState is the contents of trainer.json.
type trainerState struct {
	Step       int             `json:"step"`
	Config     Config          `json:"config"`
	Identity   json.RawMessage `json:"identity"`
	Place      json.RawMessage `json:"place"` // in the data
	Arithmetic string          `json:"arithmetic,omitempty"`

	Stage int      `json:"stage,omitempty"` // index
	Begun int      `json:"begun,omitempty"` // steps made before the stage
	Best  *best    `json:"best,omitempty"`  // of all evaluations
	Peak  *float64 `json:"peak,omitempty"`  // best score of the stage
	Stale int      `json:"stale,omitempty"` // evaluations of the stage since then
	// Pending is the log entry of a step whose evaluation was interrupted.
	Pending *metric `json:"pending,omitempty"`
}

// best is a checkpoint and its score, see (*Eval).score.
type best struct {
	Step  int     `json:"step"`
	Score float64 `json:"score"`
}

// A saved is a step that a checkpoint has, and whether its evaluation is still to be made.
type saved struct {
	step    int // −1: there is no checkpoint
	pending bool
}

// step returns the number of steps made.
func (t *trainer) step() int { return t.state.Begun + t.opt.Step() }

// stageEnded reports whether no step of the stage is left.
func (t *trainer) stageEnded() bool {
	return t.opt.Step() >= t.stages[t.state.Stage].Steps || t.cfg.Patience > 0 && t.state.Stale >= t.cfg.Patience
}

// ended reports whether no step of the run is left.
func (t *trainer) ended() bool { return t.stageEnded() && t.state.Stage+1 == len(t.stages) }

// planned returns the number of steps of the whole run, if no further stage ends early.
func (t *trainer) planned() int {
	n := t.state.Begun
	for _, s := range t.stages[t.state.Stage:] {
		n += s.Steps
	}
	return n
}

// launch makes a trainer on every rank of a group and runs them. If one rank cannot
// make its own, all fail with its error.
func launch(ctx context.Context, group dist.Group, make func() (*trainer, error)) (Result, error) {
	t, err := make()
	if err == nil && t.store != nil {
		defer func() { _ = t.store.Close() }() // only the lock
	}
	if err := dist.Agree(ctx, group, err); err != nil {
		return Result{}, err
	}
	if t.joined != nil && t.remote && t.peers.Near() {
		if t.sums, err = optim.Join(ctx, t.peers, t.dev, t.joined); err != nil {
			return Result{}, err
		}
		defer t.sums.Close()
		t.arithmetic += t.sums.Arithmetic()
	}
	return t.run(ctx)
}

// run continues from the newest checkpoint, or starts at step 0, and profiles the run
// if it should be profiled.
func (t *trainer) run(ctx context.Context) (Result, error) {
	prof, err := startProfile(t.profile)
	if err := t.peers.Agree(ctx, err); err != nil {
		prof.abandon()
		return Result{}, err
	}
	res, err := t.train(ctx)
	return res, errors.Join(err, prof.stop())
}

func (t *trainer) train(ctx context.Context) (Result, error) {
	if t.warn == nil {
		t.warn = func(string) {}
	}
	if err := t.resume(ctx); err != nil {
		return Result{}, err
	}
	err := t.openLog()
	if t.log != nil {
		defer func() { _ = t.log.Close() }() // every checkpoint has synced it
	}
	if err := t.peers.Agree(ctx, err); err != nil {
		return Result{}, err
	}
	res := Result{Step: t.step()}
	if m := t.state.Pending; m != nil {
		// The step was made but not evaluated, and its checkpoint says so: another follows.
		t.state.Pending = nil
		p := m.progress()
		p.Steps = t.planned()
		if err := t.completeStep(ctx, p, &res); err != nil {
			return res, err
		}
	}
	for !t.ended() {
		if t.stageEnded() {
			if err := t.nextStage(ctx); err != nil {
				return res, fmt.Errorf("stage %d: %w", t.state.Stage+1, err)
			}
		}
		p, err := t.makeStep(ctx)
		if err != nil {
			if !dist.Interrupted(ctx, err) {
				return t.rescue(ctx, res, err)
			}
			// Save what was learned before the step in progress.
			dir, serr := t.saveInEmergency()
			res.Step, res.Dir = t.step(), dir
			return res, errors.Join(err, serr)
		}
		if err := t.completeStep(ctx, p, &res); err != nil {
			return t.rescue(ctx, res, err)
		}
	}
	return t.conclude(ctx, res)
}

// conclude makes sure that a run whose steps are all made has a checkpoint and an
// evaluation of the last one.
func (t *trainer) conclude(ctx context.Context, res Result) (_ Result, err error) {
	if !t.checkpointed { // there was no step left to make
		if res.Dir, err = t.checkpoint(ctx); err != nil {
			return res, err
		}
	}
	if res.Eval == nil {
		if res.Eval, err = t.evaluate(ctx); err != nil {
			if dist.Interrupted(ctx, err) {
				return res, err
			}
			return res, fmt.Errorf("evaluate at step %d: %w", res.Step, err)
		}
	}
	if b := t.state.Best; b != nil && t.store != nil {
		res.Best, res.BestStep, res.BestScore = t.store.Path(b.Step), b.Step, b.Score
	}
	if err := t.peers.Agree(ctx, t.failed); err != nil {
		return res, err
	}
	res.Done = true
	return res, nil
}

// completeStep evaluates, logs and saves a step that was made, as far as these are due.
// If the evaluation is interrupted, a checkpoint keeps the step and notes that its
// evaluation is pending.
func (t *trainer) completeStep(ctx context.Context, p Progress, res *Result) (err error) {
	res.Step, res.Loss = p.Step, p.Loss
	improved := false
	if t.opt.Step() == t.stages[t.state.Stage].Steps || t.cfg.EvalEvery > 0 && p.Step%t.cfg.EvalEvery == 0 {
		m := p.metric()
		t.state.Pending = &m
		if p.Eval, err = t.evaluate(ctx); err != nil {
			if !dist.Interrupted(ctx, err) {
				return fmt.Errorf("evaluate at step %d: %w", p.Step, err)
			}
			dir, serr := t.saveInEmergency()
			res.Dir = dir
			return errors.Join(err, serr)
		}
		t.state.Pending = nil
		if p.Eval != nil {
			res.Eval = p.Eval
			improved = t.recordScore(p.Step, p.Eval.score())
		}
	}
	if t.log != nil {
		if err := t.log.Append(p.metric()); err != nil {
			t.failed = err
		}
	}
	if improved || t.stageEnded() || t.cfg.SaveEvery > 0 && p.Step%t.cfg.SaveEvery == 0 {
		if res.Dir, err = t.checkpoint(ctx); err != nil {
			return err
		}
		if improved && t.store != nil {
			t.failed = t.store.SetBest(p.Step)
		}
	}
	if t.failed != nil && t.peers.Alone() {
		return t.failed
	}
	if t.report != nil {
		t.report(p)
	}
	return nil
}

// recordScore records the score of an evaluation and reports whether it is the best so far.
func (t *trainer) recordScore(step int, score float64) bool {
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

// beginStage prepares stage i, which starts from the current weights, with new moments, at the
// start of the data and of its schedule, like a separate run.
func (t *trainer) beginStage(i int) (err error) {
	if t.program, err = t.task.build(i); err != nil {
		return err
	}
	if t.opt, err = newOptimiser(t.cfg, t.queue, t.params.Tensors(), t.sums != nil || t.peers.Alone() && t.cfg.Accum > 1); err != nil || t.sums != nil || t.peers.Alone() {
		return err
	}
	var sums []*gg.Tensor
	if t.buckets, sums, err = optim.NewBuckets(t.peers, t.queue, t.params.Tensors(), t.graph.GradOrder()); err != nil {
		return err
	}
	t.opt.GatherIn(sums)
	return nil
}

// newOptimiser returns the optimiser of a run, which may have memory in which it gathers gradients.
func newOptimiser(c Config, q compute.Queue, params []*gg.Tensor, gather bool) (*optim.AdamW, error) {
	return optim.New(optim.Config{
		Beta1: c.Beta1, Beta2: c.Beta2, Eps: c.Eps, Decay: c.Decay, Clip: c.Clip, Gather: gather,
	}, q, params)
}

// nextStage moves to the next stage. A stage that stopped early hands over the best weights of
// the run so far, any other its last weights.
func (t *trainer) nextStage(ctx context.Context) error {
	s := &t.state
	early := t.opt.Step() < t.stages[s.Stage].Steps
	at := t.step()
	if early && s.Best != nil && s.Best.Step != at {
		err := t.peers.Agree(ctx, t.importBest())
		if err == nil {
			err = t.broadcast(ctx, t.params.Tensors())
		}
		if err != nil {
			return fmt.Errorf("best weights so far: %w", err)
		}
	}
	s.Stage, s.Begun, s.Peak, s.Stale = s.Stage+1, at, nil, 0
	return t.peers.Agree(ctx, t.beginStage(s.Stage))
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

// broadcast gives every rank rank 0's values of tensors.
func (t *trainer) broadcast(ctx context.Context, tensors []*gg.Tensor) error {
	if t.peers.Alone() {
		return nil
	}
	for _, x := range tensors {
		x.Pull()
		if err := t.peers.Broadcast(ctx, x.Data); err != nil {
			return err
		}
		x.Push()
	}
	return nil
}
