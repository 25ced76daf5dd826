package command

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"talf/infer/bench"
	"talf/infer/bench/paper"
	"talf/infer/decode"
	"talf/infer/prompts"
	"talf/infer/source"
	"talf/model/head"
)

// A rigOptions holds the flags for the models and prompts of bench, bench record and eval.
type rigOptions struct {
	decode       decodeOptions
	force        bool
	heads        []string // CKPT or NAME=CKPT
	drafts       []string // DIR or NAME=DIR
	prompts      []string // FILE or NAME=FILE
	template     string
	chat         chatOptions
	limit        int
	promptTokens int
	temperatures []float64
	seeds        []uint
}

func (o *rigOptions) flags(f *pflag.FlagSet) {
	d := bench.Default()
	o.decode.Sample, o.temperatures = d.Sampling, d.Temperatures
	f.StringVar(&o.decode.model, "model", "", "model directory in Hugging Face layout")
	f.StringArrayVar(&o.heads, "head", nil, "checkpoint of a draft head, or `NAME=CKPT` to name it (may be repeated)")
	f.StringArrayVar(&o.drafts, "draft", nil, "directory of a small language model that drafts, or `NAME=DIR` to name it (may be repeated)")
	f.StringArrayVar(&o.prompts, "prompts", nil, "file of prompts, or `NAME=FILE` to name the set (may be repeated)")
	f.StringVar(&o.template, "template", "", "how fields of a JSON object make a prompt: 'Question: {question}\\nAnswer:'")
	o.chat.flags(f)
	countVar(f, &o.limit, "limit", 0, "most prompts of a set, warm-up included (0: all)")
	countVar(f, &o.promptTokens, "prompt-tokens", 0, "keep this many tokens of every prompt (0: all)")
	f.IntVar(&o.decode.MaxTokens, "max-tokens", d.MaxTokens, "maximum number of tokens in an answer")
	f.BoolVar(&o.force, "force", false, "use heads that were trained for other weights")
	o.decode.machine.flags(f)
	countVar(f, &o.decode.machine.layers, "layers", 0, "deepen the model to this many layers, of which the new ones add nothing: a cost model of a larger one (0: as it is)")
	f.BoolVar(&o.decode.IgnoreEOS, "ignore-eos", false, "go on after an end-of-sequence token")
}

// drawFlags are the flags of commands that decode.
func (o *rigOptions) drawFlags(f *pflag.FlagSet, temperature string) {
	numbersVar(f, &o.temperatures, "temperature", o.temperatures, temperature)
	f.UintSliceVar(&o.seeds, "seed", []uint{0}, "seeds to decode with")
}

// checkGiven finds what is missing.
func (o *rigOptions) checkGiven(cmd *cobra.Command) error {
	if err := need(cmd, "model"); err != nil {
		return err
	}
	if len(o.prompts) == 0 {
		return usagef("missing --prompts")
	}
	return o.chat.check()
}

// A rig is what was loaded: the model, draft models and sets of prompts.
type rig struct {
	*decoder
	heads   []namedHead
	sources []bench.Source
	sets    []bench.Set
	texts   [][]int32                // of all sets, uncut
	chats   bool                     // a chat template wrote some prompts
	hashes  []func() (string, error) // of the draft models' weights
	closers []func() error
}

// A namedHead is a head that was loaded.
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

// openRig loads models, heads and prompts.
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
	o.decode.Method = bench.Baseline
	d, err := o.decode.open(a.log, 0, nil)
	if err != nil {
		return nil, err
	}
	r := &rig{decoder: d}
	for _, n := range names {
		// A deepened model has other weights but the same outputs.
		x, err := decode.LoadHead(n.path, d.model, o.force || o.decode.machine.layers > 0)
		if err != nil {
			r.close()
			return nil, err
		}
		r.closers = append(r.closers, x.Close)
		r.heads = append(r.heads, namedHead{n.name, x})
		r.hashes = append(r.hashes, func() (string, error) { return decode.WeightsHash(n.path) })
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

// addSet adds the prompts of a file.
func (a *app) addSet(ctx context.Context, r *rig, o *rigOptions, f named) error {
	in, _, err := a.readPrompts(&promptSource{f.path, o.template, o.chat}, o.decode.model)
	if err != nil {
		return err
	}
	if o.limit > 0 && len(in.Prompts) > o.limit {
		in.Prompts = in.Prompts[:o.limit]
	}
	set := bench.Set{Name: f.name}
	room := r.model.Spec().MaxPos - o.decode.MaxTokens
	for i := range in.Prompts {
		p := &in.Prompts[i]
		ids, err := r.firstTurn(ctx, in, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.Place, err)
		}
		r.chats = r.chats || p.Chat
		if len(ids) == 0 {
			continue
		}
		r.texts = append(r.texts, ids)
		if o.promptTokens > 0 {
			ids = ids[:min(len(ids), o.promptTokens)]
		}
		if len(ids) > room && room > 0 { // the question is at the end of a prompt
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
func (r *rig) firstTurn(ctx context.Context, in *prompts.Set, p *prompts.Prompt) ([]int32, error) {
	t := in.First(p)
	t.Ask()
	prompt, err := t.Prompt(ctx)
	if err != nil {
		return nil, err
	}
	return r.Tokens(prompt)
}

// config is a run of what the rig holds, without methods.
func (o *rigOptions) config(r *rig) bench.Config {
	c := bench.Default()
	c.Temperatures, c.MaxTokens, c.NoEOS = o.temperatures, o.decode.MaxTokens, o.decode.IgnoreEOS
	c.Sets, c.Tokenizer, c.Seeds = r.sets, r.tok.Hash(), nil
	for _, s := range o.seeds {
		c.Seeds = append(c.Seeds, uint64(s))
	}
	return c
}

// byRank conditions each head on its own ranked tokens and calls f with its items.
func (a *app) byRank(ctx context.Context, r *rig, ranks int, f func(head string, items [][]paper.Item, texts [][]int32) error) error {
	var heads []*head.Head
	for _, h := range r.heads {
		heads = append(heads, h.head)
	}
	texts, cut := paper.Fit(r.texts, r.model, heads)
	if cut > 0 {
		a.log.Warn("texts were cut to their beginnings for --ranks", "texts", cut)
	}
	for _, h := range r.heads {
		items, err := paper.ByRank(ctx, r.model, h.head, texts, ranks)
		if err != nil {
			return err
		}
		if err := f(h.name, items, texts); err != nil {
			return err
		}
	}
	return nil
}

// A named path is a flag's NAME=PATH.
type named struct{ name, path string }

// readNamed reads NAME=PATH. A path alone is named after its last element.
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
