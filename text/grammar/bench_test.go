package grammar_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"talf/text/grammar"
	"talf/text/grammar/grammartest"
)

// large is a vocabulary of 128k tokens of one to ten letters, spaces and marks of JSON.
func large() *grammar.Vocabulary {
	r := rand.New(rand.NewPCG(1, 128))
	const letters = "etaoinshrdlucmfwypvbgkjqxz ETAOIN0123456789.,:;\"\\{}[]-_\n"
	var tokens []string
	for c := range 256 {
		tokens = append(tokens, string([]byte{byte(c)}))
	}
	for len(tokens) < 128_000 {
		b := make([]byte, 2+r.IntN(9))
		for i := range b {
			b[i] = letters[min(r.IntN(len(letters)), r.IntN(len(letters)))]
		}
		tokens = append(tokens, string(b))
	}
	return grammartest.Words(tokens...)
}

// BenchmarkMask measures the masks of a JSON value: warm, as they are found again, and cold, as they
// are computed first.
func BenchmarkMask(b *testing.B) {
	v, g := large(), anyJSON(b)
	for _, text := range []string{"", `{"`, `{"name": `, `[12`} {
		b.Run(fmt.Sprintf("warm after %q", text), func(b *testing.B) {
			a, err := grammar.NewAutomaton(g, v)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := a.Mask(a.Read(a.Start(), []byte(text))); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				s := a.Read(a.Start(), []byte(text))
				if _, err := a.Mask(s); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("cold after %q", text), func(b *testing.B) {
			for b.Loop() {
				a, err := grammar.NewAutomaton(g, v)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := a.Mask(a.Read(a.Start(), []byte(text))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
