package command

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"talf/infer"
	"talf/infer/verify"
	"talf/model/chat"
)

func newGenerate(a *app) *cobra.Command {
	var o decodeOptions
	var talk chatOptions
	var prompt, prompts, out, template, traceFile string
	var stats, asJSON bool
	c := &cobra.Command{
		Use:   "generate --model DIR [--head CKPT]",
		Short: "Continue a prompt, or every prompt of a file",
		Long: `Generate continues one prompt, from --prompt or standard input, and prints the
text as it comes. With --prompts and --out it answers every prompt of a file; run
again after an interruption, it goes on with the prompts that have no answer yet.

Prompt files are what preprocess reads: JSONL with "prompt", "turns" or "messages",
"text", plain text with one prompt a paragraph, or any JSONL with --template
'Question: {question}\nAnswer:'. What a user asks in a prompt, turns or messages is
written by the model's chat template, if it has one, and answered turn by turn; all
else, --prompt too, is text that goes on as it stands. talf chat asks one question.

Without a temperature the output is that of plain decoding bit for bit, whatever
the method. With one, output depends on the seed but not on the method, unless
--verify names a rule that divides by the draft's probabilities: the output then has
the same distribution, and another text for every method.

--trace FILE records each round: the tree, what draft and model give to its nodes,
and what was kept. talf inspect trace FILE draws it.`,
		Example: `  talf generate --model DIR --head CKPT --prompt 'Once upon a time' --stats
  talf generate --model DIR --head CKPT --method salf:th=0.4,N=40 --temperature 0.8 --seed 7 --prompt 'Hello'
  talf generate --model DIR --head CKPT --method static:binary-4,draw=distinct --verify traversal --temperature 1 --prompt 'Hello' --trace trace.jsonl
  talf generate --model DIR --head CKPT --prompts in.jsonl --out out.jsonl`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			switch {
			case prompt != "" && prompts != "":
				return usagef("--prompt and --prompts exclude each other")
			case (prompts == "") != (out == ""):
				return usagef("--prompts and --out belong together")
			case template != "" && prompts == "":
				return usagef("--template is for --prompts")
			case prompts == "" && (cmd.Flags().Changed("chat-template") || cmd.Flags().Changed("date")):
				return usagef("--chat-template and --date are for --prompts: --prompt is text that goes on")
			case traceFile != "" && prompts != "":
				return usagef("--trace records one prompt, not --prompts")
			}
			if prompts != "" {
				if err := canWrite(out); err != nil {
					return err
				}
				if err := talk.check(); err != nil {
					return err
				}
				return a.generateFile(cmd.Context(), &o, promptSource{prompts, template, talk}, out, stats, asJSON)
			}
			if !cmd.Flags().Changed("prompt") {
				b, err := waitFor(cmd.Context(), func() ([]byte, error) { return io.ReadAll(a.in) })
				if err != nil {
					return fmt.Errorf("read the prompt: %w", err)
				}
				prompt = strings.TrimSuffix(string(b), "\n")
			}
			return a.generateOne(cmd.Context(), &o, prompt, traceFile, stats, asJSON)
		},
	}
	f := c.Flags()
	o.flags(f)
	f.StringVar(&prompt, "prompt", "", "text to continue (default: standard input)")
	f.StringVar(&prompts, "prompts", "", "file of prompts")
	f.StringVar(&out, "out", "", "JSONL file for the answers to --prompts")
	f.StringVar(&template, "template", "", "how fields of a JSON object make a prompt: 'Question: {question}\\nAnswer:'")
	talk.flags(f)
	f.StringVar(&traceFile, "trace", "", "JSONL file to record each round's tree and verdict in")
	f.BoolVar(&stats, "stats", false, "print τ, accepted lengths and where the time went")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// generateOne streams the answer to one prompt.
func (a *app) generateOne(ctx context.Context, o *decodeOptions, prompt, traceFile string, stats, asJSON bool) (err error) {
	var traced *bufio.Writer
	if traceFile != "" { // before the model is loaded, which may take minutes
		f, openErr := os.Create(traceFile)
		if openErr != nil {
			return openErr
		}
		traced = bufio.NewWriter(f)
		defer func() {
			// What a full disk says here, it has said to the engine before.
			if closed := errors.Join(traced.Flush(), f.Close()); err == nil {
				err = closed
			}
		}()
	}
	d, err := o.open(0)
	if err != nil {
		return err
	}
	defer func() { d.close() }()
	if traced != nil {
		d.traced = traced
	}
	var emit func(string) error
	if !asJSON {
		emit = func(text string) error {
			_, err := io.WriteString(a.out, text)
			return err
		}
	}
	seq, err := d.answer(ctx, chat.Prompt{Text: prompt, Special: true}, o.seed, emit)
	if !asJSON && seq != nil {
		a.printf("\n")
	}
	if err != nil {
		return err
	}
	line := newStats(seq.Stats())
	if asJSON {
		return a.printJSON(answerOf(0, prompt, o.seed, seq, &line))
	}
	if stats {
		line.print(a.err)
	}
	return nil
}

func answerOf(i int, prompt string, seed uint64, seq *infer.Sequence, stats *statsLine) answer {
	reason, _ := seq.Done()
	return answer{
		Index: i, Prompt: prompt, Text: seq.Text(), Tokens: len(seq.Tokens()),
		Stop: string(reason), Seed: seed, Stats: stats,
	}
}

// generateFile answers the prompts of a file that have no answer yet.
func (a *app) generateFile(ctx context.Context, o *decodeOptions, in promptSource, out string, stats, asJSON bool) error {
	set, err := a.readPrompts(&in, o.model)
	if err != nil {
		return err
	}
	d, err := o.open(1)
	if err != nil {
		return err
	}
	defer func() { d.close() }()
	keys := make([]string, len(set.prompts))
	for i, p := range set.prompts {
		keys[i] = strings.Join(p.turns, "\n")
	}
	settings := o.settings(d, set.templateHash)
	file, err := openAnswers(out, keys, settings)
	if err != nil {
		return err
	}
	defer func() { _ = file.close() }() // every answer was synced
	a.resume = fmt.Sprintf("run the same command again to go on: %s keeps the answers so far", out)

	var total infer.Stats
	answered := 0
	unanswered := 0
	var why error // of the first
	bar := a.progress("generate", "prompts")
	defer bar.end()
	for i, p := range set.prompts {
		if file.done[i] {
			continue
		}
		bar.set(int64(len(file.done)), int64(len(set.prompts)), "")
		ans, sum, err := d.answerTurns(ctx, i, keys[i], set, p, mixSeed(o.seed, i))
		if errors.Is(err, errLongPrompt) || errors.Is(err, chat.ErrRefused) && ctx.Err() == nil { // the others have answers all the same
			err = fmt.Errorf("%s was not answered: %w", p.place, err)
			if unanswered++; unanswered == 1 {
				why = err
			}
			if unanswered <= maxBad {
				a.log.Warn("left out", "why", err.Error())
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("prompt %d of %s: %w", i, in.path, err)
		}
		if !stats {
			ans.Stats = nil
		}
		ans.Settings = settings
		if err := file.append(ans); err != nil {
			return err
		}
		total.Add(sum)
		answered++
	}
	bar.set(int64(len(file.done)), int64(len(set.prompts)), "")
	bar.end()
	if unanswered > 1 {
		return fmt.Errorf("%d prompts were not answered, the first: %w", unanswered, why)
	}
	if unanswered > 0 {
		return why
	}
	line := newStats(&total)
	line.FirstToken /= float64(max(answered, 1)) // the mean
	if asJSON {
		return a.printJSON(map[string]any{"answers": len(set.prompts), "out": out, "stats": line})
	}
	if stats && total.Passes > 0 {
		line.print(a.err)
	}
	return nil
}

// answerTurns answers a prompt turn by turn; each answer is part of the next turn's
// prompt. Without a chat template, a prompt of one turn is the text as it is, and one of
// several a dialogue in plain text.
func (d *decoder) answerTurns(ctx context.Context, i int, key string, set *promptSet, p prompt, seed uint64) (answer, *infer.Stats, error) {
	sum := new(infer.Stats)
	var ans answer
	var replies []turnReply
	for t := set.begin(&p); t.Ask(); {
		asked, err := t.Prompt(ctx)
		if err != nil {
			return ans, sum, err
		}
		seq, err := d.answer(ctx, asked, seed, nil)
		if err != nil {
			return ans, sum, err
		}
		sum.Add(seq.Stats())
		ans = answerOf(i, key, seed, seq, nil)
		replies = append(replies, turnReply{t.Asked(), seq.Text()})
		t.Answer(seq.Text())
	}
	if len(replies) == 1 {
		replies = nil // the answer says it all
	}
	ans.Tokens, ans.Turns = sum.Tokens, replies
	line := newStats(sum)
	ans.Stats = &line
	return ans, sum, nil
}

// settings identifies what decides an answer, so that a file never mixes two. The
// method is among it only where the verifier leaves it a say, the chat template where
// there is one.
func (o *decodeOptions) settings(d *decoder, template string) string {
	all := []any{d.model.Hash(), d.model.Options().DType, d.model.Options().KV, o.machine.actBits, d.tok.Hash(), o.sample, o.seed, o.maxTokens, o.stop, o.ignoreEOS}
	if v, err := verify.Find(o.verify); err == nil && !v.Exact {
		all = append(all, o.verify, o.method, o.drafting.head, o.drafting.draft)
	}
	if template != "" {
		all = append(all, template)
	}
	b, err := json.Marshal(all)
	if err != nil {
		panic("talf: " + err.Error()) // plain values marshal
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:6])
}
