package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"talf/infer"
	"talf/infer/prefix"
	"talf/model"
	"talf/model/identity"
	"talf/model/medusa"
)

// A Medusa is Medusa heads as a source. A node at depth d has the distribution of head d, whatever its
// token, and nodes below the last head have none. So every head runs at most once in a round of a
// sequence, however many nodes are asked, and a tree is a product of the heads' likeliest tokens
// (Cai et al. 2024, §2.1.2).
//
// All that it keeps of a sequence is the target's hidden state before the root.
type Medusa struct {
	m     *medusa.Heads
	open  map[infer.SeqID]*medusaSeq
	store *model.Store // a row for each open sequence
	free  []int        // rows of the store
	used  int          // rows of the store that were given out

	pass   []medusa.Row
	fill   []*level // what rows of the pass are for
	ids    []int32
	logps  []float32
	rows   []infer.Row
	held   []int32 // tokens of rows of which some may not follow
	heldP  []float32
	filter filter
	retire []*medusaSeq // for their memory
}

type medusaSeq struct {
	row    int     // of the store
	known  bool    // it has the state before the root
	levels []level // by depth
}

// A level is what a head has said in this round.
type level struct {
	ran    bool
	full   bool      // logits are read
	tokens []int32   // best first
	logp   []float32 // of tokens
	logits []float32 // [vocab]
	width  int       // tokens to read
	head   int
	seq    *medusaSeq
}

// NewMedusa returns a source over h, which stays the caller's.
func NewMedusa(h *medusa.Heads) *Medusa {
	return &Medusa{m: h, open: map[infer.SeqID]*medusaSeq{}}
}

// Identity identifies the heads.
func (m *Medusa) Identity() (f *identity.Function, tokenizer string, err error) {
	return m.m.Function(), "", nil
}

// Match returns how many positions of prompt need not be committed: the hidden state before the last
// token comes from the target.
func (m *Medusa) Match(prompt []int32) int { return max(0, len(prompt)-2) }

// MatchOf is Match for an owner. Nothing is kept of any.
func (m *Medusa) MatchOf(_ prefix.Owner, prompt []int32) int { return m.Match(prompt) }

// Open starts a sequence.
func (m *Medusa) Open(id infer.SeqID, _ []int32, _ int) error {
	s := &medusaSeq{levels: make([]level, m.m.Spec().Heads)}
	if n := len(m.retire); n > 0 {
		s, m.retire = m.retire[n-1], m.retire[:n-1]
	}
	if n := len(m.free); n > 0 {
		s.row, m.free = m.free[n-1], m.free[:n-1]
	} else {
		if err := fit(&m.store, m.m.Target().NewStore, m.used, m.used+1); err != nil {
			return fmt.Errorf("source: open a sequence: %w", err)
		}
		s.row = m.used
		m.used++
	}
	s.begin(false)
	m.open[id] = s
	return nil
}

// OpenOf is Open for an owner.
func (m *Medusa) OpenOf(id infer.SeqID, _ prefix.Owner, prompt []int32, keep int) error {
	return m.Open(id, prompt, keep)
}

// Close ends a sequence.
func (m *Medusa) Close(id infer.SeqID) {
	s := m.open[id]
	if s == nil {
		return
	}
	delete(m.open, id)
	m.free = append(m.free, s.row)
	if len(m.retire) < mostSpare {
		m.retire = append(m.retire, s)
	}
}

// Backlog returns 1: heads read nothing but the hidden state before the root.
func (m *Medusa) Backlog(infer.SeqID) int { return 1 }

// begin forgets what the heads have said.
func (s *medusaSeq) begin(known bool) {
	s.known = known
	for i := range s.levels {
		l := &s.levels[i]
		l.ran, l.full, l.head, l.seq = false, false, i, s
	}
}

// Commit copies the hidden state of the last kept node.
func (m *Medusa) Commit(id infer.SeqID, _ infer.Proposal, v infer.Verdict, sc infer.Scores) error {
	s := m.open[id]
	if s == nil {
		return fmt.Errorf("source: sequence %d is not open", id)
	}
	f := sc.Hidden(v.Path[len(v.Path)-1])
	if f.Buf == nil {
		return errors.New("source: the target gives no hidden states, which Medusa heads read")
	}
	s.begin(false)
	if err := m.store.Put(s.row, f); err != nil {
		return fmt.Errorf("source: keep a hidden state: %w", err)
	}
	s.known = true
	return nil
}

// Rows runs the heads that are asked and have not run in the round.
func (m *Medusa) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	m.pass, m.fill = m.pass[:0], m.fill[:0]
	for i := range asks {
		a := &asks[i]
		s := m.open[a.ID]
		if s == nil {
			return nil, fmt.Errorf("source: sequence %d is not open", a.ID)
		}
		for n := a.From; n < a.Nodes(); n++ {
			full := a.Full || a.Allow != nil
			if l := s.at(a, n); l != nil && (!l.ran || len(l.tokens) < m.width(a) || full && !l.full) {
				if !slices.Contains(m.fill, l) {
					m.fill, l.width = append(m.fill, l), 0
				}
				l.width, l.full = max(l.width, m.width(a)), l.full || full
			}
		}
	}
	if err := m.run(ctx); err != nil {
		return nil, fmt.Errorf("run the Medusa heads: %w", err)
	}
	room := 0 // rows are slices of held, which must not move while rows are added
	for i := range asks {
		if a := &asks[i]; a.Allow != nil {
			room += (a.Nodes() - a.From) * m.width(a)
		}
	}
	m.held, m.heldP = slices.Grow(m.held[:0], room), slices.Grow(m.heldP[:0], room)
	m.rows = m.rows[:0]
	for i := range asks {
		a := &asks[i]
		for n := a.From; n < a.Nodes(); n++ {
			var r infer.Row
			if l := m.open[a.ID].at(a, n); l != nil && a.Allow != nil {
				r = m.allowed(a, n, l)
			} else if l != nil {
				k := m.width(a)
				if r.Tokens, r.LogProb = l.tokens[:k], l.logp[:k]; a.Full {
					r.Logits = l.logits
				}
			}
			m.rows = append(m.rows, r)
		}
	}
	return m.rows, nil
}

// allowed returns the row of node n with what may follow it.
func (m *Medusa) allowed(a *infer.Ask, n int, l *level) infer.Row {
	at, allow := len(m.held), a.Allow(n)
	held, heldP, ok := m.filter.best(m.held, m.heldP, l.logits, allow, m.width(a))
	m.held, m.heldP = held, heldP
	r := infer.Row{Tokens: m.held[at:], LogProb: m.heldP[at:]}
	if a.Full && ok {
		r.Logits = slices.Clone(l.logits) // nodes of one depth share them
		restrict(r.Logits, allow)
	}
	return r
}

// width is how many tokens of a row an ask gets.
func (m *Medusa) width(a *infer.Ask) int { return min(a.Width, m.m.Spec().Vocab) }

// at returns the level of a node, nil if no head has it.
func (s *medusaSeq) at(a *infer.Ask, n int) *level {
	if d := a.Tree.Depth(n); s.known && d < len(s.levels) {
		return &s.levels[d]
	}
	return nil
}

// run fills levels in one pass.
func (m *Medusa) run(ctx context.Context) error {
	if len(m.fill) == 0 {
		return ctx.Err()
	}
	slices.SortStableFunc(m.fill, func(a, b *level) int { return cmp.Compare(a.head, b.head) })
	wide := 1
	for _, l := range m.fill {
		l.ran = false // until it has
		m.pass = append(m.pass, medusa.Row{Head: l.head, State: m.store.At(l.seq.row)})
		wide = max(wide, l.width)
	}
	if err := m.m.Forward(ctx, m.pass); err != nil {
		return err
	}
	n := len(m.fill) * wide
	m.ids, m.logps = slices.Grow(m.ids[:0], n)[:n], slices.Grow(m.logps[:0], n)[:n]
	if err := m.m.TopK(m.ids, m.logps, wide); err != nil {
		return err
	}
	for r, l := range m.fill {
		l.tokens = append(l.tokens[:0], m.ids[r*wide:][:l.width]...)
		l.logp = append(l.logp[:0], m.logps[r*wide:][:l.width]...)
		if l.full {
			vocab := m.m.Spec().Vocab
			l.logits = slices.Grow(l.logits[:0], vocab)[:vocab]
			m.m.Logits(l.logits, r)
		}
		l.ran = true
	}
	return nil
}

// Abilities: what it keeps of a text is its own, whoever the tenant is.
func (m *Medusa) Abilities() infer.Abilities { return infer.Abilities{Tenants: m} }

var _ infer.Source = (*Medusa)(nil)
