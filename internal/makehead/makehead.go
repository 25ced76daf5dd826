// Package makehead makes a draft head of a model, from the model alone or from prompts: the model writes what the
// head learns from, labels it with token trees and teaches the head, which is then measured on prompts that it has
// not seen, beside plain decoding.
package makehead

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"talf/data"
	"talf/infer/decode"
	"talf/internal/durable"
	"talf/internal/stages"
	"talf/model"
	"talf/preprocess"
	"talf/text/chat"
	"talf/text/tokenizer"
	"talf/train"
	"talf/train/mix"
	"talf/train/net"
)

// A Plan is everything that decides which head is made. It is kept in the state file, so that a run never continues
// from the files of another plan.
type Plan struct {
	Format int      `json:"format"` // of the state file
	Seed   uint64   `json:"seed"`
	Data   []string `json:"data,omitempty"` // files of prompts; none: those of asking.txt
	Tokens int      `json:"tokens"`         // of answers to learn; 0: as many as Hours allow
	Hours  float64  `json:"hours,omitempty"`

	MaxTokens   int     `json:"max_tokens"`  // of an answer
	Temperature float64 `json:"temperature"` // of the answers to learn
	Side        int     `json:"-"`           // answers that are written side by side

	K       int      `json:"k"` // nodes of a level of the trees that label
	Depth   int      `json:"depth"`
	Shard   int      `json:"shard"`   // sequences of a shard of labels
	Network string   `json:"network"` // of the head: net.ParseNetwork
	Missed  float64  `json:"missed"`  // largest share of the labels' mass that the head's vocabulary may lack
	Init    string   `json:"init"`    // of training: Linear, Random, or a head of the same network to start from
	Stages  []string `json:"stages"`  // of training: train.ParseStage
	Rows    int      `json:"rows"`    // positions of a step
	Rate    float64  `json:"rate"`    // of learning
	Warmup  int      `json:"warmup"`  // steps
	Every   int      `json:"every"`   // steps between evaluations
	// Patience ends a stage after so many evaluations without a better τ̂.
	Patience int `json:"patience"`

	Report  int `json:"report"`  // prompts that nothing is learnt from, and that have the figures that are printed
	Measure int `json:"measure"` // tokens of an answer that is measured
}

// The values of Plan.Init that are no head's path: the best linear prediction of the model's next hidden states, which
// heads of EAGLE's network and linear blocks can start as, and random weights.
const (
	Linear = "linear"
	Random = "random"
)

// Default returns the plan of talf head. docs/heads.md has what its constants rest on.
func Default() Plan {
	p := Plan{
		Format: 3, Seed: 1, Tokens: 100_000,
		MaxTokens: 384, Side: 16,
		K: 2, Depth: 3, Shard: 16,
		Missed: 0.05, Rows: 512, Every: 100, Patience: 4,
		Report: 19, Measure: 128,
	}
	p.SetNetwork(Network)
	return p
}

// Network is the network of heads that nobody asks another of.
const Network = "block:size=4,linear=on,markov=vanilla,rank=64"

// SetNetwork sets the network of the head, and with it how the head starts and is taught. All take about as many rows of
// the head for a token of text, but a block predicts each token once, where the others step from every position.
func (p *Plan) SetNetwork(network string) {
	p.Network = network
	switch name, _, _ := strings.Cut(network, ":"); name {
	case "block":
		p.Init, p.Stages, p.Rate, p.Warmup = Random, []string{"dflash:labels=tail,gamma=0:20e"}, 1e-3, 30
		if linearBlock(network) {
			p.Init, p.Rate, p.Warmup = Linear, 3e-4, 50
		}
	case "eagle3":
		p.Init, p.Stages, p.Rate, p.Warmup = Random, []string{"eagle3:steps=1:12e", "eagle3:2e"}, 1e-3, 30
	default:
		p.Init, p.Stages, p.Rate, p.Warmup = Linear, []string{"hass:outside=mask:5e"}, 3e-4, 50
	}
}

// linearBlock reports whether a network is a block without layers.
func linearBlock(network string) bool {
	n, err := net.ParseNetwork(network)
	return err == nil && n.Tapped() && n.Linear() // Validate reports the error
}

// starts reports whether the head starts from another.
func (p *Plan) starts() bool { return p.Init != Linear && p.Init != Random }

// Validate reports the first value that is not allowed.
func (p *Plan) Validate() error {
	n, err := net.ParseNetwork(p.Network)
	if err != nil {
		return err
	}
	switch {
	case p.Tokens < 0 || p.Tokens > 1<<30:
		return fmt.Errorf("tokens is %d, want 1 to %d", p.Tokens, 1<<30)
	case !(p.Hours >= 0 && p.Hours <= 10_000):
		return fmt.Errorf("hours is %v, want more than 0, and at most 10000", p.Hours)
	case (p.Tokens == 0) == (p.Hours == 0):
		return errors.New("want either tokens or hours")
	case p.Init == "":
		return fmt.Errorf("init is empty, want %s, %s or a head", Linear, Random)
	case p.Init == Linear && !n.Linear():
		return fmt.Errorf("init is %s, want %s or a head: network %s predicts no hidden states", Linear, Random, p.Network)
	}
	return nil
}

// held returns how many prompts nothing is learnt from. One is decoded before measuring begins.
func (p *Plan) held() int { return p.Report + 1 }

// Tools do the work on this machine's devices, and show progress.
type Tools interface {
	stages.Show
	// Open loads the model and its tokenizer, rounding the activations that integers are multiplied by to 8 bits
	// where that is rough and can be. The returned function frees them.
	Open(ctx context.Context, rough bool) (*model.Model, *tokenizer.Tokenizer, func(), error)
	// Prompts reads files of prompts. Without a file, it returns no tasks. The template is nil if the model has
	// none.
	Prompts(files []string) (tasks []decode.Task, template *chat.Template, hash string, err error)
	// Label runs preprocess.
	Label(ctx context.Context, c preprocess.Config) (preprocess.Stats, error)
	// Train trains a head, or continues a run that was interrupted.
	Train(ctx context.Context, c train.Config, f TrainFiles) (train.Result, error)
	// Progress shows how far something is that counts in unit. The returned functions update the numbers and
	// remove the display.
	Progress(what, unit string) (set func(done, total int, note string), end func())
	// Tell prints a line for the user.
	Tell(line string)
	// Warn logs what the user should know.
	Warn(why string)
}

// TrainFiles are what training reads and writes.
type TrainFiles struct {
	Labels, Out string
	Init        string // Linear, or a head to start from; "": random weights
	Stages      []string
	Vocab       string // of mix.Vocab
}

// A Config is a run.
type Config struct {
	Dir   string // keeps all files
	Plan  Plan
	Tools Tools
}

// found is what the stages found, kept in the state file.
type found struct {
	Costs   *Costs  `json:"costs,omitempty"`
	Spent   float64 `json:"seconds_answering,omitempty"` // with Hours
	Answers int     `json:"answers,omitempty"`           // to learn from; 0: not all are written
	Tokens  int     `json:"tokens,omitempty"`            // of these
	Labels  int64   `json:"label_tokens,omitempty"`      // prompts included
	Vocab   int     `json:"vocab,omitempty"`             // tokens that the head predicts; 0: all
	Covered float64 `json:"covered,omitempty"`           // their share of the labels' mass on text held out
	Steps   int     `json:"steps,omitempty"`
	Best    int     `json:"best_step,omitempty"`
	TauHat  float64 `json:"tau_held_out,omitempty"`
	Rows    []Row   `json:"rows,omitempty"`
	Pays    bool    `json:"pays"`
}

// A run is one call of Run.
type run struct {
	Config
	state *stages.Record[Plan, found]
}

func (r *run) path(name string) string { return filepath.Join(r.Dir, name) }

func (r *run) stages() []stages.Stage {
	return []stages.Stage{
		{Name: "costs", Doc: "see what this machine needs for the model", Run: r.costs},
		{Name: "answers", Doc: "let the model write what the head learns from", Run: r.answers},
		{Name: "labels", Doc: "label it with what the model says", Run: r.label},
		{Name: "train", Doc: "train the head", Run: r.train},
		{Name: "measure", Doc: "measure it on prompts that it has not seen", Run: r.measure},
	}
}

// Run executes the stages that are not done in c.Dir.
func Run(ctx context.Context, c Config) (*Result, error) {
	r := &run{Config: c}
	if err := r.Plan.Validate(); err != nil {
		return nil, err
	}
	if err := durable.MakeDirs(r.Dir); err != nil {
		return nil, err
	}
	var err error
	switch r.state, err = stages.Open[Plan, found](r.path("state.json"), r.Plan); {
	case errors.Is(err, stages.ErrPlan):
		return nil, fmt.Errorf("%w: give the same options, or choose another --out", err)
	case err != nil:
		return nil, fmt.Errorf("%w: remove %s to begin anew", err, r.Dir)
	}
	r.state.Plan.Side = r.Plan.Side
	if err := r.state.Run(ctx, r.stages(), r.Tools); err != nil {
		return nil, err
	}
	return &Result{Plan: r.Plan, Dir: r.Dir, Head: r.Head(), found: r.state.Result}, nil
}

// label preprocesses the answers. Only what training evaluates on has trees: the losses of the plan learn along the text.
func (r *run) label(ctx context.Context) error {
	c := preprocess.Default()
	c.Files, c.Out, c.Shard = []string{r.path("text.jsonl")}, r.path("labels"), r.Plan.Shard
	c.K, c.Depth, c.LossOnly, c.TreeShare, c.MaxLen = r.Plan.K, r.Plan.Depth, true, train.Default().Held, r.Plan.Rows
	c.Features = preprocess.FeaturesAt(r.state.Result.Costs.Taps)
	if r.state.Result.Costs.Features > featureBytes {
		c.Features = data.None
	}
	st, err := r.Tools.Label(ctx, c)
	r.state.Result.Labels = st.Tokens
	return err
}

// train trains the head.
func (r *run) train(ctx context.Context) error {
	p := &r.Plan
	c := train.Default()
	c.Network, c.Rows, c.Seed, c.LR, c.MinLR, c.Warmup = r.state.Result.Costs.Network, p.Rows, p.Seed, p.Rate, 0.1, p.Warmup
	c.EvalEvery, c.SaveEvery, c.Keep, c.Patience = p.Every, p.Every, 1, p.Patience
	vocab, err := r.vocabulary(c.Held)
	if err != nil {
		return err
	}
	from := TrainFiles{Labels: r.path("labels"), Out: r.path("head"), Init: p.Init, Stages: p.Stages, Vocab: vocab}
	if p.Init == Random {
		from.Init = ""
	}
	res, err := r.Tools.Train(ctx, c, from)
	if err != nil {
		return err
	}
	f := &r.state.Result
	f.Steps, f.Best, f.TauHat = res.Step, res.BestStep, res.BestScore
	return nil
}

// smallest is the smallest vocabulary of a head that is tried. The LM head of fewer tokens is a small part of its layer.
const smallest = 2048

// vocabulary chooses the tokens that the head predicts, by the mass of labels: of as little text, they cover more than
// those that are written.
func (r *run) vocabulary(held float64) (text string, err error) {
	f := &r.state.Result
	set, err := data.Open(r.path("labels"))
	if err != nil {
		return "", err
	}
	defer func() { _ = set.Close() }() // only read
	covered := func(text string) (float64, error) {
		c, err := mix.Cover(set, text, held)
		if err != nil {
			return 0, err
		}
		return c.Held.Levels[0], nil
	}
	switch n := f.Costs.Outputs; {
	case n == set.Meta().Vocab:
		f.Vocab, f.Covered = 0, 1
		return "", nil
	case n > 0: // those of the head that it starts from
		f.Vocab = n
		f.Covered, err = covered(r.Plan.Init)
		return r.Plan.Init, err
	}
	words := func(n int) string { return fmt.Sprintf("mass:%d", n) }
	f.Vocab, f.Covered, err = covering(set.Meta().Vocab, r.Plan.Missed, func(n int) (float64, error) { return covered(words(n)) })
	if err != nil || f.Vocab == 0 {
		return "", err
	}
	return words(f.Vocab), nil
}

// covering returns the size of a head's vocabulary by what is lost, and the share of the labels' mass that it has: what a
// head cannot guess is never accepted, so that on every level the share that its vocabulary lacks is lost, while each
// doubling makes its pass dearer. It is the smallest that lacks no more than missed, on text from which it was not chosen,
// or 0, for all of the vocab tokens.
func covering(vocab int, missed float64, cover func(n int) (float64, error)) (size int, share float64, err error) {
	for n := smallest; n < vocab; n *= 2 {
		if x, err := cover(n); err != nil || x >= 1-missed {
			return n, x, err
		}
	}
	return 0, 1, nil
}
