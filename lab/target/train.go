package target

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	sugar "github.com/sugarme/tokenizer"
	sugarnorm "github.com/sugarme/tokenizer/normalizer"

	"talf/text/tokenizer"
)

// splitPattern is Llama 3's: numbers are cut into groups of at most three digits.
const splitPattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// trainTokenizer learns byte-pair merges from texts (Sennrich et al. 2016, algorithm 1, over
// bytes) and returns a tokenizer.json of size tokens: the special tokens, the bytes, the merges.
// Among equally frequent pairs the one with the lower ids is merged, so that the result depends
// only on the texts.
func trainTokenizer(texts []string, size int) ([]byte, error) {
	alphabet := byteAlphabet()
	v := vocabulary{specials: []string{beginToken, endToken, padToken}}
	v.tokens = append(v.tokens, v.specials...)
	bytesAt := len(v.tokens)
	// In the order of the characters that spell them, as other trainers do.
	order := slices.Clone(alphabet[:])
	slices.Sort(order)
	idOf := map[byte]int{}
	for b, s := range alphabet {
		i, _ := slices.BinarySearch(order, s)
		idOf[byte(b)] = bytesAt + i
	}
	v.tokens = append(v.tokens, order...)

	// Split with the tokenizer that has no merges yet.
	bare, err := v.json()
	if err != nil {
		return nil, err
	}
	tok, err := tokenizer.Parse(bare)
	if err != nil {
		return nil, err
	}
	splitter := tok.Sugarme().GetPreTokenizer()
	counts := map[string]int{}
	for _, t := range texts {
		pieces, err := splitter.PreTokenize(sugar.NewPreTokenizedString(t))
		if err != nil {
			return nil, err
		}
		for _, p := range pieces.GetSplits(sugarnorm.NormalizedTarget, sugar.Byte) {
			counts[p.Value]++
		}
	}
	type word struct {
		ids   []int
		count int
	}
	words := make([]word, 0, len(counts))
	for s, n := range counts {
		w := word{count: n}
		for i := range len(s) {
			w.ids = append(w.ids, idOf[s[i]])
		}
		words = append(words, w)
	}

	for len(v.tokens) < size {
		pairs := map[[2]int]int{}
		for _, w := range words {
			for i := 1; i < len(w.ids); i++ {
				pairs[[2]int{w.ids[i-1], w.ids[i]}] += w.count
			}
		}
		var best [2]int
		most := 1
		for p, n := range pairs {
			if n > most || n == most && n > 1 && (p[0] < best[0] || p[0] == best[0] && p[1] < best[1]) {
				best, most = p, n
			}
		}
		if most < 2 {
			return nil, fmt.Errorf("train a vocabulary: %d tokens are all that repeats, %d wanted", len(v.tokens), size)
		}
		merged := v.tokens[best[0]] + v.tokens[best[1]]
		id := slices.Index(v.tokens, merged)
		if id < 0 {
			id = len(v.tokens)
			v.tokens = append(v.tokens, merged)
		}
		v.merges = append(v.merges, [2]string{v.tokens[best[0]], v.tokens[best[1]]})
		for k := range words {
			ids := words[k].ids
			out := ids[:0]
			for i := 0; i < len(ids); i++ {
				if i+1 < len(ids) && ids[i] == best[0] && ids[i+1] == best[1] {
					out = append(out, id)
					i++
				} else {
					out = append(out, ids[i])
				}
			}
			words[k].ids = out
		}
	}
	return v.json()
}

// vocabulary is a byte-level vocabulary: the special tokens first.
type vocabulary struct {
	specials []string
	tokens   []string
	merges   [][2]string
}

// json writes the tokenizer.json, with the vocabulary in the order of its ids.
func (v *vocabulary) json() ([]byte, error) {
	type m = map[string]any
	var vocab bytes.Buffer
	vocab.WriteByte('{')
	for i, tok := range v.tokens {
		if i > 0 {
			vocab.WriteByte(',')
		}
		name, err := json.Marshal(tok)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&vocab, "%s:%d", name, i)
	}
	vocab.WriteByte('}')
	merges := v.merges
	if merges == nil {
		merges = [][2]string{}
	}
	var added []m
	for i, s := range v.specials {
		added = append(added, m{
			"id": i, "content": s, "single_word": false, "lstrip": false, "rstrip": false,
			"normalized": false, "special": true,
		})
	}
	byteLevel := m{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
	piece := func(kind, id string) m { return m{kind: m{"id": id, "type_id": 0}} }
	return json.Marshal(m{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added, "normalizer": nil,
		"pre_tokenizer": m{"type": "Sequence", "pretokenizers": []m{
			{"type": "Split", "pattern": m{"Regex": splitPattern}, "behavior": "Isolated", "invert": false},
			byteLevel,
		}},
		"post_processor": m{
			"type":   "TemplateProcessing",
			"single": []m{piece("SpecialToken", beginToken), piece("Sequence", "A")},
			"pair":   []m{piece("SpecialToken", beginToken), piece("Sequence", "A"), piece("Sequence", "B")},
			"special_tokens": m{beginToken: m{
				"id": beginToken, "ids": []int{0}, "tokens": []string{beginToken},
			}},
		},
		"decoder": byteLevel,
		"model": m{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
			"vocab": json.RawMessage(vocab.Bytes()), "merges": merges,
		},
	})
}

// byteAlphabet spells every byte as the printable character of byte-level
// vocabularies: printable Latin-1 as itself, the others from U+0100 on.
func byteAlphabet() (out [256]string) {
	next := rune(256)
	for b := range rune(256) {
		r := b
		if !(b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE) {
			r = next
			next++
		}
		out[b] = string(r)
	}
	return out
}
