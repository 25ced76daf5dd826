// Package quickstart runs the whole pipeline on the embedded model: it labels text, trains a
// head with two losses, decodes with it and measures.
package quickstart

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"talf/internal/demo"
	"talf/internal/durable"
	"talf/internal/stages"
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
		Format: 3, Seed: 1, Documents: 400, Prompts: 24, MaxTokens: 96,
		EagleSteps: 400, TalfSteps: 200, Rows: 1024, Shard: 100, LearnRate: 6e-3,
		Methods: []string{"beam:N=12,k=4,depth=3", "salf:N=12,B=4,th=0.2"},
		Deep:    Deep{Layers: 100, Prompts: 16, MaxTokens: 64, Methods: []string{"salf"}},
	}
}

// Tools do the work on this machine's devices, and show progress.
type Tools interface {
	stages.Show
	// Label runs preprocess with the model in a directory.
	Label(ctx context.Context, c preprocess.Config, model string) error
	// Train trains a head, or continues a run that was interrupted.
	Train(ctx context.Context, c train.Config, f TrainFiles) error
	// Open loads the model in dir, deepened to so many layers unless layers is 0. The returned
	// function frees it.
	Open(ctx context.Context, dir string, layers int) (*model.Model, func(), error)
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

// found is what the stages found, kept in state.json.
type found struct {
	Rows  []Row    `json:"rows,omitempty"`
	Deep  []Row    `json:"deep_rows,omitempty"`
	Plots []string `json:"plots,omitempty"`
}

// A run is one call of Run.
type run struct {
	Config
	state *stages.Record[Plan, found]
}

func (r *run) stages() []stages.Stage {
	return []stages.Stage{
		{Name: "model", Doc: "unpack the model and write fresh text", Run: r.unpack},
		{Name: "labels", Doc: "let the model label the text with token trees", Run: r.label},
		{Name: "eagle", Doc: "train a head with the loss eagle", Run: r.trainEagle},
		{Name: "talf", Doc: "train it further with the loss talf", Run: r.trainTalf},
		{Name: "decode", Doc: "decode prompts that the head has not seen", Run: r.decode},
		{Name: "deep", Doc: "decode them where a pass costs what one of a larger model costs", Run: r.decodeDeep},
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
	var err error
	switch r.state, err = stages.Open[Plan, found](file, r.Plan); {
	case errors.Is(err, stages.ErrPlan):
		return nil, fmt.Errorf("%s: plan differs from this version's: remove %s or choose another --dir", file, r.Dir)
	case err != nil:
		return nil, fmt.Errorf("%w: remove %s to begin anew", err, r.Dir)
	}
	if err := r.state.Run(ctx, r.stages(), r.Tools); err != nil {
		return nil, err
	}
	f := &r.state.Result
	return &Result{Plan: r.Plan, Plots: f.Plots, Rows: f.Rows, Deep: f.Deep, dir: r.Dir}, nil
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
