package loop

import (
	"slices"
	"time"

	"talf/infer"
	"talf/internal/slab"
	"talf/model"
)

// Stats describe a loop.
type Stats struct {
	Running, Waiting int
	KV               model.KVStats // of the target; kept prefixes count as free

	// Since the loop was made:
	Submitted int
	Refused   int                  // not taken, because the queue was full or the loop closed
	Expired   int                  // waited too long in the queue
	Ended     map[infer.Reason]int // of those submitted

	PromptTokens int // of requests that were admitted
	CachedTokens int // of these, taken from kept prefixes

	Passes      int // steps of the engine that ran
	Rows        int // of the target's passes
	PromptRows  int // of these, rows of prompts and of what was preempted
	Preemptions int
	Delayed     int // prompts that a pass had no blocks for
	Failed      int // steps that failed
	Budget      int // rows that the last pass was allowed, 0 for no bound
	Draft       time.Duration
	Verify      time.Duration
	Busy        time.Duration // in steps of the engine

	Pace Pace // against plain decoding

	// Methods are the counts of drafting by the method of requests. A round is one of a request: a
	// pass that serves several is one of each.
	Methods map[string]*Drafting
}

// Drafting counts the rounds of requests with one method.
type Drafting struct {
	Counts
	// Position[i] counts the drafts of which at least i+1 tokens were accepted.
	Position []int
	// Context[i] has the rounds that began with fewer than ContextBounds[i] tokens and no fewer
	// than the bound before; the last has all others.
	Context [len(ContextBounds) + 1]Counts
	// Fallbacks counts rounds without a draft by infer.Fallback. A method that found nothing to
	// draft did not fall back.
	Fallbacks [infer.NumFallbacks]int
}

// ContextBounds are the lengths of prompt and output that Drafting.Context tells apart.
var ContextBounds = [...]int{512, 2048, 8192, 32768}

// Counts are those of rounds.
type Counts struct {
	Rounds   int
	Drafts   int // of these, with a draft
	Tokens   int // put out
	Drafted  int // tokens that were drafted and scored
	Accepted int // of these
}

func (c *Counts) add(o Counts) {
	c.Rounds, c.Drafts, c.Tokens = c.Rounds+o.Rounds, c.Drafts+o.Drafts, c.Tokens+o.Tokens
	c.Drafted, c.Accepted = c.Drafted+o.Drafted, c.Accepted+o.Accepted
}

// Tau returns tokens per round, 0 without rounds.
func (c *Counts) Tau() float64 {
	if c.Rounds == 0 {
		return 0
	}
	return float64(c.Tokens) / float64(c.Rounds)
}

// counted is what of a sequence's statistics is in the loop's.
type counted struct {
	Counts
	fallbacks [infer.NumFallbacks]int
}

// count adds what h's sequence did since the last call, at most one round.
func (s *Stats) count(h *Handle) {
	st := h.seq.Stats()
	if st.Passes == h.count.Rounds {
		return
	}
	was := h.count.Counts
	h.count.Counts = Counts{Rounds: st.Passes, Drafts: st.Drafts, Tokens: st.Tokens, Drafted: st.Drafted, Accepted: st.Accepted}
	round := Counts{
		Rounds: st.Passes - was.Rounds, Drafts: st.Drafts - was.Drafts, Tokens: st.Tokens - was.Tokens,
		Drafted: st.Drafted - was.Drafted, Accepted: st.Accepted - was.Accepted,
	}
	d := s.Methods[h.req.Method]
	if d == nil {
		d = new(Drafting)
		s.Methods[h.req.Method] = d
	}
	d.add(round)
	for i := range round.Accepted {
		*slab.At(&d.Position, i)++
	}
	at, _ := slices.BinarySearch(ContextBounds[:], len(h.req.Prompt)+was.Tokens+1)
	d.Context[at].add(round)
	for f, n := range st.Fallbacks {
		d.Fallbacks[f] += n - h.count.fallbacks[f]
		h.count.fallbacks[f] = n
	}
}

// Stats returns the state and the counts so far.
func (l *Loop) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Running, s.Waiting = len(l.running), len(l.waiting)
	s.Ended = make(map[infer.Reason]int, len(l.stats.Ended))
	for r, n := range l.stats.Ended {
		s.Ended[r] = n
	}
	s.Methods = make(map[string]*Drafting, len(l.stats.Methods))
	for m, d := range l.stats.Methods {
		c := *d
		c.Position = slices.Clone(d.Position)
		s.Methods[m] = &c
	}
	return s
}
