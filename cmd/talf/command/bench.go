package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"talf/infer/bench"
	"talf/infer/draft"
	"talf/infer/source"
	"talf/infer/verify"
	"talf/model/head"
)

// A rigOptions holds the flags of what bench and bench record decode, and with
// what.
type rigOptions struct {
	decode       decodeOptions
	force        bool
	heads        []string // DIR or NAME=DIR
	drafts       []string // DIR or NAME=DIR
	methods      []string
	prompts      []string // FILE or NAME=FILE
	template     string
	chat         chatOptions
	limit        int
	promptTokens int
	temperatures []float64
	seeds        []uint
}

func (o *rigOptions) flags(c *cobra.Command) {
	d := bench.Default()
	o.decode.sample = d.Sampling
	f := c.Flags()
	f.StringVar(&o.decode.model, "model", "", "model directory in Hugging Face layout")
	f.StringArrayVar(&o.heads, "head", nil, "checkpoint of a draft head, or `NAME=CKPT` to say what to call it (may be repeated)")
	f.StringArrayVar(&o.drafts, "draft", nil, "directory of a small language model that drafts, or `NAME=DIR` (may be repeated)")
	f.StringArrayVar(&o.prompts, "prompts", nil, "file of prompts, or `NAME=FILE` to say what to call the set (may be repeated)")
	f.StringVar(&o.template, "template", "", "how fields of a JSON object make a prompt: 'Question: {question}\\nAnswer:'")
	o.chat.flags(f)
	countVar(f, &o.limit, "limit", 0, "most prompts of a set, warm-up included (0: all)")
	countVar(f, &o.promptTokens, "prompt-tokens", 0, "keep this many tokens of every prompt (0: all)")
	f.IntVar(&o.decode.maxTokens, "max-tokens", d.MaxTokens, "most tokens of an answer")
	numbersVar(f, &o.temperatures, "temperature", d.Temperatures, "temperatures to compare at (default 0)")
	f.UintSliceVar(&o.seeds, "seed", []uint{0}, "seeds to decode with")
	f.BoolVar(&o.force, "force", false, "use heads that were trained for other weights")
	countVar(f, &o.decode.machine.layers, "layers", 0, "deepen the model to so many layers that add nothing: a cost model of a larger one (0: as it is)")
	f.BoolVar(&o.decode.ignoreEOS, "ignore-eos", false, "go on after an end-of-sequence token")
	o.decode.machine.flags(f)
}

// checkGiven finds what is missing. A list that was not given is not empty text.
func (o *rigOptions) checkGiven(cmd *cobra.Command) error {
	if err := need(cmd, "model"); err != nil {
		return err
	}
	if len(o.prompts) == 0 {
		return usagef("missing --prompts")
	}
	return o.chat.check()
}

// A benchOptions holds bench's flags.
type benchOptions struct {
	rigOptions
	verifiers []string
	papers    []string
	datastore string
	budgets   []int
	warmup    int
	repeat    int
	ranks     int
	check     bool
	parts     bool
	log       string
	picture   string
}

func newBench(a *app) *cobra.Command {
	var o benchOptions
	var p printing
	c := &cobra.Command{
		Use:   "bench --model DIR --head CKPT --prompts FILE",
		Short: "Compare draft methods, heads and verifiers with plain decoding",
		Long: `Bench decodes every prompt with every method, draft model, verifier and budget at
every temperature, in turn, in one process, and prints accepted lengths, speeds and
acceptance by depth: τ is the mean number of tokens per pass of the model, its own
token counted, nothing past the end of an answer. Means and deviations are over
prompts, per set and over all. Without --check=false it fails where an output that
should be plain decoding's is not; sampled outputs of verifiers other than target
have only its distribution and are not compared.

Prompt files are those of generate, chat template included; each is a set with
figures of its own, and of several turns the first is answered. Prompts too long for
the model lose their beginning, and are counted. --prompt-tokens keeps only the
beginning of every text, so that the model writes the rest.

METHOD@VERIFIER gives a method a verifier of its own, --verify one to all others. A
budget bounds the nodes of a tree, root counted, whatever the method's parameters
say.

The column loops is the share of outputs with a stretch of at least 24 tokens in
which a block of at most 32 comes three times or more: every method drafts these
well, and weak models write them.

--paper runs the methods of a publication's table on the model and prompts at hand,
at its temperatures, and prints the figures in its layout; several tables share one
run, in which every method runs once. Heads are told apart by their names: eagle,
hass and talf stand for the losses of those names.

With --log, every measurement is kept as it is made, and the same command goes on
where an interrupted one stopped.

--parts runs every pass again, the model's and the draft model's each among its own
alone, and tells where the time of a round goes: what is lost outside the two
models' passes is what the speed-up lacks of the one that these allow. With --repeat,
every pass counts with the shortest time that it took, which leaves out most of what
other programs did to the machine; of methods whose trees follow the clock, means
are compared with means.

--ranks N also gives each head its own n-th ranked token, n = 1..N, at every
position of the texts, and compares its next guess with the model's: accuracy, and
the expected calibration error over 10 bins of equal width.`,
		Example: `  talf bench --model DIR --head heads/talf --prompts prompts.jsonl
  talf bench --model DIR --head eagle=heads/eagle --head talf=heads/talf --method beam --method salf:th=0.4 --temperature 0,1 --prompts stories.txt --prompt-tokens 16 --ranks 5 --out bench.json
  talf bench --model DIR --head heads/talf --prompts maths=gsm8k.jsonl --prompts code=humaneval.jsonl --limit 20 --log bench.jsonl --plot bench.svg
  talf bench --paper list
  talf bench --model DIR --head heads/talf --draft lm=DIR --prompts maths=gsm8k.jsonl --paper salf:t4 --paper traversal --markdown`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if slices.Contains(o.papers, "list") {
				return a.printPapers()
			}
			if len(o.papers) > 0 && !cmd.Flags().Changed("method") {
				o.methods = nil
			}
			if err := o.checkGiven(cmd); err != nil {
				return err
			}
			if err := p.check(); err != nil {
				return err
			}
			if err := errors.Join(checkPlot(o.picture), canWrite(o.log)); err != nil {
				return err
			}
			r, err := a.bench(cmd.Context(), &o)
			if r == nil {
				return err
			}
			if o.picture != "" {
				err = errors.Join(err, saveFigures(o.picture, r.figures()))
			}
			return errors.Join(err, p.print(a, r, func(markdown bool) error { return a.printBench(r, markdown) }))
		},
	}
	c.AddCommand(newBenchDecode(a), newBenchKernels(a), newBenchPerplexity(a), newBenchRecord(a), newBenchReplay(a))
	o.flags(c)
	d := bench.Default()
	f := c.Flags()
	f.StringArrayVar(&o.methods, "method", []string{"beam", "optimal", "salf"}, "draft `method` with its parameters, and @ a verifier (may be repeated): "+methodNames())
	f.StringArrayVar(&o.verifiers, "verify", nil, "`verifier` for methods that name none (may be repeated): "+verifierNames())
	f.StringArrayVar(&o.papers, "paper", nil, "run a publication's `table`, ablation or sweep and print it in its layout, such as goose:t2, goose, all; list lists them (may be repeated)")
	f.StringVar(&o.datastore, "datastore", "", "datastore for rest in the tables of publications, made by talf datastore build")
	f.IntSliceVar(&o.budgets, "budget", nil, "largest trees to compare with, root counted (0: as the method says)")
	countVar(f, &o.warmup, "warmup", d.Warmup, "first prompts of each set that are run and not counted")
	f.IntVar(&o.repeat, "repeat", d.Repeat, "how often to run everything")
	countVar(f, &o.ranks, "ranks", 0, "also measure heads on their own ranked tokens up to this rank")
	f.BoolVar(&o.check, "check", d.Check, "fail where an output that should be plain decoding's is not")
	f.BoolVar(&o.parts, "parts", false, "run all passes again, each model's alone, and tell where the time of a round goes")
	f.StringVar(&o.log, "log", "", "file that keeps every measurement as it is made, to go on from")
	f.StringVar(&o.picture, "plot", "", "draw the figures: a file that ends in .png or .svg")
	p.flags(f)
	return c
}

// printPapers lists what --paper runs.
func (a *app) printPapers() error {
	t := bench.Table{Header: []string{"table", "what", "methods"}}
	for _, p := range bench.Papers() {
		t.Cells = append(t.Cells, []string{p.Name, p.Doc, fmt.Sprint(len(p.Variants))})
	}
	return t.Write(a.out, false)
}

func verifierNames() string {
	var names []string
	for _, m := range verify.Methods() {
		names = append(names, m.Name)
	}
	return strings.Join(names, ", ")
}

// A benchReport is a run and, if asked for, what heads do by rank.
type benchReport struct {
	*bench.Report
	Device string `json:"device"`
	DType  string `json:"dtype"`
	// ChatTemplate says that one wrote prompts.
	ChatTemplate bool `json:"chat_template,omitempty"`
	// Layers is what the model was deepened to: a cost model of a larger one.
	Layers int        `json:"deepened_to_layers,omitempty"`
	ByRank []rankLine `json:"heads_by_rank,omitempty"`
	// Interrupted says that the run ended early: the figures are of a part.
	Interrupted bool `json:"interrupted,omitempty"`
	views       []*bench.View
}

// A rankLine is one head given its own n-th ranked token.
type rankLine struct {
	Head     string  `json:"head"`
	Rank     int     `json:"rank"`
	Items    int     `json:"items"`
	Accuracy float64 `json:"accuracy"`
	ECE      float64 `json:"ece"`     // confidence: the head's probability of the model's choice
	ECEMax   float64 `json:"ece_max"` // confidence: the head's largest probability
}

func (a *app) printBench(r *benchReport, markdown bool) error {
	a.printf("%s, weights %s", r.Device, r.DType)
	if r.Layers > 0 {
		a.printf(", deepened to %d layers that add nothing: a cost model of a larger target", r.Layers)
	}
	a.printf("; %d prompts of %d sets, %d of each for warm-up, up to %d tokens, seeds %v", r.Prompts, len(r.Sets), r.Warmup, r.MaxTokens, r.Seeds)
	if r.Repeat > 1 {
		a.printf(", %d times", r.Repeat)
	}
	if r.ChatTemplate {
		a.printf(", asked by the chat template")
	}
	if r.Interrupted {
		a.printf("; INTERRUPTED: figures of a part")
	}
	a.printf("\n\n")
	tables := r.Tables()
	if len(r.views) > 0 { // that of everything is in --out
		tables = nil
	}
	for _, v := range r.views {
		tables = append(tables, v.Layout()...)
	}
	if err := bench.WriteTables(a.out, tables, markdown); err != nil {
		return err
	}
	a.printRanks(r.ByRank)
	return nil
}

// A rig is what bench decodes with: the model, draft models and sets of prompts.
type rig struct {
	*decoder
	heads   []namedHead
	sources []bench.Source
	sets    []bench.Set
	texts   [][]int32                // of all sets, before they were cut
	chats   bool                     // a chat template wrote some of them
	hashes  []func() (string, error) // of the draft models' weights
	closers []func() error
}

// A namedHead is one that was loaded.
type namedHead struct {
	name string
	head *head.Head
}

func (r *rig) close() {
	for _, c := range slices.Backward(r.closers) {
		_ = c()
	}
	r.decoder.close()
}

// openRig loads everything.
func (a *app) openRig(ctx context.Context, o *rigOptions) (*rig, error) {
	names, err := readNamed("--head", "CKPT", o.heads)
	if err != nil {
		return nil, err
	}
	drafts, err := readNamed("--draft", "DIR", o.drafts)
	if err != nil {
		return nil, err
	}
	for _, n := range drafts {
		if slices.ContainsFunc(names, func(h named) bool { return h.name == n.name }) {
			return nil, usagef("--draft: a head is called %q too: say NAME=DIR", n.name)
		}
	}
	files, err := readNamed("--prompts", "FILE", o.prompts)
	if err != nil {
		return nil, err
	}
	o.decode.method = bench.Baseline
	d, err := o.decode.open(0)
	if err != nil {
		return nil, err
	}
	r := &rig{decoder: d}
	for _, n := range names {
		// A deepened model has other weights and the same outputs.
		x, err := loadHead(n.path, d.model, o.force || o.decode.machine.layers > 0)
		if err != nil {
			r.close()
			return nil, err
		}
		r.closers = append(r.closers, x.Close)
		r.heads = append(r.heads, namedHead{n.name, x})
		r.hashes = append(r.hashes, func() (string, error) { return weightsHash(n.path) })
		r.sources = append(r.sources, bench.Source{Name: n.name, Source: source.NewHead(x, 0)})
	}
	for _, n := range drafts {
		m, v, err := loadDraft(n.path, d.model, d.tok, &o.decode.machine)
		if err != nil {
			r.close()
			return nil, err
		}
		r.closers = append(r.closers, m.Close)
		r.hashes = append(r.hashes, func() (string, error) { return m.Hash(), nil })
		r.sources = append(r.sources, bench.Source{Name: n.name, LM: true, Source: source.NewLM(m, v, 0)})
	}
	for _, f := range files {
		if err := a.addSet(ctx, r, o, f); err != nil {
			r.close()
			return nil, err
		}
	}
	return r, nil
}

// addSet reads a file of prompts.
func (a *app) addSet(ctx context.Context, r *rig, o *rigOptions, f named) error {
	in, err := a.readPrompts(&promptSource{f.path, o.template, o.chat}, o.decode.model)
	if err != nil {
		return err
	}
	if o.limit > 0 && len(in.prompts) > o.limit {
		in.prompts = in.prompts[:o.limit]
	}
	set := bench.Set{Name: f.name}
	room := r.model.Spec().MaxPos - o.decode.maxTokens
	for i := range in.prompts {
		p := &in.prompts[i]
		ids, err := r.firstTurn(ctx, in, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.place, err)
		}
		r.chats = r.chats || p.chat
		if len(ids) == 0 {
			continue
		}
		r.texts = append(r.texts, ids)
		if o.promptTokens > 0 {
			ids = ids[:min(len(ids), o.promptTokens)]
		}
		if len(ids) > room && room > 0 { // the end of a prompt says what is asked
			ids, set.Cut = ids[len(ids)-room:], set.Cut+1
		}
		set.Prompts = append(set.Prompts, bench.Prompt{Name: fmt.Sprint(i), Tokens: ids})
	}
	if set.Cut > 0 {
		a.log.Warn("prompts were cut to their ends", "file", f.path, "prompts", set.Cut, "tokens", room)
	}
	r.sets = append(r.sets, set)
	return nil
}

// firstTurn returns the tokens before the answer to the first turn of a prompt.
func (r *rig) firstTurn(ctx context.Context, in *promptSet, p *prompt) ([]int32, error) {
	t := in.first(p)
	t.Ask()
	prompt, err := t.Prompt(ctx)
	if err != nil {
		return nil, err
	}
	return r.ids(prompt)
}

// config is a run of what the rig holds, without methods.
func (o *rigOptions) config(r *rig) bench.Config {
	c := bench.Default()
	c.Temperatures, c.MaxTokens, c.NoEOS = o.temperatures, o.decode.maxTokens, o.decode.ignoreEOS
	c.Sets, c.Tokenizer, c.Seeds = r.sets, r.tok.Hash(), nil
	for _, s := range o.seeds {
		c.Seeds = append(c.Seeds, uint64(s))
	}
	return c
}

func (a *app) bench(ctx context.Context, o *benchOptions) (*benchReport, error) {
	papers, err := findPapers(o.papers)
	if err != nil {
		return nil, usageError{err}
	}
	r, err := a.openRig(ctx, &o.rigOptions)
	if err != nil {
		return nil, err
	}
	defer func() { r.close() }()
	c := o.config(r)
	c.Warmup, c.Check, c.Repeat, c.Parts = o.warmup, o.check, o.repeat, o.parts
	if c.Methods, err = benchMethods(o, r.sources); err != nil {
		return nil, usageError{err}
	}
	kit := &bench.Kit{Sources: r.sources, Datastore: o.datastore, MaxTokens: c.MaxTokens, Temperatures: o.temperatures}
	if len(c.Methods) == 0 && len(papers) > 0 {
		c.Temperatures = nil // theirs
	}
	if err := a.addPapers(&c, papers, kit); err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, usageError{err}
	}
	if o.log != "" {
		if err := hashFiles(&c); err != nil {
			return nil, err
		}
	}
	closeLog, err := a.openLog(o, r, &c)
	if err != nil {
		return nil, err
	}
	bar := a.progress("bench", "answers")
	c.Progress = func(done, total int) { bar.set(int64(done), int64(total), "") }
	report, err := bench.Run(ctx, r.engine, c)
	bar.end()
	if closed := closeLog(); err == nil {
		err = closed
	}
	if report == nil {
		return nil, err
	}
	out := &benchReport{
		Report: report, Device: r.model.Device().Name(), DType: r.model.Options().DType.String(),
		ChatTemplate: r.chats, Layers: o.decode.machine.layers, Interrupted: err != nil,
	}
	for i := range papers {
		out.views = append(out.views, papers[i].View(report, kit))
	}
	if o.ranks > 0 && err == nil {
		texts := a.rankTexts(r)
		for _, h := range r.heads {
			items, err := bench.ByRank(ctx, r.model, h.head, texts, o.ranks)
			if err != nil {
				out.Interrupted = true
				return out, err
			}
			out.ByRank = append(out.ByRank, rankLines(h.name, items)...)
		}
	}
	return out, err
}

// figures are the papers', or else those of everything.
func (r *benchReport) figures() []bench.Figure {
	var out []bench.Figure
	for _, v := range r.views {
		out = append(out, v.Draw()...)
	}
	if len(out) == 0 {
		out = r.Figures()
	}
	return out
}

// findPapers reads --paper; "all" is every one, "NAME" all of a publication's.
func findPapers(names []string) ([]bench.Paper, error) {
	var out []bench.Paper
	for _, n := range names {
		found := false
		for _, p := range bench.Papers() {
			if n == "all" || strings.HasPrefix(p.Name, n+":") {
				out, found = append(out, p), true
			}
		}
		if found {
			continue
		}
		p, err := bench.FindPaper(n)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// addPapers adds what papers run and says what is left out. That nothing is left
// is a mistake.
func (a *app) addPapers(c *bench.Config, papers []bench.Paper, kit *bench.Kit) error {
	for _, w := range c.AddPapers(papers, kit) {
		a.log.Warn("left out", "variant", w)
	}
	if len(papers) > 0 && len(c.Methods) == 0 {
		return usagef("--paper %s: none of its methods can run: give --head CKPT, --draft DIR or --datastore FILE", papers[0].Name)
	}
	return nil
}

// rankTexts returns the texts as far as the model and its heads have positions for
// them and for one token more.
func (a *app) rankTexts(r *rig) [][]int32 {
	most := r.model.Spec().MaxPos - 1
	for _, h := range r.heads {
		most = min(most, h.head.Spec().MaxPos)
	}
	texts, cut := slices.Clone(r.texts), 0
	for i, x := range texts {
		if len(x) > most {
			texts[i], cut = x[:most], cut+1
		}
	}
	if cut > 0 {
		a.log.Warn("texts were cut to their beginnings for --ranks", "texts", cut, "tokens", most)
	}
	return texts
}

// settings identifies what all measurements of a log share: weights by their
// hashes, since what lies in a directory may be trained again.
func (o *benchOptions) settings(r *rig) (string, error) {
	hashes := []string{r.model.Hash()}
	for _, hash := range r.hashes {
		h, err := hash()
		if err != nil {
			return "", err
		}
		hashes = append(hashes, h)
	}
	all := []any{
		hashes, r.model.Device().Name(), r.model.Options().DType, r.model.Options().KV, o.decode.machine.actBits, o.decode.machine.layers,
		o.heads, o.drafts, o.decode.ignoreEOS, o.warmup,
	}
	if o.parts { // measurements without them are none of this run
		all = append(all, "parts")
	}
	b, err := json.Marshal(all)
	return string(b), err
}

// openLog makes c go on from o's log, if there is one, and add to it.
func (a *app) openLog(o *benchOptions, r *rig, c *bench.Config) (closeLog func() error, err error) {
	path := o.log
	if path == "" {
		return func() error { return nil }, nil
	}
	settings, err := o.settings(r)
	if err != nil {
		return nil, err
	}
	f, err := openAlone(path)
	if err != nil {
		return nil, err
	}
	got, whole, err := bench.ReadLog(f, settings)
	if err != nil {
		_ = f.Close() // nothing was written
		return nil, fmt.Errorf("%s: %w: choose another --log", path, err)
	}
	if err = f.Truncate(whole); err == nil {
		_, err = f.Seek(whole, io.SeekStart)
	}
	if err == nil && whole == 0 {
		err = bench.WriteLogHead(f, settings)
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c.Known = got
	c.Keep = func(m *bench.Measurement) error {
		b, err := json.Marshal(m)
		if err != nil {
			return err
		}
		_, err = f.Write(append(b, '\n'))
		return err
	}
	a.resume = fmt.Sprintf("run the same command again to go on: %s keeps what was measured", path)
	return f.Close, nil
}

// A named path is a flag's NAME=PATH.
type named struct{ name, path string }

// readNamed reads NAME=PATH; a path alone is called like its last element.
func readNamed(flag, what string, values []string) ([]named, error) {
	var all []named
	for _, f := range values {
		name, path, ok := strings.Cut(f, "=")
		if !ok {
			name, path = filepath.Base(f), f
		}
		if name == "" || path == "" {
			return nil, usagef("%s is %q, want %s or NAME=%s", flag, f, what, what)
		}
		if slices.ContainsFunc(all, func(n named) bool { return n.name == name }) {
			return nil, usagef("%s: two are called %q: say NAME=%s", flag, name, what)
		}
		all = append(all, named{name, path})
	}
	return all, nil
}

// benchMethods crosses methods with verifiers, budgets and, where they ask one,
// draft models.
func benchMethods(o *benchOptions, sources []bench.Source) ([]bench.Method, error) {
	budgets := o.budgets
	if len(budgets) == 0 {
		budgets = []int{0}
	}
	var out []bench.Method
	for _, arg := range o.methods {
		spec, verifiers := arg, o.verifiers
		if i := strings.LastIndex(arg, "@"); i >= 0 {
			spec, verifiers = arg[:i], []string{arg[i+1:]}
		}
		if len(verifiers) == 0 {
			verifiers = []string{""}
		}
		bounds := budgets
		if spec == bench.Baseline {
			bounds = []int{0} // it has no tree
		}
		line, _, err := draft.Find(spec)
		if err != nil {
			return nil, err
		}
		asked := []bench.Source{{}}
		if line.Source {
			if asked = sources; len(asked) == 0 {
				return nil, fmt.Errorf("--method %s asks a draft model: give --head CKPT or --draft DIR", spec)
			}
		}
		if line.May && len(sources) > 0 {
			asked = sources
		}
		for _, v := range verifiers {
			at, err := temperaturesOf(v, o.temperatures)
			if err != nil {
				return nil, err
			}
			for _, b := range bounds {
				for _, s := range asked {
					out = append(out, bench.Method{Spec: spec, Verify: v, Budget: b, Source: s.Source, SourceName: s.Name, Temperatures: at})
				}
			}
		}
	}
	return out, nil
}

// temperaturesOf returns those that a verifier is for; nil for all.
func temperaturesOf(verifier string, temperatures []float64) ([]float64, error) {
	if verifier == "" {
		return nil, nil
	}
	at := []float64{}
	var why error
	for _, t := range temperatures {
		if _, err := verify.New(verifier, t); err != nil {
			why = err
			continue
		}
		at = append(at, t)
	}
	if len(at) == 0 {
		return nil, why
	}
	return at, nil
}

func rankLines(name string, ranks [][]bench.Item) []rankLine {
	var out []rankLine
	for n, items := range ranks {
		hit, conf := bench.Split(items, false)
		hitMax, confMax := bench.Split(items, true)
		out = append(out, rankLine{
			Head: name, Rank: n + 1, Items: len(items), Accuracy: bench.Accuracy(items),
			ECE: bench.ECEWidth(hit, conf, 10), ECEMax: bench.ECEWidth(hitMax, confMax, 10),
		})
	}
	return out
}

// printRanks prints a line for each head: accuracy and calibration error by rank.
func (a *app) printRanks(lines []rankLine) {
	for len(lines) > 0 {
		name := lines[0].Head
		n := slices.IndexFunc(lines, func(l rankLine) bool { return l.Head != name })
		if n < 0 {
			n = len(lines)
		}
		a.printf("%s, given its own n-th ranked token:", name)
		for _, l := range lines[:n] {
			a.printf("  n=%d accuracy %.3f, ECE %.3f", l.Rank, l.Accuracy, l.ECE)
		}
		a.printf("\n")
		lines = lines[n:]
	}
}
