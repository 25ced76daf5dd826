package bench

// The definition of a loop.
const (
	maxPeriod  = 32 // tokens
	minPeriods = 3
	minLoop    = 24 // tokens
)

// LoopTokens returns how many tokens lie in loops: stretches of at least 24 tokens in which a
// block of at most 32 tokens repeats at least three times in a row. An output with any such
// token is called looping. Weak models fall into loops, most of all in greedy decoding, and
// every draft method predicts them well: the share of loops says how far a mean τ can be
// trusted.
func LoopTokens(tokens []int32) int {
	in := make([]bool, len(tokens))
	for p := 1; p <= maxPeriod; p++ {
		run := 0 // tokens up to here that equal the one p before
		for i := p; i <= len(tokens); i++ {
			if i < len(tokens) && tokens[i] == tokens[i-p] {
				run++
				continue
			}
			if n := run + p; run > 0 && n >= max(minLoop, minPeriods*p) {
				for k := i - n; k < i; k++ {
					in[k] = true
				}
			}
			run = 0
		}
	}
	n := 0
	for _, x := range in {
		if x {
			n++
		}
	}
	return n
}
