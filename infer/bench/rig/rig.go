// Package rig loads what a comparison runs on: the target, draft models by name, and sets of
// prompts. Its Report says what it ran on.
package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"talf/infer"
	"talf/infer/bench"
	"talf/infer/bench/heads"
	"talf/infer/constrain"
	"talf/infer/decode"
	"talf/infer/prompts"
	"talf/infer/source"
	"talf/model"
	"talf/model/head"
	"talf/model/identity"
	"talf/model/medusa"
	"talf/text/chat"
	"talf/text/tokenizer"
)

// A Rig is the loaded models and prompts.
type Rig struct {
	Model     *model.Model
	Tokenizer *tokenizer.Tokenizer
	Engine    *infer.Engine
	Sources   []bench.Source // the draft models
	Sets      []bench.Set
	Chats     bool // a chat template wrote some prompts

	split   prompts.Split
	decoder *decode.Decoder
	names   []string     // of the heads
	heads   []*head.Head // among the draft models
	blind   []string     // names of Medusa heads and block drafters
	texts   [][]int32    // of all sets, uncut
	closers []func() error
}

// New returns a rig of a target, its tokenizer and a decoder of them, which the caller closes
// after the rig.
func New(m *model.Model, tok *tokenizer.Tokenizer, d *decode.Decoder) *Rig {
	return &Rig{Model: m, Tokenizer: tok, Engine: d.Engine(), decoder: d}
}

// Close releases the draft models.
func (r *Rig) Close() {
	for _, c := range slices.Backward(r.closers) {
		_ = c() // read only
	}
	r.closers = nil
}

// AddHead loads a draft head, or Medusa heads. With force it may have been trained for another target.
// warn, if not nil, is told what could not be checked.
func (r *Rig) AddHead(n Named, force bool, warn func(string)) error {
	src, loaded, err := decode.HeadSource(n.Path, r.Model, force, warn, 0)
	if err != nil {
		return err
	}
	r.closers = append(r.closers, loaded.Close)
	switch h := loaded.(type) {
	case *head.Head:
		if h.Spec().Block.On {
			r.blind = append(r.blind, n.Name)
		} else {
			r.names, r.heads = append(r.names, n.Name), append(r.heads, h)
		}
	case *medusa.Heads:
		r.blind = append(r.blind, n.Name)
	}
	r.Sources = append(r.Sources, bench.Source{Name: n.Name, Source: src})
	return nil
}

// AddDraft adds a language model as a draft model, and takes ownership of it.
func (r *Rig) AddDraft(name string, m *model.Model, v *source.Vocab) {
	r.closers = append(r.closers, m.Close)
	r.Sources = append(r.Sources, bench.Source{Name: name, LM: true, Source: source.NewLM(m, v, 0)})
}

// Settings identifies what all measurements of a log share: what the models compute, whose files
// more training may replace, where they run, and the rest, by name.
func (r *Rig) Settings(rest map[string]any) (*bench.Settings, error) {
	if err := r.Model.Identify(); err != nil {
		return nil, err
	}
	s := &bench.Settings{Function: r.Model.Function(), Rest: identity.Spec{}}
	for i := range r.Sources {
		d := bench.DraftModel{Name: r.Sources[i].Name}
		var err error
		if d.Function, d.Tokenizer, err = decode.IdentityOf(r.Sources[i].Source); err != nil {
			return nil, err
		}
		s.Drafts = append(s.Drafts, d)
	}
	rest["device"] = r.Model.Device().Name()
	for name, value := range rest {
		raw, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		s.Rest[name] = raw
	}
	return s, nil
}

// OpenLog makes c continue from a log and append to it. rest is what Settings takes.
func (r *Rig) OpenLog(path string, c *bench.Config, rest map[string]any) (io.Closer, error) {
	s, err := r.Settings(rest)
	if err != nil {
		return nil, err
	}
	l, known, err := bench.OpenLog(path, s)
	if err != nil {
		return nil, err
	}
	c.Known = known
	c.Keep = func(m *bench.Measurement) error { return l.Append(m) }
	return l, nil
}

// Hold gives c a format of answers, unless that is any text.
func (r *Rig) Hold(c *bench.Config, f constrain.Format) (err error) {
	if c.Format = f; f.Kind == constrain.Free {
		return nil
	}
	c.Constraint, err = decode.Constrain(f, r.Tokenizer, r.Model)
	return err
}

// Limits bound the prompts of a set. 0 means no limit, except for Answer.
type Limits struct {
	Prompts int  // of a set
	Tokens  int  // of a prompt, counted from its beginning
	Answer  int  // tokens that the model needs room for
	Once    bool // a text ends where the target would read all of it again (infer.Shape's Switch), as what is recorded does
	Split   prompts.Split
}

// AddSet adds a set of prompts, of which only the first turn is answered. Prompts that leave the
// model no room for an answer lose their beginnings, because the question is at the end. It
// returns the number of such prompts, and the room for tokens.
func (r *Rig) AddSet(ctx context.Context, name string, in *prompts.Set, l Limits) (cut, room int, err error) {
	set := bench.Set{Name: name}
	shape := r.Engine.Target.Shape()
	if l.Once {
		shape = shape.Unswitched()
	}
	room = shape.MaxLen - l.Answer
	taken := 0
	for i := range in.Prompts {
		p := &in.Prompts[i]
		if !l.Split.Has(p) {
			continue
		}
		if l.Prompts > 0 && taken == l.Prompts {
			break
		}
		taken++
		text, err := firstTurn(ctx, in, p)
		if err != nil {
			return 0, room, fmt.Errorf("%s: %w", p.Place, err)
		}
		ids, err := r.decoder.Tokens(ctx, text)
		if err != nil {
			return 0, room, fmt.Errorf("%s: %w", p.Place, err)
		}
		r.Chats = r.Chats || p.Chat
		if len(ids) == 0 {
			continue
		}
		r.texts = append(r.texts, ids)
		ids, short := fit(ids, l.Tokens, room)
		if short {
			set.Cut++
		}
		set.Prompts = append(set.Prompts, bench.Prompt{Name: fmt.Sprint(i), Tokens: ids, First: func(ctx context.Context, chars int) ([]int32, error) {
			ids, err := r.decoder.Tokens(ctx, chat.Prompt{Text: first(text.Text, chars), Special: text.Special})
			ids, _ = fit(ids, l.Tokens, room)
			return ids, err
		}})
	}
	if taken == 0 {
		return 0, room, fmt.Errorf("none of the %d prompts is in the part %s", len(in.Prompts), l.Split)
	}
	r.Sets, r.split = append(r.Sets, set), l.Split
	return set.Cut, room, nil
}

// fit returns the first most of ids, all if most is 0, and of these the last room, and whether that
// cut any.
func fit(ids []int32, most, room int) (kept []int32, cut bool) {
	if most > 0 {
		ids = ids[:min(len(ids), most)]
	}
	if len(ids) > room && room > 0 {
		return ids[len(ids)-room:], true
	}
	return ids, false
}

// first returns the first n characters of a text.
func first(text string, n int) string {
	for at := range text {
		if n == 0 {
			return text[:at]
		}
		n--
	}
	return text
}

// firstTurn returns the text before the answer to the first turn of a prompt.
func firstTurn(ctx context.Context, in *prompts.Set, p *prompts.Prompt) (chat.Prompt, error) {
	t := in.First(p)
	t.Ask()
	return t.Prompt(ctx)
}

// The texts that heads are conditioned on.
const (
	OverAnswers = "answers" // the target's own answers to the prompts
	OverTexts   = "texts"   // the prompts themselves, which must be such texts as heads are trained on
)

// RankTexts returns what over asks for, and says what it is. c says how long answers are.
func (r *Rig) RankTexts(ctx context.Context, over string, c *bench.Config) (texts []heads.Text, what string, err error) {
	switch over {
	case OverTexts:
		for _, x := range r.texts {
			texts = append(texts, heads.Text{Tokens: x})
		}
		return texts, fmt.Sprintf("the %d given texts, all of their tokens", len(texts)), nil
	case OverAnswers:
	default:
		return nil, "", fmt.Errorf("over is %q, want %s or %s", over, OverAnswers, OverTexts)
	}
	m := bench.Method{Spec: bench.Baseline}
	mk, err := c.Open(&m, 0, r.Model.Spec().Vocab)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, mk.Close()) }()
	for _, s := range r.Sets {
		for _, p := range s.Prompts {
			var x bench.Measurement
			if err := bench.Decode(ctx, r.Engine, c, &m, mk, p.Tokens, &x); err != nil {
				return nil, "", fmt.Errorf("answer prompt %s: %w", p.Name, err)
			}
			texts = append(texts, heads.Text{Tokens: slices.Concat(p.Tokens, x.Output), From: max(len(p.Tokens)-1, 0)})
		}
	}
	return texts, fmt.Sprintf("the target's own greedy answers to %d prompts, up to %d tokens each; no token of a prompt", len(texts), c.MaxTokens), nil
}

// ByRank conditions each head on its own ranked tokens, up to ranks, in the texts that over asks for,
// and calls f with its items. told is called with the number of texts cut to the positions that all
// models have. what says what the texts are.
func (r *Rig) ByRank(ctx context.Context, over string, c *bench.Config, ranks int, told func(cut int), f func(head string, items [][]heads.Item, texts []heads.Text) error) (what string, err error) {
	if len(r.blind) > 0 {
		return "", fmt.Errorf("head %s: Medusa heads and block drafters do not read the tokens of a draft as EAGLE's heads do, so none can be given to them by rank", r.blind[0])
	}
	texts, what, err := r.RankTexts(ctx, over, c)
	if err != nil {
		return "", err
	}
	texts, cut := heads.Fit(texts, r.Model, r.heads)
	if cut > 0 {
		told(cut)
	}
	for i, h := range r.heads {
		items, err := heads.ByRank(ctx, r.Model, h, texts, ranks)
		if err != nil {
			return "", err
		}
		if err := f(r.names[i], items, texts); err != nil {
			return "", err
		}
	}
	return what, nil
}

// Part names the part of the prompts that the rig has, "" for all.
func (r *Rig) Part() string {
	if r.split == prompts.All {
		return ""
	}
	return string(r.split)
}

// A Named path is NAME=PATH on a command line.
type Named struct{ Name, Path string }

// Names are what a command line names.
type Names struct{ Heads, Drafts, Prompts []Named }

// ParseAll parses the names of heads, small models and sets of prompts.
func ParseAll(heads, drafts, prompts []string) (n Names, err error) {
	if n.Heads, err = ParseNames("head", "CKPT", heads); err != nil {
		return n, err
	}
	if n.Drafts, err = ParseNames("draft", "DIR", drafts); err != nil {
		return n, err
	}
	for _, d := range n.Drafts {
		if slices.ContainsFunc(n.Heads, func(h Named) bool { return h.Name == d.Name }) {
			return n, fmt.Errorf("draft: a head is called %q too: say NAME=DIR", d.Name)
		}
	}
	n.Prompts, err = ParseNames("prompts", "FILE", prompts)
	return n, err
}

// ParseNames parses values of an option, PATH or NAME=PATH, whose names must differ. A path
// alone is named after its last element, a URL after its host. what is the word for PATH in errors.
func ParseNames(option, what string, values []string) ([]Named, error) {
	var all []Named
	for _, f := range values {
		name, path, ok := strings.Cut(f, "=")
		if !ok {
			name, path = filepath.Base(f), f
			if u, err := url.Parse(f); err == nil && u.Host != "" {
				name = u.Host
			}
		}
		if name == "" || path == "" {
			return nil, fmt.Errorf("%s is %q, want %s or NAME=%s", option, f, what, what)
		}
		if slices.ContainsFunc(all, func(n Named) bool { return n.Name == name }) {
			return nil, fmt.Errorf("%s: two are called %q: say NAME=%s", option, name, what)
		}
		all = append(all, Named{name, path})
	}
	return all, nil
}
