package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/search"
	"talf/tree"
)

// A RecordConfig says what to record beside the texts of a Config. Its methods are
// run too, so that the rows that they ask off the target's path are there.
type RecordConfig struct {
	Width int // next tokens of a row
	Nodes int // drafted at every position of every text with each draft model
}

// DefaultRecord returns what searches of the usual sizes need.
func DefaultRecord() RecordConfig { return RecordConfig{Width: 16, Nodes: 64} }

// Validate checks the ranges.
func (c RecordConfig) Validate() error {
	if c.Width < 1 || c.Width > 1024 {
		return fmt.Errorf("bench: %d next tokens of a row, want 1..1024", c.Width)
	}
	if c.Nodes < 1 || c.Nodes > tree.MaxNodes {
		return fmt.Errorf("bench: %d nodes at a position, want 1..%d", c.Nodes, tree.MaxNodes)
	}
	return nil
}

// Record decodes every prompt of c and keeps what the models said and what passes
// cost. At every position each draft model is asked for its best nodes; now and
// then such a tree goes to the target too, so that the costs of larger passes are
// known.
func Record(ctx context.Context, e *infer.Engine, c Config, sources []Source, rc RecordConfig) (*Recording, error) {
	if err := errors.Join(c.Validate(), rc.Validate()); err != nil {
		return nil, err
	}
	shape := e.Target.Shape()
	out := &Recording{
		Tokenizer: c.Tokenizer, Vocab: shape.Vocab, MaxLen: shape.MaxLen, EOS: shape.EOS, NoEOS: c.NoEOS,
		MaxTokens: c.MaxTokens, Warmup: c.Warmup,
		Channels: make([]Channel, 1+len(sources)),
	}
	target := &recTarget{Target: e.Target, tap: newTap(&out.Channels[0], rc.Width), at: map[infer.SeqID]int{}}
	out.Channels[0].Name, out.Channels[0].LM = "target", true
	taps := make([]*recSource, len(sources))
	for i, s := range sources {
		ch := &out.Channels[1+i]
		ch.Name, ch.LM = s.Name, s.LM
		taps[i] = &recSource{Source: s.Source, tap: newTap(ch, rc.Width), at: map[infer.SeqID]int{}}
	}
	r := runner{engine: &infer.Engine{Target: target, Config: e.Config}, c: &c, methods: slices.Clone(c.Methods)}
	for i := range r.methods {
		m := &r.methods[i]
		for k, s := range sources {
			if m.Source == s.Source && m.Source != nil {
				m.Source = taps[k]
			}
		}
	}
	defer r.close()
	if err := r.open(); err != nil {
		return nil, err
	}
	total, done := 0, 0
	for _, s := range c.Sets {
		total += len(s.Prompts) * len(c.Temperatures) * len(c.Seeds)
	}
	for _, s := range c.Sets {
		for _, p := range s.Prompts {
			for t := range c.Temperatures {
				for _, seed := range c.Seeds {
					x := Text{Set: s.Name, Prompt: p.Name, Temperature: c.Temperatures[t], Seed: seed, Start: len(p.Tokens)}
					if err := r.record(ctx, out, &x, p, t, target, taps, rc); err != nil {
						return nil, fmt.Errorf("bench: record prompt %s%s: %w", p.Name, of(s.Name), err)
					}
					if done++; c.Progress != nil {
						c.Progress(done, total)
					}
				}
			}
		}
	}
	for i := range out.Channels {
		tp := target.tap
		if i > 0 {
			tp = taps[i-1].tap
		}
		out.Channels[i].SetCosts(tp.costs())
	}
	return out, nil
}

// record decodes one prompt with each draft model and method.
func (r *runner) record(ctx context.Context, out *Recording, x *Text, p Prompt, t int, target *recTarget, taps []*recSource, rc RecordConfig) error {
	text := len(out.Texts)
	for i := range out.Channels {
		ch := &out.Channels[i]
		ch.Rows = append(ch.Rows, Nodes{})
		ch.index = append(ch.index, map[place]int32{})
	}
	target.tap.text = text
	for _, s := range taps {
		s.tap.text = text
	}
	decode := func(m *Method, mk *draft.Maker) error {
		y := Measurement{Temperature: x.Temperature, Seed: x.Seed}
		if err := r.decode(ctx, &y, m, mk, p.Tokens); err != nil {
			return err
		}
		if x.Tokens == nil {
			x.Tokens = append(slices.Clone(p.Tokens), y.Output...)
		} else if !slices.Equal(x.Tokens[x.Start:], y.Output) {
			return fmt.Errorf("%s writes another text", m.label())
		}
		return nil
	}
	plain := &draft.Maker{New: func() infer.Drafter { return nil }}
	if err := decode(&Method{Spec: Baseline}, plain); err != nil {
		return err
	}
	for _, s := range taps {
		mk := &draft.Maker{New: func() infer.Drafter { return newSweeper(rc) }}
		if err := decode(&Method{Spec: "recording", Source: s}, mk); err != nil {
			return err
		}
	}
	for i := range r.methods {
		m := &r.methods[i]
		if r.makers[t][i] == nil || !SameOutput(m.Verify, x.Temperature) {
			continue
		}
		if err := decode(m, r.makers[t][i]); err != nil {
			return err
		}
	}
	out.Texts = append(out.Texts, *x)
	return nil
}

// A sweeper asks for the best nodes below every position and lets the target keep
// one token a round. Every eighth tree, of sizes in turn, is scored, for its cost.
type sweeper struct {
	s     *search.SALF
	nodes int
	round int
	out   tree.Tree
}

func newSweeper(rc RecordConfig) *sweeper {
	s, err := search.NewSALF(search.SALFConfig{N: rc.Nodes, B: min(10, rc.Nodes), Finish: search.TopN})
	if err != nil {
		panic("bench: " + err.Error()) // the ranges were checked
	}
	return &sweeper{s: s, nodes: rc.Nodes}
}

func (s *sweeper) Start([]int32) error { return nil }

func (s *sweeper) Grow(p *infer.Proposal, rows []infer.Row, _ infer.Chance) ([]int, error) {
	if rows == nil {
		s.s.Limit(p.MaxNodes)
		s.s.Start(p.Tree.Token(0), p.MaxDepth)
		p.Work, p.Width = s.s.Work(), s.s.Width()
	}
	ask := s.s.Grow(rows)
	if len(ask) > 0 {
		return ask, nil
	}
	size := 1
	if s.round%8 == 7 {
		size = min(s.nodes, 2<<(s.round/8%9))
	}
	s.round++
	t := s.s.Tree()
	size = min(size, t.Len(), p.MaxNodes)
	s.out.Reset(t.Token(0), size)
	for n := 1; n < size; n++ {
		s.out.Add(t.Parent(n), t.Token(n))
	}
	p.Tree, p.Live = &s.out, 1
	return nil, nil
}

func (s *sweeper) Observe(infer.Proposal, infer.Verdict, infer.Scores) error { return nil }

// A tap writes one model's rows to its channel.
type tap struct {
	ch    *Channel
	width int
	text  int
	took  map[int][]float64 // by rows of a pass, seconds
	path  []int32
	nodes []int
	row   []infer.Candidate
}

func newTap(ch *Channel, width int) *tap {
	return &tap{ch: ch, width: width, took: map[int][]float64{}}
}

// way returns the tokens of the path from t's root to n, the root left out.
func (t *tap) way(tr *tree.Tree, n int) []int32 {
	t.nodes = tr.AppendPath(t.nodes[:0], n)
	t.path = t.path[:0]
	for _, m := range t.nodes[1:] {
		t.path = append(t.path, tr.Token(m))
	}
	return t.path
}

// costs returns the first decile of every size.
func (t *tap) costs() (out []Cost) {
	for n, s := range t.took {
		slices.Sort(s)
		out = append(out, Cost{n, s[len(s)/10], len(s)})
	}
	return out
}

// recTarget records what a target says.
type recTarget struct {
	infer.Target
	tap *tap
	at  map[infer.SeqID]int // position of the root
}

func (r *recTarget) Open(id infer.SeqID, prompt []int32, keep int) error {
	r.at[id] = keep
	return r.Target.Open(id, prompt, keep)
}

func (r *recTarget) Commit(id infer.SeqID, path []int) error {
	r.at[id] += len(path)
	return r.Target.Commit(id, path)
}

func (r *recTarget) Close(id infer.SeqID) {
	delete(r.at, id)
	r.Target.Close(id)
}

func (r *recTarget) Score(ctx context.Context, jobs []infer.Job) ([]infer.Rows, error) {
	since := time.Now()
	rows, err := r.Target.Score(ctx, jobs)
	if err != nil {
		return nil, err
	}
	seconds := time.Since(since).Seconds()
	n, all := 0, true
	for i, j := range jobs {
		n += j.Tree.Len()
		if j.Want != wantAll {
			all = false
			continue
		}
		for k := range j.Tree.Len() {
			r.tap.row = rows[i].TopK(r.tap.row[:0], k, r.tap.width)
			r.tap.ch.put(r.tap.text, r.at[j.ID], r.tap.way(j.Tree, k), candidates(r.tap.row))
		}
	}
	if all {
		r.tap.took[n] = append(r.tap.took[n], seconds)
	}
	return rows, nil
}

// recSource records what a draft model says.
type recSource struct {
	infer.Source
	tap *tap
	at  map[infer.SeqID]int
}

func (r *recSource) Open(id infer.SeqID, prompt []int32, keep int) error {
	r.at[id] = keep
	return r.Source.Open(id, prompt, keep)
}

func (r *recSource) Commit(id infer.SeqID, p infer.Proposal, v infer.Verdict, s infer.Scores) error {
	r.at[id] = p.Pos + len(v.Path)
	return r.Source.Commit(id, p, v, s)
}

func (r *recSource) Close(id infer.SeqID) {
	delete(r.at, id)
	r.Source.Close(id)
}

func (r *recSource) Rows(ctx context.Context, asks []infer.Ask) ([]infer.Row, error) {
	wide := slices.Clone(asks)
	for i := range wide {
		wide[i].Width = max(wide[i].Width, r.tap.width)
	}
	since := time.Now()
	rows, err := r.Source.Rows(ctx, wide)
	if err != nil {
		return nil, err
	}
	seconds := time.Since(since).Seconds()
	n := 0
	for _, a := range asks {
		for k := a.From; k < a.Tree.Len(); k++ {
			row := &rows[n]
			r.tap.ch.put(r.tap.text, r.at[a.ID], r.tap.way(a.Tree, k), Candidates{slices.Clone(row.Tokens), slices.Clone(row.LogProb)})
			row.Tokens, row.LogProb = row.Tokens[:min(len(row.Tokens), a.Width)], row.LogProb[:min(len(row.LogProb), a.Width)]
			n++
		}
	}
	if n > 0 {
		r.tap.took[n] = append(r.tap.took[n], seconds)
	}
	return rows, nil
}

func (*sweeper) Traits() infer.Traits { return infer.Traits{} }
