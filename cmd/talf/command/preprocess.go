package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"talf/compute/devices"
	"talf/data"
	"talf/data/corpus"
	"talf/infer"
	"talf/infer/decode"
	"talf/model"
	"talf/model/sample"
	"talf/preprocess"
)

func newPreprocess(a *app) *cobra.Command {
	c := preprocess.Default()
	var dir string
	on := placement{dtype: dtypeAuto}
	var asJSON bool
	re := regeneration{sample: sample.Greedy()}
	var talk chatOptions
	var stripe stripeFlags
	cmd := &cobra.Command{
		Use:   "preprocess --model DIR --data FILE --out DIR",
		Short: "Label text with a model's token trees, to train a draft head on",
		Long: `Preprocess runs the model over text and writes, for every position, the tree of its
likely continuations, what it thinks of each, and its hidden state, to Parquet
shards. Input files are plain text (paragraphs), or JSON with conversations
("messages" or ShareGPT's "conversations"), "text", "prompt" or "turns", or anything
with --template; also packed by gzip or zstd, or directories of such files. Of
conversations, which the model's chat template writes out, and with --answer-field
only the answers are learnt. Conversations that are too long are cut behind an answer.

Run again after an interruption, it goes on behind the last finished shard. The
shards are the same bytes however often it was stopped and whatever the machine. On
CUDA devices, of which several label side by side, they are so for one kind of
device: its last bits are others than the CPU's, so the set names it, and a set that
was begun on one is not continued on another.

Several runs make a set together: started with --shard-index 0 to n − 1 and
--shard-count n, or by a Slurm array, a Kubernetes indexed Job or mpirun, whose numbers
are taken, each labels every n-th shard. The last one to end joins them, if all write
to one directory (else: preprocess merge), and the set is that of a single run. A run
that was lost is simply run again. docs/deploy has examples.`,
		Example: `  talf preprocess --model DIR --data stories.txt --out labels
  talf preprocess --model DIR --data sharegpt.json --out labels
  talf preprocess --model DIR --data gsm8k.jsonl --template 'Question: {question}\nAnswer:' --answer-field answer --out labels
  talf preprocess --model DIR --data prompts.jsonl --regenerate --out labels
  talf preprocess --model DIR --data stories.txt --out labels --device auto
  talf preprocess --model DIR --data stories.txt --out labels --shard-index 1 --shard-count 4`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := need(cmd, "model", "data", "out"); err != nil {
				return err
			}
			if err := c.Validate(); err != nil {
				return usageError{err}
			}
			if err := re.sample.Validate(); err != nil {
				return usageError{err}
			}
			if err := talk.check(); err != nil {
				return err
			}
			if !re.on {
				for _, name := range []string{"temperature", "top-k", "top-p", "seed"} {
					if cmd.Flags().Changed(name) {
						return usagef("--%s is for --regenerate", name)
					}
				}
			}
			part, from, err := stripe.get(os.LookupEnv)
			if err != nil {
				return err
			}
			if c.Stripe = part; part != data.Whole() {
				a.log.Info("one of several runs", "index", part.Index, "count", part.Count, "said by", from)
			}
			on.rowsGiven, on.tokensGiven = cmd.Flags().Changed("rows"), cmd.Flags().Changed("tokens")
			st, err := a.preprocess(cmd.Context(), c, dir, on, &re, talk)
			if err != nil {
				return err
			}
			if asJSON {
				err = a.printJSON(st)
			} else {
				if part != data.Whole() && !st.Merged {
					a.printf("index %d of %d, others have not ended: ", part.Index, part.Count)
				}
				a.printf("%s: %d sequences of %d tokens, %d to learn, in %d shards\n", c.Out, st.Sequences, st.Tokens, st.LossTokens, st.Shards)
				printInputs(a, &st)
			}
			if err == nil && st.Sequences == 0 && (part == data.Whole() || st.Merged) {
				err = fmt.Errorf("%s: everything was left out: there is nothing to learn", c.Out)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&dir, "model", "", "model directory in Hugging Face layout")
	f.Var((*files)(&c.Files), "data", "input file, or a directory of them (may be repeated)")
	f.StringVar(&c.Out, "out", "", "directory of the shards")
	loadFlags(f, &c.Load)
	talk.flags(f)
	f.StringVar((*string)(&c.EOS), "eos", string(c.EOS), "where the end-of-sequence token follows: answers, always or never (conversations: the template says)")
	f.IntVar(&c.MaxLen, "max-len", c.MaxLen, "tokens of a sequence; longer texts are cut, conversations behind an answer")
	f.IntVar(&c.K, "k", c.K, "nodes of each level of a tree")
	f.IntVar(&c.Depth, "depth", c.Depth, "labelled levels of a tree")
	f.StringVar((*string)(&c.Labels), "labels", string(c.Labels), "topk or full")
	f.IntVar(&c.TopK, "label-k", c.TopK, "labels of a node with --labels topk")
	f.StringVar((*string)(&c.Features), "features", string(c.Features), "bf16, or none: training computes them again")
	f.BoolVar(&c.LossOnly, "loss-only", c.LossOnly, "no trees in prompts, where nothing is learnt")
	f.IntVar(&c.Shard, "shard", c.Shard, "sequences of a shard")
	f.Uint64Var(&c.Seed, "seed", c.Seed, "seed of --regenerate")
	f.IntVar(&c.Rows, "rows", c.Rows, fmt.Sprintf("most rows of a pass (memory against speed; on a CUDA device %d unless given)", preprocess.DeviceRows))
	f.IntVar(&c.Tokens, "tokens", c.Tokens, fmt.Sprintf("tokens whose keys and values are held at once (memory against speed; on a CUDA device %d unless given)", preprocess.DeviceTokens))
	on.flags(f)
	f.BoolVar(&asJSON, "json", false, "print JSON")
	re.flags(f)
	stripe.add(f)
	cmd.AddCommand(newMerge(a))
	return cmd
}

// loadFlags adds flags for how input files are read.
func loadFlags(f *pflag.FlagSet, c *corpus.Config) {
	f.StringVar((*string)(&c.Format), "format", string(c.Format), "auto, jsonl, paragraphs or document")
	f.StringVar(&c.Template, "template", "", `how fields of a JSON object make a text: 'Question: {question}\nAnswer:'`)
	f.StringVar(&c.AnswerField, "answer-field", "", "field that answers; only its tokens are learnt")
	f.StringVar(&c.AnswerRemove, "answer-remove", "", "regular expression to cut out of answers")
	f.IntVar(&c.Skip, "skip", 0, "documents to leave out at the front")
	f.IntVar(&c.Limit, "limit", 0, "documents to take (0: all)")
}

// printInputs says what became of every file, and what was left out.
func printInputs(a *app, st *preprocess.Stats) {
	dropped := func(d map[string]int) {
		for _, why := range sortedKeys(d) {
			a.printf("left out: %d: %s\n", d[why], why)
		}
	}
	if len(st.Inputs) == 0 || len(st.Inputs) == 1 && st.Inputs[0].Conversations == 0 {
		dropped(st.Dropped)
		return
	}
	for i := range st.Inputs {
		in := &st.Inputs[i]
		a.printf("%s: ", in.File)
		if in.Conversations > 0 {
			a.printf("%d conversations, %d turns (%d cut off), ", in.Conversations, in.Turns, in.Cut)
		}
		a.printf("%d sequences of %d tokens, %d to learn\n", in.Rows, in.Tokens, in.Loss)
		dropped(in.Dropped)
	}
}

// files is a flag that may be repeated, and is "" while empty.
type files []string

func (f *files) String() string     { return strings.Join(*f, ",") }
func (f *files) Set(s string) error { *f = append(*f, s); return nil }
func (f *files) Type() string       { return "file" }

// A placement says where the target labels.
type placement struct {
	threads                int
	devices                devices.Names
	dtype                  dtypeFlag
	cublas                 bool // may be used
	rowsGiven, tokensGiven bool // by the user: not to be chosen
}

func (o *placement) flags(f *pflag.FlagSet) {
	threadsVar(f, &o.threads)
	f.Var(&o.devices, "device", devices.HelpAll())
	f.BoolVar(&o.cublas, "cublas", true, "on a CUDA device, let cuBLAS compute large products where it is found")
	f.Var(&o.dtype, "dtype", dtypeHelp())
}

// open loads a copy of the model in dir onto every device and says what computes it.
// The returned function frees them.
func (o *placement) open(log *slog.Logger, c *preprocess.Config, dir string) (all []*model.Model, arithmetic string, closeAll func(), err error) {
	on, err := o.devices.Resolve()
	if err != nil {
		return nil, "", nil, fmt.Errorf("--device: %w", err)
	}
	machine := defaultMachine()
	machine.threads, machine.dtype = o.threads, o.dtype
	if on[0].Remote() {
		if !o.rowsGiven {
			c.Rows = preprocess.DeviceRows
		}
		if !o.tokensGiven {
			c.Tokens = preprocess.DeviceTokens
		}
		machine.rows = c.Rows
	}
	var undo []func()
	closeAll = func() {
		for _, f := range undo {
			f()
		}
	}
	for _, d := range on {
		machine.device = d
		m, closeModel, err := openModelAs(log, dir, &machine)
		if err != nil {
			closeAll()
			return nil, "", nil, err
		}
		all, undo = append(all, m), append(undo, closeModel)
	}
	return all, arithmeticOf(all[0], o.dtype), closeAll, nil
}

// preprocess labels c's files with the model in dir.
func (a *app) preprocess(ctx context.Context, c preprocess.Config, dir string, on placement, re *regeneration, talk chatOptions) (preprocess.Stats, error) {
	dir, err := findModel(dir)
	if err != nil {
		return preprocess.Stats{}, err
	}
	models, arithmetic, closeModels, err := on.open(a.log, &c, dir)
	if err != nil {
		return preprocess.Stats{}, err
	}
	defer closeModels()
	m := models[0]
	bulk := false
	if m.Device().Arithmetic() != "" {
		by, err := a.products(models, on.cublas)
		if err != nil {
			return preprocess.Stats{}, err
		}
		if bulk = by != ""; bulk {
			arithmetic += fmt.Sprintf(", %s, --rows %d --tokens %d", by, c.Rows, c.Tokens)
		}
	}
	tok, err := decode.LoadTokenizer(dir, m)
	if err != nil {
		return preprocess.Stats{}, err
	}
	template, templateHash, err := talk.load(dir)
	if err != nil {
		return preprocess.Stats{}, err
	}
	bar := a.progress("preprocess", "tokens")
	defer bar.end()
	bad := 0
	in := preprocess.Inputs{
		Target: m, Tokenizer: tok, TokenizerHash: tok.Hash(),
		Chat: template, ChatHash: templateHash, Arithmetic: arithmetic, Bulk: bulk,
		Progress: func(p preprocess.Progress) {
			bar.set(p.Tokens, p.AllTokens, fmt.Sprintf("%d shards", p.Shards))
		},
		Bad: func(b corpus.BadLine) {
			a.badLine(&bad, b)
		},
	}
	for _, m := range models[1:] {
		in.Beside = append(in.Beside, preprocess.Worker{Target: m})
	}
	if re != nil && re.on {
		answers := func(m *model.Model) preprocess.Generator {
			return &generator{engine: &infer.Engine{Target: infer.NewTarget(m, 0), Config: infer.Default()}, sample: re.sample}
		}
		in.Generator, in.Sampling = answers(m), re.String()
		for i := range in.Beside {
			in.Beside[i].Generator = answers(in.Beside[i].Target)
		}
	}
	if a.resume == "" {
		a.resume = "run the same command again to go on: finished shards are kept"
	}
	st, err := preprocess.Run(ctx, c, in)
	if err != nil {
		return st, templateHint(err)
	}
	if bad > 0 {
		a.log.Warn("lines that could not be used", "count", bad)
	}
	return st, nil
}

// products says in the log what computes large products of copies of a target, and
// returns the library's name, "" if the devices do it themselves.
func (a *app) products(copies []*model.Model, library bool) (string, error) {
	var first string
	for i, m := range copies {
		by, err := m.Bulk(false)
		products := by
		switch {
		case !library:
			by, products = "", "the device's own: --cublas=false"
		case err != nil:
			by, products = "", "the device's own: "+err.Error()
		}
		a.log.Info("labelling", "device", m.Device().Name(), "weights", strings.ToLower(m.Options().DType.String()), "products", products)
		if i == 0 {
			first = by
		}
		if by != first {
			return "", fmt.Errorf("large products on %s are by %s, on %s by %s, whose bits differ: turn the library off with --cublas=false",
				copies[0].Device().Name(), cmp.Or(first, "the device"), m.Device().Name(), cmp.Or(by, "the device"))
		}
	}
	return first, nil
}

// templateHint says what to do without a chat template.
func templateHint(err error) error {
	if errors.Is(err, preprocess.ErrNoTemplate) {
		return fmt.Errorf("%w: give one with --chat-template FILE", err)
	}
	return err
}

// maxBad is how many lines that cannot be used are named; the rest is counted.
const maxBad = 20

// badLine names one of *n lines that cannot be used.
func (a *app) badLine(n *int, b corpus.BadLine) {
	*n++
	switch {
	case *n <= maxBad:
		a.log.Warn("left out", "line", b.Error())
	case *n == maxBad+1:
		a.log.Warn("further lines that are left out are only counted")
	}
}

// A regeneration says how answers come from the target itself.
type regeneration struct {
	on     bool
	sample sample.Params
}

func (r *regeneration) flags(f *pflag.FlagSet) {
	f.BoolVar(&r.on, "regenerate", false, "let the model write the answers itself")
	f.Float64Var(&r.sample.Temperature, "temperature", 0, "of --regenerate (0: the most likely token)")
	f.IntVar(&r.sample.TopK, "top-k", 0, "of --regenerate")
	f.Float64Var(&r.sample.TopP, "top-p", 1, "of --regenerate")
}

// String describes r for the shards.
func (r *regeneration) String() string {
	if r.sample.Temperature == 0 {
		return "greedy"
	}
	b, err := json.Marshal(r.sample)
	if err != nil {
		panic("talf: " + err.Error()) // plain values marshal
	}
	return string(b)
}

// A generator answers prompts by plain decoding, all of a batch together.
type generator struct {
	engine *infer.Engine
	sample sample.Params
}

// Generate implements preprocess.Generator.
func (g *generator) Generate(ctx context.Context, prompts []preprocess.Prompt) ([][]int32, error) {
	reqs := make([]infer.Request, len(prompts))
	for i, p := range prompts {
		o := decode.Options{Sample: g.sample, MaxTokens: p.Max}
		var err error
		if reqs[i], err = o.Request(nil, nil, p.Tokens, p.Seed); err != nil {
			return nil, err
		}
	}
	return decode.Together(ctx, g.engine, reqs)
}
