package sample

import "math"

// A Likely is a token with its natural log probability at temperature 1, without truncation.
type Likely struct {
	Token   int32
	LogProb float64
}

// LogProbs returns token id with its log probability, and appends the k most likely tokens to top,
// best first, ties to the lower id. Equal logits give equal bits, whatever k is.
func LogProbs(top []Likely, logits []float32, id int32, k int) (Likely, []Likely) {
	from := len(top)
	best := math.Inf(-1)
	for i, x := range logits {
		best = max(best, float64(x))
		n := len(top)
		if n-from == k && (k == 0 || !(float64(x) > top[n-1].LogProb)) {
			continue
		}
		if n-from < k {
			top = append(top, Likely{})
			n++
		}
		at := n - 1
		for ; at > from && float64(x) > top[at-1].LogProb; at-- {
			top[at] = top[at-1]
		}
		top[at] = Likely{int32(i), float64(x)} // the logit, for now
	}
	var sum float64
	for _, x := range logits {
		sum += math.Exp(float64(x) - best)
	}
	norm := math.Log(sum)
	for i := from; i < len(top); i++ {
		top[i].LogProb = top[i].LogProb - best - norm
	}
	return Likely{id, float64(logits[id]) - best - norm}, top
}
