// Package diagnose names why a draft head is seldom right: it lets the head guess under other circumstances than those at
// hand, and compares.
package diagnose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"talf/checkpoints"
	"talf/compute"
	"talf/infer/bench/heads"
	"talf/model"
	"talf/model/head"
)

// The causes.
const (
	Weights    = "weights"    // the head was trained for another target
	Taps       = "taps"       // it reads other layers' states than it was trained on
	Template   = "template"   // it was trained on texts in another form
	Length     = "length"     // texts are longer than those that it was trained on
	Vocabulary = "vocabulary" // the answers have tokens that it cannot predict
	Type       = "dtype"      // its weights are rounded too much
	Domain     = "domain"     // it was trained on other texts
)

// An Input is a head, its target, and the target's own greedy answers.
type Input struct {
	Target  *model.Model
	Head    string                  // path
	Options model.Options           // that the head is loaded with
	Texts   []heads.Text            // answers to the prompts as they are asked
	Forms   map[string][]heads.Text // answers to the prompts written in other ways, by what these are called
	Trained int                     // positions of the texts that the head was trained on, at most; 0: not known
	Expect  float64                 // share of right guesses on text that was held out of training; 0: not known
}

// A Share is how many of a number of guesses are right.
type Share struct {
	Right int `json:"right"`
	Of    int `json:"of"`
}

// Value is the share itself.
func (s Share) Value() float64 { return float64(s.Right) / float64(max(s.Of, 1)) }

func (s *Share) count(right bool) {
	if s.Of++; right {
		s.Right++
	}
}

// A Finding is a circumstance that explains wrong guesses.
type Finding struct {
	Cause string  `json:"cause"`
	Text  string  `json:"text"` // says so, with the figures
	Loss  float64 `json:"loss"` // by how much the share of right guesses is lower than without it
}

// A Diagnosis is what was found.
type Diagnosis struct {
	Head  string `json:"head"`
	Share Share  `json:"guesses"` // the head's first guess, at every position of the answers
	// Perplexity is the target's, of its own answers: where it hesitates, no head is right often.
	Perplexity float64   `json:"perplexity"`
	Findings   []Finding `json:"findings"` // the most harmful first
}

// String writes d for people.
func (d *Diagnosis) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: the first guess is right at %.1f%% of %d positions of the model's own answers, whose perplexity is %.2f.\n",
		d.Head, 100*d.Share.Value(), d.Share.Of, d.Perplexity)
	if len(d.Findings) == 0 {
		b.WriteString("None of the causes that are looked for explains wrong guesses: more or other text to learn from may.\n")
	}
	for _, f := range d.Findings {
		fmt.Fprintf(&b, "%-11s %s\n", f.Cause, f.Text)
	}
	return b.String()
}

const (
	// surely is how many standard errors a difference must have to count, and least how large it must be.
	surely, least = 3, 0.03
	// covered is the share of tokens that a draft vocabulary should have: what is beyond it is never accepted.
	covered = 0.95
)

// worse reports whether a is worse than b beyond doubt, and by how much, of guesses at different positions.
func worse(a, b Share) (float64, bool) {
	p, q := a.Value(), b.Value()
	deviation := math.Sqrt(p*(1-p)/float64(max(a.Of, 1)) + q*(1-q)/float64(max(b.Of, 1)))
	return q - p, a.Of > 0 && b.Of > 0 && q-p >= max(least, surely*deviation)
}

// same reports whether guesses a are worse than b at the same positions beyond doubt, and by how much: of the positions
// where one of the two is right, as many would be a's as b's (McNemar's test).
func same(a, b []bool) (by float64, sure bool) {
	gained, lost := 0.0, 0.0
	for i := range a {
		switch {
		case b[i] && !a[i]:
			gained++
		case a[i] && !b[i]:
			lost++
		}
	}
	by = (gained - lost) / float64(max(len(a), 1))
	return by, by >= least && gained-lost >= surely*math.Sqrt(gained+lost)
}

// shareOf counts guesses.
func shareOf(right []bool) (s Share) {
	for _, r := range right {
		s.count(r)
	}
	return s
}

// A trial is what the head guessed under another circumstance.
type trial struct {
	cause string
	right []bool // at the same positions; nil: at others, of which share are right
	share Share
	with  string // says under which, behind how many are right
}

// seen is what a head guessed.
type seen struct {
	tie         error  // says that it was trained for another target; nil: it was not, or that is not known
	right       []bool // at every position of the answers
	vocab       int    // tokens that it can predict
	inside      Share  // of the answers' tokens, those that it can predict
	early, late Share  // up to the position trained, and behind it
	trained     int    // Input.Trained
	expect      float64
	trials      []trial
}

// findings names the causes that what was seen leaves no doubt about, the most harmful first.
func (s *seen) findings() []Finding {
	found := []Finding{}
	add := func(cause string, loss float64, format string, args ...any) {
		found = append(found, Finding{cause, fmt.Sprintf(format, args...), loss})
	}
	if s.tie != nil {
		add(Weights, 1, "%v", s.tie)
	}
	if by, sure := worse(s.late, s.early); sure {
		add(Length, by, "%.1f%% are right up to position %d, to which the head was trained, and %.1f%% behind it", 100*s.early.Value(), s.trained, 100*s.late.Value())
	}
	if x := s.inside.Value(); x < covered {
		add(Vocabulary, 1-x, "%.1f%% of the answers' tokens are outside the head's vocabulary of %d", 100*(1-x), s.vocab)
	}
	for _, t := range s.trials {
		by, sure := worse(shareOf(s.right), t.share)
		if t.right != nil {
			t.share = shareOf(t.right)
			by, sure = same(s.right, t.right)
		}
		if sure {
			add(t.cause, by, "%.1f%% are right %s", 100*t.share.Value(), t.with)
		}
	}
	if s.expect > 0 && len(found) == 0 {
		// What was held out of training has many positions: its share counts as known.
		if by, sure := worse(shareOf(s.right), Share{int(s.expect * 1e6), 1e6}); sure {
			add(Domain, by, "%.1f%% were right on text held out of training: these prompts are of another kind", 100*s.expect)
		}
	}
	slices.SortStableFunc(found, func(a, b Finding) int { return cmp.Compare(b.Loss, a.Loss) })
	return found
}

// Run looks for the causes of wrong guesses.
func Run(ctx context.Context, in Input) (d *Diagnosis, err error) {
	draft, base, err := in.load(nil, in.Options)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, base.Close()) }()
	s := seen{vocab: len(draft.Vocab), trained: in.Trained, expect: in.Expect}
	if tie := draft.Target; tie.Known() {
		s.tie = head.CheckTie(tie, in.Target, head.Options{})
	}
	known := map[int32]bool{}
	for _, id := range draft.Vocab {
		known[id] = true
	}
	nll := 0.0
	if err := each(ctx, in.Target, base, in.Texts, func(g guess) {
		s.right = append(s.right, g.right)
		nll -= float64(g.logp)
		s.inside.count(draft.Vocab == nil || known[g.token])
		if in.Trained > 0 && g.at >= in.Trained {
			s.late.count(g.right)
		} else {
			s.early.count(g.right)
		}
	}); err != nil {
		return nil, err
	}
	d = &Diagnosis{Head: in.Head, Share: shareOf(s.right)}
	if d.Share.Of == 0 {
		return nil, errors.New("the answers are too short: there is nothing to guess")
	}
	d.Perplexity = math.Exp(nll / float64(d.Share.Of))
	if s.trials, err = in.others(ctx, draft, base); err != nil {
		return nil, err
	}
	d.Findings = s.findings()
	return d, nil
}

// others lets heads guess that differ from the given one in one respect.
func (in *Input) others(ctx context.Context, draft *checkpoints.Draft, base *head.Head) (all []trial, err error) {
	try := func(cause string, change func(*checkpoints.Draft), opt model.Options, with string, args ...any) error {
		_, h, err := in.load(change, opt)
		if err != nil {
			return err
		}
		t := trial{cause: cause, with: fmt.Sprintf(with, args...)}
		err = each(ctx, in.Target, h, in.Texts, func(g guess) { t.right = append(t.right, g.right) })
		all = append(all, t)
		return errors.Join(err, h.Close())
	}
	if opt := in.Options; opt.DType != compute.F32 {
		opt.DType = compute.F32
		if err := try(Type, nil, opt, "with the head's weights in f32 rather than %s", in.Options.DType); err != nil {
			return nil, err
		}
	}
	taps, err := draft.Spec.TapsOf(in.Target.Spec())
	if err != nil {
		return nil, err
	}
	for _, by := range []int{-1, 1} {
		if taps == nil || slices.Min(taps)+by < 0 || slices.Max(taps)+by > in.Target.Spec().Layers {
			continue
		}
		other := slices.Clone(taps)
		for i := range other {
			other[i] += by
		}
		if err := try(Taps, func(x *checkpoints.Draft) { x.Spec.Eagle3.Taps = other }, in.Options,
			"with the states before layers %v, which the head then was trained on, rather than %v", other, taps); err != nil {
			return nil, err
		}
	}
	for name, texts := range in.Forms {
		t := trial{cause: Template}
		nll := 0.0
		if err := each(ctx, in.Target, base, texts, func(g guess) {
			t.share.count(g.right)
			nll -= float64(g.logp)
		}); err != nil {
			return nil, err
		}
		t.with = fmt.Sprintf("in answers to the prompts %s, whose perplexity is %.2f: the head may have been trained on such texts", name, math.Exp(nll/float64(t.share.Of)))
		all = append(all, t)
	}
	return all, nil
}

// load loads the head, changed so, whatever target it was trained for.
func (in *Input) load(change func(*checkpoints.Draft), opt model.Options) (*checkpoints.Draft, *head.Head, error) {
	dir, err := checkpoints.Find(in.Head)
	if err != nil {
		return nil, nil, err
	}
	d, err := checkpoints.OpenDraft(dir)
	if err != nil {
		return nil, nil, err
	}
	if d.Spec.Block.On {
		return nil, nil, errors.Join(fmt.Errorf("head %s is a block drafter, which only drafts: want a head of EAGLE's kind", in.Head), d.Close())
	}
	if change != nil {
		change(d)
	}
	h, err := d.Load(in.Target, head.Options{Model: opt, Force: true})
	if err != nil {
		return nil, nil, errors.Join(err, d.Close())
	}
	return d, h, nil
}

// A guess is a head's most likely token at a position.
type guess struct {
	at    int // of the token in its text
	token int32
	right bool
	logp  float32 // of the target's own most likely token, one position earlier
}

// chunk is how many positions are run in a pass, each with a row of logits.
const chunk = 64

// each calls f for the first guess of a head at every position of the texts that counts.
func each(ctx context.Context, target *model.Model, h *head.Head, texts []heads.Text, f func(guess)) error {
	texts, _ = heads.Fit(texts, target, []*head.Head{h})
	for i := range texts {
		if err := guesses(ctx, target, h, &texts[i], f); err != nil {
			return fmt.Errorf("text %d: %w", i, err)
		}
	}
	return nil
}

// guesses is each for one text. The head's position i has the states of token i and token i+1, and guesses token i+2.
func guesses(ctx context.Context, target *model.Model, h *head.Head, text *heads.Text, f func(guess)) error {
	x := text.Tokens
	if len(x) < 3 {
		return nil
	}
	tseq, hseq := target.NewSeqOf(len(x)), h.NewSeq()
	defer tseq.Close()
	defer hseq.Close()
	var ids [chunk]int32
	var logp [chunk]float32
	for at := 0; at < len(x)-2; at += chunk {
		m := min(chunk, len(x)-2-at)
		o, err := tseq.Append(ctx, x[at:at+m], nil, model.WantAll)
		if err != nil {
			return err
		}
		var states []model.Feature
		for i := range m {
			states = append(states, o.Feature(0, i))
		}
		var own [chunk]int32
		o.TopK(own[:], logp[:], 0, m, 1)
		g, err := hseq.Append(ctx, x[at+1:at+1+m], states, model.WantAll)
		if err != nil {
			return err
		}
		g.TopK(ids[:], nil, 0, m, 1)
		for i := range m {
			if j := at + i; j >= text.From {
				f(guess{at: j + 2, token: x[j+2], right: ids[i] == x[j+2], logp: logp[i]})
			}
		}
	}
	return nil
}
