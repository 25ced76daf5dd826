package tokenizer

import (
	"fmt"
	"path/filepath"
	"strings"

	sugar "github.com/sugarme/tokenizer"
	sugardec "github.com/sugarme/tokenizer/decoder"
	sugarnorm "github.com/sugarme/tokenizer/normalizer"

	"talf/internal/durable"
)

// The parts of a Tokenizer implement sugarme/tokenizer's interfaces.
var (
	_ sugar.Model          = (*Model)(nil)
	_ sugar.PreTokenizer   = (*Splitter)(nil)
	_ sugar.PostProcessor  = (*Template)(nil)
	_ sugar.Decoder        = (*Decoder)(nil)
	_ sugarnorm.Normalizer = (*Normalizer)(nil)
)

// Sugarme returns the tokenizer as sugarme/tokenizer's own type, for code written for
// that package and for its Encoding with offsets, masks and word numbers. The pipeline
// is sugarme's; the parts are this package's. Its ids are those of Encode. It is much
// slower than Encode, because it keeps alignments for every byte. In decoding it knows
// no special tokens (its skipSpecialTokens does nothing), because the Splitter finds
// them: sugarme's own search for added tokens differs from the reference.
func (t *Tokenizer) Sugarme() *sugar.Tokenizer {
	s := sugar.NewTokenizer(&Model{t})
	s.WithPreTokenizer(&Splitter{t})
	s.WithPostProcessor(&Template{t})
	s.WithDecoder(newDecoder(t))
	return s
}

// Model is the tokenizer's byte-pair encoding as a sugarme Model. It takes the
// Splitter's pieces; byte-level vocabularies take raw bytes.
type Model struct{ t *Tokenizer }

// Tokenize encodes one piece.
func (m *Model) Tokenize(piece string) ([]sugar.Token, error) {
	sc := m.t.scratch.get()
	defer m.t.scratch.put(sc)
	ids := m.t.model.encode(nil, piece, sc)
	out := make([]sugar.Token, len(ids))
	at := 0
	for i, w := range m.t.model.widths(nil, ids, piece, sc) {
		out[i] = sugar.NewToken(int(ids[i]), m.t.tokens.At(ids[i]), []int{at, at + w})
		at += w
	}
	return out, nil
}

// TokenToId returns the id of a token, including added tokens.
func (m *Model) TokenToId(token string) (int, bool) {
	id, ok := m.t.TokenID(token)
	return int(id), ok
}

// IdToToken returns the token of an id, including added tokens.
func (m *Model) IdToToken(id int) (string, bool) {
	if id < 0 || id >= m.t.tokens.Len() || !m.t.Known(int32(id)) {
		return "", false
	}
	return m.t.tokens.At(int32(id)), true
}

// GetVocab returns a copy of the vocabulary, including added tokens.
func (m *Model) GetVocab() map[string]int {
	v := make(map[string]int, m.t.tokens.Len())
	for id, tok := range m.t.tokens.List() {
		if m.t.Known(int32(id)) {
			v[tok] = id
		}
	}
	return v
}

// GetVocabSize counts the tokens, including added tokens.
func (m *Model) GetVocabSize() int {
	n := 0
	for id := range m.t.tokens.Len() {
		if m.t.Known(int32(id)) {
			n++
		}
	}
	return n
}

// Save copies the file that the tokenizer was loaded from to the folder path.
func (m *Model) Save(path string, prefix ...string) error {
	name := m.t.file
	if len(prefix) > 0 && prefix[0] != "" {
		name = prefix[0] + "-" + name
	}
	text, err := m.t.written()
	if err == nil {
		err = durable.WriteFile(filepath.Join(path, name), text)
	}
	if err != nil {
		return fmt.Errorf("save tokenizer: %w", err)
	}
	return nil
}

// Normalizer is the tokenizer's normalizer as a sugarme Normalizer.
type Normalizer struct{ t *Tokenizer }

// Normalizer returns the tokenizer's normalizer.
func (t *Tokenizer) Normalizer() *Normalizer { return &Normalizer{t} }

// Normalize rewrites the text. If that changes it, offsets cover all of it.
func (n *Normalizer) Normalize(in *sugarnorm.NormalizedString) (*sugarnorm.NormalizedString, error) {
	s := in.GetNormalized()
	out, err := n.t.normalize(s, encodeMeter(len(s)))
	if err != nil || out == s {
		return in, err
	}
	return covering(in.GetOriginal(), out, in.Shift()), nil
}

// covering returns a normalized string each of whose bytes stands for the whole
// original.
func covering(original, normalized string, shift int) *sugarnorm.NormalizedString {
	all := func(n, to int) [][]int {
		a := make([][]int, n)
		for i := range a {
			a[i] = []int{0, to}
		}
		return a
	}
	return sugarnorm.NewNormalizedString(original, normalized,
		all(len(normalized), len(original)), all(len(original), len(normalized)), shift)
}

// Splitter is everything before the model, as a sugarme PreTokenizer: it encodes added
// tokens, then normalizes and splits the rest.
type Splitter struct{ t *Tokenizer }

// PreTokenize splits the text.
func (sp *Splitter) PreTokenize(in *sugar.PreTokenizedString) (*sugar.PreTokenizedString, error) {
	var failed error
	out := in.Split(func(_ int, ns *sugarnorm.NormalizedString) []sugar.SplitIdx {
		text := ns.GetNormalized()
		m := encodeMeter(len(text))
		var split []sugar.SplitIdx
		token := func(n *sugarnorm.NormalizedString, id int32) {
			s := n.GetNormalized()
			split = append(split, sugar.SplitIdx{Normalized: n, Tokens: []sugar.Token{
				sugar.NewToken(int(id), sp.t.tokens.At(id), []int{0, len(s)}),
			}})
		}
		part := func(start, end int) *sugarnorm.NormalizedString {
			return ns.Slice(sugarnorm.NewRange(start, end, sugarnorm.NormalizedTarget))
		}
		for _, seg := range sp.t.raw.segments(nil, text, nil) {
			if seg.id >= 0 {
				token(part(seg.start, seg.end), seg.id)
				continue
			}
			plain := text[seg.start:seg.end]
			s, err := sp.t.normalize(plain, m)
			if err != nil {
				failed = err
				return nil
			}
			for _, sub := range sp.t.normalized.segments(nil, s, nil) {
				same := s == plain
				cut := func(p string, at int) *sugarnorm.NormalizedString {
					if same && at >= 0 {
						return part(seg.start+at, seg.start+at+len(p))
					}
					return covering(plain, p, seg.start)
				}
				if sub.id >= 0 {
					token(cut(s[sub.start:sub.end], sub.start), sub.id)
					continue
				}
				pieces, err := sp.t.pieces(nil, piece{s[sub.start:sub.end], seg.start == 0 && sub.start == 0}, m)
				if err != nil {
					failed = err
					return nil
				}
				at := sub.start
				for _, p := range pieces {
					where := -1
					if same && strings.HasPrefix(s[min(at, len(s)):], p.s) {
						where = at
						at += len(p.s)
					} else {
						same = false // a step added or removed text: offsets are lost
					}
					split = append(split, sugar.SplitIdx{Normalized: cut(p.s, where)})
				}
			}
		}
		return split
	})
	if failed != nil {
		return nil, failed
	}
	return out, nil
}

// Template is the post-processor, which puts special tokens around a text.
type Template struct{ t *Tokenizer }

// AddedTokens returns the number of special tokens around one text. Pairs are not
// supported.
func (p *Template) AddedTokens(bool) int { return len(p.t.pre) + len(p.t.post) }

// Process adds the special tokens to an encoding; a pair is appended as it is.
func (p *Template) Process(e, pair *sugar.Encoding, addSpecial bool) *sugar.Encoding {
	if addSpecial {
		if len(p.t.pre) > 0 {
			e = p.special(p.t.pre).MergeWith(e, false)
		}
		if len(p.t.post) > 0 {
			e = e.MergeWith(p.special(p.t.post), false)
		}
	}
	return sugar.DefaultProcess(e, pair, addSpecial)
}

func (p *Template) special(ids []int32) *sugar.Encoding {
	n := len(ids)
	e := sugar.NewEncoding(make([]int, n), make([]int, n), make([]string, n), make([][]int, n), make([]int, n), make([]int, n), nil)
	e.Words = make([]int, n)
	for i, id := range ids {
		e.Ids[i], e.Tokens[i], e.Offsets[i] = int(id), p.t.tokens.At(id), []int{0, 0}
		e.SpecialTokenMask[i], e.AttentionMask[i], e.Words[i] = 1, 1, -1
	}
	return e
}

// Decoder joins tokens to text, as a sugarme Decoder.
type Decoder struct {
	*sugardec.DecoderBase
	t *Tokenizer
}

func newDecoder(t *Tokenizer) *Decoder {
	d := &Decoder{t: t}
	d.DecoderBase = &sugardec.DecoderBase{Decoder: d}
	return d
}

// DecodeChain returns the text of tokens as one string. Tokens that are not in
// the vocabulary have no text.
func (d *Decoder) DecodeChain(tokens []string) []string {
	ids := make([]int32, 0, len(tokens))
	for _, tok := range tokens {
		if id, ok := d.t.TokenID(tok); ok {
			ids = append(ids, id)
		}
	}
	return []string{d.t.Decode(ids, false)}
}
