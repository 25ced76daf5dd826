package draft

import (
	"fmt"
	"math"
	"sync"

	"talf/infer"
	"talf/infer/lookup"
	"talf/internal/spec"
)

// A memory is what training-free drafters draft from: the tokens of the sequence
// and, where there is a table, what the target thought likely at the nodes that
// it scored. It is most of a drafter; Grow is left to them.
type memory struct {
	context *lookup.Context
	table   *table // nil learns nothing
	harvest harvest
	prompt  int // tokens
	next    []lookup.Successor
	ids     []int32
}

// A table is transitions that the drafters of one maker may share.
type table struct {
	sync.Mutex
	*lookup.Transitions
	keep   bool // what was learnt from one request serves the next
	ranked bool // successors have no scores: their order is enough
}

// A harvest says which of the target's rows a table learns from.
type harvest uint8

const (
	harvestAll      harvest = iota // of every node scored and of the prompt
	harvestVerified                // of accepted nodes and of the prompt
	harvestRounds                  // of every node scored
)

// learning are the parameters of methods with a table.
func learning() []spec.Param {
	return []spec.Param{
		spec.Choice("harvest", "rows that the table learns from: all, verified (without rejected branches) or rounds (without the prompt)", "all", "verified", "rounds"),
		spec.Choice("table", "fresh begins every request with an empty table, keep goes on with that of the requests before", "fresh", "keep"),
	}
}

// remembering returns what makes memories for values of learning, with tables of
// k successors; ranked ones that know no scores.
func remembering(v spec.Values, lo, hi, k int, bigrams, ranked bool) func() memory {
	h := harvest(v.Choice("harvest"))
	keep := v.Choice("table") == 1
	fresh := func() *table {
		return &table{Transitions: lookup.NewTransitions(k, bigrams), keep: keep, ranked: ranked}
	}
	shared := sync.OnceValue(fresh)
	return func() memory {
		m := memory{context: lookup.NewContext(lo, hi), harvest: h}
		if keep {
			m.table = shared()
		} else {
			m.table = fresh()
		}
		return m
	}
}

// Start begins a sequence.
func (m *memory) Start(prompt []int32) error {
	m.context.Reset()
	m.context.Append(prompt...)
	m.prompt = len(prompt)
	if m.table != nil && !m.table.keep {
		m.table.Reset()
	}
	return nil
}

// traits ask for the rows of the prompt if the table learns from them, and for those
// of a kept prefix too unless the table outlives the sequence.
func (m *memory) traits(origin func(n int) int, origins ...string) infer.Traits {
	return infer.Traits{
		Harvest: m.table != nil && m.harvest != harvestRounds, Keeps: m.table != nil && m.table.keep,
		Origins: origins, Origin: origin,
	}
}

// Observe learns from what was scored and appends what was kept.
func (m *memory) Observe(p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	prefill := p.Pos < m.prompt-1
	if m.table != nil && !(prefill && m.harvest == harvestRounds) {
		m.learn(&p, v, s)
	}
	if prefill {
		return nil // the prompt is known from the start
	}
	m.context.Truncate(p.Pos + 1)
	for _, n := range v.Path[1:] {
		m.context.Append(p.Tree.Token(n))
	}
	m.context.Append(v.Next)
	return nil
}

func (m *memory) learn(p *infer.Proposal, v infer.Verdict, s infer.Scores) {
	m.table.Lock()
	defer m.table.Unlock()
	if m.harvest == harvestVerified {
		for _, n := range v.Path {
			m.learnRow(p, n, s)
		}
		return
	}
	for n := range p.Tree.Len() {
		m.learnRow(p, n, s)
	}
}

func (m *memory) learnRow(p *infer.Proposal, n int, s infer.Scores) {
	m.next = m.next[:0]
	if m.table.ranked {
		m.ids = s.Rank(m.ids[:0], n, m.table.Width())
		for _, t := range m.ids {
			m.next = append(m.next, lookup.Successor{Token: t})
		}
	} else {
		for _, c := range s.TopK(n, m.table.Width()) {
			if !(c.LogProb > float32(math.Inf(-1))) {
				break // no mass, or no number: so have all that follow
			}
			m.next = append(m.next, lookup.Successor{Token: c.Token, Score: float32(math.Exp(float64(c.LogProb)))})
		}
	}
	if len(m.next) == 0 {
		return // a replay lacks the row, or it says nothing: what is known of the place stays
	}
	m.table.Learn(m.before(p, n), p.Tree.Token(n), m.next)
}

// before returns the token before node n, -1 if there is none.
func (m *memory) before(p *infer.Proposal, n int) int32 {
	if n > 0 {
		return p.Tree.Token(p.Tree.Parent(n))
	}
	if p.Pos > 0 {
		return m.context.Tokens()[p.Pos-1]
	}
	return -1
}

// after returns what may follow node n, best first. The table is locked.
func (m *memory) after(p *infer.Proposal, n int) []lookup.Successor {
	return m.table.Next(m.before(p, n), p.Tree.Token(n))
}

// ngramParams are the lengths of n-grams that a context indexes.
func ngramParams() []spec.Param {
	return []spec.Param{
		spec.Int("lo", 3, 1, 16, "shortest n-gram that counts as a match"),
		spec.Int("hi", 5, 1, 16, "longest n-gram looked for; the longest that matches wins"),
	}
}

func readNgrams(v spec.Values) (lo, hi int, err error) {
	if lo, hi = v.Int("lo"), v.Int("hi"); hi < lo {
		err = fmt.Errorf("n-grams of lo=%d to hi=%d tokens, want lo <= hi", lo, hi)
	}
	return lo, hi, err
}
