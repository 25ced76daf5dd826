package infer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"talf/compute"
	"talf/infer/prefix"
	"talf/model"
)

// A ModelTarget is a Target over a model. Closed sequences are kept as prefixes for
// later prompts.
type ModelTarget struct {
	m    *model.Model
	open map[SeqID]*targetSeq
	kept *prefix.Cache[*model.Seq] // closed sequences
	segs []model.Segment
	seqs []*targetSeq
	rows []Rows
	outs []modelRows
	tops []passTop
	one  [1]int32 // of Argmax
}

// A passTop holds the k most likely tokens of every row of a pass. A drafter that
// reads one row usually reads most of them, and the device finds those of all rows
// together in parallel.
type passTop struct {
	k     int
	done  bool      // ids are of this pass
	sure  bool      // and so are logps
	ids   []int32   // [rows][k]
	logps []float32 // [rows][k]
}

type targetSeq struct {
	seq    *model.Seq
	branch *model.Branch
	of     prefix.Owner
	tokens []int32 // committed, one per position
	tree   []int32 // tokens of the tree last scored
	rows   *modelRows
	sound  int // leading tokens after which numbers were finite, so that what is kept of them is
}

// NewTarget returns a target over m that keeps the KV store of up to prefixes
// closed sequences.
func NewTarget(m *model.Model, prefixes int) *ModelTarget {
	return &ModelTarget{m: m, kept: prefix.Of(m, prefixes), open: map[SeqID]*targetSeq{}}
}

// Prefixes returns the kept sequences, for the caller to bound or evict.
func (t *ModelTarget) Prefixes() *prefix.Cache[*model.Seq] { return t.kept }

// Shape describes m.
func (t *ModelTarget) Shape() Shape {
	s := t.m.Spec()
	return Shape{Vocab: s.Vocab, MaxLen: s.MaxPos, Switch: s.Rope.Switch(), EOS: s.EOS}
}

// KV describes m's pool.
func (t *ModelTarget) KV() model.KVStats {
	s := t.m.KV()
	kept := min(s.Used, int(t.kept.Size()/t.m.BlockBytes())+t.kept.Len()*s.State)
	s.Used, s.Free = s.Used-kept, s.Free+kept
	return s
}

// ReleaseKV gives the memory that m's pool does not use back to the system.
func (t *ModelTarget) ReleaseKV() { t.m.ReleaseKV() }

// Match returns the length of the longest prefix of prompt that a closed sequence has; 0 for models with longrope, as
// prompt does not say whether its text is long.
func (t *ModelTarget) Match(prompt []int32) int {
	if t.m.Spec().Rope.Switch() > 0 {
		return 0
	}
	return t.MatchOf(prefix.Owner{}, prompt)
}

// MatchOf is Match for an owner.
func (t *ModelTarget) MatchOf(of prefix.Owner, prompt []int32) int {
	return t.kept.MatchOf(of, prompt)
}

// CommonPrefix returns how many leading tokens a and b share.
func CommonPrefix(a, b []int32) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// Open starts a sequence.
func (t *ModelTarget) Open(id SeqID, prompt []int32, keep int) error {
	return t.OpenOf(id, prefix.Owner{Long: t.m.Spec().Long(len(prompt))}, prompt, keep)
}

// OpenOf is Open for an owner.
func (t *ModelTarget) OpenOf(id SeqID, of prefix.Owner, prompt []int32, keep int) error {
	if of.Long != t.m.Spec().Long(len(prompt)) {
		return fmt.Errorf("infer: open a text of %d tokens as long: %v, but longer than %d is", len(prompt), of.Long, t.m.Spec().Rope.Switch())
	}
	s := &targetSeq{of: of}
	if keep > 0 {
		k, n := t.kept.FindOf(of, prompt[:keep])
		if keep > n {
			return fmt.Errorf("infer: open with %d kept tokens, %d are there", keep, n)
		}
		s.seq = k.Fork()
		s.seq.Truncate(keep)
		s.tokens, s.sound = append(s.tokens, prompt[:keep]...), keep
	} else {
		s.seq = t.m.NewSeqOf(len(prompt))
	}
	prefix.Mark(t.kept, of, prompt, keep, s.seq)
	t.open[id] = s
	return nil
}

// Score runs all jobs in one pass.
func (t *ModelTarget) Score(ctx context.Context, jobs []Job) ([]Rows, error) {
	t.segs, t.seqs, t.rows = t.segs[:0], t.seqs[:0], t.rows[:0]
	for _, j := range jobs {
		s := t.open[j.ID]
		if s == nil {
			return nil, fmt.Errorf("infer: sequence %d is not open", j.ID)
		}
		s.drop()
		s.branch = s.seq.Branch(s.seq.Len())
		s.tree = append(s.tree[:0], j.Tree.Tokens()...)
		t.segs = append(t.segs, model.Segment{Rows: s.branch, Tree: j.Tree, Want: j.Want, Draws: j.Draws})
		t.seqs = append(t.seqs, s)
	}
	for i := range t.tops {
		t.tops[i].done, t.tops[i].sure = false, false
	}
	out, err := t.m.Forward(ctx, t.segs)
	for errors.Is(err, model.ErrKVFull) && t.kept.Evict() {
		out, err = t.m.Forward(ctx, t.segs)
	}
	if err != nil {
		for _, s := range t.seqs {
			s.drop()
		}
		return nil, err
	}
	t.outs = slices.Grow(t.outs[:0], len(jobs))[:len(jobs)]
	for i := range jobs {
		t.outs[i] = modelRows{t: t, out: out, seg: i}
		t.rows = append(t.rows, &t.outs[i])
		t.seqs[i].rows = &t.outs[i]
	}
	return t.rows, nil
}

func (s *targetSeq) drop() {
	if s.branch != nil {
		s.branch.Drop()
		s.branch = nil
	}
}

// Commit keeps path.
func (t *ModelTarget) Commit(id SeqID, path []int) error {
	s := t.open[id]
	if s == nil || s.branch == nil {
		return fmt.Errorf("infer: sequence %d has no scored tree", id)
	}
	if err := s.branch.Commit(path); err != nil {
		return err // the branch is still open: Close drops it
	}
	s.branch = nil
	for _, n := range path {
		s.tokens = append(s.tokens, s.tree[n])
	}
	if s.rows.out.Sound(s.rows.seg) {
		s.sound = len(s.tokens)
	}
	return nil
}

// Close ends a sequence and keeps it as a prefix, as far as numbers were finite: a token whose
// numbers are not spoils those before it in its chunk of the prompt, and later prompts may share
// these.
func (t *ModelTarget) Close(id SeqID) {
	s := t.open[id]
	if s == nil {
		return
	}
	delete(t.open, id)
	s.drop()
	s.sound = s.seq.Resume(s.sound)
	s.seq.Truncate(s.sound)
	t.kept.PutOf(s.of, s.tokens[:s.sound], s.seq)
}

// Abilities: it keeps prefixes by tenant, gives memory back, and draws tokens if m's device does.
func (t *ModelTarget) Abilities() Abilities {
	return Abilities{Tenants: t, Release: t, Draws: t.m.Draws()}
}

// modelRows are one segment's rows of a pass.
type modelRows struct {
	t   *ModelTarget
	out *model.Output
	seg int
}

func (r *modelRows) Logits(dst []float32, n int) { r.out.ReadLogits(dst, r.out.LogitsRow(r.seg, n)) }

// Err says why no token can be chosen from the rows.
func (r *modelRows) Err() error { return r.out.Err(r.seg) }

// Drawn returns a token that the pass has drawn after node n.
func (r *modelRows) Drawn(n int, d compute.Draw) (int32, bool) {
	return r.out.Drawn(r.out.LogitsRow(r.seg, n), d)
}

func (r *modelRows) Hidden(n int) model.Feature {
	return r.out.Feature(r.seg, n)
}

func (r *modelRows) TopK(dst []Candidate, n, k int) []Candidate {
	k = min(k, r.t.m.Spec().Vocab)
	top := r.t.top(r.out, k, true)
	row := r.out.LogitsRow(r.seg, n) * top.k
	for i := row; i < row+k; i++ {
		dst = append(dst, Candidate{top.ids[i], top.logps[i]})
	}
	return dst
}

// Argmax reads only node n.
func (r *modelRows) Argmax(n int) int32 {
	r.out.TopK(r.t.one[:], nil, r.out.LogitsRow(r.seg, n), 1, 1)
	return r.t.one[0]
}

// Rank appends node n's k most likely next tokens.
func (r *modelRows) Rank(dst []int32, n, k int) []int32 {
	if k == 1 {
		return append(dst, r.Argmax(n))
	}
	k = min(k, r.t.m.Spec().Vocab)
	top := r.t.top(r.out, k, false)
	return append(dst, top.ids[r.out.LogitsRow(r.seg, n)*top.k:][:k]...)
}

// top returns at least the k most likely tokens of all rows of the last pass; sure asks for
// their probabilities too. Several drafters may ask for different numbers: fewer are the first of more.
func (t *ModelTarget) top(out *model.Output, k int, sure bool) *passTop {
	for i := range t.tops {
		if p := &t.tops[i]; p.done && p.k >= k && (p.sure || !sure) {
			return p
		}
	}
	i := slices.IndexFunc(t.tops, func(p passTop) bool { return p.k == k })
	if i < 0 {
		i = len(t.tops)
		t.tops = append(t.tops, passTop{k: k})
	}
	p := &t.tops[i]
	_, n := out.Rows()
	p.ids = slices.Grow(p.ids[:0], n*k)[:n*k]
	var logps []float32
	if sure {
		p.logps = slices.Grow(p.logps[:0], n*k)[:n*k]
		logps = p.logps
	}
	out.TopK(p.ids, logps, 0, n, k)
	p.done, p.sure = true, sure
	return p
}

var _ Target = (*ModelTarget)(nil)
