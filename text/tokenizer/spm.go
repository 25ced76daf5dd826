package tokenizer

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	sugar "github.com/sugarme/tokenizer"
	"google.golang.org/protobuf/encoding/protowire"
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
	t.file, t.hash, t.source = "tokenizer.model", sha256.Sum256(b), func() ([]byte, error) { return b, nil }
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
	t := &Tokenizer{model: m, bos: -1, eos: -1, pad: -1, added: map[string]int32{}}
	tokens, normal, err := sp.sort(t, m)
	if err != nil {
		return nil, err
	}
	// A character alone may be an unknown or a control piece: text must not become it.
	found := make([]bool, n)
	for i, p := range sp.pieces {
		found[i] = p.kind != pieceUnknown && p.kind != pieceControl
	}
	m.setVocab(tokens, found)
	sp.merge(m, normal)

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
	sp.decode(&t.dec, tokens)
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

// sort checks the pieces. The unknown, control and user's pieces go to t and m; the texts of all, and the ids of normal
// ones by their texts, are returned.
func (sp *spmModel) sort(t *Tokenizer, m *bpe) (tokens []string, normal map[string]int32, err error) {
	n := len(sp.pieces)
	vocab := make(map[string]int32, n)
	tokens, normal = make([]string, n), make(map[string]int32, n)
	for i, p := range sp.pieces {
		id := int32(i)
		if p.text == "" || len(p.text) > maxPiece || !utf8.ValidString(p.text) {
			return nil, nil, fmt.Errorf("piece %d: expected 1 to %d bytes of UTF-8", i, maxPiece)
		}
		if j, ok := vocab[p.text]; ok {
			return nil, nil, fmt.Errorf("pieces %d and %d are both %q", j, i, p.text)
		}
		vocab[p.text], tokens[i] = id, p.text
		switch p.kind {
		case pieceNormal:
			if math.IsNaN(float64(p.score)) {
				return nil, nil, fmt.Errorf("piece %d %q: its score is not a number", i, p.text)
			}
			normal[p.text] = id
		case pieceUnused: // nothing merges to it
		case pieceUnknown, pieceControl, pieceUser:
			if p.kind == pieceUnknown {
				if m.unk >= 0 {
					return nil, nil, fmt.Errorf("pieces %d and %d are both unknown pieces", m.unk, i)
				}
				m.unk = id
			}
			tok := addedToken{AddedToken: sugar.NewAddedToken(p.text, true), id: id, special: p.kind != pieceUser}
			t.order = append(t.order, tok)
			t.added[p.text] = id
		case pieceByte:
			if fallbackByte(p.text) < 0 {
				return nil, nil, fmt.Errorf("piece %d %q is not a byte", i, p.text)
			}
		default:
			return nil, nil, fmt.Errorf("piece %d %q: piece type %d is not supported", i, p.text, p.kind)
		}
	}
	if m.unk < 0 {
		return nil, nil, errors.New("no unknown piece")
	}
	if sp.byteFallback {
		for b := range 256 {
			if _, ok := vocab[fmt.Sprintf("<0x%02X>", b)]; !ok {
				return nil, nil, fmt.Errorf("trainer_spec.byte_fallback without a piece for byte 0x%02X", b)
			}
		}
	}
	return tokens, normal, nil
}

// merge gives m the merges: two symbols merge if their joint text is a normal piece. The best score comes first, then the
// leftmost. So the rank of a merge is the rank of its score.
func (sp *spmModel) merge(m *bpe, normal map[string]int32) {
	var scores []float32
	for _, p := range sp.pieces {
		if p.kind == pieceNormal {
			scores = append(scores, p.score)
		}
	}
	slices.SortFunc(scores, func(a, b float32) int { return cmp.Compare(b, a) })
	scores = slices.Compact(scores)
	var pairs [][2]string
	var ranks []uint32
	var ids []int32
	for _, p := range sp.pieces {
		if p.kind != pieceNormal {
			continue
		}
		rank, _ := slices.BinarySearchFunc(scores, p.score, func(a, b float32) int { return cmp.Compare(b, a) })
		for i := range p.text {
			l, r := p.text[:i], p.text[i:]
			_, okL := normal[l]
			_, okR := normal[r]
			if okL && okR {
				pairs = append(pairs, [2]string{l, r})
				ranks = append(ranks, uint32(rank))
				ids = append(ids, normal[p.text])
			}
		}
	}
	m.merges = newMergeTable(len(pairs))
	m.ranks = uint32(len(scores))
	for i, p := range pairs {
		m.merges.put(normal[p[0]], normal[p[1]], ranks[i], ids[i])
	}
	m.finish(false)
	m.findCut('\u2581', pairs)
}

// decode gives d the texts of tokens, which it changes.
func (sp *spmModel) decode(d *decoding, tokens []string) {
	d.fallback = make([]int16, len(tokens))
	for id, tok := range tokens {
		tokens[id], d.fallback[id] = strings.ReplaceAll(tok, spaceMark, " "), -1
		if sp.pieces[id].kind == pieceByte {
			d.fallback[id] = fallbackByte(tok)
		}
	}
	d.text = pack(tokens)
	if sp.prefix {
		d.strip, d.stripN = ' ', 1
	}
}
