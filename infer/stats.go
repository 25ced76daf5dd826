package infer

import (
	"math/bits"
	"time"

	"talf/internal/slab"
	"talf/tree"
)

// A Rate counts trials and successes.
type Rate struct {
	Tried, Kept int
}

// Value returns Kept/Tried, 0 if nothing was tried.
func (r Rate) Value() float64 {
	if r.Tried == 0 {
		return 0
	}
	return float64(r.Kept) / float64(r.Tried)
}

// Stats count what one sequence did. They leave out tokens past EOS or a limit.
type Stats struct {
	Prompt  int // prompt tokens
	Cached  int // prompt tokens taken from a kept prefix
	Tokens  int // tokens emitted
	Passes  int // target passes that emitted them
	Drafts  int // of these, with a draft
	Drafted int // drafted nodes that were scored, without roots
	// Accepted counts the tokens emitted that had been drafted.
	Accepted int
	// Undrafted counts rounds that went without drafts, for a reason that Sequence.Undrafted has.
	Undrafted int
	// Fallbacks counts these rounds, and those after a source was given up, by Fallback.
	Fallbacks []int
	Preempted int // times that all of it was dropped because the KV pool was full

	// Emitted[n] counts the passes that emitted n tokens.
	Emitted []int
	// Depth[d] counts the passes whose path reached depth d-1 with children there, and
	// those that kept one of these children.
	Depth []Rate
	// Rank[r] counts the r-th siblings that were compared and those that were kept; r
	// starts at 1.
	Rank []Rate

	// Ranked[r] counts the drafted nodes that were r-th among their siblings.
	Ranked []int

	// Contexts[c] counts the passes by the tokens before them: from ContextFrom(c) up to ContextFrom(c+1).
	Contexts []Yield

	// Draft and Verify are the time spent in the source's and the target's passes.
	// Overhead is the rest of decoding: trees, verdicts, bookkeeping. A pass that serves
	// several sequences counts fully for each.
	Draft, Verify, Overhead time.Duration
	Prefill                 time.Duration
	TTFT                    time.Duration // from Open to the first token
	Decode                  time.Duration // rounds after prefill
}

// A Yield is passes and the tokens that they emitted.
type Yield struct{ Passes, Tokens int }

// ContextStep is where the second class of contexts begins. Each further one begins at twice as many tokens.
const ContextStep = 512

// ContextFrom returns the fewest tokens of a class of contexts.
func ContextFrom(class int) int {
	if class == 0 {
		return 0
	}
	return ContextStep << (class - 1)
}

// contextOf returns the class of a context of n tokens.
func contextOf(n int) int { return bits.Len(uint(n / ContextStep)) }

// Tau returns the acceptance length τ: tokens emitted per target pass, including the
// target's own token. Plain decoding has τ = 1.
func (s *Stats) Tau() float64 {
	if s.Passes == 0 {
		return 0
	}
	return float64(s.Tokens) / float64(s.Passes)
}

// TPOT returns the mean time per token after the prompt.
func (s *Stats) TPOT() time.Duration {
	if s.Tokens == 0 {
		return 0
	}
	return s.Decode / time.Duration(s.Tokens)
}

// Add sums o into s. TTFT adds up: divide by the number of sequences.
func (s *Stats) Add(o *Stats) {
	s.Prompt += o.Prompt
	s.Cached += o.Cached
	s.Tokens += o.Tokens
	s.Passes += o.Passes
	s.Drafts += o.Drafts
	s.Drafted += o.Drafted
	s.Accepted += o.Accepted
	s.Undrafted += o.Undrafted
	s.Preempted += o.Preempted
	for f, c := range o.Fallbacks {
		*slab.At(&s.Fallbacks, f) += c
	}
	for n, c := range o.Emitted {
		*slab.At(&s.Emitted, n) += c
	}
	for d, r := range o.Depth {
		x := slab.At(&s.Depth, d)
		x.Tried, x.Kept = x.Tried+r.Tried, x.Kept+r.Kept
	}
	for i, r := range o.Rank {
		x := slab.At(&s.Rank, i)
		x.Tried, x.Kept = x.Tried+r.Tried, x.Kept+r.Kept
	}
	for r, c := range o.Ranked {
		*slab.At(&s.Ranked, r) += c
	}
	for i, c := range o.Contexts {
		y := slab.At(&s.Contexts, i)
		y.Passes, y.Tokens = y.Passes+c.Passes, y.Tokens+c.Tokens
	}
	s.Draft += o.Draft
	s.Verify += o.Verify
	s.Overhead += o.Overhead
	s.Prefill += o.Prefill
	s.TTFT += o.TTFT
	s.Decode += o.Decode
}

// round counts one verdict on a tree of which the first live nodes may be accepted. kept is the number of emitted
// tokens, and path[:kept] is what the target keeps.
func (s *Stats) round(t *tree.Tree, live int, path []int, kept int) {
	y := slab.At(&s.Contexts, contextOf(s.Prompt+s.Tokens))
	y.Passes, y.Tokens = y.Passes+1, y.Tokens+kept
	s.Passes++
	s.Tokens += kept
	s.Drafted += t.Len() - 1
	if t.Len() > 1 {
		s.Drafts++
	}
	s.Accepted += min(kept, len(path)-1)
	*slab.At(&s.Emitted, kept)++
	for n := range t.Len() {
		rank := 0
		for c := t.FirstChild(n); c >= 0; c = t.NextSibling(c) {
			rank++
			*slab.At(&s.Ranked, rank)++
		}
	}
	for i, n := range path {
		if i >= kept {
			break
		}
		next := -1
		if i+1 < len(path) {
			next = path[i+1]
		}
		rank := 0
		tried := false
		for c := t.FirstChild(n); c >= 0; c = t.NextSibling(c) {
			if c >= live {
				continue
			}
			rank++
			tried = true
			r := slab.At(&s.Rank, rank)
			r.Tried++
			if c == next {
				r.Kept++
			}
		}
		if tried {
			d := slab.At(&s.Depth, i+1)
			d.Tried++
			if next >= 0 {
				d.Kept++
			}
		}
	}
}
