package serve

import (
	"strings"
	"unicode/utf8"

	"talf/infer"
	"talf/model/sample"
	"talf/serve/wire"
)

// An echo is a prompt that comes before an answer, with log probabilities.
type echo struct {
	text   string
	tokens []int32
}

// take returns what a part of an answer adds to the text and the log probabilities that the client
// gets.
func (g *generation) take(a *running, d *infer.Delta) (text string, tokens []wire.Token) {
	for _, l := range d.Logged {
		a.likely += l.LogProb
	}
	if !g.req.NoAnswer {
		text = d.Text
		if g.req.Logprobs {
			tokens = g.tokens(d)
		}
	}
	if e := a.echo; e != nil {
		a.echo = nil
		return e.text + text, append(g.echoed(e, d.Prompt), tokens...)
	}
	return text, tokens
}

// tokens returns the log probabilities of a part of an answer. A token that only ends the answer
// has none, unless the prompt has: clients that score texts count on one for every token.
func (g *generation) tokens(d *infer.Delta) (out []wire.Token) {
	logged := d.Logged
	ends := d.Reason == infer.EOS && len(logged) > 0
	if ends && !g.req.Echo {
		logged = logged[:len(logged)-1]
	}
	for _, l := range logged {
		out = append(out, g.token(l.Likely, l.Top))
	}
	if last := len(out) - 1; ends && g.req.Echo {
		out[last].Skew = characters(out[last].Bytes)
	}
	return out
}

// echoed returns the log probabilities of a prompt, of which the first token has none. Tokens that
// were put before the text are no part of it, and neither is a space that some tokenizers add.
func (g *generation) echoed(e *echo, logged []infer.Logged) []wire.Token {
	out := []wire.Token{{Bytes: g.s.core.Spell(e.tokens[0]), First: true}}
	for _, l := range logged {
		out = append(out, g.token(l.Likely, l.Top))
	}
	rest := e.text
	for i := range out {
		t := &out[i]
		text := string(t.Bytes)
		after, ok := strings.CutPrefix(rest, text)
		if short := strings.TrimPrefix(text, " "); !ok && len(rest) == len(e.text) && short != "" {
			if after, ok = strings.CutPrefix(rest, short); ok {
				t.Skew = len(text) - len(short)
			}
		}
		if ok {
			rest = after
		} else {
			t.Skew = characters(t.Bytes)
		}
	}
	return out
}

func (g *generation) token(own sample.Likely, top []sample.Likely) wire.Token {
	t := wire.Token{Bytes: g.s.core.Spell(own.Token), LogProb: own.LogProb}
	for _, x := range top {
		t.Top = append(t.Top, wire.Alternative{Bytes: g.s.core.Spell(x.Token), LogProb: x.LogProb})
	}
	return t
}

// characters counts those that a token has in the list of tokens.
func characters(b []byte) int {
	return utf8.RuneCountInString(strings.ToValidUTF8(string(b), "\uFFFD"))
}
