// Package decode has what everything that answers prompts shares: options that decide an
// answer, requests made from them, a decoder of one target and its draft model, and files of
// answers that an interrupted run continues.
package decode

import (
	"errors"
	"fmt"
	"slices"

	"talf/infer"
	"talf/infer/constrain"
	"talf/infer/draft"
	"talf/infer/verify"
	"talf/model/sample"
)

// Options decide an answer, together with the models, the prompt and a seed.
type Options struct {
	Method    string // specification of the draft method, such as "salf:th=0.6"
	Verify    string // verifier; "": greedy at temperature 0, target above
	Sample    sample.Params
	MaxTokens int      // of an answer
	Stop      []string // an answer ends before any of these texts
	IgnoreEOS bool     // continue after an end-of-sequence token

	// Format is what answers have to match. Constraint is Format for the target; New makes it.
	Format     constrain.Format
	Constraint *constrain.Constraint
	// Unforced leaves it to the method to draft what the format alone allows.
	Unforced bool
}

// DefaultMethod is the method where a user names none. Its trees depend on the clock, and no text does (docs/adr/0013).
const DefaultMethod = "auto"

// Default returns plain greedy decoding.
func Default() Options {
	return Options{Method: "ar", Sample: sample.Greedy(), MaxTokens: 256}
}

// Validate reports the first option that is wrong. Open checks Method.
func (o *Options) Validate() error {
	if err := o.Sample.Validate(); err != nil {
		return err
	}
	if _, err := verify.New(o.Verify, o.Sample.Temperature); err != nil {
		return err
	}
	if err := o.Format.Check(); err != nil {
		return err
	}
	switch {
	case o.MaxTokens < 1:
		return fmt.Errorf("max-tokens is %d, want at least 1", o.MaxTokens)
	case slices.Contains(o.Stop, ""):
		return errors.New("stop is empty, want the text to stop at")
	}
	return nil
}

// A SourceError reports a method that lacks its draft model, or that would leave the given one
// unused.
type SourceError struct {
	Method string
	Given  bool     // there is a draft model, which the method does not ask
	Others []string // methods that would do
}

func (e *SourceError) Error() string {
	if e.Given {
		return fmt.Sprintf("method %s asks no draft model, but one is given: want one of %v", e.Method, e.Others)
	}
	return fmt.Sprintf("method %s asks a draft model, and none is given: want one of %v", e.Method, e.Others)
}

// An UnfitError reports a verifier that is not lossless with a method's trees.
type UnfitError struct {
	Method, Verify string
	Err            error // of verify.Check
}

func (e *UnfitError) Error() string { return fmt.Sprintf("method %s: %v", e.Method, e.Err) }
func (e *UnfitError) Unwrap() error { return e.Err }

// fits reports a method that needs a draft model and has none, or would ignore the given one.
// Plain decoding may ignore it: the others are compared with it.
func fits(m *draft.Method, given bool) error {
	if given == (m.Source || m.May && given) || given && m.Name == "ar" {
		return nil
	}
	e := &SourceError{Method: m.Name, Given: given}
	for _, x := range draft.Methods() {
		if given && (x.Source || x.May) || !given && !x.Source {
			e.Others = append(e.Others, x.Name)
		}
	}
	return e
}

// Open opens the draft method and checks that the verifier is lossless with it. The temperature
// of e is taken from o. Errors are mistakes in the options, except draft.FileError. The caller
// closes the maker.
func (o *Options) Open(e draft.Env) (*draft.Maker, draft.Method, error) {
	e.Temperature = o.Sample.Temperature
	mk, m, err := draft.Open(o.Method, e)
	if err != nil {
		return nil, m, err
	}
	if err = fits(&m, e.Source); err == nil {
		if err = verify.Check(o.Verify, mk.Draw, mk.Chain); err != nil {
			err = &UnfitError{o.Method, o.Verify, err}
		}
	}
	if err != nil {
		return nil, m, errors.Join(err, mk.Close())
	}
	return mk, m, nil
}

// At returns what drafts at a temperature with a maker that was opened at temperature 0, and the verifier, of which one
// is named for temperatures above 0. alone says that drafts are what the method alone draws: where they are not, the
// verifier has to do for all of them.
func At(mk *draft.Maker, verifier string, temperature float64, alone bool) (*draft.Maker, string) {
	switch {
	case temperature == 0:
		return mk, ""
	case mk.At == nil:
		return mk, verifier
	}
	x := mk.At(temperature)
	if !alone && x.Draw != infer.Chosen {
		return mk, "" // trees of temperature 0: nothing is drawn
	}
	return &x, verifier
}

// processor returns the processor of an answer to a prompt of the given number of tokens.
func (o *Options) processor(prompt int) (infer.Processor, error) {
	if o.Constraint != nil {
		return o.Constraint.Processor(o.Sample, prompt, o.IgnoreEOS)
	}
	return infer.NewSampling(o.Sample, prompt)
}

// Request returns a request for the tokens of a prompt. Without a maker it is one for plain
// decoding. The source may be nil if the method asks none.
func (o *Options) Request(mk *draft.Maker, src infer.Source, prompt []int32, seed uint64) (infer.Request, error) {
	verifier, err := verify.New(o.Verify, o.Sample.Temperature)
	if err != nil {
		return infer.Request{}, err
	}
	proc, err := o.processor(len(prompt))
	if err != nil {
		return infer.Request{}, err
	}
	req := infer.Request{
		Prompt: prompt, MaxTokens: o.MaxTokens, NoEOS: o.IgnoreEOS, Seed: seed, Method: o.Method,
		Source: src, Verifier: verifier, Processor: proc, Stop: o.Stop,
	}
	if mk == nil || o.Method == "ar" { // which is no round that lacks a draft
		return req, nil
	}
	req.Drafter = mk.New()
	if c, ok := proc.(*constrain.Processor); ok {
		req.Drafter = c.Draft(req.Drafter, mk.Draw == infer.Chosen && !o.Unforced)
	}
	return req, nil
}
