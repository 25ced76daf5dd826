package preprocess

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"talf/data/corpus"
	"talf/text/chat"
	"talf/text/tokenizer"
)

// ErrNoTemplate says that the input has conversations but there is no template to
// render them.
var ErrNoTemplate = errors.New("a conversation, but the model has no chat template")

// An Aligner is a Tokenizer that can also return the bytes of the text that each token
// stands for, as tokenizer.Tokenizer can. Conversations need one.
type Aligner interface {
	chat.Guard
	// EncodeLiteralOffsets is EncodeLiteral with the span of each token.
	EncodeLiteralOffsets(text string, literal []int, addSpecial bool) ([]int32, []tokenizer.Span, error)
}

// A Decoder is a Tokenizer that turns ids back into text. Conversations whose
// answers are regenerated need one.
type Decoder interface {
	Decode(ids []int32, skipSpecial bool) string
}

// lossMask says which tokens of a rendered conversation are trained on: those that
// begin within the assistant's words. Leading white space of a token is ignored, so a
// token that includes the space before an answer is the first of the answer. For a
// token of only white space the last byte decides, because only its end is left when
// offsets are trimmed.
func lossMask(text string, tokens []tokenizer.Span, answers []chat.Span) []bool {
	mask := make([]bool, len(tokens))
	for i, t := range tokens {
		at := t.End - 1
		if s := strings.TrimLeftFunc(text[t.Start:t.End], unicode.IsSpace); s != "" {
			at = t.End - len(s)
		}
		mask[i] = slices.ContainsFunc(answers, func(a chat.Span) bool { return a.Start <= at && at < a.End })
	}
	return mask
}

// A rendering is a conversation's tokens and a mask of those that the assistant says.
type rendering struct {
	ids  []int32
	loss []bool // nil if it is too long
	drop string // reason for dropping, if there is no rendering
	why  string // the reason in more detail
}

// render renders messages of a conversation, with the generation prompt if requested.
// Templates write the special tokens themselves, so none are added.
func (u *cutter) render(ctx context.Context, c *chat.Transcript, messages []chat.Message, prompt bool) (*rendering, error) {
	var first *rendering // the first refusal
	for form := range chat.Forms(messages) {
		talk, err := chat.ParseConversation(c.JSON(form))
		if err != nil {
			return &rendering{drop: dropBad, why: err.Error()}, nil
		}
		r, err := u.form(ctx, talk.WithGenerationPrompt(prompt), messages, prompt)
		if err != nil || r.drop == "" {
			return r, err
		}
		// The reason from the usual form counts, unless another form is accepted but
		// useless.
		if first == nil || r.drop == dropCalls || r.drop == dropHidden {
			first = r
		}
	}
	return first, nil
}

// form is render for one form of a conversation.
func (u *cutter) form(ctx context.Context, c *chat.Conversation, messages []chat.Message, prompt bool) (*rendering, error) {
	tok, ok := u.tok.(Aligner)
	if !ok {
		return nil, fmt.Errorf("a conversation, but the tokenizer (%T) does not tell where its tokens are", u.tok)
	}
	refused := func(err error) (*rendering, error) {
		why := refusal(err)
		return &rendering{drop: why, why: why}, ctx.Err()
	}
	r, err := u.chat.RenderCalls(ctx, c, messages)
	if errors.Is(err, chat.ErrCalls) {
		return &rendering{drop: dropCalls, why: dropCalls}, nil
	}
	if err != nil {
		return refused(err)
	}
	literal, err := u.chat.Literal(ctx, c, r.Text, tok)
	if errors.Is(err, chat.ErrControl) {
		return &rendering{drop: dropControl, why: dropControl}, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	ids, at, err := tok.EncodeLiteralOffsets(r.Text, literal, false)
	if err == nil {
		err = u.known(ids)
	}
	if err != nil || len(ids) > u.max {
		return &rendering{ids: ids}, err
	}
	if !r.Marked { // finding the answers renders them one by one
		if r, err = u.chat.RenderSpans(ctx, c); err != nil {
			return refused(err)
		}
	}
	spans, ok := heard(r.Spans, messages)
	if !ok {
		return &rendering{drop: dropMuted, why: dropMuted}, nil
	}
	loss := lossMask(r.Text, at, spans)
	if !prompt && u.silent(ids, at, loss, spans) {
		return &rendering{drop: dropEmpty, why: dropEmpty}, nil
	}
	return &rendering{ids: ids, loss: loss}, nil
}

// silent reports whether one of the answers at spans is nothing but its end. Learning it would teach a head
// to end texts at once.
func (u *cutter) silent(ids []int32, at []tokenizer.Span, loss []bool, spans []chat.Span) bool {
	tok, ok := u.tok.(Decoder)
	return ok && slices.ContainsFunc(spans, func(s chat.Span) bool {
		var own []int32
		for i, t := range at {
			if loss[i] && t.End > s.Start && t.Start < s.End {
				own = append(own, ids[i])
			}
		}
		return strings.TrimSpace(tok.Decode(own, true)) == ""
	})
}

// heard removes the spans of messages that are not to be trained on. ok is false if it
// is unknown which spans these are.
func heard(spans []chat.Span, messages []chat.Message) (out []chat.Span, ok bool) {
	var muted []bool
	for i := range messages {
		if messages[i].Role == chat.Assistant {
			muted = append(muted, messages[i].Muted)
		}
	}
	if !slices.Contains(muted, true) {
		return spans, true
	}
	if len(muted) != len(spans) {
		return nil, false
	}
	for i, s := range spans {
		if !muted[i] {
			out = append(out, s)
		}
	}
	return out, true
}

// dropTemplate is the prefix of reasons given by a template. Their texts come from the
// template: long ones are cut, and a shard keeps only a few (maxRefusals).
const (
	dropTemplate = "template: "
	dropRefusals = dropTemplate + "other messages"
	dropCalls    = dropTemplate + "it does not write the calls of tools"
	dropHidden   = dropTemplate + "where an answer stands in the text was not found, want {% generation %} marks"
	dropControl  = dropTemplate + "it does not write messages as they stand that look like special tokens"
	maxRefusals  = 16
	maxRefusal   = 160
)

// refusal returns the reason for dropping a conversation that a template refused.
func refusal(err error) string {
	var why string
	var raised *chat.RaisedError
	var fault *chat.EvalError
	switch {
	case errors.As(err, &raised):
		why = raised.Message
	case errors.As(err, &fault):
		why = fault.Error()
	default:
		return dropHidden
	}
	why = strings.ToValidUTF8(strings.Join(strings.Fields(why), " "), "\uFFFD")
	if len(why) > maxRefusal {
		n := maxRefusal
		for !utf8.RuneStart(why[n]) {
			n--
		}
		why = why[:n] + "…"
	}
	return dropTemplate + why
}

// place copies the place of d to s.
func (s *sequence) place(d *corpus.Doc) {
	s.file, s.line, s.item, s.id, s.input = d.File, d.Line, d.Item, d.ID, d.Input
}

// reject reports a conversation that was dropped.
func (u *cutter) reject(d *corpus.Doc, s *sequence, r *rendering) {
	s.drop = r.drop
	if u.bad != nil {
		u.bad(corpus.BadLine{File: d.File, Input: d.Input, Line: d.Line, Item: d.Item, Why: r.why})
	}
}

// talk makes one sequence from a conversation: all of it up to its last answer or, if
// that is too long, up to the last answer that ends within the limit.
func (u *cutter) talk(ctx context.Context, d *corpus.Doc) (*sequence, error) {
	s := &sequence{chat: true}
	msgs := d.Chat.Messages
	var ends []int // number of messages up to and including each answer
	for i := range msgs {
		if msgs[i].Role == chat.Assistant {
			ends = append(ends, i+1)
		}
	}
	if len(ends) == 0 {
		s.drop = dropNoTurn
		return s, nil
	}
	// fits renders the first n messages. Whether they fit does not depend on what
	// follows them, except in templates that treat the last turn differently. For
	// these, the search finds an answer that fits, but not always the last one.
	fits := func(n int) (bool, error) {
		r, err := u.render(ctx, d.Chat, msgs[:n], false)
		switch {
		case err != nil:
			return false, err
		case r.drop != "" && n == ends[len(ends)-1]:
			u.reject(d, s, r)
			return false, nil
		case r.drop != "" || len(r.ids) > u.max:
			return false, nil
		}
		s.tokens, s.answer, s.messages, s.cut = r.ids, r.loss, n, len(msgs)-n
		return true, nil
	}
	ok, err := fits(ends[len(ends)-1])
	if err != nil || s.drop != "" {
		return s, err
	}
	for lo, hi := 0, len(ends)-1; !ok && lo < hi; {
		// The answers before lo fit; hi and those after it do not.
		mid := (lo + hi) / 2
		good, err := fits(ends[mid])
		if err != nil {
			return s, err
		}
		if good {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if s.tokens == nil {
		s.drop = dropLong
		return s, nil
	}
	s.check()
	if s.drop == dropAnswer {
		s.drop = dropNothing
	}
	return s, nil
}

// open makes a sequence from a conversation's first turns, up to the first question.
func (u *cutter) open(ctx context.Context, d *corpus.Doc) (*sequence, error) {
	t := chat.NewDialogue(u.chat, d.Transcript())
	s := &sequence{chat: true, talk: t, whole: d.Transcript().JSON(d.Transcript().Messages)}
	if !t.Ask() {
		s.drop = dropNoTurn
		return s, nil
	}
	r, err := u.render(ctx, t.Transcript(), t.Said(), true)
	switch {
	case err != nil:
		return nil, err
	case r.drop != "":
		u.reject(d, s, r)
	case len(r.ids) >= u.max:
		s.drop = dropPrompt
	}
	s.tokens, s.answer = r.ids, r.loss
	s.messages, s.cut = len(t.Said()), t.Left()
	return s, nil
}

// reply adds the target's answer to s and reports whether another one is needed. The
// whole dialogue is rendered and tokenised again, as it is in a chat.
func (u *cutter) reply(ctx context.Context, s *sequence, answer []int32) (more bool, err error) {
	tok, ok := u.tok.(Decoder)
	if !ok {
		return false, fmt.Errorf("a conversation, but the tokenizer (%T) does not turn ids into text", u.tok)
	}
	t := s.talk
	t.Answer(tok.Decode(answer, true))
	s.messages, s.cut = len(t.Said()), t.Left()
	if !t.Ask() {
		return false, nil
	}
	r, err := u.render(ctx, t.Transcript(), t.Said(), true)
	if err != nil || r.drop != "" || len(r.ids) >= u.max {
		return false, err // the turns so far are a complete conversation
	}
	s.tokens, s.answer = r.ids, r.loss
	s.messages, s.cut = len(t.Said()), t.Left()
	return true, nil
}
