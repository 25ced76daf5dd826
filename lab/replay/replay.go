// Package replay records what models say while they decode, and decodes the recorded texts
// again without them, so that methods can be compared in seconds.
package replay

import (
	"context"
	"fmt"
	"time"

	"talf/compute"
	"talf/infer"
	"talf/infer/bench"
	"talf/model"
)

// A Replay decodes recorded texts without a model. A verdict needs only the text, so acceptance
// is exact at temperature 0 and, with the verifier target, above it. Other verifiers and
// children drawn at random are refused. A row that the recording lacks is empty, which can only
// make a tree smaller, and is counted. Time is the recorded cost of passes by their rows, to
// which a draft model's reading of prompts and of what was kept adds; building and verifying
// trees takes none.
type Replay struct {
	rec     *Recording
	text    int
	now     time.Time
	open    map[infer.SeqID]*replayed
	sources []bench.Source

	asked, missed int
}

// A replayed sequence has this many tokens of the text in its KV cache.
type replayed struct{ done int }

// New returns a replay of r.
func New(r *Recording) *Replay {
	p := &Replay{rec: r, open: map[infer.SeqID]*replayed{}, now: time.Unix(0, 0)}
	for i := 1; i < len(r.Channels); i++ {
		ch := &r.Channels[i]
		p.sources = append(p.sources, bench.Source{Name: ch.Name, LM: ch.LM, Source: &replaySource{r: p, ch: ch, open: map[infer.SeqID]*reading{}}})
	}
	return p
}

// Sources returns the recorded draft models.
func (r *Replay) Sources() []bench.Source { return r.sources }

// Run is bench.Run on the recording. c's methods ask the draft models of Sources. Prompts,
// temperatures and seeds are the recording's or some of them.
func (r *Replay) Run(ctx context.Context, c bench.Config) (*bench.Report, error) {
	if c.MaxTokens > r.rec.MaxTokens {
		return nil, fmt.Errorf("replay: answers of %d tokens, want at most the recording's %d", c.MaxTokens, r.rec.MaxTokens)
	}
	c.NoEOS, c.Warmup, c.Tokenizer = r.rec.NoEOS, r.rec.Warmup, r.rec.Tokenizer
	for i := range c.Methods {
		m := &c.Methods[i]
		if m.PromptChars > 0 {
			return nil, fmt.Errorf("replay: %s: prompts of other lengths were not recorded", m.Title())
		}
		for _, t := range c.Temperatures {
			if !m.RunsAt(t) {
				continue
			}
			if !bench.SameOutput(m.Verify, t) {
				return nil, fmt.Errorf("replay: %s: a recording has the sampled text but not the distributions that it was drawn from: only greedy and target can be replayed", m.Title())
			}
			mk, err := c.Open(m, t, r.rec.Vocab)
			if err != nil {
				return nil, err
			}
			drawn := mk.Draw
			_ = mk.Close() // nothing was written
			if drawn != infer.Chosen {
				return nil, fmt.Errorf("replay: %s: children %s need whole rows, which are not recorded", m.Title(), drawn)
			}
		}
	}
	around := c.Around
	if around == nil {
		around = func(_ *bench.Measurement, decode func() error) error { return decode() }
	}
	c.Around = func(x *bench.Measurement, decode func() error) error {
		if r.text = r.rec.find(x.Set, x.Prompt, x.Temperature, x.Seed); r.text < 0 {
			return fmt.Errorf("it was not recorded at temperature %v with seed %d", x.Temperature, x.Seed)
		}
		r.asked, r.missed = 0, 0
		if err := around(x, decode); err != nil {
			return err
		}
		x.Asked, x.Missed, x.Peak = r.asked, r.missed, 0
		return nil
	}
	e := &infer.Engine{Target: r, Config: infer.Default(), Clock: func() time.Time { return r.now }}
	return bench.Run(ctx, e, c)
}

// Shape returns the shape of the recorded target.
func (r *Replay) Shape() infer.Shape {
	return infer.Shape{Vocab: r.rec.Vocab, MaxLen: r.rec.MaxLen, EOS: r.rec.EOS}
}

// Abilities: none.
func (*Replay) Abilities() infer.Abilities { return infer.Abilities{} }

// KV says that there is no pool.
func (r *Replay) KV() model.KVStats { return model.KVStats{} }

// Match returns 0: no prefix is kept.
func (r *Replay) Match([]int32) int { return 0 }

// Open starts a sequence.
func (r *Replay) Open(id infer.SeqID, _ []int32, keep int) error {
	r.open[id] = &replayed{keep}
	return nil
}

// Commit counts what is kept.
func (r *Replay) Commit(id infer.SeqID, path []int) error {
	r.open[id].done += len(path)
	return nil
}

// Close ends a sequence.
func (r *Replay) Close(id infer.SeqID) { delete(r.open, id) }

// Score answers from the recording.
func (r *Replay) Score(_ context.Context, jobs []infer.Job) ([]infer.Rows, error) {
	rows := make([]infer.Rows, len(jobs))
	n := 0
	for i, j := range jobs {
		n += j.Tree.Len()
		rows[i] = &replayRows{r: r, job: j, root: r.open[j.ID].done}
	}
	r.spend(&r.rec.Channels[0], n)
	return rows, nil
}

// spend passes the time of a pass over so many rows.
func (r *Replay) spend(c *Channel, rows int) {
	r.now = r.now.Add(time.Duration(c.Seconds(rows) * float64(time.Second)))
}

// replayRows are the rows of one tree below the token at position root.
type replayRows struct {
	r    *Replay
	job  infer.Job
	root int
	way  tap
}

// next returns the text's token after node n if the path to n follows the text.
func (x *replayRows) next(n int) (int32, bool) {
	tokens := x.r.rec.Texts[x.r.text].Tokens
	at := x.root
	for _, t := range x.way.way(x.job.Tree, n) {
		if at++; at >= len(tokens) || tokens[at] != t {
			return 0, false
		}
	}
	if at+1 >= len(tokens) {
		return 0, false // the text ends here
	}
	return tokens[at+1], true
}

// Logits is certain of the text's next token. Off the text and after its end, where no verdict
// goes, it is certain of the first token of the recorded row, or of token 0.
func (x *replayRows) Logits(dst []float32, n int) {
	for i := range dst {
		dst[i] = -1e4
	}
	dst[x.Argmax(n)] = 0
}

// Argmax is the token that Logits is certain of.
func (x *replayRows) Argmax(n int) int32 {
	token, ok := x.next(n)
	if !ok {
		if c, found := x.find(n); found && len(c.Token) > 0 {
			token = c.Token[0]
		}
	}
	return token
}

func (x *replayRows) find(n int) (*Candidates, bool) {
	r := x.r
	return r.rec.Channels[0].get(r.text, r.rec.Texts[r.text].Tokens, x.root, x.way.way(x.job.Tree, n))
}

// TopK appends what was recorded, at most k.
func (x *replayRows) TopK(dst []infer.Candidate, n, k int) []infer.Candidate {
	x.r.asked++
	c, ok := x.find(n)
	if !ok {
		x.r.missed++
		return dst
	}
	for i := range min(k, len(c.Token)) {
		dst = append(dst, infer.Candidate{Token: c.Token[i], LogProb: c.LogProb[i]})
	}
	return dst
}

// Rank appends the tokens of TopK.
func (x *replayRows) Err() error { return nil }

func (x *replayRows) Drawn(int, compute.Draw) (int32, bool) { return 0, false }

func (x *replayRows) Rank(dst []int32, n, k int) []int32 {
	return infer.Tokens(dst, x.TopK(nil, n, k))
}

// Hidden returns no hidden state.
func (x *replayRows) Hidden(int) model.Feature { return model.Feature{} }

// replaySource answers for a recorded draft model. Each token that it reads is a row of its pass.
type replaySource struct {
	r    *Replay
	ch   *Channel
	open map[infer.SeqID]*reading
}

// A reading is where a draft model is in one sequence.
type reading struct {
	at      int // position of the root
	pending int // committed tokens that it has not read, the root included
}

// Match returns 0: no prefix is kept.
func (s *replaySource) Match([]int32) int { return 0 }

// Open starts a sequence.
func (s *replaySource) Open(id infer.SeqID, _ []int32, keep int) error {
	s.open[id] = &reading{at: keep, pending: 1}
	return nil
}

// Commit moves to the next root.
func (s *replaySource) Commit(id infer.SeqID, p infer.Proposal, v infer.Verdict, _ infer.Scores) error {
	x := s.open[id]
	x.at, x.pending = p.Pos+len(v.Path), x.pending+len(v.Path)
	return nil
}

// Close ends a sequence.
func (s *replaySource) Close(id infer.SeqID) { delete(s.open, id) }

// Backlog returns how many committed tokens of a sequence are still to be read.
func (*replaySource) Abilities() infer.Abilities { return infer.Abilities{} }

func (s *replaySource) Backlog(id infer.SeqID) int { return s.open[id].pending }

// Rows answers from the recording.
func (s *replaySource) Rows(_ context.Context, asks []infer.Ask) ([]infer.Row, error) {
	var rows []infer.Row
	var way tap
	tokens := s.r.rec.Texts[s.r.text].Tokens
	beside := 0 // rows that answer nothing
	for _, a := range asks {
		at := s.open[a.ID]
		if a.Tree == nil {
			beside, at.pending = beside+a.Width, at.pending-a.Width
			continue
		}
		if a.From == 0 {
			beside += max(0, at.pending-1) // the root's row is an answer
			at.pending = 0
		}
		for n := a.From; n < a.Tree.Len(); n++ {
			s.r.asked++
			c, ok := s.ch.get(s.r.text, tokens, at.at, way.way(a.Tree, n))
			if !ok {
				s.r.missed++
				rows = append(rows, infer.Row{})
				continue
			}
			k := min(a.Width, len(c.Token))
			rows = append(rows, infer.Row{Tokens: c.Token[:k:k], LogProb: c.LogProb[:k:k]})
		}
	}
	if n := len(rows) + beside; n > 0 {
		s.r.spend(s.ch, n)
	}
	return rows, nil
}
