package source

import (
	"math"
	"math/bits"
	"slices"

	"talf/model/sample"
)

// A filter takes the likeliest tokens of a row among those that may follow.
type filter struct {
	ids     []int32   // of logits; nil: every token has its place
	logits  []float32 // of the tokens that may follow, or of all, −∞ where they may not
	weights []float32
	bins    []float64
	heap    []int32 // places in logits, the least likely first
	kept    []int32 // memory of ids
}

// best appends the k likeliest tokens of logits that allow has to tokens, best first, ties to the lower
// id, and their log-softmax values among all that allow has, at temperature 1, to logp; ok is whether
// allow has a token with mass. What allow means is said at infer.Ask.
func (f *filter) best(tokens []int32, logp, logits []float32, allow []uint64, k int) (_ []int32, _ []float32, ok bool) {
	f.gather(logits, allow)
	f.heap = f.heap[:0]
	worst := float32(math.Inf(-1)) // a token has to be likelier
	for i, x := range f.logits {
		if !(x > worst) { // or is NaN; of two that are equal, the earlier is there already
			continue
		}
		ok = true
		switch {
		case len(f.heap) < k:
			f.heap = append(f.heap, int32(i))
			for at := len(f.heap) - 1; at > 0 && f.after(f.heap[at], f.heap[(at-1)/2]); at = (at - 1) / 2 {
				f.heap[at], f.heap[(at-1)/2] = f.heap[(at-1)/2], f.heap[at]
			}
		case k > 0:
			f.heap[0] = int32(i)
			f.sift()
		}
		if k > 0 && len(f.heap) == k {
			worst = f.logits[f.heap[0]]
		}
	}
	if len(f.heap) == 0 {
		return tokens, logp, ok
	}
	n := len(f.logits)
	f.weights = slices.Grow(f.weights[:0], n)[:n]
	f.bins = slices.Grow(f.bins[:0], sample.Bins(n))[:sample.Bins(n)]
	sample.Weigh(f.weights, f.bins, f.logits, 1)
	norm := math.Log(sample.Sum(f.bins))
	slices.SortFunc(f.heap, func(a, b int32) int {
		if f.after(b, a) {
			return -1
		}
		return 1
	})
	top := f.logits[f.heap[0]]
	for _, i := range f.heap {
		id := i
		if f.ids != nil {
			id = f.ids[i]
		}
		tokens, logp = append(tokens, id), append(logp, float32(float64(f.logits[i]-top)-norm))
	}
	return tokens, logp, ok
}

// gather takes the logits of what may follow. Where that is many tokens, as within a string, finding
// and copying each costs several times what looking at all logits does.
func (f *filter) gather(logits []float32, allow []uint64) {
	f.ids, f.logits = nil, f.logits[:0]
	if allow == nil {
		f.logits = append(f.logits, logits...)
		return
	}
	count := 0
	for _, word := range allow {
		count += bits.OnesCount64(word)
	}
	if 2*count >= len(logits) {
		f.logits = append(f.logits, logits...)
		restrict(f.logits, allow)
		return
	}
	f.kept = f.kept[:0]
	for w, word := range allow {
		for ; word != 0; word &= word - 1 {
			if i := 64*w + bits.TrailingZeros64(word); i < len(logits) {
				f.kept, f.logits = append(f.kept, int32(i)), append(f.logits, logits[i])
			}
		}
	}
	f.ids = f.kept
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
	for at := 0; at < len(logits); at += 64 {
		may := uint64(0)
		if w := at / 64; w < len(allow) {
			may = allow[w]
		}
		part := logits[at:min(at+64, len(logits))]
		for no := ^may; no != 0; no &= no - 1 {
			i := bits.TrailingZeros64(no)
			if i >= len(part) {
				break
			}
			part[i] = float32(math.Inf(-1))
		}
	}
}
