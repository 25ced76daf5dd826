// Package sample turns a row of logits into the distribution that a request asks for,
// and draws from it. The processors, their order and their edge cases are those of
// Hugging Face transformers: repetition penalty, temperature, top-k, top-p, min-p. Before them
// come the parameters of OpenAI's API that transformers lacks, with vLLM's semantics: logit bias
// before the repetition penalty, frequency and presence penalty after it. Sums are in float64 in
// a fixed order, so equal input gives equal bits on every platform.
// It also provides the operations on whole rows that drafters and verifiers need.
package sample

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"

	"talf/internal/splitmix"
	"talf/model/internal/probs"
)

// Params are a request's sampling parameters. Zero means zero, so the zero value is not
// usable; start from Default.
type Params struct {
	Temperature       float64 // 0: greedy
	TopK              int     // keep the k most likely tokens; 0: all
	TopP              float64 // keep the smallest set of most likely tokens that reaches this mass; 1: all
	MinP              float64 // keep tokens at least this likely relative to the best; 0: all
	RepetitionPenalty float64 // for tokens in the context; 1: none

	// FrequencyPenalty is subtracted from a token's logit for every time that the token occurs in
	// the answer, PresencePenalty once if it occurs at all. The prompt does not count.
	FrequencyPenalty float64 `json:",omitzero"`
	PresencePenalty  float64 `json:",omitzero"`
	// LogitBias is added to the logits of tokens, each named once.
	LogitBias []Bias `json:",omitzero"`

	// Held are tokens that do not come before the answer has MinTokens, unless nothing else can: those that end it.
	MinTokens int     `json:",omitzero"`
	Held      []int32 `json:",omitzero"`
}

// A Bias is added to the logit of a token.
type Bias struct {
	Token int32
	By    float64
}

// Default samples from the model's own distribution.
func Default() Params { return Params{Temperature: 1, TopP: 1, RepetitionPenalty: 1} }

// Greedy returns parameters for plain greedy decoding.
func Greedy() Params { return Params{TopP: 1, RepetitionPenalty: 1} }

// Validate reports the first parameter out of range.
func (p Params) Validate() error {
	switch {
	case !(p.Temperature >= 0 && p.Temperature <= math.MaxFloat32):
		return fmt.Errorf("temperature is %v, want at least 0", p.Temperature)
	case p.TopK < 0:
		return fmt.Errorf("top-k is %d, want at least 0", p.TopK)
	case !(p.TopP >= 0 && p.TopP <= 1):
		return fmt.Errorf("top-p is %v, want 0 to 1", p.TopP)
	case !(p.MinP >= 0 && p.MinP <= 1):
		return fmt.Errorf("min-p is %v, want 0 to 1", p.MinP)
	case !(p.RepetitionPenalty > 0 && p.RepetitionPenalty <= math.MaxFloat32):
		return fmt.Errorf("repetition penalty is %v, want more than 0", p.RepetitionPenalty)
	case !finite32(p.FrequencyPenalty):
		return fmt.Errorf("frequency penalty is %v, want a number", p.FrequencyPenalty)
	case !finite32(p.PresencePenalty):
		return fmt.Errorf("presence penalty is %v, want a number", p.PresencePenalty)
	}
	if p.MinTokens < 0 {
		return fmt.Errorf("min-tokens is %d, want at least 0", p.MinTokens)
	}
	for _, id := range p.Held {
		if id < 0 {
			return fmt.Errorf("token %d is held back, want an id of at least 0", id)
		}
	}
	named := make(map[int32]bool, len(p.LogitBias))
	for _, b := range p.LogitBias {
		switch {
		case b.Token < 0:
			return fmt.Errorf("logit bias of token %d, want an id of at least 0", b.Token)
		case !finite32(b.By):
			return fmt.Errorf("logit bias of token %d is %v, want a number", b.Token, b.By)
		case named[b.Token]:
			return fmt.Errorf("logit bias of token %d is given twice", b.Token)
		}
		named[b.Token] = true
	}
	return nil
}

func finite32(x float64) bool { return math.Abs(x) <= math.MaxFloat32 }

// Argmax returns the lowest id of the largest logit. NaN is never the largest. For a
// row of only NaN it returns 0.
func Argmax(logits []float32) int32 {
	best, at := float32(math.Inf(-1)), 0
	for i, x := range logits {
		if x > best {
			best, at = x, i
		}
	}
	return int32(at)
}

// Prob returns the probability of token id at temperature 1, in float64.
func Prob(logits []float32, id int32) float64 {
	top := float64(slices.Max(logits))
	var sum float64
	for _, x := range logits {
		sum += math.Exp(float64(x) - top)
	}
	return math.Exp(float64(logits[id])-top) / sum
}

// A Sampler applies parameters to rows. It has scratch memory, so only one goroutine at
// a time may use it.
type Sampler struct {
	p      Params
	prompt int       // tokens of the context that are not the answer's
	row    []float32 // logits after bias and penalties
	prob   []float64
	heap   []int32
	seen   []uint64 // bit set of tokens already penalised

	allow []uint64 // bit set of the tokens that may come; nil: all
	ends  []int32  // these may come if end says so, whatever allow says
	end   bool
	kept  []float32 // logits of these, or of the tokens that are held back
}

// New returns a sampler for an answer to a prompt of the given number of tokens, which begin every
// context. It panics if p is not valid: check user input first.
func New(p Params, prompt int) *Sampler {
	if err := p.Validate(); err != nil {
		panic("sample: " + err.Error())
	}
	return &Sampler{p: p, prompt: prompt}
}

// Params returns the parameters.
func (s *Sampler) Params() Params { return s.p }

// Restrict takes all tokens that are not in allow out of the distribution: bit i%64 of word i/64
// is token i's, and tokens beyond its words are out. The tokens in ends are in it only if end is
// true. At least one token must be left. What bias and penalties do, they do to the tokens that
// are left, and truncation counts no others. Restrict holds until it or Free is called.
func (s *Sampler) Restrict(allow []uint64, ends []int32, end bool) {
	if allow == nil {
		panic("sample: Restrict to a nil set")
	}
	s.allow, s.ends, s.end = allow, ends, end
}

// Free takes back what Restrict did.
func (s *Sampler) Free() { s.allow, s.ends, s.end = nil, nil, false }

// restrict sets the logits of tokens that may not come to −Inf.
func (s *Sampler) restrict() {
	inf := float32(math.Inf(-1))
	s.kept = s.kept[:0]
	for _, id := range s.ends {
		if id >= 0 && int(id) < len(s.row) {
			s.kept = append(s.kept, s.row[id])
		}
	}
	for i := 0; i < len(s.row); i += 64 {
		var w uint64
		if i/64 < len(s.allow) {
			w = s.allow[i/64]
		}
		part := s.row[i:min(i+64, len(s.row))]
		if w == 0 {
			for j := range part {
				part[j] = inf
			}
			continue
		}
		for out := ^w; out != 0; out &= out - 1 {
			if j := bits.TrailingZeros64(out); j < len(part) {
				part[j] = inf
			}
		}
	}
	k := 0
	for _, id := range s.ends {
		if id < 0 || int(id) >= len(s.row) {
			continue
		}
		if s.row[id] = inf; s.end {
			s.row[id] = s.kept[k]
		}
		k++
	}
	if rows().Max(s.row) > inf {
		return
	}
	// Penalties can make logits infinite: the tokens that are left are then equally likely.
	for i := range s.row {
		if i/64 < len(s.allow) && s.allow[i/64]>>(i&63)&1 != 0 {
			s.row[i] = 0
		}
	}
	for _, id := range s.ends {
		if id >= 0 && int(id) < len(s.row) {
			if s.row[id] = inf; s.end {
				s.row[id] = 0
			}
		}
	}
}

// Plain reports whether there is no bias, no penalty and no restriction: the most likely token is
// that of the model's own logits.
func (s *Sampler) Plain() bool {
	return s.allow == nil && s.p.MinTokens == 0 && s.p.RepetitionPenalty == 1 && s.p.FrequencyPenalty == 0 && s.p.PresencePenalty == 0 && len(s.p.LogitBias) == 0
}

// Argmax returns the lowest id of the largest logit after bias and penalties, which is all that
// greedy decoding needs. The context is everything before the token: committed tokens, then the
// path to the node.
func (s *Sampler) Argmax(logits []float32, context ...[]int32) int32 {
	return Argmax(s.adjust(logits, context))
}

// adjust returns logits with bias and penalties applied. Without any it returns logits.
func (s *Sampler) adjust(logits []float32, context [][]int32) []float32 {
	if s.Plain() {
		return logits
	}
	s.row = append(s.row[:0], logits...)
	for _, b := range s.p.LogitBias {
		if int(b.Token) >= len(s.row) {
			panic(fmt.Sprintf("sample: logit bias of token %d with %d logits", b.Token, len(s.row)))
		}
		s.row[b.Token] += float32(b.By)
	}
	if s.p.RepetitionPenalty != 1 {
		s.repetition(context)
	}
	if s.p.FrequencyPenalty != 0 || s.p.PresencePenalty != 0 {
		s.occurrence(context)
	}
	if s.allow != nil {
		s.restrict()
	}
	s.hold(context)
	return s.row
}

// hold takes out the tokens that are held back, if the answer is too short for them and others are left.
func (s *Sampler) hold(context [][]int32) {
	left := s.p.MinTokens + s.prompt
	for _, ids := range context {
		left -= len(ids)
	}
	if left <= 0 || len(s.p.Held) == 0 {
		return
	}
	inf := float32(math.Inf(-1))
	s.kept = s.kept[:0]
	for _, id := range s.p.Held {
		if int(id) < len(s.row) {
			s.kept = append(s.kept, s.row[id])
			s.row[id] = inf
		}
	}
	if rows().Max(s.row) > inf {
		return
	}
	for _, id := range slices.Backward(s.p.Held) { // of one that is named twice the first time counts
		if int(id) < len(s.row) {
			s.row[id], s.kept = s.kept[len(s.kept)-1], s.kept[:len(s.kept)-1]
		}
	}
}

// mark returns the set of tokens seen, emptied.
func (s *Sampler) mark() []uint64 {
	words := (len(s.row) + 63) / 64
	if len(s.seen) < words {
		s.seen = make([]uint64, words)
	}
	clear(s.seen)
	return s.seen
}

// first adds id to a set and reports whether it was not in it.
func (s *Sampler) first(seen []uint64, id int32) bool {
	if id < 0 || int(id) >= len(s.row) {
		panic(fmt.Sprintf("sample: context token %d with %d logits", id, len(s.row)))
	}
	bit := uint64(1) << (id % 64)
	if seen[id/64]&bit != 0 {
		return false
	}
	seen[id/64] |= bit
	return true
}

// repetition applies the repetition penalty (CTRL, Keskar et al. 2019, §4.1, as in transformers:
// negative logits are multiplied), once per token, however often it occurs.
func (s *Sampler) repetition(context [][]int32) {
	seen, pen := s.mark(), float32(s.p.RepetitionPenalty)
	for _, ids := range context {
		for _, id := range ids {
			if !s.first(seen, id) {
				continue
			}
			if x := s.row[id]; x < 0 {
				s.row[id] = x * pen
			} else {
				s.row[id] = x / pen
			}
		}
	}
}

// occurrence applies the frequency and presence penalties (OpenAI's API) to the tokens of the
// answer.
func (s *Sampler) occurrence(context [][]int32) {
	seen := s.mark()
	often, once := float32(s.p.FrequencyPenalty), float32(s.p.PresencePenalty)
	skip := s.prompt
	for _, ids := range context {
		n := min(skip, len(ids))
		skip -= n
		for _, id := range ids[n:] {
			if s.first(seen, id) {
				s.row[id] -= once
			}
			s.row[id] -= often
		}
	}
}

// Dist sets dst [Vocab] to the distribution of the next token. It sums to 1 up to
// rounding, and removed tokens are exactly 0. Temperature 0 gives all mass to Argmax.
// Several infinite logits share the mass, as in the limit of large equal logits. dst
// may be logits.
func (s *Sampler) Dist(dst, logits []float32, context ...[]int32) {
	if cap(s.prob) < len(logits) {
		s.prob = make([]float64, len(logits))
	}
	w := s.prob[:len(logits)]
	by := 1 / s.weigh(w, logits, context)
	for i, v := range w {
		dst[i] = float32(v * by)
	}
}

// Dist64 is Dist without the rounding to float32: verifiers divide by these
// probabilities, which must sum to 1.
func (s *Sampler) Dist64(dst []float64, logits []float32, context ...[]int32) {
	dst = dst[:len(logits)]
	rows().Scale(dst, 1/s.weigh(dst, logits, context))
}

// Quantile returns the token at quantile u of the distribution, by ascending id: Invert of Dist64, but for its rounding, at less
// cost. It is a function of the logits, the context and u alone, which a device may compute; see Scale.
func (s *Sampler) Quantile(logits []float32, u float64, context ...[]int32) int32 {
	if cap(s.prob) < len(logits) {
		s.prob = make([]float64, len(logits))
	}
	w := s.prob[:len(logits)]
	s.weigh(w, logits, context)
	return Invert(w, u)
}

// Scale returns what logits are multiplied by before the softmax, if that is all that Quantile does with them, whatever the context and
// the number of tokens: they are drawn from as they are.
func (s *Sampler) Scale() (by float64, ok bool) {
	if s.p.Temperature == 0 || !s.Plain() || s.p.TopK > 0 || s.p.TopP < 1 || s.p.MinP > 0 {
		return 0, false
	}
	return scale(s.p.Temperature), true
}

// scale is 1/temperature, or the largest number.
func scale(temperature float64) float64 { return min(1/temperature, math.MaxFloat64) }

// rows computes with the fastest instructions of this process.
var rows = sync.OnceValue(probs.Best)

// weigh sets w [Vocab] to the result of Dist before division by the sum, and returns
// the sum. The largest weight is 1.
func (s *Sampler) weigh(w []float64, logits []float32, context [][]int32) float64 {
	x := s.adjust(logits, context)
	if s.p.Temperature == 0 {
		clear(w)
		w[Argmax(x)] = 1
		return 1
	}
	n := len(x)
	sum := softmax(w, x, s.p.Temperature)
	if !s.truncates(n) {
		return sum
	}
	if k := s.p.TopK; k > 0 && k < n {
		s.topK(w, k)
	}
	if s.p.TopP < 1 {
		s.topP(w)
	}
	if s.p.MinP > 0 {
		for i, v := range w { // the most likely token has weight 1
			if v < s.p.MinP {
				w[i] = 0
			}
		}
	}
	return rows().Sum(w)
}

// softmax sets w to e^((x−max)/temperature) and returns the sum. If the largest
// logit is infinite, or all are NaN, all mass goes to the tokens tied for the maximum.
func softmax(w []float64, x []float32, temperature float64) float64 {
	top := rows().Max(x)
	if math.IsInf(float64(top), 0) {
		return share(w, x, top)
	}
	return rows().SoftExp(w, x, float64(top), scale(temperature))
}

// share sets w to 1 where x is top and to 0 elsewhere, and returns the sum. In a row of
// NaNs the first token has weight 1, so that the sum is never 0.
func share[W float32 | float64](w []W, x []float32, top float32) (sum float64) {
	clear(w)
	w[Argmax(x)] = 1
	for i, l := range x {
		if l == top {
			w[i] = 1
		}
		sum += float64(w[i])
	}
	return sum
}

// truncates reports whether some of n tokens may lose their weight.
func (s *Sampler) truncates(n int) bool {
	return s.p.TopK > 0 && s.p.TopK < n || s.p.TopP < 1 || s.p.MinP > 0
}

// topK zeroes weights below the k-th largest. Tokens tied with it stay, as in
// transformers' TopKLogitsWarper.
func (s *Sampler) topK(w []float64, k int) {
	s.fill(w)
	var kth float64
	for range min(k, len(s.heap)) { // weights that underflowed are not in the heap
		kth = w[s.pop(w)]
	}
	for i, v := range w {
		if v < kth {
			w[i] = 0
		}
	}
}

// topP keeps tokens, most likely first, ties by lower id, until their mass
// reaches top-p; the best always stays (transformers' TopPLogitsWarper).
func (s *Sampler) topP(w []float64) {
	sum := rows().Sum(w)
	s.fill(w)
	var mass float64
	for kept := 0; len(s.heap) > 0; kept++ {
		if kept > 0 && mass >= float64(s.p.TopP*sum) {
			break
		}
		mass += w[s.pop(w)]
	}
	for _, i := range s.heap { // those not popped
		w[i] = 0
	}
}

// before is the order of the heap: larger weights first, then lower ids.
func before(w []float64, a, b int32) bool { return w[a] > w[b] || w[a] == w[b] && a < b }

// fill makes a heap of the ids with nonzero weight.
func (s *Sampler) fill(w []float64) {
	s.heap = s.heap[:0]
	for i, v := range w {
		if v > 0 {
			s.heap = append(s.heap, int32(i))
		}
	}
	for i := len(s.heap)/2 - 1; i >= 0; i-- {
		s.sift(w, i)
	}
}

// pop removes and returns the first id of a non-empty heap.
func (s *Sampler) pop(w []float64) int32 {
	h := s.heap
	id, last := h[0], len(h)-1
	h[0] = h[last]
	s.heap = h[:last]
	s.sift(w, 0)
	return id
}

func (s *Sampler) sift(w []float64, i int) {
	h := s.heap
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && before(w, h[c+1], h[c]) {
			c++
		}
		if !before(w, h[c], h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

// Uniform returns a number in [0,1) that depends only on the seed and the position: the
// draw at a position is the same no matter how a decoder got there.
func Uniform(seed uint64, pos int) float64 {
	var r rand.PCG
	r.Seed(splitmix.Mix(seed), splitmix.Mix(uint64(pos)+splitmix.Gamma))
	r.Uint64() // the first output is close to the seed
	return float64(r.Uint64()>>11) * 0x1p-53
}
