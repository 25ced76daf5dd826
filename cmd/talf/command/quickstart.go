package command

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"talf/checkpoints"
	"talf/internal/demo"
	"talf/internal/durable"
	"talf/preprocess"
	"talf/train"
	"talf/train/dist"
)

// A quickPlan is everything that decides what quickstart computes. It is kept in
// the state directory: a run never goes on from the files of another plan.
type quickPlan struct {
	Format     int      `json:"format"` // of the state directory
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
}

func defaultPlan() quickPlan {
	return quickPlan{
		Format: 1, Seed: 1, Documents: 400, Prompts: 24, MaxTokens: 96,
		EagleSteps: 400, TalfSteps: 200, Rows: 1024, Shard: 100, LearnRate: 6e-3,
		Methods: []string{"beam:N=12,k=4,depth=3", "salf:N=12,B=4,th=0.2"},
	}
}

// A quickRow is a line of the table: one method with one head.
type quickRow struct {
	Method          string    `json:"method"`
	Head            string    `json:"head,omitempty"`    // none, untrained, eagle or talf
	Tau             float64   `json:"tau"`               // tokens per target pass
	TokensPerSecond float64   `json:"tokens_per_second"` // mean over prompts
	SpeedUp         float64   `json:"speed_up"`          // against plain decoding of the same prompt, mean
	ByDepth         []float64 `json:"accepted_by_depth"` // share of passes that accept a node of depth 1, 2, …
	Tokens          int       `json:"tokens"`
	Passes          int       `json:"passes"`
	Equal           int       `json:"equal_outputs"` // that are plain decoding's, token for token
	Outputs         int       `json:"outputs"`
}

func (r quickRow) label() string { return quickRun{r.Method, r.Head}.label() }

// A quickState is what state.json holds.
type quickState struct {
	Plan  quickPlan  `json:"plan"`
	Done  []string   `json:"done"` // finished stages
	Rows  []quickRow `json:"rows,omitempty"`
	Plots []string   `json:"plots,omitempty"`
}

// A quick is one run of quickstart.
type quick struct {
	a     *app
	dir   string
	plan  quickPlan
	state quickState
	model func(dir string) error   // writes the model
	after func(stage string) error // tests stop here; nil otherwise
}

// A stage is a step of quickstart. Stages are run in order and resume by
// themselves if they were interrupted halfway.
type stage struct {
	name, doc string
	run       func(context.Context) error
}

func (q *quick) stages() []stage {
	return []stage{
		{"model", "unpack the model and write fresh text", q.unpack},
		{"labels", "let the model label the text with token trees", q.label},
		{"eagle", "train a head with the loss eagle", q.trainEagle},
		{"talf", "train it further with the loss talf", q.trainTalf},
		{"decode", "decode prompts that the head has not seen", q.decode},
	}
}

func newQuickstart(a *app) *cobra.Command {
	var dir string
	var asJSON bool
	c := &cobra.Command{
		Use:   "quickstart",
		Short: "Label, train, decode and measure, all on a small model that talf carries",
		Long: `Quickstart runs the whole pipeline in a few minutes. It unpacks a small language model
and writes fresh text, labels the text with the model's token trees, trains a draft
head with the losses eagle and talf, and decodes prompts that the head has not seen.
Then it prints how the head compares with an untrained one and with plain decoding.

You can interrupt it at any point: run it again and it continues. Everything is kept in
--dir; remove that directory to start over.`,
		Example: "  talf quickstart\n  talf quickstart --dir try --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := &quick{a: a, dir: dir, plan: defaultPlan(), model: demo.Unpack}
			if err := q.run(cmd.Context()); err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(map[string]any{
					"plan": q.plan, "rows": q.state.Rows, "plots": q.state.Plots,
				})
			}
			q.print()
			return nil
		},
	}
	c.Flags().StringVar(&dir, "dir", "talf-quickstart", "directory to keep files in")
	c.Flags().BoolVar(&asJSON, "json", false, "print the table as JSON")
	return c
}

func (q *quick) path(name ...string) string {
	return filepath.Join(append([]string{q.dir}, name...)...)
}

// run executes the stages that are not done.
func (q *quick) run(ctx context.Context) error {
	if err := os.MkdirAll(q.dir, 0o755); err != nil {
		return err
	}
	file := q.path("state.json")
	found, err := durable.ReadJSON(file, &q.state)
	if err != nil {
		return fmt.Errorf("%w: remove %s to begin anew", err, q.dir)
	}
	if found && !samePlan(q.state.Plan, q.plan) {
		return fmt.Errorf("%s: plan differs from this version's: remove %s or choose another --dir", file, q.dir)
	}
	q.state.Plan = q.plan
	if err := durable.WriteJSON(file, &q.state); err != nil {
		return err
	}
	q.a.resume = "run talf quickstart --dir " + q.dir + " again to continue"
	all := q.stages()
	for i, s := range all {
		if slices.Contains(q.state.Done, s.name) {
			continue
		}
		if !q.a.quiet {
			_, _ = fmt.Fprintf(q.a.err, "%d/%d %s\n", i+1, len(all), s.doc)
		}
		begun := time.Now()
		if err := s.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.doc, err)
		}
		q.state.Done = append(q.state.Done, s.name)
		if err := durable.WriteJSON(file, &q.state); err != nil {
			return err
		}
		if !q.a.quiet {
			_, _ = fmt.Fprintf(q.a.err, "    done in %s\n", time.Since(begun).Round(100*time.Millisecond))
		}
		if q.after != nil {
			if err := q.after(s.name); err != nil {
				return err
			}
		}
	}
	return nil
}

func samePlan(a, b quickPlan) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(x) == string(y)
}

// unpack writes the model and the text. The generator never gives a prompt of
// the text to train on again as a prompt to decode.
func (q *quick) unpack(context.Context) error {
	if err := q.model(q.path("model")); err != nil {
		return err
	}
	return demo.WriteJSONL(q.path("text.jsonl"), demo.Corpus(q.plan.Seed, q.plan.Documents))
}

// label preprocesses the text.
func (q *quick) label(ctx context.Context) error {
	c := preprocess.Default()
	c.Files, c.Out, c.Shard = []string{q.path("text.jsonl")}, q.path("labels"), q.plan.Shard
	c.EOS = preprocess.EOSAlways
	_, err := q.a.preprocess(ctx, c, q.path("model"), placement{dtype: dtypeAuto, cublas: true}, nil, chatOptions{})
	return err
}

func (q *quick) trainEagle(ctx context.Context) error {
	return q.train(ctx, "eagle", "", q.plan.EagleSteps)
}

func (q *quick) trainTalf(ctx context.Context) error {
	return q.train(ctx, "talf", q.path("eagle"), q.plan.TalfSteps)
}

func (q *quick) train(ctx context.Context, loss, init string, steps int) error {
	o := trainOptions{
		cfg: train.Default(), kind: checkpoints.KindHead, model: q.path("model"), out: q.path(loss),
		data: files{q.path("labels")}, init: init, resume: true,
	}
	o.cfg.Loss, o.cfg.Steps, o.cfg.Rows, o.cfg.Seed = loss, steps, q.plan.Rows, q.plan.Seed
	o.cfg.LR, o.cfg.MinLR, o.cfg.Warmup = q.plan.LearnRate, 0.1, steps/10
	o.cfg.SaveEvery, o.cfg.EvalEvery, o.cfg.Keep = 25, 0, 1
	_, err := q.a.train(ctx, &o, &dist.World{})
	return err
}

// print shows the table and says what to do next.
func (q *quick) print() {
	a := q.a
	a.printf("\n%-6s  %-9s  %5s  %8s  %8s   %s\n", "method", "head", "τ", "tokens/s", "speed-up", "rounds that accept a node at depth 1, 2, …")
	for _, r := range q.state.Rows {
		name := methodName(r.Method)
		head := r.Head
		if head == "" {
			head = "–"
		}
		var depth strings.Builder
		for _, x := range r.ByDepth {
			fmt.Fprintf(&depth, " %.2f", x)
		}
		a.printf("%-6s  %-9s  %5.2f  %8.0f  %7.2fx  %s\n", name, head, r.Tau, r.TokensPerSecond, r.SpeedUp, depth.String())
	}
	equal, outputs := 0, 0
	for _, r := range q.state.Rows {
		if r.Head != "" { // plain decoding is not compared with itself
			equal, outputs = equal+r.Equal, outputs+r.Outputs
		}
	}
	a.printf(`
τ is the tokens of a pass of the model, its own included. %d prompts of up to %d
tokens; speeds are measured here, all methods in turn on each prompt. %d of %d
outputs are those of plain decoding, token for token. The model is so small that a
pass over a tree costs much more than one over a token: a larger model gains more
from the same τ.

Plots: %s

Next, with the binary of go build ./cmd/talf and a model of your own (a directory in
Hugging Face layout):

  talf preprocess --model DIR --data text.jsonl --out labels
  talf train --model DIR --data labels --loss eagle --out heads/eagle
  talf train --model DIR --data labels --loss talf --init heads/eagle --out heads/talf
  talf generate --model DIR --head heads/talf --prompt 'Once upon a time' --stats

Or talk to this one:

  talf generate --model %s --head %s --prompt 'Once upon a time' --stats
`, q.plan.Prompts, q.plan.MaxTokens, equal, outputs, strings.Join(q.state.Plots, ", "), q.path("model"), q.path("talf"))
}
