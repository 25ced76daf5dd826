package source

import (
	"math"
	"math/bits"
	"slices"

	"talf/model/sample"
)

// A filter takes the likeliest tokens of a row among those that may follow.
type filter struct {
	ids     []int32   // that may follow and have mass
	logits  []float32 // of ids
	weights []float32
	bins    []float64
	heap    []int32 // places in ids, the least likely first
}

// best appends the k likeliest tokens of logits that allow has to tokens, best first, ties to the lower
// id, and their log-softmax values among all that allow has, at temperature 1, to logp. What allow means
// is said at infer.Ask.
func (f *filter) best(tokens []int32, logp, logits []float32, allow []uint64, k int) ([]int32, []float32) {
	f.gather(logits, allow)
	k = min(k, len(f.ids))
	if k == 0 {
		return tokens, logp
	}
	n := len(f.ids)
	f.weights = slices.Grow(f.weights[:0], n)[:n]
	f.bins = slices.Grow(f.bins[:0], sample.Bins(n))[:sample.Bins(n)]
	sample.Weigh(f.weights, f.bins, f.logits, 1)
	norm := math.Log(sample.Sum(f.bins))
	f.heap = f.heap[:0]
	for i := range int32(n) {
		switch {
		case len(f.heap) < k:
			f.heap = append(f.heap, i)
			for at := len(f.heap) - 1; at > 0 && f.after(f.heap[at], f.heap[(at-1)/2]); at = (at - 1) / 2 {
				f.heap[at], f.heap[(at-1)/2] = f.heap[(at-1)/2], f.heap[at]
			}
		case f.logits[i] > f.logits[f.heap[0]]: // ties: an earlier token is there already
			f.heap[0] = i
			f.sift()
		}
	}
	slices.SortFunc(f.heap, func(a, b int32) int {
		if f.after(b, a) {
			return -1
		}
		return 1
	})
	top := f.logits[f.heap[0]]
	for _, i := range f.heap {
		tokens, logp = append(tokens, f.ids[i]), append(logp, float32(float64(f.logits[i]-top)-norm))
	}
	return tokens, logp
}

// gather finds the tokens that may follow and have mass.
func (f *filter) gather(logits []float32, allow []uint64) {
	f.ids, f.logits = f.ids[:0], f.logits[:0]
	none := float32(math.Inf(-1))
	add := func(i int) {
		if x := logits[i]; x > none { // and is no NaN
			f.ids, f.logits = append(f.ids, int32(i)), append(f.logits, x)
		}
	}
	if allow == nil {
		for i := range logits {
			add(i)
		}
		return
	}
	for w, word := range allow {
		for ; word != 0; word &= word - 1 {
			if i := 64*w + bits.TrailingZeros64(word); i < len(logits) {
				add(i)
			}
		}
	}
}

// after orders places in ids: less likely ones come after, and of two that are equal the higher.
func (f *filter) after(a, b int32) bool {
	x, y := f.logits[a], f.logits[b]
	return x < y || x == y && a > b
}

// sift moves the root of the heap to its place.
func (f *filter) sift() {
	h := f.heap
	for i := 0; ; {
		c := 2*i + 1
		if c+1 < len(h) && f.after(h[c+1], h[c]) {
			c++
		}
		if c >= len(h) || !f.after(h[c], h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

// restrict sets the logits of all tokens that may not follow to −∞.
func restrict(logits []float32, allow []uint64) {
	if allow == nil {
		return
	}
	for i := range logits {
		if i/64 >= len(allow) || allow[i/64]>>(i%64)&1 == 0 {
			logits[i] = float32(math.Inf(-1))
		}
	}
}
