package decode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"talf/infer"
	"talf/infer/constrain"
	"talf/infer/draft"
	"talf/infer/loop"
	"talf/infer/prefix"
	"talf/infer/source"
	"talf/infer/trace"
	"talf/infer/verify"
	"talf/model"
	"talf/text/chat"
	"talf/text/tokenizer"
)

// ErrLongPrompt is wrapped by the error of a prompt that leaves the model no room for an
// answer.
var ErrLongPrompt = errors.New("the prompt is too long")

// A Config is what a Decoder is made of. The models stay the caller's, who closes them after the decoder.
type Config struct {
	Target    *model.Model
	Tokenizer *tokenizer.Tokenizer
	Source    infer.Source // a draft model, which some methods ask; nil: none
	Options   Options
	// Drafter, if not nil, makes the drafters in place of Options.Method, which then only names them in statistics. What
	// they add to trees they choose without randomness.
	Drafter func() infer.Drafter
	// Sampled is the verifier of answers that SubmitAs samples; "": target.
	Sampled string
	// Keep is how many closed sequences stay cached, for prompts that continue one of them.
	Keep int
	// Loop bounds how many answers are decoded side by side. The zero value is loop.Offline.
	Loop loop.Config
	// Trace, if not nil, receives the rounds of each answer in the format of package trace.
	Trace io.Writer
}

// A Decoder answers prompts with one target and at most one draft model. Its methods may be called from
// several goroutines, whose answers are then decoded side by side.
type Decoder struct {
	c       Config
	encoder *chat.Encoder
	engine  *infer.Engine
	loop    *loop.Loop
	maker   *draft.Maker
	source  infer.Source // that the method asks; nil: none
}

// New opens the draft method.
func New(c Config) (*Decoder, error) {
	target := infer.NewTarget(c.Target, c.Keep)
	d := &Decoder{c: c, engine: &infer.Engine{Target: target, Config: infer.Default()}}
	if c.Loop == (loop.Config{}) {
		c.Loop = loop.Offline()
	}
	var err error
	if d.loop, err = loop.New(d.engine, c.Loop); err != nil {
		return nil, err
	}
	if d.encoder, err = chat.NewEncoder(c.Tokenizer); err != nil {
		return nil, err
	}
	if d.c.Options.Constraint == nil && d.c.Options.Format != (constrain.Format{}) {
		if d.c.Options.Constraint, err = Constrain(c.Options.Format, c.Tokenizer, c.Target); err != nil {
			return nil, err
		}
	}
	if err := d.open(); err != nil {
		return nil, err
	}
	if h, ok := d.source.(source.Keeper); ok {
		prefix.Pair(target.Prefixes(), h.Prefixes())
	}
	return d, nil
}

// open opens the method.
func (d *Decoder) open() (err error) {
	c := &d.c
	if c.Drafter != nil {
		d.maker, d.source = &draft.Maker{New: c.Drafter, Close: func() error { return nil }}, c.Source
	} else {
		var m draft.Method
		if d.maker, m, err = c.Options.Open(draft.Env{Vocab: c.Target.Spec().Vocab, Tokenizer: c.Tokenizer.Hash, Source: c.Source != nil}); err != nil {
			return err
		}
		if m.Source || m.May {
			d.source = c.Source
		}
	}
	sampled, verifier := At(d.maker, c.Sampled, 1, true)
	if err := verify.Check(verifier, sampled.Draw, sampled.Chain); err != nil {
		return errors.Join(err, d.maker.Close())
	}
	return nil
}

// Constrain compiles a format for the answers of a target.
func Constrain(f constrain.Format, tok *tokenizer.Tokenizer, target *model.Model) (*constrain.Constraint, error) {
	v, err := constrain.Vocabulary(tok, target.Spec().Vocab)
	if err != nil {
		return nil, err
	}
	return constrain.NewFor(f, tok, v, target.Spec().EOS)
}

// Close ends all answers and releases the draft method.
func (d *Decoder) Close() error { return errors.Join(d.loop.Close(), d.maker.Close()) }

// Loop returns the loop that decodes. Whoever runs it decodes for all; otherwise each answer's reader does.
func (d *Decoder) Loop() *loop.Loop { return d.loop }

// Engine returns the decoder's engine, whose target keeps the last sequences. It may be used while
// no answer is in progress.
func (d *Decoder) Engine() *infer.Engine { return d.engine }

// Tokens turns a prompt into tokens, however many there are.
func (d *Decoder) Tokens(ctx context.Context, p chat.Prompt) ([]int32, error) {
	ids, err := d.encoder.Prompt(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("encode the prompt: %w", err)
	}
	return ids, nil
}

// Encode turns a prompt into tokens, and an empty one into the token that begins every text. If
// no room is left for an answer, the error wraps ErrLongPrompt.
func (d *Decoder) Encode(ctx context.Context, p chat.Prompt) ([]int32, error) {
	ids, err := d.Tokens(ctx, p)
	if err != nil {
		return nil, err
	}
	spec := d.c.Target.Spec()
	if len(ids) == 0 {
		if spec.BOS < 0 {
			return nil, errors.New("the prompt is empty and the model has no beginning-of-sequence token")
		}
		ids = []int32{spec.BOS}
	}
	if len(ids) >= spec.MaxPos {
		return nil, fmt.Errorf("%w: %d tokens, want fewer than the model's %d positions", ErrLongPrompt, len(ids), spec.MaxPos)
	}
	return ids, nil
}

// Request returns a request for the tokens of a prompt, with the answer as text too.
func (d *Decoder) Request(prompt []int32, seed uint64) (infer.Request, error) {
	return d.request(&d.c.Options, d.maker, prompt, seed)
}

func (d *Decoder) request(o *Options, mk *draft.Maker, prompt []int32, seed uint64) (infer.Request, error) {
	req, err := o.Request(mk, d.source, prompt, seed)
	if err != nil {
		return req, err
	}
	req.Detok = func() infer.Detokenizer { return d.c.Tokenizer.NewStream(true) }
	if d.c.Trace != nil {
		req.Trace, err = d.trace(len(prompt), seed)
	}
	return req, err
}

// trace starts a trace.
func (d *Decoder) trace(prompt int, seed uint64) (func(infer.Round) error, error) {
	if err := d.c.Target.Identify(); err != nil {
		return nil, err
	}
	o := &d.c.Options
	name := o.Verify
	if name == "" {
		name = verify.Default(o.Sample.Temperature)
	}
	h := trace.Header{
		Method: o.Method, Verify: name, Temperature: o.Sample.Temperature, Seed: seed, Prompt: prompt,
		Target: d.c.Target.Function(),
	}
	var err error
	if h.Draft, err = d.drafting(); err != nil {
		return nil, err
	}
	w, err := trace.NewWriter(d.c.Trace, h, d.spell)
	if err != nil {
		return nil, err
	}
	return w.Round, nil
}

// spell returns the text of a token, a name for special ones.
func (d *Decoder) spell(id int32) string {
	if b, ok := d.c.Tokenizer.Bytes(id); ok {
		return string(b)
	}
	return d.c.Tokenizer.Decode([]int32{id}, false)
}

// Submit begins the answer to a prompt, which ends with ctx.
func (d *Decoder) Submit(ctx context.Context, p chat.Prompt, seed uint64) (*loop.Handle, error) {
	ids, err := d.Encode(ctx, p)
	if err != nil {
		return nil, err
	}
	req, err := d.Request(ids, seed)
	if err != nil {
		return nil, err
	}
	req.Stop = slices.Concat(req.Stop, p.Stop)
	return d.loop.Submit(ctx, req, loop.Options{})
}

// SubmitAs is Submit with other options, of which those that the decoder was made with decide the method and the
// format. The decoder's own temperature is 0.
func (d *Decoder) SubmitAs(ctx context.Context, p chat.Prompt, o Options, seed uint64) (*loop.Handle, error) {
	var mk *draft.Maker
	o.Method, o.Constraint, o.Unforced = d.c.Options.Method, d.c.Options.Constraint, d.c.Options.Unforced
	mk, o.Verify = At(d.maker, d.c.Sampled, o.Sample.Temperature, true)
	if err := o.Validate(); err != nil {
		return nil, err
	}
	ids, err := d.Encode(ctx, p)
	if err != nil {
		return nil, err
	}
	req, err := d.request(&o, mk, ids, seed)
	if err != nil {
		return nil, err
	}
	req.Stop = slices.Concat(req.Stop, p.Stop)
	return d.loop.Submit(ctx, req, loop.Options{})
}

// Answer is Submit, and waits for the end. emit, if not nil, is called with the text as it arrives. If the
// engine fails or ctx ends, the sequence so far is returned with the error.
func (d *Decoder) Answer(ctx context.Context, p chat.Prompt, seed uint64, emit func(text string) error) (*infer.Sequence, error) {
	h, err := d.Submit(ctx, p, seed)
	if err != nil {
		return nil, err
	}
	if emit == nil {
		return h.Wait(nil)
	}
	return h.Wait(func(x infer.Delta) error { return emit(x.Text) })
}
