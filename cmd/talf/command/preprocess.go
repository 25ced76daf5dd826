package command

import (
	"cmp"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"talf/data"
	"talf/data/corpus"
	"talf/internal/cli"
	"talf/model/sample"
	"talf/preprocess"
	"talf/preprocess/remote"
)

func newPreprocess(a *app) *cobra.Command {
	c := preprocess.Default()
	var dir string
	on := placement{machineOptions: defaultMachine()}
	var asJSON bool
	re := regeneration{sample: sample.Greedy(), server: remote.Default()}
	var talk chatOptions
	var stripe stripeFlags
	cmd := &cobra.Command{
		Use:   "preprocess MODEL --data FILE --out DIR",
		Short: "Label text with a model's token trees, to train a draft head on",
		Long: `Preprocess runs the model over text. For every position it writes the tree of likely
continuations, the model's distribution after each node, and the hidden state, to
Parquet shards. Input files are plain text (paragraphs), JSON with conversations
("messages", or ShareGPT's "conversations"), "text", "prompt" or "turns", or any JSON
with --template. They may be compressed with gzip or zstd; a directory stands for its
files. The model's chat template writes out conversations. Of conversations, and with
--answer-field, only the answers are learnt. Conversations that are too long are cut
after an answer.

Run the same command again after an interruption: it continues after the last
finished shard. The shards are the same bytes however often the run was stopped, and
on every CPU. CUDA devices, several of which can label side by side, round
differently: their shards are the same bytes on devices of one kind. The set records
the kind, and is continued on no other.

Several runs can make one set together. Start them with --shard-index 0 to n − 1 and
--shard-count n, or as a Slurm array, a Kubernetes indexed Job or with mpirun, which
number them: each labels every n-th shard. If all write to one directory, the last to
finish joins the parts; otherwise use preprocess merge. The set is the same as a single
run's. If a run is lost, start it again. docs/deploy has examples.`,
		Example: `  talf preprocess MODEL --data stories.txt --out labels
  talf preprocess MODEL --data sharegpt.json --out labels
  talf preprocess MODEL --data gsm8k.jsonl --template 'Question: {question}\nAnswer:' --answer-field answer --out labels
  talf preprocess MODEL --data prompts.jsonl --regenerate --out labels
  talf preprocess MODEL --data prompts.jsonl --regenerate-url http://127.0.0.1:8000/v1 --out labels
  talf preprocess MODEL --data stories.txt --out labels --device auto
  talf preprocess MODEL --data stories.txt --out labels --shard-index 1 --shard-count 4`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.Need(cmd, "model", "data", "out"); err != nil {
				return err
			}
			if err := cmp.Or(c.Validate(), re.sample.Validate()); err != nil {
				return usageError(err)
			}
			if err := cmp.Or(talk.check(), re.check(cmd)); err != nil {
				return err
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
				_, _ = io.WriteString(a.out, st.Inventory())
			}
			if err == nil && st.Sequences == 0 && (part == data.Whole() || st.Merged) {
				err = fmt.Errorf("%s: everything was left out: there is nothing to learn", c.Out)
			}
			return err
		},
	}
	f := cmd.Flags()
	modelVar(f, &dir, "")
	f.Var((*cli.Files)(&c.Files), "data", "input file or directory (may be repeated)")
	f.StringVar(&c.Out, "out", "", "directory to write the shards to")
	labelFlags(f, &c, &talk)
	f.StringVar((*string)(&c.Features), "features", string(c.Features), "hidden states to store: bf16, those that EAGLE-1/2 heads read; taps, those that EAGLE-3 heads read (taps:2+16+29 names the layers); or none: training recomputes them")
	f.IntVar(&c.Shard, "shard", c.Shard, "sequences per shard")
	f.Uint64Var(&c.Seed, "seed", c.Seed, "seed of --regenerate")
	f.IntVar(&c.Rows, "rows", c.Rows, fmt.Sprintf("maximum rows per pass (memory against speed; on a CUDA device %d unless given)", preprocess.DeviceRows))
	f.IntVar(&c.Tokens, "tokens", c.Tokens, fmt.Sprintf("tokens whose keys and values are held at once (memory against speed; on a CUDA device %d unless given)", preprocess.DeviceTokens))
	on.flags(f)
	f.BoolVar(&asJSON, "json", false, "print JSON")
	re.flags(f)
	cli.CountVar(f, &c.Prompts, "concurrency", c.Prompts, "requests to --regenerate-url at a time")
	stripe.add(f)
	cmd.AddCommand(newMerge(a))
	return cmd
}

// labelFlags adds flags for the sequences of texts and their labels.
func labelFlags(f *pflag.FlagSet, c *preprocess.Config, talk *chatOptions) {
	loadFlags(f, &c.Load)
	talk.flags(f)
	f.StringVar((*string)(&c.EOS), "eos", string(c.EOS), "where to add the end-of-sequence token: answers, always or never (in conversations the template decides)")
	f.IntVar(&c.MaxLen, "max-len", c.MaxLen, "maximum tokens per sequence; longer texts are cut, conversations after an answer")
	f.IntVar(&c.K, "k", c.K, "nodes per level of a tree")
	f.IntVar(&c.Depth, "depth", c.Depth, "labelled levels per tree")
	f.StringVar((*string)(&c.Labels), "labels", string(c.Labels), "topk or full")
	f.IntVar(&c.TopK, "label-k", c.TopK, "labels per node with --labels topk")
	f.Float64Var(&c.TreeShare, "tree-share", 0, "share of the sequences that have trees, the last ones, on which train evaluates; losses along the text learn from the others, at a fraction of the time (0: all)")
	f.BoolVar(&c.LossOnly, "loss-only", c.LossOnly, "write no trees inside prompts, where nothing is learnt")
}

// loadFlags adds flags for how input files are read.
func loadFlags(f *pflag.FlagSet, c *corpus.Config) {
	f.StringVar((*string)(&c.Format), "format", string(c.Format), "auto, jsonl, paragraphs or document")
	f.StringVar(&c.Template, "template", "", `how the fields of a JSON object make a text: 'Question: {question}\nAnswer:'`)
	f.StringVar(&c.AnswerField, "answer-field", "", "field with the answer; only its tokens are learnt")
	f.StringVar(&c.AnswerRemove, "answer-remove", "", "regular expression whose matches are removed from answers")
	f.IntVar(&c.Skip, "skip", 0, "documents to skip at the start")
	f.IntVar(&c.Limit, "limit", 0, "maximum number of documents (0: all)")
}

// A regeneration says how the target itself writes the answers.
type regeneration struct {
	on     bool
	sample sample.Params
	server remote.Config
}

func (r *regeneration) check(cmd *cobra.Command) error {
	return cmp.Or(cli.Only(cmd, "regenerate", r.on || r.server.URL != "", "temperature", "top-k", "top-p", "seed"),
		cli.Only(cmd, "regenerate-url", r.server.URL != "", "regenerate-model", "concurrency"))
}

func (r *regeneration) flags(f *pflag.FlagSet) {
	f.BoolVar(&r.on, "regenerate", false, "let the model write the answers itself")
	f.StringVar(&r.server.URL, "regenerate-url", "", "let a server of OpenAI's API, which runs the same model, write the answers: its base URL (key in "+remote.KeyVariable+")")
	f.StringVar(&r.server.Model, "regenerate-model", "", "the model's name on that server, if it has several")
	f.Float64Var(&r.sample.Temperature, "temperature", 0, "of --regenerate (0: the most likely token)")
	f.IntVar(&r.sample.TopK, "top-k", 0, "of --regenerate")
	f.Float64Var(&r.sample.TopP, "top-p", 1, "of --regenerate")
}
