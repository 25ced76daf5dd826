package servetest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"talf/infer"
	"talf/infer/decode"
	"talf/internal/e2e/talftest"
	"talf/model"
	"talf/model/sample"
	"talf/text/chat"
	"talf/text/tokenizer"
)

// An Oracle answers questions one by one with plain decoding, as talf generate does: on one
// thread, with no other request, no draft and no kept prefix.
type Oracle struct {
	model *model.Model
	tok   *tokenizer.Tokenizer
}

// NewOracle loads a model until the test ends.
func NewOracle(t testing.TB, dir string) *Oracle {
	t.Helper()
	m := talftest.OpenModel(t, dir)
	tok, err := decode.LoadTokenizer(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	return &Oracle{m, tok}
}

// Tokens returns the tokens of a text.
func (o *Oracle) Tokens(t testing.TB, text string) []int32 {
	t.Helper()
	ids, err := o.tok.Encode(text, true)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// Answer returns what a server has to answer. The question's prompt is encoded here, unless it is
// given as tokens.
func (o *Oracle) Answer(ctx context.Context, q *Question) (*Answer, error) {
	opt := decode.Options{Method: "ar", Sample: q.Sample, MaxTokens: q.MaxTokens, Stop: q.Stop, IgnoreEOS: q.IgnoreEOS, Format: q.Format}
	if opt.Sample.MinTokens > 0 {
		opt.Sample.Held = q.StopIDs
		if !q.IgnoreEOS {
			opt.Sample.Held = slices.Concat(o.model.Spec().EOS, q.StopIDs)
		}
	}
	prompt := chat.Prompt{Text: q.Prompt, Special: true}
	if q.Chat {
		record, err := json.Marshal(map[string]any{"messages": []map[string]string{{"role": "user", "content": q.Prompt}}})
		if err != nil {
			return nil, err
		}
		talk, err := chat.ParseTranscript(record)
		if err != nil {
			return nil, err
		}
		prompt = chat.PlainPrompt(talk)
		opt.Stop = slices.Concat(q.Stop, chat.PlainStops())
	}
	d, err := decode.New(decode.Config{Target: o.model, Tokenizer: o.tok, Options: opt})
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // it has no files
	ids := q.Tokens
	if ids == nil {
		if ids, err = d.Encode(ctx, prompt); err != nil {
			return nil, err
		}
	}
	a := &Answer{Counted: true, Prompt: len(ids)}
	for i := range q.N {
		c, n, err := o.choice(ctx, d, q, ids, decode.Seed(q.Seed, i))
		if err != nil {
			return nil, fmt.Errorf("choice %d: %w", i, err)
		}
		a.Choices, a.Tokens = append(a.Choices, c), a.Tokens+n
	}
	return a, nil
}

func (o *Oracle) choice(ctx context.Context, d *decode.Decoder, q *Question, ids []int32, seed uint64) (c Choice, tokens int, err error) {
	req, err := d.Request(ids, seed)
	if err != nil {
		return c, 0, err
	}
	req.LogProbs, req.Top = q.Logprobs, q.Top
	if q.StopIDs != nil {
		req.EOS, req.NoEOS = q.StopIDs, false
		if !q.IgnoreEOS {
			req.EOS = append(slices.Clone(o.model.Spec().EOS), q.StopIDs...)
		}
	}
	s, err := d.Engine().Generate(ctx, req)
	if err != nil {
		return c, 0, err
	}
	reason, _ := s.Done()
	c.Text, c.Finish = s.Text(), "stop"
	switch {
	case q.Echo && q.Tokens != nil:
		c.Text = o.tok.Decode(q.Tokens, false) + c.Text
	case q.Echo:
		c.Text = q.Prompt + c.Text
	}
	if reason == infer.Length {
		c.Finish = "length"
	}
	if q.Logprobs {
		logged := s.Snapshot().Logged
		if reason == infer.EOS {
			logged = logged[:len(logged)-1]
		}
		c.Tokens = []Token{}
		for _, l := range logged {
			c.Tokens = append(c.Tokens, Token{Text: o.spell(l.Token), LogProb: l.LogProb, Top: o.top(l.Top)})
		}
	}
	return c, s.Stats().Tokens, nil
}

func (o *Oracle) top(all []sample.Likely) map[string]float64 {
	top := map[string]float64{}
	for _, x := range all {
		keep(top, o.spell(x.Token), x.LogProb)
	}
	return top
}

// keep notes the likeliest of the tokens that look alike.
func keep(top map[string]float64, text string, logprob float64) {
	if v, ok := top[text]; !ok || v < logprob {
		top[text] = logprob
	}
}

// spell returns a token as JSON can say it.
func (o *Oracle) spell(id int32) string {
	b, ok := o.tok.Bytes(id)
	if !ok {
		return o.tok.Decode([]int32{id}, false)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}
