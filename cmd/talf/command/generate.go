package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"talf/data/corpus"
	"talf/infer"
	"talf/infer/decode"
	"talf/infer/prompts"
	"talf/internal/cli"
	"talf/internal/durable"
	"talf/internal/limits"
	"talf/model"
	"talf/text/chat"
)

// A generateOptions holds generate's flags.
type generateOptions struct {
	decodeOptions
	prompt      string
	raw         rawFlag
	prompts     promptSource
	out, trace  string
	batch       int
	stats, json bool
}

func newGenerate(a *app) *cobra.Command {
	var o generateOptions
	c := &cobra.Command{
		Use:   "generate MODEL [PROMPT] [--head CKPT]",
		Short: "Answer a prompt, or every prompt of a file",
		Long: `Generate answers one prompt, its second argument or what it reads from standard input,
and prints the text as it comes. The model's chat template, if it has one, writes out the
prompt; a model without one continues it, and so does any model with --raw. With
--prompts and --out it answers every prompt of a file. Run the same command again after
an interruption, and it answers the prompts that are left.

Prompt files are of the kinds that preprocess reads: JSONL with "prompt", "turns",
"messages" or "text", plain text with one prompt per paragraph, or any JSONL with
--template 'Question: {question}\nAnswer:'. The chat template writes out "prompt", "turns"
and "messages", which are answered turn by turn; without one, "messages" and several turns
are written as chat writes them. Any other text is continued as it stands.

At temperature 0 the output is that of plain decoding, bit for bit, whatever the
method. Above it, the output depends on the seed but not on the method, unless
--verify names a rule that divides by the draft's probabilities: each method then
writes a text of its own, from the same distribution. Without --seed one is drawn at
random; the log and the answers name it. Every prompt of a file, and every turn of a
prompt, has a seed of its own, derived from --seed.

--trace FILE records every round: the tree, the probabilities that draft and target
give to its nodes, and what was kept. talf inspect trace FILE draws it.`,
		Example: `  talf generate model.gguf 'What is the capital of France?'
  talf generate MODEL --raw 'Once upon a time' --head CKPT --stats
  talf generate MODEL 'Hello' --head CKPT --method salf:th=0.4,N=40 --temperature 0.8 --seed 7
  talf generate MODEL 'Hello' --head CKPT --method static:binary-4,draw=distinct --verify traversal --temperature 1 --trace trace.jsonl
  talf generate MODEL --head CKPT --prompts in.jsonl --out out.jsonl`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			if o.prompts.path != "" {
				return a.generateFile(cmd.Context(), &o)
			}
			if !cmd.Flags().Changed("prompt") {
				b, err := cli.Wait(cmd.Context(), func() ([]byte, error) { return io.ReadAll(limits.Reader(a.in, limits.PromptBytes, "the prompt")) })
				if err != nil {
					return fmt.Errorf("standard input: %w", err)
				}
				o.prompt = strings.TrimSuffix(string(b), "\n")
			}
			return a.generateOne(cmd.Context(), &o)
		},
	}
	f := c.Flags()
	o.flags(f)
	f.StringVar(&o.prompt, "prompt", "", "what to ask, or the text to continue, which may also be the second argument (default: standard input)")
	cli.Arguments(f, "model", "prompt")
	o.raw.flag(f)
	f.StringVar(&o.prompts.path, "prompts", "", "file of prompts")
	f.StringVar(&o.out, "out", "", "JSONL file for the answers to --prompts")
	f.IntVar(&o.batch, "batch", 1, "prompts of --prompts that are answered side by side, in passes that they share")
	f.StringVar(&o.prompts.template, "template", "", "how the fields of a JSON object make a prompt: 'Question: {question}\\nAnswer:'")
	o.prompts.chat.flags(f)
	o.prompts.chat.today(f, "; with --prompts "+chat.FixedDate)
	f.StringVar(&o.trace, "trace", "", "JSONL file that records the tree and the verdict of each round")
	f.BoolVar(&o.stats, "stats", false, "print τ, acceptance lengths and where the time went")
	f.BoolVar(&o.json, "json", false, "print JSON")
	return c
}

// check finds mistakes that show without a model.
func (o *generateOptions) check(cmd *cobra.Command) error {
	if err := o.decodeOptions.check(cmd); err != nil {
		return err
	}
	file := o.prompts.path != ""
	switch {
	case o.prompt != "" && file:
		return usagef("--prompt and --prompts exclude each other")
	case file != (o.out != ""):
		return usagef("--prompts and --out belong together")
	case o.prompts.template != "" && !file:
		return usagef("--template is for --prompts")
	case o.batch < 1:
		return usagef("--batch is %d, want at least 1", o.batch)
	case o.batch > 1 && !file:
		return usagef("--batch is for --prompts")
	case o.trace != "" && file:
		return usagef("--trace records one prompt, not --prompts")
	}
	if err := o.raw.check(cmd.Flags()); err != nil {
		return err
	}
	if o.raw {
		o.prompts.chat.file = noTemplate
	}
	if file {
		o.prompts.chat.live = false // a later run may go on
	}
	if err := durable.Writable(o.out); err != nil {
		return err
	}
	return o.prompts.chat.check()
}

// question returns the prompt as the model is given it. templated says that a chat template wrote it.
func (o *generateOptions) question(ctx context.Context) (p chat.Prompt, templated bool, err error) {
	template, _, err := o.prompts.chat.of(o.model)
	if err != nil {
		return p, false, err
	}
	d := prompts.Ask(template, o.prompt)
	p, err = d.Prompt(ctx)
	return p, template != nil, err
}

// generateOne streams the answer to one prompt.
func (a *app) generateOne(ctx context.Context, o *generateOptions) (err error) {
	if err := o.drawSeed(a.log, ""); err != nil {
		return err
	}
	var trace io.Writer
	if o.trace != "" { // before the model is loaded, which may take minutes
		f, openErr := durable.Create(o.trace)
		if openErr != nil {
			return openErr
		}
		w := bufio.NewWriter(f)
		trace = w
		defer func() {
			// A full disk has been reported to the engine already. The rounds before any other
			// error are kept.
			if closed := errors.Join(w.Flush(), f.Commit()); err == nil {
				err = closed
			}
		}()
	}
	prompt, templated, err := o.question(ctx)
	if err != nil {
		return err
	}
	d, err := o.open(ctx, a, 0, trace)
	if err != nil {
		return err
	}
	defer func() { d.close() }()
	h, err := d.Submit(ctx, prompt, o.seed)
	if err != nil {
		return err
	}
	seq, err := h.Wait(func(x infer.Delta) error {
		if o.json {
			return nil
		}
		_, err := io.WriteString(a.out, x.Text)
		return err
	})
	if !o.json && seq != nil {
		a.printf("\n")
	}
	if err != nil {
		return err
	}
	a.warnUndrafted(seq.Undrafted())
	a.warnEmpty(d, seq, templated)
	ans := decode.NewAnswer(0, o.prompt, o.seed, seq)
	if o.json {
		return a.printJSON(struct {
			decode.Answer
			Memory model.Memory `json:"memory"`
		}{ans, d.parts.Model.Memory()})
	}
	if o.stats {
		return a.printStats(ans.Stats, d.parts.Model)
	}
	return nil
}

// generateFile answers the prompts of a file that have no answer yet.
func (a *app) generateFile(ctx context.Context, o *generateOptions) error {
	if err := o.drawSeed(a.log, o.out); err != nil {
		return err
	}
	set, hash, err := a.readPrompts(&o.prompts, o.model)
	if err != nil {
		return err
	}
	d, err := o.open(ctx, a, o.batch, nil)
	if err != nil {
		return err
	}
	defer func() { d.close() }()
	tasks := set.Tasks()
	settings, err := d.Settings(decode.Facts{Seed: o.seed, Template: hash})
	if err != nil {
		return err
	}
	to, err := decode.OpenAnswers(o.out, tasks, settings)
	if err != nil {
		return fmt.Errorf("%w: choose another --out", err)
	}
	defer func() { _ = to.Close() }() // every answer was synced
	a.resume = fmt.Sprintf("run the same command again to go on: %s keeps the answers so far", o.out)

	bar := a.progress("generate", "prompts")
	defer bar.End()
	skipped := 0
	r, err := d.AnswerAll(ctx, tasks, to, decode.Batch{
		Seed: o.seed, Side: o.batch, Stats: o.stats,
		Progress: func(done, total int) { bar.Set(int64(done), int64(total), "") },
		Skipped: func(err error) {
			if skipped++; skipped <= corpus.MaxNamed {
				a.log.Warn("left out", "why", err.Error())
			}
		},
	})
	bar.End()
	a.warnUndrafted(r.Undrafted)
	switch {
	case err != nil:
		return err
	case r.Skipped > 1:
		return fmt.Errorf("%d prompts were not answered, the first: %w", r.Skipped, r.First)
	case r.Skipped > 0:
		return r.First
	}
	sum := r.Stats.Summary()
	sum.FirstToken /= float64(max(r.Answered, 1)) // the mean
	if o.json {
		return a.printJSON(map[string]any{"answers": len(tasks), "out": o.out, "stats": sum, "memory": d.parts.Model.Memory()})
	}
	if o.stats && sum.Passes > 0 {
		return a.printStats(&sum, d.parts.Model)
	}
	return nil
}

// printStats prints what an answer took.
func (a *app) printStats(s *infer.Summary, m *model.Model) error {
	if err := s.Print(a.err); err != nil {
		return err
	}
	_, err := fmt.Fprintln(a.err, m.Memory())
	return err
}
