package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"talf/infer"
	"talf/infer/bench"
	"talf/infer/draft"
	"talf/infer/draft/search"
	"talf/model"
	"talf/tree"
)

// A Config says how much to record.
type Config struct {
	Width int // candidates of a row
	Nodes int // nodes that each draft model is asked about at every position of every text
}

// Default returns a configuration that suffices for searches of the usual sizes.
func Default() Config { return Config{Width: 16, Nodes: 64} }

// Validate checks the ranges.
func (c Config) Validate() error {
	if c.Width < 1 || c.Width > 1024 {
		return fmt.Errorf("replay: %d candidates of a row, want 1..1024", c.Width)
	}
	if c.Nodes < 1 || c.Nodes > tree.MaxNodes {
		return fmt.Errorf("replay: %d nodes at a position, want 1..%d", c.Nodes, tree.MaxNodes)
	}
	return nil
}

// Record decodes every prompt of c and records the models' rows and what passes cost. At every
// position each draft model is asked for its best nodes. Every few rounds the target scores
// such a tree, so that the costs of larger passes are known. c's methods run too: the rows that
// they ask for off the target's path are recorded as well.
func Record(ctx context.Context, e *infer.Engine, c bench.Config, sources []bench.Source, rc Config) (*Recording, error) {
	if err := errors.Join(c.Validate(), rc.Validate()); err != nil {
		return nil, err
	}
	shape := e.Target.Shape().Unswitched()
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
	r := recorder{
		engine: &infer.Engine{Target: target, Config: e.Config}, bench: &c, config: rc,
		methods: slices.Clone(c.Methods), out: out, target: target, sources: taps,
	}
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
					if err := r.record(ctx, &x, p, t); err != nil {
						where := p.Name
						if s.Name != "" {
							where += " of " + s.Name
						}
						return nil, fmt.Errorf("record prompt %s: %w", where, err)
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

// A recorder is a recording in progress.
type recorder struct {
	engine  *infer.Engine
	bench   *bench.Config
	config  Config
	methods []bench.Method
	makers  [][]*draft.Maker // [temperature][method], nil if the method does not run there
	out     *Recording
	target  *recTarget
	sources []*recSource
}

func (r *recorder) open() error {
	for _, t := range r.bench.Temperatures {
		ms := make([]*draft.Maker, len(r.methods))
		r.makers = append(r.makers, ms)
		for i := range r.methods {
			if !r.methods[i].RunsAt(t) {
				continue
			}
			var err error
			if ms[i], err = r.bench.Open(&r.methods[i], t, r.out.Vocab); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *recorder) close() {
	for _, ms := range r.makers {
		for _, m := range ms {
			if m != nil {
				_ = m.Close() // nothing was written
			}
		}
	}
}

// record decodes one prompt plainly, with each draft model and with each method.
func (r *recorder) record(ctx context.Context, x *Text, p bench.Prompt, t int) error {
	text := len(r.out.Texts)
	for i := range r.out.Channels {
		ch := &r.out.Channels[i]
		ch.Rows = append(ch.Rows, Nodes{})
		ch.index = append(ch.index, map[place]int32{})
	}
	r.target.tap.text = text
	for _, s := range r.sources {
		s.tap.text = text
	}
	decode := func(m *bench.Method, mk *draft.Maker) error {
		y := bench.Measurement{Temperature: x.Temperature, Seed: x.Seed}
		if err := bench.Decode(ctx, r.engine, r.bench, m, mk, p.Tokens, &y); err != nil {
			return err
		}
		if x.Tokens == nil {
			x.Tokens = append(slices.Clone(p.Tokens), y.Output...)
		} else if !slices.Equal(x.Tokens[x.Start:], y.Output) {
			return fmt.Errorf("%s writes another text", m.Title())
		}
		return nil
	}
	plain := &draft.Maker{New: func() infer.Drafter { return nil }}
	if err := decode(&bench.Method{Spec: bench.Baseline}, plain); err != nil {
		return err
	}
	for _, s := range r.sources {
		mk := &draft.Maker{New: func() infer.Drafter { return newSweeper(r.config) }}
		if err := decode(&bench.Method{Spec: "recording", Source: s}, mk); err != nil {
			return err
		}
	}
	for i := range r.methods {
		m := &r.methods[i]
		if r.makers[t][i] == nil || !bench.SameOutput(m.Verify, x.Temperature) {
			continue
		}
		if err := decode(m, r.makers[t][i]); err != nil {
			return err
		}
	}
	r.out.Texts = append(r.out.Texts, *x)
	return nil
}

// A sweeper asks for the best nodes at every position and has the target keep one token per
// round. It proposes a tree in every eighth round, cycling through the sizes, to learn what
// passes cost.
type sweeper struct {
	s     *search.SALF
	nodes int
	round int
	out   tree.Tree
}

func newSweeper(rc Config) *sweeper {
	s, err := search.NewSALF(search.SALFConfig{N: rc.Nodes, B: min(10, rc.Nodes), Finish: search.TopN})
	if err != nil {
		panic("replay: " + err.Error()) // the ranges were checked
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

// A tap records one model's rows in its channel.
type tap struct {
	ch    *Channel
	width int
	text  int
	took  map[int][]float64 // seconds of the passes by their rows
	path  []int32
	nodes []int
	row   []infer.Candidate
}

func newTap(ch *Channel, width int) *tap {
	return &tap{ch: ch, width: width, took: map[int][]float64{}}
}

// way returns the tokens on the path from tr's root to n, without the root.
func (t *tap) way(tr *tree.Tree, n int) []int32 {
	t.nodes = tr.AppendPath(t.nodes[:0], n)
	t.path = t.path[:0]
	for _, m := range t.nodes[1:] {
		t.path = append(t.path, tr.Token(m))
	}
	return t.path
}

// costs returns the first decile of the times for every size.
func (t *tap) costs() (out []Cost) {
	for n, s := range t.took {
		slices.Sort(s)
		out = append(out, Cost{n, s[len(s)/10], len(s)})
	}
	return out
}

// A recTarget records a target's rows.
type recTarget struct {
	infer.Target
	tap *tap
	at  map[infer.SeqID]int // position of the root
}

// Shape ends texts where they would be read again, which a recording does not have.
func (r *recTarget) Shape() infer.Shape { return r.Target.Shape().Unswitched() }

// Abilities withholds what is not recorded.
func (*recTarget) Abilities() infer.Abilities { return infer.Abilities{} }

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
		if j.Want != model.WantAll {
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

// A recSource records a draft model's rows.
type recSource struct {
	infer.Source
	tap *tap
	at  map[infer.SeqID]int
}

// Abilities withholds what is not recorded.
func (*recSource) Abilities() infer.Abilities { return infer.Abilities{} }

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
