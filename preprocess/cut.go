package preprocess

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"talf/data/corpus"
	"talf/text/chat"
)

// A sequence is one piece of text that is to become a row.
type sequence struct {
	tokens []int32
	answer []bool   // whether the token is trained on
	text   string   // that tokens are of (regeneration without a template)
	turns  []string // questions after tokens, turn by turn (regeneration)
	drop   string   // why it does not become a row; "" if it does

	chat          bool           // it is a conversation
	talk          *chat.Dialogue // dialogue whose answers are regenerated
	whole         []byte         // the conversation that talk began with, as JSON
	messages, cut int            // number of messages in it and after it

	file       string // place of its document
	input      int
	line, item int
	id         string
}

// Reasons for dropping. They are counted in the shards and shown to users.
const (
	dropBad      = "bad line"
	dropShort    = "fewer than 3 tokens"
	dropAnswer   = "no answer token before the length limit"
	dropPrompt   = "prompt leaves no room for an answer"
	dropNoAnswer = "the target gave no answer"
	dropRefused  = "the server refused the prompt"
	dropNoTurn   = "no assistant turn"
	dropLong     = "too long: no assistant turn ends within the length limit"
	dropNothing  = "no token of an answer to learn"
	dropEmpty    = "an answer is empty: it has no text, and no call of a tool that the template writes"
	dropMuted    = "which answers have weight 0 is not known: the template does not write all of them"
)

// A cutter tokenises documents and divides them into sequences.
type cutter struct {
	tok        Tokenizer
	enc        *chat.Encoder
	chat       *chat.Template // nil: none
	bad        func(corpus.BadLine)
	max        int
	eos        int32 // −1: none
	mode       EOSMode
	vocab      int
	regenerate bool
}

func newCutter(r Reader, mode EOSMode, maxLen int, regenerate bool) (*cutter, error) {
	u := &cutter{tok: r.Tokenizer, chat: r.Chat, max: maxLen, eos: r.EOS, mode: mode, vocab: r.Vocab, regenerate: regenerate}
	var err error
	if u.enc, err = chat.NewEncoder(r.Tokenizer); err != nil {
		return nil, fmt.Errorf("preprocess: %w", err)
	}
	if n := len(u.enc.Before()); n >= maxLen {
		return nil, fmt.Errorf("preprocess: sequences of %d tokens, want more than the %d that the tokenizer puts before every text", maxLen, n)
	}
	return u, nil
}

// common returns the length of the longest common prefix.
func common(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// encode is the Encoder's Encode, for tokens that the target has.
func (u *cutter) encode(text string) ([]int32, error) {
	ids, err := u.enc.Encode(text)
	if err != nil {
		return nil, err
	}
	return ids, u.known(ids)
}

// known refuses ids that the target does not have.
func (u *cutter) known(ids []int32) error {
	for _, id := range ids {
		if id < 0 || int(id) >= u.vocab {
			return fmt.Errorf("token %d, want 0..%d: the tokenizer is not the target's", id, u.vocab-1)
		}
	}
	return nil
}

// sequences yields the sequences of the documents, including dropped ones.
func (u *cutter) sequences(ctx context.Context, docs iter.Seq2[corpus.Doc, error]) iter.Seq2[*sequence, error] {
	return func(yield func(*sequence, error) bool) {
		for d, err := range docs {
			if err != nil {
				yield(nil, err)
				return
			}
			all, err := u.pieces(ctx, &d)
			if ctx.Err() != nil {
				err = ctx.Err()
			} else if err != nil {
				err = fmt.Errorf("preprocess: tokenise %s: %w", d.Place(), err)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for _, s := range all {
				s.place(&d)
				if !yield(s, nil) {
					return
				}
			}
		}
	}
}

// pieces returns the sequences of a document: windows of a text, otherwise a single
// sequence.
func (u *cutter) pieces(ctx context.Context, d *corpus.Doc) ([]*sequence, error) {
	var s *sequence
	var err error
	switch {
	case d.Chat != nil && u.chat == nil:
		err = ErrNoTemplate
	case u.regenerate && (d.Chat != nil || d.Asked && u.chat != nil):
		s, err = u.open(ctx, d)
	case d.Chat != nil:
		s, err = u.talk(ctx, d)
	case u.regenerate:
		s, err = u.prompt(d)
	case slices.ContainsFunc(d.Spans, func(s corpus.Span) bool { return s.Answer }):
		s, err = u.answered(d)
	default:
		return u.windows(d)
	}
	return []*sequence{s}, err
}

// prompt keeps only the questions. Answers in the text are dropped.
func (u *cutter) prompt(d *corpus.Doc) (*sequence, error) {
	s := &sequence{}
	for _, p := range d.Spans {
		if !p.Answer {
			s.turns = append(s.turns, p.Text)
		}
	}
	ids, err := u.encode(s.turns[0])
	if err != nil {
		return nil, err
	}
	s.tokens, s.text, s.turns = ids, s.turns[0], s.turns[1:]
	s.answer = make([]bool, len(ids))
	if len(ids) >= u.max {
		s.drop = dropPrompt
	}
	return s, nil
}

// windows divides a text that is trained on as a whole.
func (u *cutter) windows(d *corpus.Doc) ([]*sequence, error) {
	ids, err := u.encode(text(d.Spans, "\n"))
	if err != nil {
		return nil, err
	}
	if u.mode == EOSAlways && u.eos >= 0 {
		ids = append(ids, u.eos)
	}
	n := common(u.enc.Before(), ids)
	head, body := ids[:n], ids[n:]
	var out []*sequence
	for first := true; first || len(body) > 0; first = false {
		k := min(len(body), u.max-len(head))
		s := &sequence{tokens: slices.Concat(head, body[:k])}
		s.answer = make([]bool, len(s.tokens))
		for i := range s.answer {
			s.answer[i] = true
		}
		if len(s.tokens) < minLen {
			s.drop = dropShort
		}
		out = append(out, s)
		body = body[k:]
	}
	return out, nil
}

func text(spans []corpus.Span, sep string) string {
	var b strings.Builder
	for i, s := range spans {
		if i > 0 {
			b.WriteString(sep)
		}
		b.WriteString(s.Text)
	}
	return b.String()
}

// answered marks the tokens of the answer, which is the last span. The text is tokenised
// as a whole, as it is for decoding.
func (u *cutter) answered(d *corpus.Doc) (*sequence, error) {
	ids, err := u.encode(text(d.Spans, ""))
	if err != nil {
		return nil, err
	}
	from, err := u.begins(d.Spans, ids)
	if err != nil {
		return nil, err
	}
	s := &sequence{tokens: ids, answer: make([]bool, len(ids))}
	for i := from; i < len(ids); i++ {
		s.answer[i] = true
	}
	if u.mode != EOSNever && u.eos >= 0 {
		s.tokens, s.answer = append(s.tokens, u.eos), append(s.answer, true)
	}
	if len(s.tokens) > u.max {
		s.tokens, s.answer = s.tokens[:u.max], s.answer[:u.max]
	}
	s.check()
	return s, nil
}

// lookBack is the largest number of texts that begins tokenises, so that a conversation
// of many turns takes time in proportion to its length.
const lookBack = 64

// begins returns the first token of the last span: where ids, the tokens of the whole
// text, diverge from those of the text before the span. Where a token of ids lies across
// that border, the text before may diverge early, and an earlier span's may agree with
// more of ids. The most that agree are before the last span.
func (u *cutter) begins(spans []corpus.Span, ids []int32) (int, error) {
	from, last := 0, len(spans)-1
	for i := last; i > max(0, last-lookBack); i-- {
		before, err := u.encode(text(spans[:i], ""))
		if err != nil {
			return 0, err
		}
		n := common(before, ids)
		from = max(from, n)
		if n == len(before) {
			break // shorter texts cannot agree with more
		}
	}
	return from, nil
}

// check drops a sequence without a token to train on.
func (s *sequence) check() {
	switch {
	case len(s.tokens) < minLen:
		s.drop = dropShort
	case !slices.Contains(s.answer[2:], true): // the head predicts from the third token on
		s.drop = dropAnswer
	}
}
