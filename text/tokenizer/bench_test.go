package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"talf/internal/golden"
)

// WikiText-2's validation text (1.1 MB), as one string and line by line, on one
// goroutine. MB/s count bytes of text.
func BenchmarkEncode(b *testing.B) {
	text, err := os.ReadFile(golden.Shared(b, "data/text/wikitext2_valid.txt"))
	if err != nil {
		b.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	for _, f := range []string{"gpt2", "llama2"} {
		tok := load(b, "tokenizers/"+f)
		b.Run(f+"/whole", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				encode(b, tok, string(text), false)
			}
		})
		b.Run(f+"/lines", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			dst := make([]int32, 0, 1<<16)
			for b.Loop() {
				for _, l := range lines {
					if dst, err = tok.AppendEncode(dst[:0], l, false); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// A line without spaces is nearly one piece for the model. MB/s should hardly depend on
// its length.
func BenchmarkLongLine(b *testing.B) {
	for _, f := range []string{"gpt2", "llama2"} {
		tok := load(b, "tokenizers/"+f)
		line := longLine(1 << 20)
		for _, n := range []int{len(line) / 100, len(line) / 10, len(line)} {
			b.Run(fmt.Sprintf("%s/%d", f, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					encode(b, tok, line[:n], false)
				}
			})
		}
	}
}

// longLine returns n random letters.
func longLine(n int) string {
	r := rand.New(rand.NewPCG(1, 2))
	line := make([]byte, n)
	for i := range line {
		line[i] = "etaoinshrdlu"[r.IntN(12)]
	}
	return string(line)
}

func BenchmarkDecode(b *testing.B) {
	text, err := os.ReadFile(golden.Shared(b, "data/text/wikitext2_valid.txt"))
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range []string{"gpt2", "llama2"} {
		tok := load(b, "tokenizers/"+f)
		ids := encode(b, tok, string(text), false)
		b.Run(f, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				tok.Decode(ids, false)
			}
		})
	}
}
