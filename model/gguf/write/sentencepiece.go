package write

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"strings"

	"talf/internal/limits"
	"talf/model/gguf"
	"talf/text/tokenizer"
)

// Scores that llama.cpp's converter gives to tokens that nothing merges to: added ones, and ids without a token.
const (
	scoreAdded  = -1000
	scoreUnused = -10000
)

const spaceMark = "▁" // stands for a space

// A pieces is a SentencePiece vocabulary in the making, [vocab].
type pieces struct {
	texts  []string
	scores []float32
	kinds  []int
	ids    map[string]int // of what is set
}

func newPieces(vocab int) *pieces {
	p := &pieces{texts: make([]string, vocab), scores: make([]float32, vocab), kinds: make([]int, vocab), ids: make(map[string]int, vocab)}
	for i := range p.texts {
		p.texts[i], p.scores[i], p.kinds[i] = fmt.Sprintf("[PAD%d]", i), scoreUnused, tokenUnused
	}
	return p
}

func (p *pieces) set(id int, s string, score float32, kind int) error {
	if id < 0 || id >= len(p.texts) {
		return fmt.Errorf("token %.40q has the id %d, but the model has %d tokens", s, id, len(p.texts))
	}
	p.texts[id], p.scores[id], p.kinds[id], p.ids[s] = s, score, kind, id
	return nil
}

// keys returns the keys of the vocabulary. prefix says that a ▁ goes before a text.
func (p *pieces) keys(prefix bool) []gguf.Raw {
	var scores []byte
	for _, x := range p.scores {
		scores = binary.LittleEndian.AppendUint32(scores, math.Float32bits(x))
	}
	return []gguf.Raw{
		Text("tokenizer.ggml.model", "llama"), Text("tokenizer.ggml.pre", "default"),
		texts(keyTokens, p.texts), array("tokenizer.ggml.scores", kindF32, len(p.scores), scores), numbers("tokenizer.ggml.token_type", p.kinds),
		truth("tokenizer.ggml.add_space_prefix", prefix),
	}
}

// fromModel returns the keys of a directory that has tokenizer.model alone.
func fromModel(dir string, raw []byte, vocab int) ([]gguf.Raw, error) {
	all, prefix, err := tokenizer.Pieces(raw)
	if err != nil {
		return nil, err
	}
	p := newPieces(vocab)
	for i, x := range all {
		if err := p.set(i, x.Text, x.Score, x.Kind); err != nil {
			return nil, err
		}
	}
	more, err := object(dir, "added_tokens.json")
	if err != nil {
		return nil, err
	}
	for s := range more {
		if _, ok := p.ids[s]; !ok {
			return nil, fmt.Errorf("added_tokens.json has %.40q, which is no piece: want a tokenizer.json", s)
		}
	}
	return new(file).special(dir, p.keys(prefix), vocab)
}

// sentencePiece returns the keys of a tokenizer.json that was made of a SentencePiece model, which is what BPE with bytes for
// unknown characters is. It has no scores: those of tokenizer.model are taken if it is there, and otherwise the order of merges
// gives them.
func (t *file) sentencePiece(dir string, vocab int) ([]gguf.Raw, error) {
	prefix, err := t.spaces()
	if err != nil {
		return nil, err
	}
	p := newPieces(vocab)
	for s, id := range t.Model.Vocab {
		kind := tokenNormal
		switch {
		case s == t.Model.Unk:
			kind = tokenUnknown
		case len(s) == 6 && strings.HasPrefix(s, "<0x") && s[5] == '>':
			kind = tokenByte
		}
		if err := p.set(id, s, 0, kind); err != nil {
			return nil, err
		}
	}
	for _, a := range t.Added {
		kind, s := addedKind(a)
		if err := p.set(a.ID, s, scoreAdded, kind); err != nil {
			return nil, err
		}
	}
	if err := t.score(p); err != nil {
		return nil, err
	}
	raw, err := limits.ReadFile(filepath.Join(dir, "tokenizer.model"), limits.TokenizerBytes)
	if err == nil {
		err = t.scoresOf(p, raw)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("beside tokenizer.model: %w", err)
	}
	return t.special(dir, p.keys(prefix), vocab)
}

// addedKind returns the kind of an added token, as llama.cpp's converter has it, and its text.
func addedKind(a added) (int, string) {
	if a.Special || strings.HasPrefix(a.Content, "<|") && strings.HasSuffix(a.Content, "|>") {
		return tokenControl, a.Content
	}
	return tokenUser, strings.ReplaceAll(a.Content, spaceMark, " ")
}

// spaces reports whether a ▁ goes before a text. Spaces have to become ▁, and nothing else may happen before tokens are merged.
func (t *file) spaces() (prefix bool, err error) {
	replaced := false
	for _, n := range t.Normalizer.steps(func(c *component) []component { return c.Normalizers }) {
		switch {
		case n.Type == "Prepend" && n.Prepend == spaceMark && !replaced:
			prefix = true
		case n.Type == "Replace" && n.Pattern.String == " " && n.Content == spaceMark:
			replaced = true
		default:
			return false, fmt.Errorf("normalizer has the step %.40q, want Prepend or Replace as SentencePiece tokenizers have them", n.Type)
		}
	}
	for _, p := range t.Pre.steps(func(c *component) []component { return c.Pretokenizers }) {
		switch {
		case p.Type == "Metaspace" && p.Replacement == spaceMark && p.Split != nil && !*p.Split:
			replaced = true
			switch p.Scheme {
			case "always", "first":
				prefix = true
			case "never":
			default:
				prefix = prefix || p.Prefix
			}
		case p.Type == "Split" && p.Pattern.String == " " && replaced: // none are left
		default:
			return false, fmt.Errorf("pre_tokenizer has the step %.40q, want Metaspace without split as SentencePiece tokenizers have it", p.Type)
		}
	}
	if !replaced {
		return false, errors.New("nothing replaces spaces by ▁, as SentencePiece tokenizers do")
	}
	return prefix, nil
}

// score gives normal tokens the scores that make SentencePiece merge in the order of the file's merges: whatever makes a
// token has its score. Tokens whose merges are mixed have one score together, as they have in the model that the file was made of.
func (t *file) score(p *pieces) error {
	made, err := t.made(p)
	if err != nil {
		return err
	}
	last := make(map[int]int)
	for i, id := range made {
		last[id] = i
	}
	score, end := float32(0), -1
	for i, id := range made {
		if i > end {
			score--
		}
		end = max(end, last[id])
		p.scores[id] = score
	}
	return nil
}

// made returns the token that each merge makes. SentencePiece merges any two tokens whose text is one, so all such pairs have to be
// among the merges.
func (t *file) made(p *pieces) ([]int, error) {
	normal := func(s string) bool {
		id, ok := p.ids[s]
		return ok && p.kinds[id] == tokenNormal
	}
	made := make([]int, 0, len(t.Model.Merges))
	seen := make(map[[2]string]bool, len(t.Model.Merges))
	for i, raw := range t.Model.Merges {
		var s string
		var pair []string
		if json.Unmarshal(raw, &s) == nil {
			pair = strings.Split(s, " ")
		} else if json.Unmarshal(raw, &pair) != nil {
			pair = nil
		}
		if len(pair) != 2 || !normal(pair[0]) || !normal(pair[1]) || !normal(pair[0]+pair[1]) {
			return nil, fmt.Errorf("model.merges[%d] is %.40s, want two tokens that make a third", i, raw)
		}
		made, seen[[2]string(pair)] = append(made, p.ids[pair[0]+pair[1]]), true
	}
	for id, s := range p.texts {
		if p.kinds[id] != tokenNormal {
			continue
		}
		for i := range s {
			if l, r := s[:i], s[i:]; i > 0 && normal(l) && normal(r) && !seen[[2]string{l, r}] {
				return nil, fmt.Errorf("model.merges lacks %.40q and %.40q, which SentencePiece would merge to %.40q: the tokenizer was not made of a SentencePiece model", l, r, s)
			}
		}
	}
	return made, nil
}

// scoresOf takes the scores of a tokenizer.model, which has to have the same tokens and to merge in the same order.
func (t *file) scoresOf(p *pieces, raw []byte) error {
	all, _, err := tokenizer.Pieces(raw)
	if err != nil {
		return err
	}
	made, err := t.made(p)
	if err != nil {
		return err
	}
	for id, x := range all {
		switch {
		case id >= len(p.texts) || x.Kind == tokenNormal && p.texts[id] != x.Text:
			return fmt.Errorf("token %d is %.40q there", id, x.Text)
		case x.Kind == p.kinds[id] && (x.Kind == tokenNormal || x.Kind == tokenByte):
			p.scores[id] = x.Score
		}
	}
	for i := 1; i < len(made); i++ {
		if a, b := made[i-1], made[i]; p.scores[a] < p.scores[b] {
			return fmt.Errorf("%.40q comes before %.40q there, whose merges come later", p.texts[b], p.texts[a])
		}
	}
	return nil
}
