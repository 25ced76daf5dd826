package train

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"talf/checkpoints"
	"talf/model/safetensors"
	"talf/train/internal/gg"
	"talf/train/net"
)

// A Progress is reported after every step.
type Progress struct {
	Step, Steps int
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
}

// A LevelEval is one level of the label trees: level 0 is the text itself.
type LevelEval struct {
	Loss float64 `json:"loss"` // mean cross-entropy of a node
	Top1 float64 `json:"top1"` // share of nodes whose most likely token is the target's
	Rows int     `json:"rows"`
}

// A Result says where a run ended.
type Result struct {
	Step int     `json:"step"`
	Dir  string  `json:"dir"`            // the last checkpoint
	Loss float64 `json:"loss,omitempty"` // of the last step; 0 if there was none left to make
	Eval *Eval   `json:"eval,omitempty"` // nil if nothing is held out
	Done bool    `json:"done"`           // all steps were made
}

// A task is what differs between heads and language models.
type task interface {
	// begin reads the next step's micro-batches and returns how many there are
	// and how many positions count.
	begin() (micro, count int, err error)
	// fill puts micro-batch i of the step into the graph.
	fill(ctx context.Context, i, step int) error
	eval(ctx context.Context) (*Eval, error)
	// place is where the next begin starts reading.
	place() (json.RawMessage, error)
	seek(json.RawMessage) error
	// describe fills in what a checkpoint needs beside weights and moments.
	describe(*checkpoints.Checkpoint) error
}

// trainer is a run.
type trainer struct {
	cfg    Config
	task   task
	graph  *gg.Graph
	params *net.Params
	nodes  []*gg.Node
	total  *gg.Node
	opt    *optimiser
	store  *checkpoints.Store
	report func(Progress)
	log    *metrics

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
}

// run goes on from the newest checkpoint of the store, or from step 0.
func (t *trainer) run(ctx context.Context) (Result, error) {
	if err := t.resume(); err != nil {
		return Result{}, err
	}
	var err error
	if t.log, err = openMetrics(filepath.Join(t.store.Dir(), MetricsFile), t.opt.step); err != nil {
		return Result{}, err
	}
	defer t.log.close()
	res := Result{Step: t.opt.step}
	for t.opt.step < t.cfg.Steps {
		p, err := t.step(ctx)
		if err != nil {
			if ctx.Err() == nil {
				return res, err
			}
			// Interrupted: keep what was learnt before the step in progress.
			dir, serr := t.save()
			res.Step, res.Dir = t.opt.step, dir
			return res, errors.Join(ctx.Err(), serr)
		}
		res.Step, res.Loss = p.Step, p.Loss
		last := p.Step == t.cfg.Steps
		if last || t.cfg.EvalEvery > 0 && p.Step%t.cfg.EvalEvery == 0 {
			if p.Eval, err = t.task.eval(ctx); err != nil && ctx.Err() == nil {
				return res, fmt.Errorf("evaluate at step %d: %w", p.Step, err)
			}
			res.Eval = p.Eval
		}
		if err := t.log.write(p); err != nil {
			return res, err
		}
		if last || t.cfg.SaveEvery > 0 && p.Step%t.cfg.SaveEvery == 0 {
			if res.Dir, err = t.save(); err != nil {
				return res, err
			}
		}
		if t.report != nil {
			t.report(p)
		}
	}
	if res.Dir == "" { // there was nothing left to learn
		if res.Dir, err = t.save(); err != nil {
			return res, err
		}
	}
	if res.Eval == nil {
		// The run was interrupted in its last evaluation, now or before: the
		// weights are saved, and the result is not whole without the figures.
		if res.Eval, err = t.task.eval(ctx); err != nil {
			if ctx.Err() != nil {
				return res, ctx.Err()
			}
			return res, fmt.Errorf("evaluate at step %d: %w", res.Step, err)
		}
	}
	res.Done = true
	return res, nil
}

// step makes one optimiser step.
func (t *trainer) step(ctx context.Context) (p Progress, err error) {
	start := time.Now()
	if t.last, err = t.task.place(); err != nil {
		return p, err
	}
	if err := ctx.Err(); err != nil {
		return p, err
	}
	micro, count, err := t.task.begin()
	if err != nil {
		return p, fmt.Errorf("read step %d: %w", t.opt.step+1, err)
	}
	for i := range micro {
		if err := t.task.fill(ctx, i, t.opt.step+1); err != nil {
			return p, fmt.Errorf("step %d: %w", t.opt.step+1, err)
		}
		if err := t.graph.Run(ctx); err != nil {
			return p, fmt.Errorf("step %d: %w", t.opt.step+1, err)
		}
		p.Loss += float64(t.total.Scalar())
		t.opt.gather(i, t.nodes)
	}
	if math.IsNaN(p.Loss) || math.IsInf(p.Loss, 0) {
		return p, fmt.Errorf("step %d: the loss is %v: the run has diverged; try a smaller lr", t.opt.step+1, p.Loss)
	}
	if p.Norm, err = t.opt.update(t.nodes, t.cfg.Rate(t.opt.step+1)); err != nil {
		return p, err
	}
	if t.last, err = t.task.place(); err != nil {
		return p, err
	}
	p.Step, p.Steps, p.LR, p.Positions = t.opt.step, t.cfg.Steps, t.cfg.Rate(t.opt.step), count
	p.Seconds = time.Since(start).Seconds()
	return p, nil
}

// save writes a checkpoint of the last finished step, unless there is one.
func (t *trainer) save() (string, error) {
	if t.saved == t.opt.step {
		return t.store.Latest()
	}
	state, err := json.Marshal(trainerState{Step: t.opt.step, Config: t.cfg, Identity: t.identity, Place: t.last})
	if err != nil {
		return "", fmt.Errorf("save step %d: %w", t.opt.step, err)
	}
	c := &checkpoints.Checkpoint{State: append(state, '\n'), Optimizer: t.opt.tensors()}
	c.Step, c.Hidden, c.Vocab = t.opt.step, t.params.Spec.Hidden, t.params.Spec.Vocab
	for _, a := range t.params.Export(nil) {
		c.Weights = append(c.Weights, safetensors.F32(a.Name, a.Data, a.Shape...))
	}
	if err := t.task.describe(c); err != nil {
		return "", fmt.Errorf("save step %d: %w", t.opt.step, err)
	}
	dir, err := t.store.Save(c)
	if err == nil {
		t.saved = t.opt.step
	}
	return dir, err
}

// resume reads the newest checkpoint, if there is one.
func (t *trainer) resume() error {
	t.saved = -1
	dir, err := t.store.Latest()
	if err != nil || dir == "" {
		return err
	}
	s, err := checkpoints.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }() // only read
	var st trainerState
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
	if err := t.params.Import(s.Weights); err != nil {
		return err
	}
	if err := t.opt.restore(s.Optimizer, st.Step); err != nil {
		return err
	}
	if err := t.task.seek(st.Place); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	t.last, t.saved = st.Place, st.Step
	return nil
}

// sameRun reports whether two configurations make the same bits.
func (c Config) sameRun(d Config) bool {
	d.EvalEvery, d.SaveEvery, d.Keep = c.EvalEvery, c.SaveEvery, c.Keep
	return c == d
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
	for k, v := range a {
		if b[k] != v {
			return fmt.Sprintf("%s was %v, is %v", k, v, b[k])
		}
	}
	return "equal"
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

type metric struct {
	Step      int     `json:"step"`
	Loss      float64 `json:"loss"`
	LR        float64 `json:"lr"`
	Norm      float64 `json:"grad_norm"`
	Positions int     `json:"positions"`
	Seconds   float64 `json:"seconds"`
	Eval      *Eval   `json:"eval,omitempty"`
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

func (m *metrics) write(p Progress) error {
	b, err := json.Marshal(metric{p.Step, p.Loss, p.LR, p.Norm, p.Positions, p.Seconds, p.Eval})
	if err == nil {
		_, err = m.f.Write(append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

func (m *metrics) close() { m.f.Close() }
