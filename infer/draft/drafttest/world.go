package drafttest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"talf/compute"
	"talf/infer"
	"talf/model"
	"talf/tree"
)

// A Table is a random model over a small vocabulary: the logits after a context are a function
// of its last Order tokens. It costs almost nothing to run, so a test can cover thousands of
// sequences.
type Table struct {
	Seed  uint64
	Vocab int
	Order int
	// Sharp scales the logits: 0 makes every token tie, large values make the
	// model certain.
	Sharp float64
	// Odd is the share of rows in which some logits are infinite or NaN, as in a broken model.
	Odd float64
}

func (m Table) rng(ctx []int32) *rand.Rand {
	h := m.Seed*0x9e3779b97f4a7c15 + 1
	for _, t := range ctx[max(0, len(ctx)-m.Order):] {
		h = (h ^ uint64(t+1)) * 0x100000001b3
		h ^= h >> 29
	}
	return rand.New(rand.NewPCG(h, m.Seed))
}

// Logits fills dst [Vocab] with the row after ctx.
func (m Table) Logits(dst []float32, ctx []int32) {
	r := m.rng(ctx)
	for i := range dst {
		dst[i] = float32(m.Sharp * r.NormFloat64())
	}
	if m.Odd > 0 && r.Float64() < m.Odd {
		odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1)}
		for range 1 + r.IntN(2*len(dst)) {
			dst[r.IntN(len(dst))] = float32(odd[r.IntN(len(odd))])
		}
	}
}

// A Target is a table as an infer.Target. It panics if the engine breaks the contract, and its
// Score fails when Fail says so.
type Target struct {
	Table  Table
	MaxLen int
	EOS    []int32
	Fail   func() bool

	Passes int
	seqs   map[infer.SeqID]*targetSeq
	kept   [][]int32
}

type targetSeq struct {
	tokens []int32
	job    infer.Job
	open   bool
}

// ErrPass is the error of a failing pass.
var ErrPass = errors.New("drafttest: this pass fails")

// Shape describes the table.
func (t *Target) Shape() infer.Shape {
	return infer.Shape{Vocab: t.Table.Vocab, MaxLen: t.MaxLen, EOS: t.EOS}
}

// KV says that there is no pool.
func (t *Target) KV() model.KVStats { return model.KVStats{} }

// Abilities: none.
func (t *Target) Abilities() infer.Abilities { return infer.Abilities{} }

// Match finds the longest kept prefix.
func (t *Target) Match(prompt []int32) (n int) {
	for _, k := range t.kept {
		n = max(n, infer.CommonPrefix(k, prompt))
	}
	return n
}

// Open starts a sequence.
func (t *Target) Open(id infer.SeqID, prompt []int32, keep int) error {
	if keep > t.Match(prompt) {
		panic("drafttest: more tokens kept than matched")
	}
	if t.seqs == nil {
		t.seqs = map[infer.SeqID]*targetSeq{}
	}
	t.seqs[id] = &targetSeq{tokens: slices.Clone(prompt[:keep])}
	return nil
}

// Score records the jobs; rows are computed when read.
func (t *Target) Score(ctx context.Context, jobs []infer.Job) ([]infer.Rows, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if t.Fail != nil && t.Fail() {
		return nil, ErrPass
	}
	t.Passes++
	var rows []infer.Rows
	for _, j := range jobs {
		s := t.seqs[j.ID]
		if len(s.tokens)+depth(j.Tree) >= t.MaxLen {
			panic(fmt.Sprintf("drafttest: a tree of depth %d at position %d, context of %d", depth(j.Tree), len(s.tokens), t.MaxLen))
		}
		s.job, s.open = j, true
		rows = append(rows, tableRows{t, s, slices.Clone(s.tokens)})
	}
	return rows, nil
}

func depth(t *tree.Tree) (d int) {
	for n := range t.Len() {
		d = max(d, t.Depth(n))
	}
	return d
}

// Commit appends the path's tokens.
func (t *Target) Commit(id infer.SeqID, path []int) error {
	s := t.seqs[id]
	if !s.open || len(path) == 0 || path[0] != 0 {
		panic(fmt.Sprintf("drafttest: commit of %v, scored %v", path, s.open))
	}
	for i, n := range path {
		if i > 0 && s.job.Tree.Parent(n) != path[i-1] {
			panic(fmt.Sprintf("drafttest: %v is no path of the tree", path))
		}
		s.tokens = append(s.tokens, s.job.Tree.Token(n))
	}
	s.open = false
	return nil
}

// Close keeps the sequence as a prefix; the last four are kept.
func (t *Target) Close(id infer.SeqID) {
	if len(t.kept) == 4 {
		t.kept = t.kept[:copy(t.kept, t.kept[1:])]
	}
	t.kept = append(t.kept, t.seqs[id].tokens)
	delete(t.seqs, id)
}

// Forget drops the kept sequences.
func (t *Target) Forget() { t.kept = nil }

// Tokens returns the committed tokens of an open sequence.
func (t *Target) Tokens(id infer.SeqID) []int32 { return t.seqs[id].tokens }

type tableRows struct {
	t      *Target
	s      *targetSeq
	before []int32
}

func (r tableRows) context(n int) []int32 {
	ctx := slices.Clone(r.before)
	for _, m := range r.s.job.Tree.AppendPath(nil, n) {
		ctx = append(ctx, r.s.job.Tree.Token(m))
	}
	return ctx
}

func (r tableRows) Logits(dst []float32, n int) {
	if r.s.job.Want != model.WantAll {
		panic("drafttest: logits were not wanted")
	}
	r.t.Table.Logits(dst, r.context(n))
}

func (r tableRows) TopK(dst []infer.Candidate, n, k int) []infer.Candidate {
	row := make([]float32, r.t.Table.Vocab)
	r.Logits(row, n)
	ids, lps := best(row, k)
	for i := range ids {
		dst = append(dst, infer.Candidate{Token: ids[i], LogProb: lps[i]})
	}
	return dst
}

func (r tableRows) Argmax(n int) int32 { return r.TopK(nil, n, 1)[0].Token }

func (r tableRows) Rank(dst []int32, n, k int) []int32 { return infer.Tokens(dst, r.TopK(nil, n, k)) }

func (r tableRows) Err() error { return nil }

func (r tableRows) Drawn(int, compute.Draw) (int32, bool) { return 0, false }

func (r tableRows) Hidden(int) model.Feature { return model.Feature{} }

// best returns the k most likely tokens of a row of logits, NaNs last, as devices do.
func best(row []float32, k int) (ids []int32, logp []float32) {
	for i := range row {
		ids = append(ids, int32(i))
	}
	slices.SortStableFunc(ids, func(a, b int32) int {
		x, y := row[a], row[b]
		switch {
		case x > y || x == x && y != y:
			return -1
		case x < y || x != x && y == y:
			return 1
		}
		return 0
	})
	var sum float64
	top := row[ids[0]]
	for _, x := range row {
		sum += math.Exp(float64(x - top))
	}
	ids = ids[:min(k, len(ids))]
	for _, i := range ids {
		logp = append(logp, float32(float64(row[i]-top)-math.Log(sum)))
	}
	return ids, logp
}

// restrict sets the logits of tokens that may not come to −∞, and reports whether others are left.
func restrict(row []float32, allow []uint64) (left bool) {
	for i := range row {
		if allow != nil && (i/64 >= len(allow) || allow[i/64]>>(i%64)&1 == 0) {
			row[i] = float32(math.Inf(-1))
		}
		left = left || row[i] > float32(math.Inf(-1))
	}
	return left
}

// A Source answers for a draft model that agrees with the target on a share of all contexts and
// is another random table on the others. It panics if the engine or a drafter breaks the
// contract, and its Rows fails when Fail says so.
type Source struct {
	Target *Target
	Agree  float64
	Noise  float64 // of its logits where it agrees
	Block  int     // nodes as deep as that have no rows, as of a block drafter; 0: all have
	Fail   func() bool

	Passes int
	seqs   map[infer.SeqID]*sourceSeq
}

type sourceSeq struct {
	tokens []int32 // committed, the root last
	ran    int
	unread int
}

// Match has no kept prefixes of its own: it uses the target's.
func (s *Source) Match(prompt []int32) int { return max(0, s.Target.Match(prompt)-1) }

// Open starts a sequence.
func (s *Source) Open(id infer.SeqID, prompt []int32, keep int) error {
	if s.seqs == nil {
		s.seqs = map[infer.SeqID]*sourceSeq{}
	}
	s.seqs[id] = &sourceSeq{tokens: slices.Clone(prompt[:keep+1]), unread: keep + 1}
	return nil
}

// Abilities: none.
func (s *Source) Abilities() infer.Abilities { return infer.Abilities{} }

// Backlog returns how many committed tokens are still to be read.
func (s *Source) Backlog(id infer.SeqID) int { return s.seqs[id].unread }

// Rows answers from the tables.
func (s *Source) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if s.Fail != nil && s.Fail() {
		return nil, ErrPass
	}
	s.Passes++
	other := s.Target.Table
	other.Seed += 977
	var rows []infer.Row
	for _, a := range asks {
		q := s.seqs[a.ID]
		if a.Tree == nil {
			if a.Width < 1 || a.Width >= q.unread {
				panic(fmt.Sprintf("drafttest: a source is to read %d tokens of %d, the root included", a.Width, q.unread))
			}
			q.unread -= a.Width
			continue
		}
		if a.From == 0 {
			q.ran, q.unread = 0, 0
		}
		if a.From != q.ran || a.From >= a.Tree.Len() || a.Tree.Token(0) != q.tokens[len(q.tokens)-1] {
			panic(fmt.Sprintf("drafttest: asked from %d of %d nodes below %d; %d ran, the root is %d",
				a.From, a.Tree.Len(), a.Tree.Token(0), q.ran, q.tokens[len(q.tokens)-1]))
		}
		for n := a.From; n < a.Tree.Len(); n++ {
			if s.Block > 0 && a.Tree.Depth(n) >= s.Block {
				rows = append(rows, infer.Row{})
				continue
			}
			ctx := slices.Clone(q.tokens)
			for _, m := range a.Tree.AppendPath(nil, n)[1:] {
				ctx = append(ctx, a.Tree.Token(m))
			}
			row := make([]float32, s.Target.Table.Vocab)
			if other.rng(ctx).Float64() < s.Agree {
				s.Target.Table.Logits(row, ctx)
				if s.Noise > 0 {
					r := other.rng(ctx)
					for i := range row {
						row[i] += float32(s.Noise * r.NormFloat64())
					}
				}
			} else {
				other.Logits(row, ctx)
			}
			r := infer.Row{}
			if a.Allow == nil || restrict(row, a.Allow(n)) {
				r.Tokens, r.LogProb = best(row, a.Width)
				for k, x := range r.LogProb {
					if math.IsInf(float64(x), -1) { // and so are all that follow
						r.Tokens, r.LogProb = r.Tokens[:k], r.LogProb[:k]
						break
					}
				}
				if a.Full {
					r.Logits = row
				}
			}
			rows = append(rows, r)
		}
		q.ran = a.Tree.Len()
	}
	return rows, nil
}

// Commit appends the tokens that were kept.
func (s *Source) Commit(id infer.SeqID, p infer.Proposal, v infer.Verdict, _ infer.Scores) error {
	q := s.seqs[id]
	if p.Tree.Token(0) != q.tokens[len(q.tokens)-1] {
		panic("drafttest: a source commit skips tokens")
	}
	for _, n := range v.Path[1:] {
		q.tokens = append(q.tokens, p.Tree.Token(n))
	}
	q.tokens, q.ran = append(q.tokens, v.Next), 0
	q.unread += len(v.Path)
	return nil
}

// Close ends a sequence.
func (s *Source) Close(id infer.SeqID) { delete(s.seqs, id) }

// Tokens returns the committed tokens of an open sequence.
func (s *Source) Tokens(id infer.SeqID) []int32 { return s.seqs[id].tokens }

// Plain is the simplest processor: argmax, or a softmax at a temperature, of logits that are
// numbers.
type Plain struct{ Temperature float64 }

// Argmax returns the first of the largest logits.
func (Plain) Argmax(logits []float32, _ []int32) int32 {
	best := 0
	for i, x := range logits {
		if x > logits[best] {
			best = i
		}
	}
	return int32(best)
}

// Plain returns true: there are no penalties.
func (Plain) Plain() bool { return true }

// Abilities: none.
func (Plain) Abilities() infer.ProcessorAbilities { return infer.ProcessorAbilities{} }

// Dist computes softmax(logits/Temperature).
func (p Plain) Dist(dst infer.Dist, logits []float32, _ []int32) {
	top := float64(slices.Max(logits))
	var sum float64
	for i, x := range logits {
		dst[i] = math.Exp((float64(x) - top) / p.Temperature)
		sum += dst[i]
	}
	for i := range dst {
		dst[i] /= sum
	}
}
