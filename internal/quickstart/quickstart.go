// Package quickstart runs the whole pipeline on the embedded model: it labels text, trains a
// head with two losses, decodes with it and measures.
package quickstart

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"talf/internal/demo"
	"talf/internal/durable"
	"talf/model"
	"talf/preprocess"
	"talf/train"
)

// A Plan is everything that decides what is computed. It is kept in the state file, so
// that a run never continues from the files of another plan.
type Plan struct {
	Format     int      `json:"format"` // of the state file
	Seed       uint64   `json:"seed"`
	Documents  int      `json:"documents"` // to train on
	Prompts    int      `json:"prompts"`   // to decode
	MaxTokens  int      `json:"max_tokens"`
	EagleSteps int      `json:"eagle_steps"`
	TalfSteps  int      `json:"talf_steps"`
	Rows       int      `json:"rows"`  // positions of a training step
	Shard      int      `json:"shard"` // sequences of a shard
	LearnRate  float64  `json:"lr"`
	Methods    []string `json:"methods"`
	Deep       Deep     `json:"deep"`
}

// Deep is the second comparison: the same heads and prompts with the target deepened by layers
// that change nothing, so that a pass costs what one of a larger model costs.
type Deep struct {
	Layers    int      `json:"layers"`
	Prompts   int      `json:"prompts"`
	MaxTokens int      `json:"max_tokens"`
	Methods   []string `json:"methods"` // with the trained heads
}

// Default returns the plan of talf quickstart.
func Default() Plan {
	return Plan{
		Format: 2, Seed: 1, Documents: 400, Prompts: 24, MaxTokens: 96,
		EagleSteps: 400, TalfSteps: 200, Rows: 1024, Shard: 100, LearnRate: 6e-3,
		Methods: []string{"beam:N=12,k=4,depth=3", "salf:N=12,B=4,th=0.2"},
		Deep:    Deep{Layers: 100, Prompts: 16, MaxTokens: 64, Methods: []string{"salf"}},
	}
}

// Tools do the work on this machine's devices, and show progress.
type Tools interface {
	// Label runs preprocess with the model in a directory.
	Label(ctx context.Context, c preprocess.Config, model string) error
	// Train trains a head, or continues a run that was interrupted.
	Train(ctx context.Context, c train.Config, f TrainFiles) error
	// Open loads the model in dir, deepened to so many layers unless layers is 0. The returned
	// function frees it.
	Open(ctx context.Context, dir string, layers int) (*model.Model, func(), error)
	// Begin is called when stage i of n begins, counted from 1; End is called when it is done.
	// If End returns an error, the run stops there.
	Begin(i, n int, doc string)
	End(took time.Duration) error
	// Answers starts showing how many answers are decoded. The returned functions update the
	// number and remove the display.
	Answers() (set func(done, total int), end func())
}

// TrainFiles are the directories that training reads and writes.
type TrainFiles struct {
	Model, Labels string
	Init          string // head to start from; empty for none
	Out           string
}

// A Config is a run of quickstart.
type Config struct {
	Dir    string // keeps all files
	Plan   Plan
	Tools  Tools
	Unpack func(dir string) error // writes the model
}

// A Result is what a finished run measured.
type Result struct {
	Plan  Plan     `json:"plan"`
	Plots []string `json:"plots"` // files
	Rows  []Row    `json:"rows"`
	Deep  []Row    `json:"deep_rows"` // of the deepened target
	dir   string
}

// A state is the contents of state.json.
type state struct {
	Plan  Plan     `json:"plan"`
	Done  []string `json:"done"` // names of finished stages
	Rows  []Row    `json:"rows,omitempty"`
	Deep  []Row    `json:"deep_rows,omitempty"`
	Plots []string `json:"plots,omitempty"`
}

// A run is one call of Run.
type run struct {
	Config
	state state
}

// A stage is a step of quickstart. If it was interrupted, it continues where it stopped when it
// is run again, or starts over.
type stage struct {
	name, doc string
	run       func(context.Context) error
}

func (r *run) stages() []stage {
	return []stage{
		{"model", "unpack the model and write fresh text", r.unpack},
		{"labels", "let the model label the text with token trees", r.label},
		{"eagle", "train a head with the loss eagle", r.trainEagle},
		{"talf", "train it further with the loss talf", r.trainTalf},
		{"decode", "decode prompts that the head has not seen", r.decode},
		{"deep", "decode them where a pass costs what one of a larger model costs", r.decodeDeep},
	}
}

func (r *run) path(name string) string { return filepath.Join(r.Dir, name) }

// Run executes the stages that are not done in c.Dir.
func Run(ctx context.Context, c Config) (*Result, error) {
	r := &run{Config: c}
	if err := durable.MakeDirs(r.Dir); err != nil {
		return nil, err
	}
	file := r.path("state.json")
	found, err := durable.ReadJSON(file, &r.state)
	if err != nil {
		return nil, fmt.Errorf("%w: remove %s to begin anew", err, r.Dir)
	}
	if found && !same(r.state.Plan, r.Plan) {
		return nil, fmt.Errorf("%s: plan differs from this version's: remove %s or choose another --dir", file, r.Dir)
	}
	r.state.Plan = r.Plan
	if err := durable.WriteJSON(file, &r.state); err != nil {
		return nil, err
	}
	all := r.stages()
	for i, s := range all {
		if slices.Contains(r.state.Done, s.name) {
			continue
		}
		r.Tools.Begin(i+1, len(all), s.doc)
		begun := time.Now()
		if err := s.run(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", s.doc, err)
		}
		r.state.Done = append(r.state.Done, s.name)
		if err := durable.WriteJSON(file, &r.state); err != nil {
			return nil, err
		}
		if err := r.Tools.End(time.Since(begun)); err != nil {
			return nil, err
		}
	}
	return &Result{Plan: r.Plan, Plots: r.state.Plots, Rows: r.state.Rows, Deep: r.state.Deep, dir: r.Dir}, nil
}

func same(a, b Plan) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(x) == string(y)
}

// unpack writes the model and the text. None of the text's prompts is among those that are
// decoded later: demo draws them from another stream.
func (r *run) unpack(context.Context) error {
	if err := r.Unpack(r.path("model")); err != nil {
		return err
	}
	return demo.WriteJSONL(r.path("text.jsonl"), demo.Corpus(r.Plan.Seed, r.Plan.Documents))
}

// label preprocesses the text.
func (r *run) label(ctx context.Context) error {
	c := preprocess.Default()
	c.Files, c.Out, c.Shard = []string{r.path("text.jsonl")}, r.path("labels"), r.Plan.Shard
	c.EOS = preprocess.EOSAlways
	return r.Tools.Label(ctx, c, r.path("model"))
}

func (r *run) trainEagle(ctx context.Context) error {
	return r.train(ctx, "eagle", "", r.Plan.EagleSteps)
}

func (r *run) trainTalf(ctx context.Context) error {
	return r.train(ctx, "talf", r.path("eagle"), r.Plan.TalfSteps)
}

func (r *run) train(ctx context.Context, loss, init string, steps int) error {
	c := train.Default()
	c.Loss, c.Steps, c.Rows, c.Seed = loss, steps, r.Plan.Rows, r.Plan.Seed
	c.LR, c.MinLR, c.Warmup = r.Plan.LearnRate, 0.1, steps/10
	c.SaveEvery, c.EvalEvery, c.Keep = 25, 0, 1
	return r.Tools.Train(ctx, c, TrainFiles{Model: r.path("model"), Labels: r.path("labels"), Init: init, Out: r.path(loss)})
}
