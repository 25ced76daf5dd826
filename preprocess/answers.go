package preprocess

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"talf/data/corpus"
	"talf/text/chat"
)

// An Answerer has prompts answered in text, by something else than Inputs.Target: a server
// that runs the same model.
type Answerer interface {
	// Answer is called from several goroutines. An answer depends only on its own question.
	// An error that wraps ErrRefused leaves the prompt out; any other ends the run.
	Answer(ctx context.Context, q *Question) (Answer, error)
}

// ErrRefused says that a question will not be answered however often it is asked.
var ErrRefused = errors.New("the prompt is refused")

// A Question is a conversation whose next message is asked for, or a text to continue.
type Question struct {
	// Conversation is {"messages":[…]} with the other input of the chat template, in the
	// form of OpenAI's API: arguments of tool calls are texts. It is nil if Text is to be
	// continued.
	Conversation []byte
	Text         string
	Max          int    // maximum number of new tokens
	Seed         uint64 // the only source of the answer's randomness
	Place        string // of the document, for errors
}

// An Answer is what follows a Question.
type Answer struct {
	Text string
	// Reasoning is what was thought before the answer of a conversation, where that is
	// separate.
	Reasoning string
	Cut       bool // it has no end: it was as long as allowed
}

// ask has w answered, in a goroutine of its own. At most Config.Prompts are at a time.
func (p *pipeline) ask(ctx context.Context, slots chan struct{}, w *work) {
	defer close(w.answered)
	if !give(ctx, slots, struct{}{}) {
		return
	}
	defer func() { <-slots }()
	if w.talk != nil {
		w.failed = p.converse(ctx, w)
	} else {
		w.failed = p.extend(ctx, w)
	}
}

// put asks one question of w. ok is false if it is refused, which drops w unless it has
// answers already.
func (p *pipeline) put(ctx context.Context, w *work, q Question, turn int) (a Answer, ok bool, err error) {
	q.Seed = mix(p.c.Seed, uint64(w.unit)<<16|uint64(turn))
	q.Place = (&corpus.Doc{File: w.file, Line: w.line, Item: w.item}).Place()
	a, err = p.in.Answerer.Answer(ctx, &q)
	if errors.Is(err, ErrRefused) && ctx.Err() == nil {
		if turn == 0 {
			w.drop, w.why = dropRefused, err.Error()
		}
		return a, false, nil
	}
	return a, err == nil, err
}

// converse has the turns of a conversation answered, and makes w's sequence as talk does of
// a conversation that has these answers.
func (p *pipeline) converse(ctx context.Context, w *work) error {
	t, u := w.talk, *p.cut
	u.bad = nil // for the reader alone
	for turn := 0; ; turn++ {
		asked := t.Transcript().JSON(chat.TextArguments(t.Said()))
		a, ok, err := p.put(ctx, w, Question{Conversation: asked, Max: p.maxLen - len(w.tokens)}, turn)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		p.answered(w.sequence, !a.Cut && strings.TrimSpace(a.Text+a.Reasoning) == "")
		if a.Cut && a.Reasoning == "" {
			return u.breaks(w.sequence, a.Text)
		}
		if a.Cut {
			break // within its thoughts, perhaps: where a template would write them is unknown
		}
		t.AnswerMessage(chat.NewAnswer(a.Text, a.Reasoning))
		w.messages, w.cut = len(t.Said()), t.Left()
		if !t.Ask() {
			break
		}
		r, err := u.render(ctx, t.Transcript(), t.Said(), true)
		if err != nil {
			return err
		}
		if r.drop != "" || len(r.ids) >= u.max {
			break // the turns so far are a complete conversation
		}
		w.tokens, w.answer = r.ids, r.loss
	}
	if w.drop != "" {
		return nil
	}
	c := *t.Transcript()
	c.Messages = t.Said()[:w.messages]
	s, err := u.talk(ctx, &corpus.Doc{Chat: &c})
	if err != nil {
		return err
	}
	if w.drop = s.drop; w.drop == dropNoTurn || w.drop == dropNothing || w.drop == dropEmpty {
		w.drop = dropNoAnswer
	}
	w.tokens, w.answer = s.tokens, s.answer
	w.messages, w.cut = s.messages, w.messages-s.messages+w.cut
	return nil
}

// breaks adds an answer without an end to the prompt that s is.
func (u *cutter) breaks(s *sequence, answer string) error {
	tok, ok := u.tok.(Aligner)
	if !ok {
		return fmt.Errorf("a conversation, but the tokenizer (%T) does not tell where its tokens are", u.tok)
	}
	literal, err := tok.Controls(answer)
	if err != nil {
		return err
	}
	ids, _, err := tok.EncodeLiteralOffsets(answer, literal, false)
	if err == nil {
		err = u.known(ids)
	}
	if err != nil {
		return err
	}
	ids = ids[:min(len(ids), u.max-len(s.tokens))]
	s.tokens = slices.Concat(s.tokens, ids)
	s.answer = append(slices.Clip(s.answer), slices.Repeat([]bool{true}, len(ids))...)
	s.talk.Answer(answer)
	s.messages, s.cut = len(s.talk.Said()), s.talk.Left()
	return nil
}

// extend has a text and the questions after it answered, as lines of one text. The text is
// tokenised as a whole after every answer and question.
func (p *pipeline) extend(ctx context.Context, w *work) error {
	u := p.cut
	spans := []corpus.Span{{Text: w.text}}
	add := func(piece string, answer bool) error {
		spans = append(spans, corpus.Span{Text: piece, Answer: answer})
		ids, err := u.encode(text(spans, ""))
		if err != nil {
			return err
		}
		from, err := u.begins(spans, ids)
		if err != nil {
			return err
		}
		mask := make([]bool, len(ids))
		copy(mask, w.answer[:min(from, len(w.answer))])
		for i := from; i < len(ids); i++ {
			mask[i] = answer
		}
		w.tokens, w.answer = ids, mask
		return nil
	}
	var tokens []int32 // of the turns that are answered, with an end
	var learnt []bool
	for turn := 0; ; turn++ {
		a, ok, err := p.put(ctx, w, Question{Text: text(spans, ""), Max: u.max - len(w.tokens)}, turn)
		switch {
		case err != nil || w.drop != "":
			return err
		case !ok:
			w.tokens, w.answer = tokens, learnt // the turns before are a complete text
			return nil
		}
		p.answered(w.sequence, !a.Cut && strings.TrimSpace(a.Text) == "")
		if err := add(a.Text, true); err != nil {
			return err
		}
		tokens, learnt = slices.Clone(w.tokens), slices.Clone(w.answer)
		if !a.Cut && u.eos >= 0 {
			tokens, learnt = append(tokens, u.eos), append(learnt, true)
		}
		tokens, learnt = tokens[:min(len(tokens), u.max)], learnt[:min(len(learnt), u.max)]
		if !a.Cut && len(w.tokens) < u.max && len(w.turns) > 0 {
			if err := add("\n"+w.turns[0], false); err != nil {
				return err
			}
			if w.turns = w.turns[1:]; len(w.tokens) < u.max {
				continue
			}
		}
		w.tokens, w.answer = tokens, learnt
		return nil
	}
}

// await waits for the answers of a job, if there is an Answerer.
func (k *worker) await(ctx context.Context, batch []*work) error {
	if k.p.in.Answerer == nil {
		return nil
	}
	for _, w := range batch {
		<-w.answered // at the end of ctx too
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case w.failed != nil:
			return fmt.Errorf("preprocess: regenerate: %w", w.failed)
		}
		if w.drop != "" {
			continue
		}
		w.check()
		if w.drop == dropAnswer {
			w.drop = dropNoAnswer
		}
	}
	return nil
}
