// Package tokenizer turns text into token ids and back exactly as Hugging
// Face's tokenizers library does with the same tokenizer.json.
//
// It builds on the types of github.com/sugarme/tokenizer: the model, splitter,
// post-processor and decoder of a Tokenizer implement that package's interfaces
// (see Tokenizer.Sugarme), and added tokens are its AddedToken. Encode and
// Decode run the same parts on plain strings, without its alignments.
//
// A tokenizer.json with an unsupported part is refused, and the error names the part: a
// file that loads encodes exactly as the reference does. Byte-pair encoding is the only
// model.
//
// What a file may cost is bounded too: loading is charged by the size of the file, and what
// normalizers and pre-tokenizers do with a text by the length of the text (see package limits).
// Regular expressions are matched in linear time.
package tokenizer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"talf/internal/ijson"
	"talf/internal/limits"
	"talf/internal/mapped"
	"talf/internal/texts"
	"talf/model/gguf"
)

// Tokenizer encodes text and decodes ids. It is immutable and safe for
// concurrent use.
type Tokenizer struct {
	model *bpe

	tokens  *texts.Packed // id → token, including added tokens; ids may have gaps
	known   []bool
	special []bool
	added   map[string]int32
	order   []addedToken // as the file lists them

	raw        matcher // added tokens looked for in the text as given
	normalized matcher // added tokens looked for after normalization
	control    matcher // special tokens by their content
	// controlNorm: special tokens are among those looked for after normalization.
	controlNorm bool

	norms   []placed[normalizer]
	mark    *markNorm // replaces all of norms where possible
	steps   []placed[splitStep]
	scan    scanner // the only step, if that is a scanner
	charged bool    // parts of unknown cost are among norms and steps

	pre, post []int32
	dec       decoding

	// How the post-processor changes offsets; see offsetEncoder.trim.
	trim, trimPrefix bool

	bos, eos, pad int32 // -1: none
	infill        *Infill

	file    string // base name
	hash    func() [sha256.Size]byte
	source  func() ([]byte, error) // the file's text; it may be another one by now, which hash tells
	scratch pool

	warnings []string
}

// Load reads the tokenizer of a model folder: tokenizer.json, or the SentencePiece file
// tokenizer.model if that is missing. The names of the special tokens come from
// tokenizer_config.json, if there is one. dir may be a GGUF file, which has them all.
func Load(dir string) (*Tokenizer, error) { return LoadAs(dir, "") }

// LoadAs is Load of a GGUF file whose byte-level tokenizer splits texts in the way that pre names in
// place of tokenizer.ggml.pre. If pre is empty, it is Load.
func LoadAs(dir, pre string) (*Tokenizer, error) {
	if pre != "" && !gguf.Is(dir) {
		return nil, fmt.Errorf("%s: how texts are split (%.40q) can be named for GGUF files alone: tokenizer.json says it", dir, pre)
	}
	if gguf.Is(dir) {
		return loadGGUF(dir, pre)
	}
	t, err := loadFile(dir, "tokenizer.json", Parse)
	if errors.Is(err, fs.ErrNotExist) {
		t, err = loadFile(dir, "tokenizer.model", ParseSentencePiece)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("load tokenizer: neither tokenizer.json nor tokenizer.model in %s", dir)
		}
	}
	if err != nil {
		return nil, err
	}
	return t, t.configure(dir)
}

// configure reads tokenizer_config.json, if there is one.
func (t *Tokenizer) configure(dir string) error {
	b, err := gguf.ReadFile(dir, "tokenizer_config.json", limits.ConfigBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("load tokenizer: %w", err)
	}
	if err := t.name(b); err != nil {
		return fmt.Errorf("%s: %w", gguf.Path(dir, "tokenizer_config.json"), err)
	}
	return nil
}

func loadFile(dir, name string, parse func([]byte) (*Tokenizer, error)) (*Tokenizer, error) {
	path := filepath.Join(dir, name)
	b, err := limits.ReadFile(path, limits.TokenizerBytes)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer: %w", err)
	}
	t, err := parse(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	// The text of a large vocabulary takes more than all that is made of it.
	t.source = func() ([]byte, error) { return limits.ReadFile(path, limits.TokenizerBytes) }
	return t, nil
}

// loadGGUF makes the tokenizer of a GGUF file without the text of the file that a directory would have, of which nobody
// may ask the hash.
func loadGGUF(path, pre string) (*Tokenizer, error) {
	was, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer: %w", err)
	}
	v, warnings, err := gguf.ReadVocabulary(path, pre)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer: %w", err)
	}
	var t *Tokenizer
	switch {
	case v.Pieces == nil:
		t, err = parse(v.JSON, v)
	case pre != "":
		return nil, fmt.Errorf("%s: how texts are split (%.40q) can be named for byte-level tokenizers alone", path, pre)
	default:
		t, err = givenPieces(v)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	t.warnings = warnings
	t.source = func() ([]byte, error) {
		b, _, err := gguf.ReadAs(path, t.file, pre, limits.TokenizerBytes)
		return b, err
	}
	t.hash = sync.OnceValue(func() [sha256.Size]byte {
		b, err := t.source()
		is, gone := os.Stat(path)
		if err != nil || gone != nil || !os.SameFile(was, is) || was.Size() != is.Size() || was.ModTime() != is.ModTime() {
			panic(&mapped.FaultError{Path: path})
		}
		return sha256.Sum256(b)
	})
	return t, t.configure(path)
}

// text makes b the text that t was read from.
func (t *Tokenizer) text(b []byte) {
	sum := sha256.Sum256(b)
	t.hash, t.source = func() [sha256.Size]byte { return sum }, func() ([]byte, error) { return b, nil }
}

// Warnings returns what is odd about the GGUF file that t was read from and was mended or guessed, each a sentence
// with the file's path.
func (t *Tokenizer) Warnings() []string { return slices.Clone(t.warnings) }

// written returns the text of the file that the tokenizer was read from.
func (t *Tokenizer) written() ([]byte, error) {
	b, err := t.source()
	if err == nil && sha256.Sum256(b) != t.hash() {
		err = fmt.Errorf("%s is not what it was when it was loaded", t.file)
	}
	return b, err
}

// name reads the special tokens' names from the text of tokenizer_config.json.
func (t *Tokenizer) name(config []byte) error {
	var c map[string]json.RawMessage
	if err := ijson.Unmarshal(config, &c); err != nil {
		return err
	}
	for key, to := range map[string]*int32{"bos_token": &t.bos, "eos_token": &t.eos, "pad_token": &t.pad} {
		raw, ok := c[key]
		if !ok || string(raw) == "null" {
			continue
		}
		s, ok := content(raw)
		if !ok {
			return fmt.Errorf("%s is neither a string nor an added token", key)
		}
		id, ok := t.TokenID(s)
		if !ok && key == "pad_token" {
			continue // models trained without padding name a padding token that they do not have
		}
		if !ok {
			return fmt.Errorf("%s %q is not in the vocabulary", key, s)
		}
		*to = id
	}
	t.infill = t.findInfill(c)
	if t.file == "tokenizer.model" {
		return t.frame(c)
	}
	return nil
}

// content is the text of a token in tokenizer_config.json: a string, or an added token's.
func content(raw json.RawMessage) (string, bool) {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s, true
	}
	var o struct {
		Content *string `json:"content"`
	}
	if err := ijson.Unmarshal(raw, &o); err != nil || o.Content == nil {
		return "", false
	}
	return *o.Content, true
}

// frame reads from tokenizer_config.json which tokens go around a text. A
// tokenizer.json says this itself, a SentencePiece file does not.
func (t *Tokenizer) frame(config map[string]json.RawMessage) error {
	bos, eos := true, false
	for key, to := range map[string]*bool{"add_bos_token": &bos, "add_eos_token": &eos} {
		if raw, ok := config[key]; ok {
			if err := json.Unmarshal(raw, to); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	t.pre, t.post = nil, nil
	if bos && t.bos >= 0 {
		t.pre = []int32{t.bos}
	}
	if eos && t.eos >= 0 {
		t.post = []int32{t.eos}
	}
	return nil
}

// Encode returns the ids of text. addSpecial adds the post-processor's special tokens
// around it, usually the beginning-of-sequence token. Added tokens inside the text are
// recognised either way. Text that is not UTF-8 is encoded byte by byte if the
// vocabulary can do so.
func (t *Tokenizer) Encode(text string, addSpecial bool) ([]int32, error) {
	return t.AppendEncode(make([]int32, 0, len(text)/3+8), text, addSpecial)
}

// AppendEncode is Encode, appending to dst.
func (t *Tokenizer) AppendEncode(dst []int32, text string, addSpecial bool) ([]int32, error) {
	if addSpecial {
		dst = append(dst, t.pre...)
	}
	sc := t.scratch.get()
	defer t.scratch.put(sc)
	if t.charged {
		sc.budget = *encodeMeter(len(text))
		sc.meter = &sc.budget
	}
	sc.segs = t.raw.segments(sc.segs[:0], text, nil)
	for _, seg := range sc.segs {
		if seg.id >= 0 {
			dst = append(dst, seg.id)
			continue
		}
		s := text[seg.start:seg.end]
		var err error
		if t.mark != nil {
			sc.text = t.mark.appendTo(sc.text[:0], s)
			// Nothing keeps a reference to s after this iteration.
			s = unsafe.String(unsafe.SliceData(sc.text), len(sc.text))
		} else if s, err = t.normalize(s, sc.meter); err != nil {
			return nil, err
		}
		if len(t.normalized.tokens) == 0 {
			dst, err = t.encodePlain(dst, piece{s, seg.start == 0}, sc)
			if err != nil {
				return nil, err
			}
			continue
		}
		sc.subs = t.normalized.segments(sc.subs[:0], s, nil)
		for _, sub := range sc.subs {
			if sub.id >= 0 {
				dst = append(dst, sub.id)
				continue
			}
			dst, err = t.encodePlain(dst, piece{s[sub.start:sub.end], seg.start == 0 && sub.start == 0}, sc)
			if err != nil {
				return nil, err
			}
		}
	}
	if addSpecial {
		dst = append(dst, t.post...)
	}
	return dst, nil
}

// encodePlain encodes normalized text without added tokens.
func (t *Tokenizer) encodePlain(dst []int32, p piece, sc *scratch) ([]int32, error) {
	if p.s == "" {
		return dst, nil
	}
	if t.scan != nil {
		for i := 0; i < len(p.s); {
			j := t.scan.next(p.s, i)
			dst = t.model.encode(dst, p.s[i:j], sc)
			i = j
		}
		return dst, nil
	}
	pieces, err := t.pieces(sc.pieces[:0], p, sc.meter)
	if err != nil {
		return nil, err
	}
	for _, q := range pieces {
		dst = t.model.encodeCut(dst, q.s, sc)
	}
	sc.meter.Free(pieceBytes * len(pieces))
	// Do not keep the text alive.
	clear(pieces)
	sc.pieces = pieces
	return dst, nil
}

func (t *Tokenizer) normalize(s string, m *limits.Meter) (string, error) {
	var err error
	for _, n := range t.norms {
		if s, err = n.part.normalize(s, m); err != nil {
			return "", t.fault(n.path, err)
		}
	}
	return s, nil
}

// fault says which part of the file could not go on with a text.
func (t *Tokenizer) fault(path string, err error) error {
	return fmt.Errorf("%s: %s: %w", t.file, path, err)
}

// encodeMeter returns what the normalizers and pre-tokenizers may do with a text of n bytes. An
// untrusted file says what they are, so encoding is bounded by the text.
func encodeMeter(n int) *limits.Meter {
	return limits.NewMeter(context.Background(), limits.Budget{
		Steps: limits.EncodeFloor + limits.EncodeSteps*int64(n),
		Bytes: min(limits.EncodeFloor+limits.EncodeBytes*int64(n), limits.EncodeMost),
	})
}

// pieceBytes is the size of a piece.
const pieceBytes = 32

// pieces splits normalized text for the model. It appends to dst, which is empty, and charges what
// it returns.
func (t *Tokenizer) pieces(dst []piece, p piece, m *limits.Meter) ([]piece, error) {
	if p.s == "" {
		return dst, nil
	}
	if len(t.steps) == 0 {
		return append(dst, p), nil
	}
	in := []piece{p}
	for i, st := range t.steps {
		var out []piece
		if i == len(t.steps)-1 {
			out = dst
		}
		for _, q := range in {
			n := len(out)
			var err error
			if out, err = st.part.apply(out, q, m); err == nil {
				err = m.Alloc(pieceBytes * (len(out) - n))
			}
			if err != nil {
				return nil, t.fault(st.path, err)
			}
		}
		if i > 0 {
			m.Free(pieceBytes * len(in))
		}
		in = out
	}
	return in, nil
}

// VocabSize is the number of ids: the highest id plus one. A model's embedding has at
// least as many rows.
func (t *Tokenizer) VocabSize() int { return t.tokens.Len() }

// Known reports whether id has a token.
func (t *Tokenizer) Known(id int32) bool {
	return id >= 0 && int(id) < len(t.known) && t.known[id]
}

// Token returns the token of an id as the vocabulary spells it; false if there
// is none.
func (t *Tokenizer) Token(id int32) (string, bool) {
	if !t.Known(id) {
		return "", false
	}
	return t.tokens.At(id), true
}

// TokenID returns the id of a token as the vocabulary spells it.
func (t *Tokenizer) TokenID(token string) (int32, bool) {
	if id, ok := t.added[token]; ok {
		return id, true
	}
	return t.model.vocab.Find(token)
}

// Special reports whether id is a special token: one that decoding can skip.
func (t *Tokenizer) Special(id int32) bool { return t.Known(id) && t.special[id] }

// BOS returns the beginning-of-sequence token named by tokenizer_config.json.
func (t *Tokenizer) BOS() (id int32, ok bool) { return t.bos, t.bos >= 0 }

// EOS returns the end-of-sequence token named by tokenizer_config.json. A
// model may stop at more: see its generation_config.json.
func (t *Tokenizer) EOS() (id int32, ok bool) { return t.eos, t.eos >= 0 }

// Pad returns the padding token named by tokenizer_config.json.
func (t *Tokenizer) Pad() (id int32, ok bool) { return t.pad, t.pad >= 0 }

// Added returns the ids that the post-processor puts before and after a text.
func (t *Tokenizer) Added() (before, after []int32) {
	return append([]int32(nil), t.pre...), append([]int32(nil), t.post...)
}

// Hash identifies the behaviour of Encode and Decode. It is the hexadecimal SHA-256 of
// the file that defines the tokenizer. Of a GGUF file it is made when it is first asked for, and panics as a fault in a
// mapped file does (see mapped.Guard) if the file is no longer what it was.
func (t *Tokenizer) Hash() string {
	sum := t.hash()
	return hex.EncodeToString(sum[:])
}

// pool keeps the working memory of finished encodings. Unlike a sync.Pool it survives
// garbage collections, so that the caches stay warm; it keeps as many as ran at once.
type pool struct {
	mu   sync.Mutex
	free []*scratch
}

func (p *pool) get() *scratch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		sc := p.free[n-1]
		p.free = p.free[:n-1]
		return sc
	}
	return newScratch()
}

func (p *pool) put(sc *scratch) {
	sc.trim()
	p.mu.Lock()
	defer p.mu.Unlock()
	// More than can run at the same time would be kept for ever after a burst.
	if len(p.free) < runtime.GOMAXPROCS(0) {
		p.free = append(p.free, sc)
	}
}
