package decode

import (
	"context"
	"errors"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/source"
	"talf/model"
	"talf/text/tokenizer"
)

// A Drafting names a draft model. The zero value names none.
type Drafting struct {
	Head  string // checkpoint of a draft head, Medusa heads, or MTPHead
	Draft string // directory or .gguf of a small language model; Head is empty then
	Force bool   // accept a head that was trained for another target
}

// Given reports whether there is a draft model.
func (d *Drafting) Given() bool { return d.Head != "" || d.Draft != "" }

// Asks reports whether a draft method would ask a draft model that it is given. One that it would not ask need not be
// loaded.
func Asks(method string) (bool, error) {
	m, _, err := draft.Find(method)
	return m.Source || m.May, err
}

// Parts are a loaded target and what belongs to it.
type Parts struct {
	Model     *model.Model
	Tokenizer *tokenizer.Tokenizer
	Source    infer.Source // the draft model; nil: none
	closers   []func() error
}

// Open loads the model at path and a draft model onto the device that o names. The draft model keeps its last keep
// sequences.
func (l *Loader) Open(ctx context.Context, path string, o *Machine, d Drafting, keep int) (*Parts, error) {
	m, tok, closeModel, err := l.WithTokenizer(ctx, path, o)
	if err != nil {
		return nil, err
	}
	p := &Parts{Model: m, Tokenizer: tok, closers: []func() error{func() error {
		closeModel()
		return nil
	}}}
	if err := l.source(ctx, p, o, d, keep); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	giveBack()
	return p, nil
}

// source loads the draft model that d names.
func (l *Loader) source(ctx context.Context, p *Parts, o *Machine, d Drafting, keep int) error {
	switch {
	case d.Head != "":
		src, loaded, err := HeadSource(d.Head, p.Model, d.Force, func(why string) { l.Log.Warn(why) }, keep)
		if err != nil {
			return err
		}
		p.Source, p.closers = src, append(p.closers, loaded.Close)
	case d.Draft != "":
		m, v, err := l.Draft(ctx, d.Draft, p.Model, p.Tokenizer, o)
		if err != nil {
			return err
		}
		p.Source, p.closers = source.NewLM(m, v, keep), append(p.closers, m.Close)
	}
	return nil
}

// Close frees the models and the device.
func (p *Parts) Close() error {
	var errs []error
	for len(p.closers) > 0 {
		last := len(p.closers) - 1
		errs = append(errs, p.closers[last]())
		p.closers = p.closers[:last]
	}
	return errors.Join(errs...)
}
