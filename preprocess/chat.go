package preprocess

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"talf/data"
	"talf/model/chat"
	"talf/model/tokenizer"
)

// ErrNoTemplate says that the input has conversations and that nothing renders
// them.
var ErrNoTemplate = errors.New("a conversation, but the model has no chat template")

// An Aligner is a Tokenizer that knows which bytes of the text each of its tokens
// stands for, as tokenizer.Tokenizer does. Conversations need one.
type Aligner interface {
	EncodeOffsets(text string, addSpecial bool) ([]int32, []tokenizer.Span, error)
}

// A Decoder is a Tokenizer that turns ids back into text. Conversations whose
// answers are regenerated need one.
type Decoder interface {
	Decode(ids []int32, skipSpecial bool) string
}

// LossMask tells which tokens of a rendered conversation are trained on: those that
// begin within what the assistant says, the white space before them not counted, so
// that a token that took the space before an answer is the answer's first. Of a
// token of white space alone the last byte decides: where offsets are trimmed, its
// end is all that is left of it.
func LossMask(text string, tokens []tokenizer.Span, answers []chat.Span) []bool {
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

// render returns the tokens of a conversation and which of them the assistant
// says; not of one that is too long. Templates write the special tokens themselves,
// so that nothing is added. why is the reason if the template does not take the
// conversation. messages are those of c.
func (u *cutter) render(ctx context.Context, c *chat.Conversation, messages []data.Message) (ids []int32, loss []bool, why string, err error) {
	tok, ok := u.tok.(Aligner)
	if !ok {
		return nil, nil, "", fmt.Errorf("a conversation, but the tokenizer (%T) does not tell where its tokens are", u.tok)
	}
	r, err := u.chat.Render(ctx, c)
	if err != nil {
		return nil, nil, refusal(err), ctx.Err()
	}
	ids, at, err := tok.EncodeOffsets(r.Text, false)
	if err == nil {
		err = u.known(ids)
	}
	if err != nil || len(ids) > u.max {
		return ids, nil, "", err
	}
	if !r.Marked { // the search for the answers renders them one by one
		if r, err = u.chat.RenderSpans(ctx, c); err != nil {
			return nil, nil, refusal(err), ctx.Err()
		}
	}
	spans, ok := heard(r.Spans, messages)
	if !ok {
		return nil, nil, dropMuted, nil
	}
	return ids, LossMask(r.Text, at, spans), "", nil
}

// heard leaves out the spans of messages that are not to be trained on; ok is false
// if it is not known which these are.
func heard(spans []chat.Span, messages []data.Message) (out []chat.Span, ok bool) {
	var muted []bool
	for i := range messages {
		if messages[i].Role == data.Assistant {
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

// dropTemplate begins the reasons that a template gives. They are texts of its
// maker's: long ones are cut, and a shard keeps few (maxRefusals).
const (
	dropTemplate = "template: "
	dropRefusals = dropTemplate + "other messages"
	dropHidden   = dropTemplate + "where an answer stands in the text was not found, want {% generation %} marks"
	maxRefusals  = 16
	maxRefusal   = 160
)

// refusal is the reason for dropping a conversation that a template refused.
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

// conversation reads what a template is given of messages.
func conversation(c *data.Chat, messages []data.Message) (*chat.Conversation, error) {
	return chat.ParseConversation(c.JSON(messages))
}

// place copies to s where its document is.
func (s *sequence) place(d *data.Doc) {
	s.file, s.line, s.item, s.id, s.input = d.File, d.Line, d.Item, d.ID, d.Input
}

// reject tells of a conversation that was left out.
func (u *cutter) reject(d *data.Doc, s *sequence, drop, why string) {
	s.drop = drop
	if u.bad != nil {
		u.bad(data.BadLine{File: d.File, Input: d.Input, Line: d.Line, Item: d.Item, Why: why})
	}
}

// talk makes one sequence of a conversation: all of it up to its last answer, or,
// where that is too long, up to the last answer that ends within the limit.
func (u *cutter) talk(ctx context.Context, d *data.Doc) (*sequence, error) {
	s := &sequence{chat: true}
	msgs := d.Chat.Messages
	var ends []int // how many messages each answer ends
	for i := range msgs {
		if msgs[i].Role == data.Assistant {
			ends = append(ends, i+1)
		}
	}
	if len(ends) == 0 {
		s.drop = dropNoTurn
		return s, nil
	}
	whole, err := conversation(d.Chat, msgs)
	if err != nil {
		u.reject(d, s, dropBad, err.Error())
		return s, nil
	}
	// fits renders the first n messages. Whether they fit does not depend on what
	// follows them, except in templates that treat the last turn otherwise: then
	// the search ends at an answer that fits, if not always at the last one.
	fits := func(n int) (bool, error) {
		ids, loss, why, err := u.render(ctx, whole.Head(n), msgs[:n])
		if err != nil || why != "" || len(ids) > u.max {
			if why != "" && n == ends[len(ends)-1] {
				u.reject(d, s, why, why)
			}
			return false, err
		}
		s.tokens, s.answer, s.messages, s.cut = ids, loss, n, len(msgs)-n
		return true, nil
	}
	ok, err := fits(ends[len(ends)-1])
	if err != nil || s.drop != "" {
		return s, err
	}
	for lo, hi := 0, len(ends)-1; !ok && lo < hi; {
		// The answers before lo fit, hi and those behind it do not.
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

// A dialogue is a conversation whose answers the target gives anew. What calls
// tools stays as it is, since the results that follow belong to it.
type dialogue struct {
	chat *data.Chat
	said []data.Message
	next []data.Message
}

// ask takes messages that are given into what was said and reports whether an
// answer is wanted then.
func (d *dialogue) ask() bool {
	for {
		last := ""
		if n := len(d.said); n > 0 {
			last = d.said[n-1].Role
		}
		spoken := last != "" && last != "system" && last != "developer" && last != data.Assistant
		if len(d.next) == 0 {
			return spoken
		}
		m := &d.next[0]
		given := m.Role != data.Assistant || m.Calls
		switch {
		case m.Role == "user" && last == "user":
			return true
		case !given && spoken:
			d.next = d.next[1:]
			return true
		case !given && last == data.Assistant: // it goes on with an answer that is no more
		default:
			d.said = append(d.said, *m)
		}
		d.next = d.next[1:]
	}
}

// begin returns the tokens up to where the target begins to answer.
func (u *cutter) begin(ctx context.Context, d *dialogue) (ids []int32, loss []bool, why string, err error) {
	c, err := conversation(d.chat, d.said)
	if err != nil {
		return nil, nil, dropBad, nil
	}
	return u.render(ctx, c.WithGenerationPrompt(true), d.said)
}

// open makes a sequence of a conversation's first turns, to be answered.
func (u *cutter) open(ctx context.Context, d *data.Doc) (*sequence, error) {
	t := &dialogue{chat: d.Chat}
	if d.Chat != nil {
		t.next = d.Chat.Messages
	} else {
		t.chat = &data.Chat{}
		for _, sp := range d.Spans {
			t.next = append(t.next, data.NewMessage("user", sp.Text))
		}
	}
	s := &sequence{chat: true, talk: t}
	if !t.ask() {
		s.drop = dropNoTurn
		return s, nil
	}
	ids, loss, why, err := u.begin(ctx, t)
	switch {
	case err != nil:
		return nil, err
	case why != "":
		u.reject(d, s, why, why)
	case len(ids) >= u.max:
		s.drop = dropPrompt
	}
	s.tokens, s.answer = ids, loss
	s.messages, s.cut = len(t.said), len(t.next)
	return s, nil
}

// reply takes the target's answer into s and reports whether another is wanted.
// What was said is rendered and tokenised anew, as it is when people talk.
func (u *cutter) reply(ctx context.Context, s *sequence, answer []int32) (more bool, err error) {
	tok, ok := u.tok.(Decoder)
	if !ok {
		return false, fmt.Errorf("a conversation, but the tokenizer (%T) does not turn ids into text", u.tok)
	}
	t := s.talk
	t.said = append(t.said, data.NewMessage(data.Assistant, tok.Decode(answer, true)))
	s.messages, s.cut = len(t.said), len(t.next)
	if !t.ask() {
		return false, nil
	}
	ids, loss, why, err := u.begin(ctx, t)
	if err != nil || why != "" || len(ids) >= u.max {
		return false, err // the turns so far are a conversation of their own
	}
	s.tokens, s.answer = ids, loss
	s.messages, s.cut = len(t.said), len(t.next)
	return true, nil
}
