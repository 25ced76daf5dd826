package tokenizer

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	sugar "github.com/sugarme/tokenizer"
	"google.golang.org/protobuf/encoding/protowire"

	"talf/internal/texts"
	"talf/model/gguf"
)

// Kinds of pieces in a SentencePiece model (sentencepiece_model.proto).
const (
	pieceNormal  = 1
	pieceUnknown = 2
	pieceControl = 3
	pieceUser    = 4 // found in a text before anything is merged
	pieceUnused  = 5
	pieceByte    = 6
)

const (
	spaceMark = "\u2581" // stands for a space in SentencePiece vocabularies
	maxPiece  = 1 << 10  // bytes
)

type spmPiece struct {
	text  string
	score float32
	kind  uint64
}

// spmModel has the fields of sentencepiece_model.proto's ModelProto that are used here.
type spmModel struct {
	pieces        []spmPiece
	model         uint64 // 1 unigram, 2 BPE
	byteFallback  bool
	suffix        bool // treat_whitespace_as_suffix
	bos, eos, pad int32
	charsmap      bool // normalization rules other than identity
	prefix        bool // add_dummy_prefix
	squeeze       bool // remove_extra_whitespaces
	escape        bool // escape_whitespaces
	denormalizer  bool

	// The texts of pieces, which differ from each other; nil: they are still to be made.
	tokens *texts.Packed
	index  *texts.Index
}

// ParseSentencePiece reads the bytes of a SentencePiece tokenizer.model of type BPE
// without normalization rules, the kind that Llama 2 has. As transformers does with
// such a file, it puts the beginning-of-sequence token before a text and finds control
// tokens inside it. It retains b.
func ParseSentencePiece(b []byte) (*Tokenizer, error) {
	sp, err := readSPM(b)
	if err != nil {
		return nil, fmt.Errorf("SentencePiece model: %w", err)
	}
	t, err := sp.tokenizer()
	if err != nil {
		return nil, fmt.Errorf("SentencePiece model: %w", err)
	}
	t.text(b)
	return t, nil
}

// givenPieces returns the tokenizer of the pieces of a GGUF file.
func givenPieces(v *gguf.Vocabulary) (*Tokenizer, error) {
	p := v.Pieces
	sp := &spmModel{
		model: 2, byteFallback: p.Bytes, prefix: p.Prefix, escape: true, bos: int32(p.BOS), eos: int32(p.EOS), pad: int32(p.Pad),
		pieces: make([]spmPiece, len(p.Scores)), tokens: v.Tokens, index: &v.Index,
	}
	for id := range sp.pieces {
		sp.pieces[id] = spmPiece{v.Tokens.At(int32(id)), p.Scores[id], uint64(p.Kinds[id])}
	}
	t, err := sp.tokenizer()
	if err != nil {
		return nil, fmt.Errorf("SentencePiece model: %w", err)
	}
	return t, nil
}

// A Piece is a token of a SentencePiece model. Kinds are those of sentencepiece_model.proto.
type Piece struct {
	Text  string
	Score float32
	Kind  int
}

// Pieces returns the tokens of a file that ParseSentencePiece reads, by id, and whether a ▁ goes before a text.
func Pieces(b []byte) (all []Piece, prefix bool, err error) {
	sp, err := readSPM(b)
	if err == nil {
		_, err = sp.tokenizer()
	}
	if err != nil {
		return nil, false, fmt.Errorf("SentencePiece model: %w", err)
	}
	for _, p := range sp.pieces {
		all = append(all, Piece{p.text, p.score, int(p.kind)})
	}
	return all, sp.prefix, nil
}

// message calls f for every field of a protobuf message.
func message(b []byte, f func(num protowire.Number, typ protowire.Type, v uint64, raw []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		var v uint64
		var raw []byte
		switch typ {
		case protowire.VarintType:
			v, n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var w uint32
			w, n = protowire.ConsumeFixed32(b)
			v = uint64(w)
		case protowire.BytesType:
			raw, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if err := f(num, typ, v, raw); err != nil {
			return err
		}
	}
	return nil
}

func readSPM(b []byte) (*spmModel, error) {
	// Defaults of the proto file.
	m := &spmModel{model: 1, bos: 1, eos: 2, pad: -1, prefix: true, squeeze: true, escape: true}
	err := message(b, func(num protowire.Number, typ protowire.Type, _ uint64, raw []byte) error {
		if typ != protowire.BytesType {
			return nil
		}
		switch num {
		case 1:
			p := spmPiece{kind: pieceNormal}
			err := message(raw, func(num protowire.Number, typ protowire.Type, v uint64, raw []byte) error {
				switch {
				case num == 1 && typ == protowire.BytesType:
					p.text = string(raw)
				case num == 2 && typ == protowire.Fixed32Type:
					p.score = math.Float32frombits(uint32(v))
				case num == 3 && typ == protowire.VarintType:
					p.kind = v
				}
				return nil
			})
			m.pieces = append(m.pieces, p)
			return err
		case 2:
			return message(raw, func(num protowire.Number, typ protowire.Type, v uint64, _ []byte) error {
				if typ != protowire.VarintType {
					return nil
				}
				switch num {
				case 3:
					m.model = v
				case 24:
					m.suffix = v != 0
				case 35:
					m.byteFallback = v != 0
				case 41:
					m.bos = int32(v)
				case 42:
					m.eos = int32(v)
				case 43:
					m.pad = int32(v)
				}
				return nil
			})
		case 3, 5:
			return message(raw, func(f protowire.Number, typ protowire.Type, v uint64, raw []byte) error {
				switch {
				case f == 2 && typ == protowire.BytesType && len(raw) > 0:
					if num == 5 {
						m.denormalizer = true
					} else {
						m.charsmap = true
					}
				case num == 5 || typ != protowire.VarintType:
				case f == 3:
					m.prefix = v != 0
				case f == 4:
					m.squeeze = v != 0
				case f == 5:
					m.escape = v != 0
				}
				return nil
			})
		}
		return nil
	})
	return m, err
}

func (sp *spmModel) tokenizer() (*Tokenizer, error) {
	if err := sp.supported(); err != nil {
		return nil, err
	}
	n := len(sp.pieces)
	m := &bpe{byteFallback: sp.byteFallback, fuseUnk: true, unk: -1}
	t := &Tokenizer{file: "tokenizer.model", model: m, bos: -1, eos: -1, pad: -1, added: map[string]int32{}}
	if err := sp.sort(t, m); err != nil {
		return nil, err
	}
	// A character alone may be an unknown or a control piece: text must not become it.
	m.known = make([]bool, n)
	for i, p := range sp.pieces {
		m.known[i] = p.kind != pieceUnknown && p.kind != pieceControl
	}
	sp.merge(m)

	t.tokens, t.known = m.tokens, slices.Repeat([]bool{true}, n)
	t.special = make([]bool, n)
	for _, tok := range t.order {
		t.special[tok.id] = tok.special
		if err := t.raw.add(tok.Content, tok); err != nil {
			return nil, err
		}
		if !tok.special {
			continue
		}
		if err := t.control.add(tok.Content, tok); err != nil {
			return nil, err
		}
	}
	if sp.prefix {
		t.norms = append(t.norms, placed[normalizer]{prependNorm(spaceMark), "normalizer_spec"})
	}
	t.norms = append(t.norms, placed[normalizer]{literalNorm{" ", spaceMark}, "normalizer_spec"})
	t.mark = newMarkNorm(t.norms)
	for _, id := range []struct {
		from int32
		to   *int32
	}{{sp.bos, &t.bos}, {sp.eos, &t.eos}, {sp.pad, &t.pad}} {
		if id.from >= 0 && int(id.from) < n {
			*id.to = id.from
		}
	}
	if t.bos >= 0 {
		t.pre = []int32{t.bos}
	}
	sp.decode(&t.dec)
	return t, nil
}

// supported reports what a model has that is not supported.
func (sp *spmModel) supported() error {
	for _, no := range []struct {
		bad  bool
		what string
	}{
		{sp.model != 2, fmt.Sprintf("trainer_spec.model_type %d", sp.model)},
		{sp.suffix, "trainer_spec.treat_whitespace_as_suffix"},
		{sp.charsmap, "normalizer_spec.precompiled_charsmap"},
		{sp.squeeze, "normalizer_spec.remove_extra_whitespaces"},
		{!sp.escape, "normalizer_spec without escape_whitespaces"},
		{sp.denormalizer, "denormalizer_spec"},
		{len(sp.pieces) >= maxID, fmt.Sprintf("a vocabulary of %d pieces", len(sp.pieces))},
	} {
		if no.bad {
			return fmt.Errorf("%s is not supported", no.what)
		}
	}
	return nil
}

// sort checks the pieces. Their texts, and the unknown, control and user's pieces, go to t and m.
func (sp *spmModel) sort(t *Tokenizer, m *bpe) error {
	twice := map[int32]int32{} // pieces whose texts others before them have
	if sp.tokens == nil {
		list := make([]string, len(sp.pieces))
		for i, p := range sp.pieces {
			list[i] = p.text
		}
		sp.tokens = texts.Pack(list)
		index := texts.NewIndex(sp.tokens, nil, func(id, before int32) { twice[id] = before })
		sp.index = &index
	}
	m.tokens, m.vocab = sp.tokens, *sp.index
	for i, p := range sp.pieces {
		id := int32(i)
		if p.text == "" || len(p.text) > maxPiece || !utf8.ValidString(p.text) {
			return fmt.Errorf("piece %d: expected 1 to %d bytes of UTF-8", i, maxPiece)
		}
		if j, ok := twice[id]; ok {
			return fmt.Errorf("pieces %d and %d are both %q", j, i, p.text)
		}
		switch p.kind {
		case pieceNormal:
			if math.IsNaN(float64(p.score)) {
				return fmt.Errorf("piece %d %q: its score is not a number", i, p.text)
			}
		case pieceUnused: // nothing merges to it
		case pieceUnknown, pieceControl, pieceUser:
			if p.kind == pieceUnknown {
				if m.unk >= 0 {
					return fmt.Errorf("pieces %d and %d are both unknown pieces", m.unk, i)
				}
				m.unk = id
			}
			tok := addedToken{AddedToken: sugar.NewAddedToken(p.text, true), id: id, special: p.kind != pieceUser}
			t.order = append(t.order, tok)
			t.added[p.text] = id
		case pieceByte:
			if fallbackByte(p.text) < 0 {
				return fmt.Errorf("piece %d %q is not a byte", i, p.text)
			}
		default:
			return fmt.Errorf("piece %d %q: piece type %d is not supported", i, p.text, p.kind)
		}
	}
	if m.unk < 0 {
		return errors.New("no unknown piece")
	}
	if sp.byteFallback {
		for b := range 256 {
			if _, ok := m.vocab.Find(fmt.Sprintf("<0x%02X>", b)); !ok {
				return fmt.Errorf("trainer_spec.byte_fallback without a piece for byte 0x%02X", b)
			}
		}
	}
	return nil
}

// merge gives m the merges: two symbols merge if their joint text is a normal piece. The best score comes first, then the
// leftmost. So the rank of a merge is the rank of its score.
func (sp *spmModel) merge(m *bpe) {
	order := make([]int32, 0, len(sp.pieces)) // normal pieces, the best first
	for i, p := range sp.pieces {
		if p.kind == pieceNormal {
			order = append(order, int32(i))
		}
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Compare(sp.pieces[b].score, sp.pieces[a].score) })
	rank := slices.Repeat([]uint32{noRank}, len(sp.pieces))
	for i, id := range order {
		if i > 0 && sp.pieces[id].score < sp.pieces[order[i-1]].score {
			m.ranks++
		}
		rank[id] = m.ranks
	}
	m.ranks++
	m.merges.rank, m.merges.make = rank, m.tabulate
	m.finish(false)
	const mark = '\u2581'
	m.findCut(mark, func(yield func(left, right string) bool) {
		for id := range rank {
			s := m.tokens.At(int32(id))
			for i := strings.Index(s, spaceMark); i >= 0 && rank[id] != noRank; i = after(s, i, spaceMark) {
				if i > 0 && m.joins(s[:i], s[i:]) && !yield(s[:i], s[i:]) {
					return
				}
			}
		}
	})
}

// after returns where the next sub is in s behind i, −1 if there is none.
func after(s string, i int, sub string) int {
	n := strings.Index(s[i+1:], sub)
	if n < 0 {
		return n
	}
	return i + 1 + n
}

// joins reports whether there is a merge of two texts, given that one would make a token.
func (m *bpe) joins(left, right string) bool {
	l, okL := m.vocab.Find(left)
	r, okR := m.vocab.Find(right)
	return okL && okR && m.merges.rank[l] != noRank && m.merges.rank[r] != noRank
}

// tabulate returns all merges that make tokens with ranks.
func (m *bpe) tabulate() *mergeTable {
	rank := m.merges.rank
	var all [][3]int32
	for id := range int32(len(rank)) {
		if rank[id] == noRank {
			continue
		}
		s := m.tokens.At(id)
		for i := range s {
			if l, ok := m.vocab.Find(s[:i]); i > 0 && ok && rank[l] != noRank {
				if r, ok := m.vocab.Find(s[i:]); ok && rank[r] != noRank {
					all = append(all, [3]int32{l, r, id})
				}
			}
		}
	}
	t := newMergeTable(len(all))
	for _, x := range all {
		t.put(x[0], x[1], rank[x[2]], x[2])
	}
	return t
}

// decode gives d the texts of tokens.
func (sp *spmModel) decode(d *decoding) {
	d.fallback = make([]int16, len(sp.pieces))
	d.text = sp.tokens.Map(func(dst []byte, id int32, tok string) []byte {
		d.fallback[id] = -1
		if sp.pieces[id].kind == pieceByte {
			d.fallback[id] = fallbackByte(tok)
		}
		for {
			before, behind, found := strings.Cut(tok, spaceMark)
			if dst = append(dst, before...); !found {
				return dst
			}
			dst, tok = append(dst, ' '), behind
		}
	})
	if sp.prefix {
		d.strip, d.stripN = ' ', 1
	}
}
