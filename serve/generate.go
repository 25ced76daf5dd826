package serve

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"talf/infer"
	"talf/infer/decode"
	"talf/infer/draft/predict"
	"talf/model"
	"talf/serve/wire"
	"talf/serve/wire/refuse"
	"talf/text/toolcall"
)

// generate is the handler of requests in a dialect.
func (s *Server) generate(d wire.Dialect) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.load.enter() {
			s.fail(w, refuse.Unavailable("the server is draining"))
			return
		}
		defer s.load.leave()
		body, bad := s.body(w, r)
		if bad != nil {
			s.fail(w, bad)
			return
		}
		req, bad := d.Parse(body)
		if bad != nil {
			s.fail(w, bad)
			return
		}
		now := func() int64 { return s.c.Now().Unix() }
		head := &wire.Head{ID: d.ID() + random(), Created: now(), Model: req.Model, System: s.core.Version(), Clock: now}
		if head.Model == "" {
			head.Model = s.c.Names[0]
		}
		g := &generation{s: s, d: d, id: head.ID, req: req, out: d.Writer(head, req)}
		// Whatever happens, what was submitted ends with the handler.
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		if bad := g.submit(ctx); bad != nil {
			s.fail(w, bad)
			return
		}
		defer g.close()
		go g.report(ctx)
		if req.Stream {
			g.stream(ctx, w)
		} else {
			g.whole(ctx, w)
		}
	}
}

// A generation is a request that is being answered.
type generation struct {
	s       *Server
	d       wire.Dialect
	id      string
	req     *wire.Request
	out     wire.Writer
	answers []*running
	usage   wire.Usage
}

// A running answer is one choice.
type running struct {
	Answer
	prompt int // tokens
	choice wire.Choice
	echo   *echo // what is still to come before the answer
	ended  bool
	likely float64          // log probability of the tokens until now
	parser *toolcall.Parser // nil: the answer is text
	called int              // calls that have begun
}

// submit encodes the prompts and queues all answers, or none.
func (g *generation) submit(ctx context.Context) *refuse.Error {
	seed := decode.DrawSeed()
	if g.req.Seed != nil {
		seed = *g.req.Seed
	}
	tenant, _ := ctx.Value(tenantKey{}).(string)
	var prediction *predict.Text
	if g.req.Prediction != "" {
		var bad *refuse.Error
		if prediction, bad = g.s.core.Predict(g.req.Prediction); bad != nil {
			return bad
		}
		g.usage.Predicted = new(wire.Predicted)
	}
	prompts := make([][]int32, len(g.req.Prompts))
	echoes := make([]string, len(g.req.Prompts))
	for i := range g.req.Prompts {
		p := &g.req.Prompts[i]
		tokens, bad := g.s.core.Encode(ctx, p)
		if bad != nil {
			return bad
		}
		if len(tokens) == 0 {
			return refuse.Invalid(g.d.Prompt(), "has no tokens")
		}
		if most := g.s.core.Context(); len(tokens) >= most {
			return refuse.TooLong(g.d.Prompt(), len(tokens), most)
		}
		g.usage.Prompt += len(tokens)
		prompts[i] = tokens
		if echoes[i] = p.Text; g.req.Echo && p.Tokens != nil {
			if echoes[i], bad = g.s.core.Decode(p.Tokens); bad != nil {
				return bad
			}
		}
	}
	each := max(g.req.N, g.req.BestOf)
	if len(prompts)*each > 1 {
		// One request after the other: two that each have a part of the queue's last places would
		// both be refused.
		g.s.several.Lock()
		defer g.s.several.Unlock()
	}
	for i, tokens := range prompts {
		for range each {
			n := len(g.answers)
			a, bad := g.s.core.Submit(ctx, Job{Prompt: tokens, Request: g.req, Seed: decode.Seed(seed, n), Tenant: tenant, Prediction: prediction})
			if bad != nil {
				g.close() // its places are free for the next
				return bad
			}
			run := &running{Answer: a, prompt: len(tokens), choice: wire.Choice{Index: n}}
			if c, ok := a.(Calling); ok {
				run.parser = c.Parser()
			}
			g.answers = append(g.answers, run)
			switch {
			case g.req.Echo && g.req.Logprobs: // which come with the answer's first
				run.echo = &echo{echoes[i], tokens}
			case g.req.Echo:
				run.choice.Text = echoes[i]
			}
			if g.req.Logprobs {
				run.choice.Tokens = []wire.Token{}
			}
		}
	}
	return nil
}

func (g *generation) close() {
	for _, a := range g.answers {
		a.Close()
	}
}

// progress returns how many tokens of the prompts have been read, and how many there are, of all answers together.
func (g *generation) progress() (read, of int) {
	for _, a := range g.answers {
		n := a.prompt
		if r, ok := a.Answer.(Reading); ok {
			n = min(n, r.PromptRead())
		}
		read, of = read+n, of+a.prompt
	}
	return read, of
}

// reportTime is the time between two lines of the log about prompts that are being read.
const reportTime = 5 * time.Second

// report writes to the log how far the prompts have been read, as long as that takes.
func (g *generation) report(ctx context.Context) {
	t := time.NewTicker(reportTime)
	defer t.Stop()
	for last := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		read, of := g.progress()
		if read == of {
			return
		}
		if read != last { // those that wait for others would repeat themselves
			g.s.c.Log.Info("reading the prompt", "id", exchangeOf(ctx).id, "tokens", read, "of", of)
		}
		last = read
	}
}

// end takes the counts of a finished answer, and its reason.
func (g *generation) end(a *running, d *infer.Delta) {
	a.ended = true
	st := a.Stats()
	if !g.req.NoAnswer {
		g.usage.Answer += st.Tokens
	}
	if a.choice.Index%max(g.req.N, g.req.BestOf) == 0 { // the prompt counts once, and its other choices may find what this one left
		g.usage.Cached += st.Cached
	}
	if p := g.usage.Predicted; p != nil {
		own := a.Predicted()
		p.Accepted, p.Rejected = p.Accepted+own.Accepted, p.Rejected+own.Rejected
	}
	a.choice.Drafting = a.Drafting()
	if why := a.choice.Drafting.Cause; why != nil && !errors.Is(why, infer.ErrBudget) && !errors.Is(why, model.ErrKVFull) {
		g.s.c.Log.Warn("rounds had no draft", "answer", g.id, "error", why)
	}
	a.choice.Finish = wire.Stop
	switch {
	case d.Reason == infer.Length || g.req.NoAnswer:
		a.choice.Finish = wire.Length
	case a.parser != nil && a.parser.Called(): // and none was cut off by a stop text
		a.choice.Finish = wire.Called
	}
	if slices.Contains(g.req.Stop, d.Stop) { // and not one that the server added
		a.choice.Stopped = d.Stop
	}
}

// failure is the error of an answer that failed, which the log has with the stack of a panic.
func (g *generation) failure(ctx context.Context, err error) *refuse.Error {
	var p *infer.PanicError
	if errors.As(err, &p) {
		g.s.c.Log.Error("an answer panicked", "answer", g.id, "error", err, "stack", string(p.Stack))
	} else if ctx.Err() == nil {
		g.s.c.Log.Warn("an answer failed", "answer", g.id, "error", err)
	}
	return problem(ctx, err)
}

// problem is the error of what failed under ctx.
func problem(ctx context.Context, err error) *refuse.Error {
	var e *refuse.Error
	switch {
	case errors.As(err, &e), errors.As(context.Cause(ctx), &e): // the latter of a server that stops
		return e
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		e := refuse.Internal("the answer took too long")
		e.Status, e.Code = http.StatusGatewayTimeout, "timeout"
		return e
	case context.Cause(ctx) == context.Canceled:
		e := refuse.Internal("the client closed the connection")
		e.Status = closedRequest
		return e
	}
	return refuse.Internal("the answer failed; the server's log says why") // err may name files
}

// whole answers with one response.
func (g *generation) whole(ctx context.Context, w http.ResponseWriter) {
	var choices []wire.Choice
	for _, a := range g.answers {
		var text strings.Builder
		text.WriteString(a.choice.Text)
		var pending []wire.Token // that belong to the next part
		for !a.ended {
			delta, err := a.Next(ctx)
			if err != nil {
				g.s.fail(w, g.failure(ctx, err))
				return
			}
			more, tokens := g.take(a, &delta)
			pending = append(pending, tokens...)
			for _, part := range a.read(more, delta.Reason != "") {
				text.WriteString(part.Text)
				if a.parser == nil || g.d == wire.Chat { // whose messages have calls beside the text
					add(&a.choice, &part)
					continue
				}
				part.Tokens, pending = pending, nil
				a.choice.Parts = append(a.choice.Parts, part)
			}
			a.choice.Tokens = append(a.choice.Tokens, tokens...)
			if delta.Reason != "" {
				g.end(a, &delta)
			}
		}
		if a.choice.Parts != nil {
			a.choice.Parts = append(a.choice.Parts, wire.Choice{Tokens: pending})
		}
		a.choice.Offset = utf8.RuneCountInString(a.choice.Text)
		a.choice.Text = text.String()
		choices = append(choices, a.choice)
	}
	g.s.send(w, http.StatusOK, g.out.Whole(g.best(choices), g.usage))
}

// best are the choices that the client gets: if more were made than it asked for, those of each prompt with the
// highest log probability by token, the best first.
func (g *generation) best(choices []wire.Choice) []wire.Choice {
	if g.req.BestOf == 0 {
		return choices
	}
	var out []wire.Choice
	mean := func(c wire.Choice) float64 {
		a := g.answers[c.Index]
		return a.likely / float64(max(a.Stats().Tokens, 1))
	}
	for of := range slices.Chunk(choices, g.req.BestOf) {
		slices.SortStableFunc(of, func(a, b wire.Choice) int { return cmp.Compare(mean(b), mean(a)) })
		out = append(out, of[:g.req.N]...)
	}
	for i := range out {
		out[i].Index = i
	}
	return out
}

// A piece of a streamed answer.
type piece struct {
	from  *running
	delta infer.Delta
	err   error
}

// stream answers with events as text arrives.
func (g *generation) stream(ctx context.Context, w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no") // of proxies that would collect events
	control := http.NewResponseController(w)
	var silence <-chan time.Time
	quiet := func() {}
	if g.s.c.PingTime > 0 {
		t := time.NewTimer(g.s.c.PingTime)
		defer t.Stop()
		silence, quiet = t.C, func() { t.Reset(g.s.c.PingTime) }
	}
	write := func(b []byte) bool {
		if len(b) == 0 {
			return true
		}
		if _, err := w.Write(b); err != nil {
			return false
		}
		quiet()
		return control.Flush() == nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the readers below
	pieces := make(chan piece)
	for _, a := range g.answers {
		go func() {
			defer func() {
				if p := recover(); p != nil {
					select {
					case pieces <- piece{a, infer.Delta{}, fmt.Errorf("panic: %v", p)}:
					case <-ctx.Done():
					}
				}
			}()
			for {
				delta, err := a.Next(ctx)
				select {
				case pieces <- piece{a, delta, err}:
				case <-ctx.Done():
					return
				}
				if err != nil || delta.Reason != "" {
					return
				}
			}
		}()
	}
	var first []wire.Choice
	for _, a := range g.answers {
		first = append(first, a.choice)
		a.choice.Offset = utf8.RuneCountInString(a.choice.Text)
	}
	w.WriteHeader(http.StatusOK)
	if !write(g.out.Begin(first, g.usage)) || control.Flush() != nil {
		return
	}
	for left := len(g.answers); left > 0; {
		select {
		case <-silence:
			alive := g.out.Ping()
			if read, of := g.progress(); read < of {
				alive = wire.Comment("prompt %d/%d", read, of)
			}
			if !write(alive) {
				return
			}
		case p := <-pieces:
			if p.err != nil {
				write(g.out.Fail(g.failure(ctx, p.err)))
				return
			}
			if !g.forward(p, write) {
				return
			}
			if p.delta.Reason != "" {
				left--
			}
		case <-ctx.Done():
			write(g.out.Fail(problem(ctx, ctx.Err())))
			return
		}
	}
	write(g.out.End(g.usage))
}

// forward writes a piece as one or two events, as OpenAI does: the reason has an event of its own.
func (g *generation) forward(p piece, write func([]byte) bool) bool {
	a := p.from
	if g.req.Draft.Trace && !g.rounds(a, write) {
		return false
	}
	text, tokens := g.take(a, &p.delta)
	if g.req.Logprobs { // those of a character that is not complete wait for it
		a.choice.Tokens = append(a.choice.Tokens, tokens...)
	}
	for _, c := range a.read(text, p.delta.Reason != "") {
		c.Index, c.Offset, c.Tokens = a.choice.Index, a.choice.Offset, a.choice.Tokens
		if !write(g.out.Part(c)) {
			return false
		}
		a.choice.Offset += utf8.RuneCountInString(c.Text)
		a.choice.Tokens = a.choice.Tokens[:0]
	}
	if p.delta.Reason == "" {
		return true
	}
	g.end(a, &p.delta)
	last := a.choice
	last.Text = ""
	return write(g.out.Part(last))
}

// rounds writes what is new of an answer's trace, an event a round.
func (g *generation) rounds(a *running, write func([]byte) bool) bool {
	t, ok := a.Answer.(Traced)
	if !ok {
		return true
	}
	for _, r := range t.Rounds() {
		b, err := json.Marshal(r.Step)
		if err != nil {
			panic(err) // strings and finite numbers
		}
		round := &wire.Round{Number: r.Round, Seconds: r.After.Seconds(), Round: b}
		if !write(g.out.Part(wire.Choice{Index: a.choice.Index, Round: round})) {
			return false
		}
	}
	return true
}
