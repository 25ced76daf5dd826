package origin

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"talf/model/arch"
)

// The old form of a language model's origin is that of the first version that trained
// one: an unfinished run continues whatever fields arch.Spec has gained since.
func TestTheOldFormOfALanguageModelIsPinned(t *testing.T) {
	s := arch.Llama()
	s.Vocab, s.Hidden, s.Layers, s.Heads, s.KVHeads, s.HeadDim, s.FFN, s.MaxPos, s.Tied = 40, 16, 2, 2, 1, 8, 24, 128, true
	got := LM(s, [][]int32{{1, 2, 3}}, 4).old
	const want = "ef541355811e3afed25f63db685f1f9fb282601bcd506b4e313580c65b649693"
	if h := fmt.Sprintf("%x", sha256.Sum256(got)); h != want {
		t.Errorf("%s has the hash %s, want %s", got, h, want)
	}
}
