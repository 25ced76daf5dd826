package preprocess_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"talf/internal/golden"
	"talf/preprocess"
	"talf/text/chat"
	"talf/text/tokenizer"
)

// The first token of an answer is the first after which no text of the turns before it,
// however many of them, agrees with the tokens of the whole.
func TestAnAnswerBeginsWhereNoTextBeforeItAgrees(t *testing.T) {
	parts := []string{"a", "an", "swer", "!", "!!", "\n", "\n\n", " ", "  ", "the", " the", "é", "e\u0301", "日本", "1", "23", "'s", "<s>", "x\n", "\t."}
	for _, family := range []string{"gpt2", "llama3-style", "llama2", "phi3"} {
		t.Run(family, func(t *testing.T) {
			dir := golden.File(t, "tokenizers/llama3-style")
			if family != "llama3-style" {
				dir = golden.Shared(t, "data/tokenizers/"+family)
			}
			tok, err := tokenizer.Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			enc, err := chat.NewEncoder(tok)
			if err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(1, 2))
			crossed := 0
			for range 2000 {
				texts := make([]string, 1+rng.IntN(12))
				for i := range texts {
					for range 1 + rng.IntN(3) {
						texts[i] += parts[rng.IntN(len(parts))]
					}
				}
				got, ids, err := preprocess.Begins(tok, tok.VocabSize(), texts...)
				if err != nil {
					t.Fatal(err)
				}
				want := 0
				for i := 1; i < len(texts); i++ {
					before, err := enc.Encode(strings.Join(texts[:i], ""))
					if err != nil {
						t.Fatal(err)
					}
					n := 0
					for n < min(len(ids), len(before)) && ids[n] == before[n] {
						n++
					}
					if i == len(texts)-1 && n < len(before) {
						crossed++
					}
					want = max(want, n)
				}
				if got != want {
					t.Fatalf("%q: begins at token %d of %v, want %d", texts, got, ids, want)
				}
			}
			if crossed < 100 {
				t.Errorf("a token crosses the border in %d of 2000 texts, want enough to test that", crossed)
			}
		})
	}
}

// A counting tokenizer has a token for each byte, and one for the length of the text, so
// that the tokens of no text begin as those of a longer one end.
type counting struct{ bytes int }

func (c *counting) Encode(text string, _ bool) ([]int32, error) {
	c.bytes += len(text)
	ids := make([]int32, 0, len(text)+1)
	for _, b := range []byte(text) {
		ids = append(ids, int32(b))
	}
	return append(ids, int32(256+len(text)%7)), nil
}

func TestManyTurnsTakeTimeInProportion(t *testing.T) {
	texts := slices.Repeat([]string{"some words of a turn "}, 20000)
	tok := &counting{}
	from, _, err := preprocess.Begins(tok, 1000, texts...)
	if err != nil {
		t.Fatal(err)
	}
	if want := len(texts[0]) * (len(texts) - 1); from != want {
		t.Errorf("begins at token %d, want %d", from, want)
	}
	if text := len(strings.Join(texts, "")); tok.bytes > 100*text {
		t.Errorf("%d bytes tokenised of a text of %d, want at most a hundred times as many", tok.bytes, text)
	}
}
