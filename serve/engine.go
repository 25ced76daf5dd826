package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"talf/infer"
	"talf/infer/decode"
	"talf/infer/draft"
	"talf/infer/draft/predict"
	"talf/infer/loop"
	"talf/infer/trace"
	"talf/infer/verify"
	"talf/serve/wire"
	"talf/serve/wire/refuse"
	"talf/text/chat"
	"talf/text/tokenizer"
	"talf/text/toolcall"
)

// plain is the method of plain decoding.
const plain = "ar"

// An EngineConfig is what an Engine is made of. All of it stays the caller's, who closes it after
// the engine.
type EngineConfig struct {
	Loop      *loop.Loop
	Shape     infer.Shape
	Tokenizer *tokenizer.Tokenizer
	Template  *chat.Template // nil: conversations are plain text
	Source    infer.Source   // of methods that ask a draft model; nil if there is none
	// Methods are the specifications that requests may choose from, each followed by @ and a
	// verifier if it has its own. The first is the default; plain decoding may always be chosen.
	Methods []string
	// Drafters are methods of the caller's own, by name: what makes their drafters, which choose without randomness.
	Drafters map[string]func() infer.Drafter
	MaxWait  time.Duration // of a request in the queue; 0: any
	Version  string        // what determines the answers, with their seeds
	// ToolFormat is how the model calls tools; "": as its template writes calls.
	ToolFormat toolcall.Name
}

// An Engine is the Core of a server that decodes with a loop.
type Engine struct {
	c       EngineConfig
	encoder *chat.Encoder
	makers  map[string]*method
	formats *formats
	style   toolcall.Style
}

// A method is one that requests may choose.
type method struct {
	*draft.Maker                // at temperature 0
	spec, verifier string       // verifier: above temperature 0; "": target
	source         infer.Source // nil if it asks none
	keeps          bool         // its drafts may be what other requests taught
}

// NewEngine opens the methods.
func NewEngine(c EngineConfig) (_ *Engine, err error) {
	e := &Engine{c: c, makers: map[string]*method{}, formats: newFormats(c.Tokenizer, c.Shape.Vocab, c.Shape.EOS)}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	if e.encoder, err = chat.NewEncoder(c.Tokenizer); err != nil {
		return nil, err
	}
	if e.style, err = toolcall.Detect(context.Background(), c.Template); err != nil {
		return nil, err
	}
	if e.style, err = e.style.As(c.ToolFormat); err != nil {
		return nil, err
	}
	for _, text := range append(slices.Clone(c.Methods), plain) {
		if e.makers[text] != nil {
			continue
		}
		m, err := e.open(text)
		if err != nil {
			return nil, err
		}
		e.makers[text] = m
	}
	if len(e.c.Methods) == 0 {
		e.c.Methods = []string{plain}
	}
	return e, nil
}

// open opens a method, followed by @ and its verifier or not.
func (e *Engine) open(text string) (*method, error) {
	if f := e.c.Drafters[text]; f != nil {
		return &method{Maker: &draft.Maker{New: f}, spec: text, source: e.c.Source}, nil
	}
	spec, verifier, named := verify.Cut(text)
	m, _, err := draft.Find(spec)
	if err != nil {
		return nil, err
	}
	if named {
		line, err := verify.Find(verifier)
		if err == nil && line.Greedy {
			err = fmt.Errorf("%s is for temperature 0, where it needs no naming", verifier)
		}
		if err != nil {
			return nil, fmt.Errorf("method %s: %w", text, err)
		}
	}
	o := decode.Default()
	o.Method = spec
	asks := e.c.Source != nil && (m.Source || m.May) // others are on offer beside those that ask
	mk, _, err := o.Open(draft.Env{Vocab: e.c.Shape.Vocab, Tokenizer: e.c.Tokenizer.Hash, Source: asks})
	if err != nil {
		return nil, err
	}
	// All methods call it so, and those that auto chooses from are in its specification.
	x := &method{Maker: mk, spec: spec, verifier: verifier, keeps: strings.Contains(strings.ReplaceAll(spec, " ", ""), "table=keep")}
	sampled, _ := decode.At(mk, verifier, 1, true)
	if err := verify.Check(verifier, sampled.Draw, sampled.Chain); err != nil {
		return nil, errors.Join(fmt.Errorf("method %s: %w", text, err), mk.Close())
	}
	if asks {
		x.source = e.c.Source
	}
	return x, nil
}

// Close releases the methods.
func (e *Engine) Close() error {
	var errs []error
	for _, m := range e.makers {
		if m.Close != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}

// Context is the most tokens of a prompt and its answer.
func (e *Engine) Context() int { return e.c.Loop.Context() }

// Stats are those of the loop.
func (e *Engine) Stats() loop.Stats { return e.c.Loop.Stats() }

// Version says what determines the answers.
func (e *Engine) Version() string { return e.c.Version }

// Spell returns the bytes of a token.
func (e *Engine) Spell(id int32) []byte {
	if b, ok := e.c.Tokenizer.Bytes(id); ok {
		return b
	}
	return []byte(e.c.Tokenizer.Decode([]int32{id}, false))
}

// Piece returns a token as the vocabulary has it.
func (e *Engine) Piece(id int32) string {
	s, _ := e.c.Tokenizer.Token(id)
	return s
}

// Decode returns the text of tokens.
func (e *Engine) Decode(tokens []int32) (string, *refuse.Error) {
	if bad := e.known("tokens", tokens); bad != nil {
		return "", bad
	}
	return e.c.Tokenizer.Decode(tokens, false), nil
}

func (e *Engine) known(param string, tokens []int32) *refuse.Error {
	for i, id := range tokens {
		if int(id) >= e.c.Shape.Vocab { // the rest was checked when it was read
			return refuse.Invalid(param, "token %d is %d, want 0 to %d", i, id, e.c.Shape.Vocab-1)
		}
	}
	return nil
}

// Encode returns the tokens of a prompt.
func (e *Engine) Encode(ctx context.Context, p *wire.Prompt) ([]int32, *refuse.Error) {
	x, ok := e.c.Tokenizer.Infill()
	switch {
	case p.Infill && !ok:
		return nil, refuse.Unsupported("input_prefix", "cannot be filled up to input_suffix: the model's tokenizer has no tokens for fill-in-the-middle")
	case ok && (p.Infill || p.Suffix != ""):
		return e.infill(p, x)
	}
	if p.Tokens != nil {
		return p.Tokens, e.known("prompt", p.Tokens)
	}
	text, param := chat.Prompt{Text: p.Text, Special: true}, "prompt"
	bare := p.Special != nil && !*p.Special
	if p.Conversation != nil {
		param = "messages"
		var err error
		if text, err = e.conversation(ctx, p); err != nil {
			return nil, refusal(ctx, param, err)
		}
	}
	asked := p.Special != nil && *p.Special && !text.Special
	text.Special = text.Special && !bare
	ids, err := e.encoder.Prompt(ctx, text)
	if err != nil {
		return nil, refusal(ctx, param, err)
	}
	if asked { // on top of the template's
		ids = slices.Concat(e.encoder.Before(), ids)
	}
	if len(ids) == 0 && !bare {
		bos, ok := e.c.Tokenizer.BOS()
		if !ok {
			return nil, refuse.Invalid(param, "is empty, and the model has no token that begins a text")
		}
		ids = []int32{bos}
	}
	return ids, nil
}

// infill returns the tokens of a prompt that asks for what stands between two texts.
func (e *Engine) infill(p *wire.Prompt, x tokenizer.Infill) (ids []int32, bad *refuse.Error) {
	if p.Special == nil || *p.Special {
		ids = slices.Clone(e.encoder.Before())
	}
	prefix, suffix := "prompt", "suffix"
	if p.Infill {
		prefix, suffix = "input_prefix", "input_suffix"
	}
	encode := func(param, text string) []int32 {
		more, err := e.c.Tokenizer.Encode(text, false)
		if err != nil && bad == nil {
			bad = refuse.Invalid(param, "%v", err)
		}
		return more
	}
	// Of a repository, as Qwen2.5-Coder learnt it (Hui et al. 2024, section 3.2.2): its name, and each file after its
	// own. llama.cpp's names stand for those that nobody gives, also before the text to fill.
	names := p.Infill && x.Repository >= 0
	if names {
		ids = slices.Concat(ids, []int32{x.Repository}, encode("input_extra", "myproject\n"))
	}
	for _, f := range p.Files {
		if names {
			ids = slices.Concat(ids, []int32{x.File}, encode("input_extra", cmp.Or(f.Name, "tmp")+"\n"))
		}
		ids = append(ids, encode("input_extra", f.Text)...)
	}
	if names {
		ids = slices.Concat(ids, []int32{x.File}, encode("input_extra", "filename\n"))
	}
	before := append([]int32{x.Prefix}, p.Tokens...)
	if p.Tokens == nil {
		before = append(before, encode(prefix, p.Text)...)
	} else {
		bad = e.known(prefix, p.Tokens)
	}
	return slices.Concat(ids, before, []int32{x.Suffix}, encode(suffix, p.Suffix), []int32{x.Middle}), bad
}

// Predict reads what a client expects an answer to be.
func (e *Engine) Predict(text string) (*predict.Text, *refuse.Error) {
	const param = "prediction.content"
	ids, err := e.c.Tokenizer.Encode(text, false)
	if err != nil {
		return nil, refuse.Invalid(param, "%v", err)
	}
	ids = ids[:min(len(ids), e.Context())] // no answer is longer
	return predict.New(ids), e.known(param, ids)
}

// refusal is the error of a prompt that cannot be encoded.
func refusal(ctx context.Context, param string, err error) *refuse.Error {
	if ctx.Err() != nil {
		return problem(ctx, err)
	}
	var placed *chat.PlacedError
	if errors.As(err, &placed) { // the path of its file is the server's
		return refuse.Invalid(param, "%s", placed.Private())
	}
	return refuse.Invalid(param, "%v", err)
}

// conversation writes messages as the model's template does, or as plain text.
func (e *Engine) conversation(ctx context.Context, p *wire.Prompt) (chat.Prompt, error) {
	if p.Tools != nil || hasCalls(p.Conversation) {
		return e.tooled(ctx, p)
	}
	return chat.Write(ctx, e.c.Template, p.Conversation)
}

// Submit queues a request.
func (e *Engine) Submit(ctx context.Context, j Job) (Answer, *refuse.Error) {
	spec, m, bad := e.method(&j)
	if bad != nil {
		return nil, bad
	}
	ask := e.ask(&j)
	o, mk, bad := e.options(&j, m, ask)
	if bad != nil {
		return nil, bad
	}
	req, err := o.Request(mk, m.source, j.Prompt, j.Seed)
	if err != nil {
		return nil, refuse.Invalid("", "%v", err)
	}
	a := &loopAnswer{method: spec, ignored: e.ignored(j.Request)}
	req.Detok = func() infer.Detokenizer { return e.c.Tokenizer.NewStream(true) }
	if ask != nil {
		req.Detok = e.marked
		a.parser = e.style.Format.Parser(*ask)
	}
	req.Method, req.MaxNodes = spec, j.Request.Draft.Nodes
	req.PromptLogProbs = j.Request.Logprobs && j.Request.Echo
	if req.LogProbs = j.Request.Logprobs || j.Request.BestOf > 0; req.LogProbs {
		req.Top = min(j.Request.Top, e.c.Shape.Vocab)
	}
	if len(j.Request.StopIDs) > 0 {
		req.EOS, req.NoEOS = e.ends(&j), false
	}
	req.Tenant = j.Tenant
	if j.Request.Draft.Trace {
		a.rounds = trace.NewBuffer(trace.Recorder{Text: func(id int32) string { return string(e.Spell(id)) }, Temperature: o.Sample.Temperature, Path: true})
		req.Trace = a.rounds.Round
	}
	if j.predicts() {
		if req.Drafter == nil {
			req.Drafter = mk.New()
		}
		a.predicted = predict.Wrap(req.Drafter, j.Prediction)
		req.Drafter = a.predicted
		req.Method += "+prediction" // whose acceptance is another
	}
	if a.Handle, err = e.c.Loop.Submit(ctx, req, loop.Options{Priority: -j.Request.Priority, MaxWait: e.c.MaxWait}); err != nil {
		return nil, submission(ctx, err)
	}
	return a, nil
}

// method returns the method that a request names, or the first, and refuses what it cannot be asked.
func (e *Engine) method(j *Job) (spec string, m *method, bad *refuse.Error) {
	spec = e.c.Methods[0]
	if j.Request.Draft.Method != "" {
		spec = j.Request.Draft.Method
	}
	if j.Request.Draft.Off {
		spec = plain
	}
	switch m = e.makers[spec]; {
	case m == nil:
		bad = refuse.Invalid("talf.method", "is %q, want one of %s", spec, strings.Join(e.offered(), ", "))
	case j.Request.Draft.Trace && m.keeps && j.Tenant != "":
		bad = refuse.Unsupported("talf.trace", "is true, but %s drafts what the requests of other keys have taught it, which rounds would show", spec)
	}
	return spec, m, bad
}

// predicts reports whether the client predicts the answer, and drafts are wanted.
func (j *Job) predicts() bool { return j.Prediction != nil && !j.Request.Draft.Off }

// ends returns the tokens that end the answer.
func (e *Engine) ends(j *Job) []int32 {
	if j.Request.IgnoreEOS {
		return slices.Clone(j.Request.StopIDs)
	}
	return slices.Concat(e.c.Shape.EOS, j.Request.StopIDs)
}

// options returns what decides the answer, and what drafts it with m. ask is what the request asks of tools; nil: nothing.
func (e *Engine) options(j *Job, m *method, ask *toolcall.Ask) (o decode.Options, mk *draft.Maker, bad *refuse.Error) {
	for _, b := range j.Request.Sample.LogitBias {
		if int(b.Token) >= e.c.Shape.Vocab {
			return o, nil, refuse.Invalid(fmt.Sprintf("logit_bias.%d", b.Token), "the model has tokens 0 to %d", e.c.Shape.Vocab-1)
		}
	}
	o = decode.Options{
		Method: m.spec, Sample: j.Request.Sample, MaxTokens: e.Context() - len(j.Prompt), Stop: j.Request.Stop, IgnoreEOS: j.Request.IgnoreEOS,
	}
	if o.Sample.MinTokens > 0 {
		o.Sample.Held = e.ends(j)
	}
	mk, o.Verify = decode.At(m.Maker, m.verifier, o.Sample.Temperature, !j.predicts())
	if ask != nil {
		o.Constraint, bad = e.calls(j, ask)
	} else {
		o.Constraint, bad = e.formats.compile(j.Tenant, j.Request.Format)
	}
	switch {
	case j.Request.NoAnswer:
		o.MaxTokens = 1 // the server keeps it to itself
	case j.Request.MaxTokens > 0:
		o.MaxTokens = min(j.Request.MaxTokens, o.MaxTokens)
	}
	if p := j.Request.Prompts[0]; p.Conversation != nil && e.c.Template == nil {
		o.Stop = slices.Concat(o.Stop, chat.PlainStops())
	}
	return o, mk, bad
}

// ignored are the fields of a request that change nothing.
func (e *Engine) ignored(r *wire.Request) []string {
	out := slices.Clone(r.Ignored)
	for _, h := range r.Prompts[0].Hints {
		if e.c.Template == nil || !slices.ContainsFunc(h.Variables(), e.c.Template.Mentions) {
			out = append(out, h.Field)
		}
	}
	if _, ok := e.c.Tokenizer.Infill(); !ok && r.Prompts[0].Suffix != "" {
		out = append(out, "suffix")
	}
	return out
}

func (e *Engine) offered() []string {
	out := slices.Clone(e.c.Methods)
	if !slices.Contains(out, plain) {
		out = append(out, plain)
	}
	return out
}

// submission is the error of a request that the loop does not take.
func submission(ctx context.Context, err error) *refuse.Error {
	switch {
	case errors.Is(err, loop.ErrQueueFull):
		return refuse.Busy("%v", err)
	case errors.Is(err, loop.ErrBroken): // by what may name files
		return refuse.Unavailable("%v", loop.ErrBroken)
	case errors.Is(err, loop.ErrDraining), errors.Is(err, loop.ErrClosed), errors.Is(err, loop.ErrQueueTimeout):
		return refuse.Unavailable("%v", err)
	case errors.Is(err, loop.ErrTooLarge):
		e := refuse.Invalid("", "%v", err)
		e.Code = "context_length_exceeded"
		return e
	case ctx.Err() != nil:
		return problem(ctx, err)
	}
	return refuse.Invalid("", "%v", err)
}

// A loopAnswer is an Answer of the loop's.
type loopAnswer struct {
	*loop.Handle
	method    string
	ignored   []string
	rounds    *trace.Buffer    // nil unless the request asks for a trace
	predicted *predict.Drafter // nil: no prediction was drafted from
	parser    *toolcall.Parser // nil: the answer calls no tools
}

// Parser divides the answer into text and calls.
func (a *loopAnswer) Parser() *toolcall.Parser { return a.parser }

// Rounds returns the rounds of a traced answer since the last call.
func (a *loopAnswer) Rounds() []trace.Numbered {
	if a.rounds == nil {
		return nil
	}
	return a.rounds.Take()
}

// Next waits for more of the answer.
func (a *loopAnswer) Next(ctx context.Context) (infer.Delta, error) {
	d, err := a.Handle.Next(ctx)
	if err != nil {
		return d, err
	}
	if d.Reason == infer.Failed || d.Reason == infer.Cancelled {
		_, err := a.Result()
		switch {
		case err == nil:
			err = fmt.Errorf("it was %s", d.Reason)
		case errors.Is(err, loop.ErrQueueTimeout), errors.Is(err, loop.ErrClosed), errors.Is(err, loop.ErrBroken):
			err = submission(ctx, err)
		}
		return d, err
	}
	return d, nil
}

// Stats are the counts of an answer that has ended.
func (a *loopAnswer) Stats() *infer.Stats {
	if s, _ := a.Result(); s != nil {
		return s.Stats()
	}
	return &infer.Stats{}
}

// Predicted counts the tokens of the prediction once the answer has ended.
func (a *loopAnswer) Predicted() (p wire.Predicted) {
	if a.predicted != nil {
		p.Accepted, p.Rejected = a.predicted.Counts()
	}
	return p
}

// Drafting says what was done, once the answer has ended.
func (a *loopAnswer) Drafting() *wire.Drafting {
	d := &wire.Drafting{Method: a.method, Ignored: a.ignored}
	s, _ := a.Result()
	if s == nil {
		return d
	}
	st := s.Stats()
	d.Rounds, d.Drafted, d.Accepted, d.Tau = st.Passes, st.Drafted, st.Accepted, st.Tau()
	if err := s.Undrafted(); err != nil {
		d.Fallback, d.Cause = infer.FallbackOf(err).Why(), err
	}
	for f, n := range st.Fallbacks {
		if n > 0 {
			if d.Fallbacks == nil {
				d.Fallbacks = map[string]int{}
			}
			d.Fallbacks[infer.Fallback(f).String()] = n
		}
	}
	if a.rounds != nil {
		d.Dropped = a.rounds.Dropped()
	}
	return d
}

// Close ends the answer if it runs.
func (a *loopAnswer) Close() { a.Cancel(nil) }

var (
	_ Core     = (*Engine)(nil)
	_ Measured = (*Engine)(nil)
	_ Calling  = (*loopAnswer)(nil)
	_ Reading  = (*loopAnswer)(nil)
)
