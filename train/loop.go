package train

import (
	"bytes"
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
)

// A Progress is reported after every step.
type Progress struct {
	Step, Steps int
	Stage       int     // index
	Loss        float64 // of the step, per position
	LR, Norm    float64
	Positions   int     // of the step that counted
	Seconds     float64 // that the step took
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
	Dir  string  `json:"dir"`            // the last checkpoint
	Best string  `json:"best,omitempty"` // the best of the checkpoints that were evaluated
	Loss float64 `json:"loss,omitempty"` // of the last step; 0 if there was none left to make
	Eval *Eval   `json:"eval,omitempty"` // nil if nothing is held out
	Done bool    `json:"done"`           // all steps were made
}

// A task is what differs between heads and language models.
type task interface {
	// enter makes what stage i runs on, with the data at their beginning.
	enter(i int) (program, error)
	// begin reads the next step's micro-batches and returns how many there are
	// and how many positions count.
	begin() (micro, count int, err error)
	// fill puts micro-batch i of the step into the graph; step counts from 1 in
	// every stage.
	fill(ctx context.Context, i, step int) error
	eval(ctx context.Context) (*Eval, error)
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
	store  *checkpoints.Store
	report func(Progress)
	prof   *profile // or nil
	log    *metrics

	program
	opt   *optimiser // of the stage: its step counts from the stage's beginning
	state trainerState

	saved    int             // step of the last checkpoint, −1: none
	last     json.RawMessage // place before the step in progress
	identity []byte          // what a checkpoint must agree with to be continued
}

// trainerState is trainer.json.
type trainerState struct {
	Step     int             `json:"step"`
	Config   Config          `json:"config"`
	Identity json.RawMessage `json:"identity"` // target, data, sizes
	Place    json.RawMessage `json:"place"`    // in the data

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
	if t.prof != nil {
		t.graph.Watch(t.prof.meter)
	}
	t.opt, err = newOptimiser(t.cfg, t.queue, t.params.Tensors())
	return err
}

// advance goes on to the next stage. A stage that ended early hands over the best
// weights so far, any other its last.
func (t *trainer) advance() error {
	s := &t.state
	early := t.opt.step < t.stages[s.Stage].Steps
	at := t.step()
	if early && s.Best != nil && s.Best.Step != at {
		set, err := safetensors.Open(filepath.Join(t.store.Path(s.Best.Step), checkpoints.WeightsFile))
		if err != nil {
			return fmt.Errorf("best weights so far: %w", err)
		}
		err = t.params.Import(set)
		if err := errors.Join(err, set.Close()); err != nil {
			return fmt.Errorf("best weights so far: %w", err)
		}
	}
	s.Stage, s.Begun, s.Peak, s.Stale = s.Stage+1, at, nil, 0
	return t.enter(s.Stage)
}

// run goes on from the newest checkpoint of the store, or from step 0, and is
// profiled if it should be.
func (t *trainer) run(ctx context.Context) (Result, error) {
	if err := t.prof.start(); err != nil {
		return Result{}, err
	}
	res, err := t.learn(ctx)
	return res, errors.Join(err, t.prof.stop())
}

func (t *trainer) learn(ctx context.Context) (Result, error) {
	if err := t.resume(); err != nil {
		return Result{}, err
	}
	written := t.step()
	if t.state.Pending != nil {
		written--
	}
	var err error
	if t.log, err = openMetrics(filepath.Join(t.store.Dir(), MetricsFile), written); err != nil {
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
			if err := t.advance(); err != nil {
				return res, fmt.Errorf("stage %d: %w", t.state.Stage+1, err)
			}
		}
		p, err := t.make(ctx)
		if err != nil {
			if ctx.Err() == nil {
				return res, err
			}
			// Interrupted: keep what was learnt before the step in progress.
			dir, serr := t.save()
			res.Step, res.Dir = t.step(), dir
			return res, errors.Join(ctx.Err(), serr)
		}
		if err := t.finish(ctx, p, &res); err != nil {
			return res, err
		}
	}
	if res.Dir == "" { // there was nothing left to learn
		if res.Dir, err = t.save(); err != nil {
			return res, err
		}
	}
	if res.Eval == nil {
		if res.Eval, err = t.task.eval(ctx); err != nil {
			if ctx.Err() != nil {
				return res, ctx.Err()
			}
			return res, fmt.Errorf("evaluate at step %d: %w", res.Step, err)
		}
	}
	if b := t.state.Best; b != nil {
		res.Best = t.store.Path(b.Step)
	}
	res.Done = true
	return res, nil
}

// finish evaluates, logs and saves a step that was made, as far as it is due. If
// the evaluation is interrupted, a checkpoint keeps the step and what is owed.
func (t *trainer) finish(ctx context.Context, p Progress, res *Result) (err error) {
	res.Step, res.Loss = p.Step, p.Loss
	improved := false
	if t.opt.step == t.stages[t.state.Stage].Steps || t.cfg.EvalEvery > 0 && p.Step%t.cfg.EvalEvery == 0 {
		if p.Eval, err = t.task.eval(ctx); err != nil {
			if ctx.Err() == nil {
				return fmt.Errorf("evaluate at step %d: %w", p.Step, err)
			}
			m := p.metric()
			t.state.Pending = &m
			dir, serr := t.save()
			res.Dir = dir
			return errors.Join(ctx.Err(), serr)
		}
		if p.Eval != nil {
			res.Eval = p.Eval
			improved = t.judge(p.Step, p.Eval.score())
		}
	}
	if err := t.log.write(p.metric()); err != nil {
		return err
	}
	if improved || t.ended() || t.cfg.SaveEvery > 0 && p.Step%t.cfg.SaveEvery == 0 {
		if res.Dir, err = t.save(); err != nil {
			return err
		}
		if improved {
			if err := t.store.SetBest(p.Step); err != nil {
				return err
			}
		}
	}
	if t.report != nil {
		t.report(p)
	}
	return nil
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
	t.prof.begin(last)
	defer t.prof.end(last)
	if t.last, err = t.task.place(); err != nil {
		return p, err
	}
	if err := ctx.Err(); err != nil {
		return p, err
	}
	at := t.step() + 1
	stage := t.stages[t.state.Stage]
	var micro, count int
	err = t.prof.span("read", func() (err error) {
		micro, count, err = t.task.begin()
		return err
	})
	if err != nil {
		return p, fmt.Errorf("read step %d: %w", at, err)
	}
	for i := range micro {
		if err := t.prof.span("pack", func() error { return t.task.fill(ctx, i, t.opt.step+1) }); err != nil {
			return p, fmt.Errorf("step %d: %w", at, err)
		}
		if err := t.graph.Run(ctx); err != nil {
			return p, fmt.Errorf("step %d: %w", at, err)
		}
		p.Loss += float64(t.total.Scalar())
		t.opt.gather(i, t.nodes)
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
	p.Step, p.Steps, p.Stage, p.LR, p.Positions = t.step(), t.planned(), t.state.Stage, stage.Rate(t.opt.step), count
	p.Seconds = time.Since(start).Seconds()
	return p, nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// diverged explains why a step has a loss or gradients that are infinite or no
// numbers: the first operation that made one, if it was not their sum, and the
// data. The weights are those of the step before, and no checkpoint is touched.
func (t *trainer) diverged(ctx context.Context, step, micro int, what string) error {
	for _, p := range t.params.Tensors() {
		for j, x := range p.Data {
			if !finite(float64(x)) {
				return fmt.Errorf("step %d: %s: weight %s[%d] is %v since the step before: the run has diverged; try a smaller lr", step, what, p.Name, j, x)
			}
		}
	}
	advice := "the run has diverged; try a smaller lr"
	for i := range micro {
		err := t.task.fill(ctx, i, t.opt.step+1)
		op := ""
		if err == nil {
			op, err = t.graph.FirstNonFinite(ctx)
		}
		if err != nil {
			return fmt.Errorf("step %d: %s: %w", step, what, err)
		}
		if op != "" {
			what += ", first in " + op
			if strings.HasPrefix(op, gg.FrozenPrefix) {
				advice = "the target holds it"
				break
			}
			if strings.HasPrefix(op, gg.InputPrefix) {
				advice = "the data hold it; preprocess the text again"
			}
			if c := t.task.culprit(ctx, i); c != "" {
				what += ", with " + c
			}
			break
		}
	}
	return fmt.Errorf("step %d: %s: %s", step, what, advice)
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
	t.state.Step, t.state.Config, t.state.Identity, t.state.Place = at, t.cfg, t.identity, t.last
	state, err := json.Marshal(t.state)
	if err != nil {
		return fail(err)
	}
	c := &checkpoints.Checkpoint{State: append(state, '\n'), Optimizer: t.opt.tensors()}
	c.Step, c.Hidden, c.Vocab = at, t.params.Spec.Hidden, t.params.Spec.Vocab
	for _, a := range t.params.Export(nil) {
		c.Weights = append(c.Weights, safetensors.F32(a.Name, a.Data, a.Shape...))
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

// resume reads the newest checkpoint, if there is one.
func (t *trainer) resume() error {
	t.saved = -1
	dir, err := t.store.Latest()
	if err != nil {
		return err
	}
	if dir == "" {
		return t.enter(0)
	}
	s, err := checkpoints.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()      // only read
	st := trainerState{Config: Default()} // what an older run does not say was so
	path := filepath.Join(dir, checkpoints.StateFile)
	if err := json.Unmarshal(s.Trainer, &st); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if a, b := st.Config, t.cfg; !a.sameRun(b) {
		return fmt.Errorf("%s: the run began with another configuration (%s): use it, or another directory", path, a.diff(b))
	}
	if !equalJSON(st.Identity, t.identity) {
		return fmt.Errorf("%s: the run began with another target, other data or other sizes (%s, now %s): use them, or another directory", path, st.Identity, t.identity)
	}
	if st.Stage < 0 || st.Stage >= len(t.stages) || st.Begun < 0 || st.Step < st.Begun || st.Step-st.Begun > t.stages[st.Stage].Steps {
		return fmt.Errorf("%s: step %d of stage %d, which began after step %d: no such place in the run", path, st.Step, st.Stage, st.Begun)
	}
	if err := t.params.Import(s.Weights); err != nil {
		return err
	}
	t.state = st
	if err := t.enter(st.Stage); err != nil {
		return err
	}
	if err := t.opt.restore(s.Optimizer, st.Step-st.Begun); err != nil {
		return err
	}
	if err := t.task.seek(st.Place); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if b := st.Best; b != nil {
		if err := t.store.SetBest(b.Step); err != nil {
			return err
		}
	}
	t.last, t.saved = st.Place, st.Step
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
			return nil, fmt.Errorf("read metrics: %s:%d: want an object with a step from 1: %s", path, len(all)+1, line)
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

func (m *metrics) close() { m.f.Close() }
