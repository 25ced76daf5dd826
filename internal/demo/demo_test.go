package demo

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"

	"talf/text/tokenizer"
)

func TestEveryTemplateExpands(t *testing.T) {
	w := NewWriter(1)
	for _, text := range slices.Concat(openings, asides, inventions, endings) {
		w.Bind = bound()
		w.Check(synonyms.Replace(text))
	}
	for _, p := range plots {
		for _, beat := range p {
			for _, text := range beat {
				w.Bind = bound()
				w.Check(synonyms.Replace(text))
			}
		}
	}
}

func bound() map[string]string {
	out := map[string]string{}
	for _, k := range strings.Fields("h he him his He His g f place spot spotUp thing color food plant animal elder sound Sound") {
		out[k] = "x"
	}
	return out
}

func TestTextDependsOnTheSeedAlone(t *testing.T) {
	a, b, c := Corpus(7, 200), Corpus(7, 200), Corpus(8, 200)
	if !slices.Equal(a, b) {
		t.Error("one seed gave two corpora")
	}
	seen := map[Document]bool{}
	for _, d := range a {
		seen[d] = true
	}
	same := 0
	for _, d := range c {
		if seen[d] {
			same++
		}
		for _, s := range []string{"[", "]", "{", "}", "  "} {
			if strings.Contains(d.Text(), s) {
				t.Errorf("%q in %q", s, d.Text())
			}
		}
	}
	// Short sums may occur twice.
	if same > 2 {
		t.Errorf("%d of 200 documents of another seed are the same", same)
	}
}

// The embedded weights were trained on this text: whoever changes the generator trains them
// again (make demo-target) and updates the hash here.
func TestTextIsTheOneTrainedOn(t *testing.T) {
	h := sha256.New()
	for _, d := range Corpus(TrainSeed, 500) {
		h.Write([]byte(d.Text()))
	}
	const want = "643ae042c0c9eab114f9aab96ad8b3a882d7ec11988e7101ecb96a7835d9f97c"
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		t.Errorf("the training text's hash is %s, expected %s", got, want)
	}
}

func TestStreamsAreDisjoint(t *testing.T) {
	in := map[string]int{}
	for _, d := range Corpus(3, 3000) {
		in[d.Prompt] = 1
	}
	for _, d := range Validation(3, 500) {
		if in[d.Prompt] == 1 {
			t.Errorf("validation prompt in a corpus: %q", d.Prompt)
		}
		in[d.Prompt] = 2
	}
	for _, p := range Prompts(3, 500) {
		if in[p] != 0 {
			t.Errorf("test prompt seen elsewhere: %q", p)
		}
	}
}

func TestSumsAreRight(t *testing.T) {
	// Spelled numbers are a bijection on their range.
	seen := map[string]int{}
	for n := range 145 {
		s := words(n)
		if m, ok := seen[s]; ok {
			t.Errorf("%q is %d and %d", s, m, n)
		}
		seen[s] = n
	}
	if words(0) != "zero" || words(21) != "twenty-one" || words(100) != "one hundred" || words(130) != "one hundred thirty" {
		t.Error("numbers are misspelled")
	}
}

// The text is neither trivial nor hopeless: the entropy of its choices, an upper bound on the
// text's, is about one bit per token.
func TestEntropyPerToken(t *testing.T) {
	tok := embedded(t)
	docs, bits := draw(5, 500, ForTraining)
	tokens, longest := 0, 0
	for _, d := range docs {
		ids, err := tok.Encode(d.Text(), true)
		if err != nil {
			t.Fatal(err)
		}
		tokens += len(ids) + 1
		longest = max(longest, len(ids)+1)
		prompt, err := tok.Encode(d.Prompt, true)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(prompt, ids[:len(prompt)]) {
			t.Errorf("the prompt's tokens are not the text's first: %q", d.Prompt)
		}
	}
	per := bits / float64(tokens)
	t.Logf("%.2f bits a token, %d tokens a document, %d the longest", per, tokens/len(docs), longest)
	if per < 0.5 || per > 2 || math.IsNaN(per) {
		t.Errorf("%.2f bits a token", per)
	}
	if longest > 512 { // positions of the target
		t.Errorf("a document of %d tokens", longest)
	}
}

func embedded(t *testing.T) *tokenizer.Tokenizer {
	t.Helper()
	dir := t.TempDir()
	if err := Unpack(dir); err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestNumbersOfTemplates(t *testing.T) {
	w := NewWriter(1)
	seen := map[string]bool{}
	for range 200 {
		n, ok := w.number("8-11")
		seen[n] = true
		if !ok {
			t.Fatal("8-11 is a range")
		}
	}
	if len(seen) != 4 || !seen["8"] || !seen["11"] {
		t.Errorf("8-11 gave %v", seen)
	}
	for _, s := range []string{"", "8", "x-9", "9-x", "9-8", "-3"} {
		if n, ok := w.number(s); ok {
			t.Errorf("%q is no range, but gave %q", s, n)
		}
	}
}
