package command

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"talf/checkpoints"
	"talf/data"
	"talf/data/corpus"
	"talf/model/arch"
	"talf/model/tokenizer"
	"talf/preprocess"
)

func newInspectSamples(a *app) *cobra.Command {
	o := inspection{conf: preprocess.Default(), n: 3, color: "auto"}
	var asJSON, stats bool
	var vocab string
	c := &cobra.Command{
		Use:   "data FILE",
		Short: "Show samples of training data with the tokens in the loss",
		Long: `Inspect data shows sequences as a head is trained on them: those that preprocess
would make of a file of conversations or texts, or the rows of Parquet shards. What
is learnt is green on a terminal, and between ` + markOpen + ` and ` + markClose + ` elsewhere.

With --stats it shows what a set of shards holds instead: tokens, the mass that the
labels hold on every level of the trees, and what was dropped; with --draft-vocab N
also how much of it is in the N tokens that train would choose.

Source files need --model, a directory in which the tokenizer's files are enough;
without it the rows of shards are shown as token ids.`,
		Example: "  talf inspect data sharegpt.json --model DIR\n  talf inspect data labels --model DIR --n 5 --seed 1\n  talf inspect data labels --stats",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if stats {
				v, err := waitFor(cmd.Context(), func() (*dataFinding, error) { return inspectData(args[0]) })
				if err != nil {
					return err
				}
				if vocab != "" {
					if v.DraftVocab, err = waitFor(cmd.Context(), func() (*vocabFinding, error) { return inspectVocab(args[0], vocab) }); err != nil {
						return err
					}
				}
				if asJSON {
					return a.printJSON(v)
				}
				v.print(a)
				return nil
			}
			if vocab != "" {
				return usagef("--draft-vocab is for --stats")
			}
			v, err := o.inspect(cmd.Context(), a, args[0])
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(v)
			}
			v.print(a, o.color == "always" || o.color == "auto" && isTerminal(a.out) && os.Getenv("NO_COLOR") == "")
			return nil
		},
	}
	f := c.Flags()
	f.BoolVar(&stats, "stats", false, "show statistics of shards in place of samples")
	f.StringVar(&vocab, "draft-vocab", "", "with --stats: what of the text and of the labels a draft vocabulary covers, as for train")
	f.StringVar(&o.dir, "model", "", "directory of the tokenizer, the chat template and config.json")
	countVar(f, &o.n, "n", o.n, "samples to show")
	f.Uint64Var(&o.seed, "seed", 0, "seed for taking samples at random (0: the first)")
	f.StringVar(&o.color, "color", o.color, "auto, always or never")
	loadFlags(f, &o.conf.Load)
	o.talk.flags(f)
	f.StringVar((*string)(&o.conf.EOS), "eos", string(o.conf.EOS), "as for preprocess: answers, always or never")
	f.IntVar(&o.conf.MaxLen, "max-len", o.conf.MaxLen, "as for preprocess: tokens of a sequence")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// What is learnt stands between these where there is no colour.
const (
	markOpen  = "⟦"
	markClose = "⟧"
)

// An inspection is what to show.
type inspection struct {
	conf  preprocess.Config
	talk  chatOptions
	dir   string
	n     int
	seed  uint64
	color string
}

func (o *inspection) check() error {
	c := o.conf
	c.Files, c.Out = []string{"-"}, "-" // not used
	if err := c.Validate(); err != nil {
		return usageError{err}
	}
	if !slices.Contains([]string{"auto", "always", "never"}, o.color) {
		return usagef("--color %q, want auto, always or never", o.color)
	}
	return o.talk.check()
}

// samples is what inspect data prints.
type samples struct {
	Kind    string         `json:"kind"` // "samples"
	Path    string         `json:"path"`
	Samples []sampleShown  `json:"samples"`
	Dropped map[string]int `json:"dropped,omitempty"` // among what was read for them
}

// A sampleShown is one sequence.
type sampleShown struct {
	Place  string  `json:"place"`
	ID     string  `json:"id,omitempty"`
	Turns  int     `json:"turns,omitempty"`
	Cut    int     `json:"cut_turns,omitempty"`
	Tokens int     `json:"tokens"`
	Loss   int     `json:"loss_tokens"`
	Runs   []runOf `json:"runs"`
	tokens []int32 // of Runs
	loss   []bool  // likewise
	drop   string  // why there is nothing to show
}

// A runOf is text whose tokens all are in the loss, or all are not.
type runOf struct {
	Text string `json:"text"`
	Loss bool   `json:"loss"`
}

func (o *inspection) inspect(ctx context.Context, a *app, path string) (*samples, error) {
	var tok *tokenizer.Tokenizer
	dir := o.dir
	if dir != "" {
		if found, err := checkpoints.Find(dir); err == nil {
			dir = found
		}
		var err error
		if tok, err = tokenizer.Load(dir); err != nil {
			return nil, err
		}
	}
	s := &samples{Kind: "samples", Path: path, Samples: []sampleShown{}}
	_, err := os.Stat(filepath.Join(path, data.ManifestName))
	var all iter.Seq2[sampleShown, error]
	switch {
	case err == nil || strings.HasSuffix(path, ".parquet"):
		all = shardSamples(path, tok)
	case tok == nil:
		return nil, usagef("missing --model: how %s is cut depends on a tokenizer", path)
	default:
		if all, err = o.sourceSamples(ctx, a, path, dir, tok); err != nil {
			return nil, err
		}
	}
	rng := rand.New(rand.NewPCG(o.seed, 0))
	seen := 0
	for x, err := range all {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, templateHint(err)
		}
		if x.drop != "" {
			if s.Dropped == nil {
				s.Dropped = map[string]int{}
			}
			s.Dropped[x.drop]++
			continue
		}
		// A reservoir: every sequence has the same chance, whatever their number.
		switch seen++; {
		case len(s.Samples) < o.n:
			s.Samples = append(s.Samples, x)
		default:
			if i := rng.IntN(seen); i < o.n {
				s.Samples[i] = x
			}
		}
		if o.seed == 0 && len(s.Samples) == o.n {
			break
		}
	}
	for i := range s.Samples {
		x := &s.Samples[i]
		x.Runs = runs(tok, x.tokens, x.loss)
		x.Tokens = len(x.tokens)
		for _, l := range x.loss {
			if l {
				x.Loss++
			}
		}
	}
	return s, nil
}

// sourceSamples yields what preprocess would make of a file.
func (o *inspection) sourceSamples(ctx context.Context, a *app, path, dir string, tok *tokenizer.Tokenizer) (iter.Seq2[sampleShown, error], error) {
	r, err := sampleReader(dir, tok, o.talk)
	if err != nil {
		return nil, err
	}
	c := o.conf
	c.Files = []string{path}
	bad := 0
	return func(yield func(sampleShown, error) bool) {
		for x, err := range preprocess.Samples(ctx, c, r, func(b corpus.BadLine) { a.badLine(&bad, b) }) {
			place := fmt.Sprintf("%s:%d", x.File, x.Line)
			if x.Item > 0 {
				place += fmt.Sprintf(": item %d", x.Item)
			}
			if !yield(sampleShown{Place: place, ID: x.ID, Turns: x.Turns, Cut: x.Cut, tokens: x.Tokens, loss: x.Loss, drop: x.Drop}, err) {
				return
			}
		}
	}, nil
}

// sampleReader is what cutting text needs to know of the model in dir, of which
// the tokenizer's files are enough.
func sampleReader(dir string, tok *tokenizer.Tokenizer, talk chatOptions) (preprocess.Reader, error) {
	template, _, err := talk.load(dir)
	if err != nil {
		return preprocess.Reader{}, err
	}
	r := preprocess.Reader{Tokenizer: tok, Chat: template, Vocab: tok.VocabSize(), EOS: -1}
	if id, ok := tok.EOS(); ok {
		r.EOS = id
	}
	if _, err := os.Stat(filepath.Join(dir, "config.json")); err == nil {
		spec, err := arch.Load(dir)
		if err != nil {
			return r, err
		}
		r.Vocab, r.Positions = spec.Vocab, spec.MaxPos
		if len(spec.EOS) > 0 {
			r.EOS = spec.EOS[0]
		}
	}
	return r, nil
}

// shardSamples yields the rows of Parquet shards.
func shardSamples(path string, tok *tokenizer.Tokenizer) iter.Seq2[sampleShown, error] {
	return func(yield func(sampleShown, error) bool) {
		set, err := data.Open(path)
		if err != nil {
			yield(sampleShown{}, err)
			return
		}
		defer set.Close()
		if m := set.Meta(); tok != nil && m.Tokenizer != tok.Hash() {
			yield(sampleShown{}, fmt.Errorf("%s was made with the tokenizer %s, not with that of --model, %s", path, short(m.Tokenizer), short(tok.Hash())))
			return
		}
		r, err := set.Sequential(data.Everything())
		if err != nil {
			yield(sampleShown{}, err)
			return
		}
		for i := 0; ; i++ {
			row, err := r.Next()
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(sampleShown{}, err)
				return
			}
			if !yield(sampleShown{Place: fmt.Sprintf("%s: row %d", path, i), tokens: slices.Clone(row.Tokens), loss: slices.Clone(row.LossMask)}, nil) {
				return
			}
		}
	}
}

// runs cuts a sequence where the loss begins and ends. Without a tokenizer its text
// is the token ids.
func runs(tok *tokenizer.Tokenizer, tokens []int32, loss []bool) []runOf {
	var out []runOf
	add := func(text string, loss bool) {
		if n := len(out); n > 0 && out[n-1].Loss == loss {
			out[n-1].Text += text
		} else {
			out = append(out, runOf{text, loss})
		}
	}
	var st *tokenizer.Stream
	if tok != nil {
		st = tok.NewStream(false)
	}
	for i, id := range tokens {
		switch {
		case st != nil:
			add(st.Push(id), loss[i])
		case i > 0:
			add(" "+strconv.Itoa(int(id)), loss[i])
		default:
			add(strconv.Itoa(int(id)), loss[i])
		}
	}
	if st != nil && len(out) > 0 {
		out[len(out)-1].Text += st.Flush()
	}
	return out
}

const (
	green = "\x1b[32m"
	plain = "\x1b[0m"
)

func (s *samples) print(a *app, color bool) {
	begin, end := markOpen, markClose
	if color {
		begin, end = green, plain
	}
	for i := range s.Samples {
		x := &s.Samples[i]
		a.printf("%s: %d tokens, %d to learn", x.Place, x.Tokens, x.Loss)
		if x.Turns > 0 {
			a.printf(", %d turns", x.Turns)
		}
		if x.Cut > 0 {
			a.printf(", %d more cut off", x.Cut)
		}
		if x.ID != "" {
			a.printf(", id %s", visible(x.ID))
		}
		a.printf("\n")
		for _, r := range x.Runs {
			if r.Loss {
				a.printf("%s%s%s", begin, visible(r.Text), end)
			} else {
				a.printf("%s", visible(r.Text))
			}
		}
		a.printf("\n\n")
	}
	if len(s.Samples) == 0 {
		a.printf("%s: no sequences\n", s.Path)
	}
	for _, why := range sortedKeys(s.Dropped) {
		a.printf("left out: %d: %s\n", s.Dropped[why], why)
	}
}

// visible shows control characters, which would steer a terminal, as their
// pictures. Line breaks and tabs stay.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r < ' ':
			return '␀' + r
		case r == 0x7f:
			return '␡'
		case r >= 0x80 && r < 0xa0: // C1 controls
			return '�'
		}
		return r
	}, s)
}
