package preprocess

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"talf/data"
)

// Run makes the set in c.Out, or goes on with one that an earlier run left
// unfinished: finished shards stay as they are. Equal configurations, inputs and
// weights give equal bytes whatever the device, its threads, Rows and Tokens are,
// and wherever a run was interrupted.
//
// With a stripe it makes every Count-th shard only, though it reads all of the
// input; the last of the runs to end merges the set, which then is, byte for byte,
// that of a run alone.
//
// If ctx ends, Run returns its error; what was finished before is kept.
func Run(ctx context.Context, c Config, in Inputs) (Stats, error) {
	if err := c.Validate(); err != nil {
		return Stats{}, err
	}
	var err error
	if c.Files, err = data.Expand(c.Files); err != nil {
		return Stats{}, fmt.Errorf("preprocess: %w", err)
	}
	maxLen, err := c.length(in.Target.Spec().MaxPos)
	if err != nil {
		return Stats{}, err
	}
	meta, err := c.meta(&in, maxLen)
	if err != nil {
		return Stats{}, err
	}
	cut, err := newCutter(reader(&in), c.EOS, maxLen, in.Generator != nil)
	if err != nil {
		return Stats{}, err
	}
	w, err := data.CreateStripe(c.Out, meta, c.Stripe, c.Writer)
	if err != nil {
		return Stats{}, fmt.Errorf("preprocess: %w", err)
	}
	p := &pipeline{c: &c, in: &in, cut: cut, w: w, meta: meta, maxLen: maxLen, dropped: map[string]int{}}
	p.stats.Resumed = len(w.Shards())
	if err := p.run(ctx); err != nil {
		w.Abort()
		return p.stats, err
	}
	err = w.Close()
	p.stats.Merged = w.Merged()
	for _, s := range w.Shards() {
		p.stats.add(s)
	}
	p.stats.split(w.Shards(), c.Files)
	return p.stats, err
}

// reader is what in says of its model's texts.
func reader(in *Inputs) Reader {
	s := in.Target.Spec()
	r := Reader{Tokenizer: in.Tokenizer, Chat: in.Chat, Vocab: s.Vocab, Positions: s.MaxPos, EOS: -1}
	if len(s.EOS) > 0 {
		r.EOS = s.EOS[0]
	}
	return r
}

// split says what became of each file.
func (st *Stats) split(shards []data.Shard, files []string) {
	var sums []data.Input
	for _, s := range shards {
		sums = data.AddInputs(sums, s.Inputs)
	}
	if sums == nil && len(files) == 1 {
		sums = []data.Input{{Rows: st.Sequences, Tokens: st.Tokens, Loss: st.LossTokens, Dropped: st.Dropped}}
	}
	for _, s := range sums {
		if s.Input < len(files) {
			st.Inputs = append(st.Inputs, InputStats{File: files[s.Input], Input: s})
		}
	}
}

func (st *Stats) add(s data.Shard) {
	st.Sequences += s.Rows
	st.Tokens += s.Tokens
	st.LossTokens += s.Loss
	st.Shards++
	for why, n := range s.Dropped {
		if st.Dropped == nil {
			st.Dropped = map[string]int{}
		}
		st.Dropped[why] += n
	}
}

// A pipeline is one run.
type pipeline struct {
	c      *Config
	in     *Inputs
	cut    *cutter
	w      *data.Writer
	meta   data.Meta
	maxLen int
	lab    *labeller

	detail  bool           // shards say what became of each file
	dropped map[string]int // since the last shard
	inputs  []data.Input   // likewise
	done    Progress
	stats   Stats
}

// A stage does one thing to all sequences of a batch.
type stage struct {
	name string
	size func(*sequence) int // what a sequence adds to a batch
	most int                 // of the sizes in a batch, unless one sequence has more
	run  func(ctx context.Context, batch []*work) error
}

// stages are what happens to sequences, in order; a stage with a smaller limit
// cuts the batch that it is given. Before them come loading, templates and
// tokenising, which make the sequences; behind them, shards.
func (p *pipeline) stages() []stage {
	tokens := func(s *sequence) int { return len(s.tokens) }
	one := func(*sequence) int { return 1 }
	all := []stage{
		{"regenerate", one, p.c.Prompts, p.regenerate},  // answers from the target itself
		{"prefill", tokens, p.c.Tokens, p.lab.prefill},  // keys, values and features of the text; labels of level 0
		{"grow trees", tokens, p.c.Tokens, p.lab.trees}, // labels of the deeper levels, one pass a level
		{"write rows", tokens, p.c.Tokens, p.write},     // to the open shard; keys and values go
	}
	if p.in.Generator == nil {
		return all[1:]
	}
	return all
}

// A work is a sequence in a batch.
type work struct {
	*sequence
	unit int // its number in the input
	row  *data.Record
	labels
}

func (p *pipeline) run(ctx context.Context) error {
	if p.w.Complete() {
		return nil
	}
	made := len(p.w.Shards())
	for _, s := range p.w.Shards() {
		p.done.Sequences += s.Units
		p.done.Tokens += s.Tokens
	}
	p.done.Shards = made
	if made > 0 && p.w.Shards()[made-1].Units < p.c.Shard {
		return nil // the input had ended: only the closing of the set was lost
	}
	if err := p.count(ctx); err != nil {
		return err
	}
	var err error
	if p.lab, err = newLabeller(p.c, p.in.Target, &p.meta); err != nil {
		return err
	}
	defer p.lab.close()

	p.cut.bad = p.in.Bad
	docs := data.Load(p.c.Files, p.c.Load, func(b data.BadLine) {
		p.drop(b.Input, dropBad)
		if p.in.Bad != nil {
			p.in.Bad(b)
		}
	})
	next, stop := iter.Pull2(p.cut.sequences(ctx, docs))
	defer stop()
	// Every run reads the same sequences and cuts them into the same shards; those
	// that are finished or another run's are passed over.
	for shard := 0; ; shard++ {
		if p.c.Stripe.Owns(shard) && shard >= p.c.Stripe.Shard(made) {
			more, err := p.shard(ctx, next, shard*p.c.Shard)
			if err != nil || !more {
				return err
			}
			continue
		}
		for range p.c.Shard {
			_, err, ok := next()
			if err != nil {
				return err
			}
			if !ok {
				if made > 0 && shard <= p.c.Stripe.Shard(made-1) {
					return errors.New("preprocess: the input has fewer sequences than finished shards hold")
				}
				return nil
			}
		}
		clear(p.dropped) // the run that makes the shard counts them
		p.inputs = nil
	}
}

// count reads the input once to know how much there is to do.
func (p *pipeline) count(ctx context.Context) error {
	bad := 0
	var first data.BadLine
	docs := data.Load(p.c.Files, p.c.Load, func(b data.BadLine) {
		if bad++; bad == 1 {
			first = b
		}
	})
	p.detail = len(p.c.Files) > 1
	n := 0
	for s, err := range p.cut.sequences(ctx, docs) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		p.detail = p.detail || s.chat
		if p.c.Stripe.Owns(n / p.c.Shard) {
			p.done.AllSequences++
			p.done.AllTokens += int64(len(s.tokens))
		}
		n++
	}
	if n == 0 {
		if bad > 0 {
			return fmt.Errorf("preprocess: no text in %d lines that are all bad; the first: %w", bad, first)
		}
		return fmt.Errorf("preprocess: no text in %v", p.c.Files)
	}
	return nil
}

// shard makes one shard of the next c.Shard sequences and reports whether there
// may be more.
func (p *pipeline) shard(ctx context.Context, next func() (*sequence, error, bool), first int) (more bool, err error) {
	var all []*work
	for len(all) < p.c.Shard {
		s, err, ok := next()
		if err != nil {
			return false, err
		}
		if !ok {
			break
		}
		if s.chat {
			p.inputs = data.AddInputs(p.inputs, []data.Input{{Input: s.input, Conversations: 1}})
		}
		all = append(all, &work{sequence: s, unit: first + len(all)})
	}
	units := len(all)
	if units == 0 && len(p.dropped) == 0 {
		return false, nil
	}
	if err := p.through(ctx, p.stages(), all); err != nil {
		return false, err
	}
	if !p.detail {
		p.inputs = nil
	}
	if err := p.w.Cut(units, p.dropped, p.inputs); err != nil {
		return false, err
	}
	clear(p.dropped)
	p.inputs = nil
	p.done.Shards++
	p.report()
	return units == p.c.Shard, nil
}

// drop counts a piece of input that became no row.
func (p *pipeline) drop(input int, why string) {
	if strings.HasPrefix(why, dropTemplate) && p.dropped[why] == 0 {
		n := 0
		for w := range p.dropped {
			if strings.HasPrefix(w, dropTemplate) {
				n++
			}
		}
		if n >= maxRefusals {
			why = dropRefusals
		}
	}
	p.dropped[why]++
	p.inputs = data.AddInputs(p.inputs, []data.Input{{Input: input, Dropped: map[string]int{why: 1}}})
}

func (p *pipeline) report() {
	if p.in.Progress != nil {
		p.in.Progress(p.done)
	}
}

// through takes sequences through stages, in order: a part that is small enough
// for the first stage goes through all of them before the next part begins.
func (p *pipeline) through(ctx context.Context, stages []stage, all []*work) error {
	if len(stages) == 0 {
		return nil
	}
	st := stages[0]
	var part []*work
	run := func() error {
		if len(part) == 0 {
			return ctx.Err()
		}
		err := st.run(ctx, part)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("preprocess: %s: %w", st.name, err)
		}
		return p.through(ctx, stages[1:], part)
	}
	size := 0
	for _, w := range all {
		if w.drop != "" {
			p.drop(w.input, w.drop)
			p.done.Sequences++
			continue
		}
		n := st.size(w.sequence)
		if len(part) > 0 && size+n > st.most {
			if err := run(); err != nil {
				return err
			}
			part, size = nil, 0
		}
		part, size = append(part, w), size+n
	}
	return run()
}

// regenerate asks the target to answer, turn by turn, all sequences at once.
func (p *pipeline) regenerate(ctx context.Context, batch []*work) error {
	open := batch
	for turn := uint64(0); len(open) > 0; turn++ {
		prompts := make([]Prompt, len(open))
		for i, w := range open {
			prompts[i] = Prompt{Tokens: w.tokens, Max: p.maxLen - len(w.tokens), Seed: mix(p.c.Seed, uint64(w.unit)<<16|turn)}
		}
		answers, err := p.in.Generator.Generate(ctx, prompts)
		if err != nil {
			return err
		}
		if len(answers) != len(open) {
			return fmt.Errorf("%d answers to %d prompts", len(answers), len(open))
		}
		var again []*work
		for i, w := range open {
			more, err := p.follow(ctx, w, answers[i])
			if err != nil {
				return err
			}
			if more {
				again = append(again, w)
			}
		}
		open = again
	}
	for _, w := range batch {
		w.check()
		if w.drop == dropAnswer {
			w.drop = dropNoAnswer
		}
	}
	return nil
}

// follow appends an answer and the next turn, and reports whether that asks for
// another answer.
func (p *pipeline) follow(ctx context.Context, w *work, answer []int32) (more bool, err error) {
	if len(answer) > p.maxLen-len(w.tokens) {
		return false, fmt.Errorf("an answer of %d tokens, want at most %d", len(answer), p.maxLen-len(w.tokens))
	}
	for _, id := range answer {
		w.tokens, w.answer = append(w.tokens, id), append(w.answer, true)
	}
	if w.talk != nil {
		return p.cut.reply(ctx, w.sequence, answer)
	}
	if len(w.turns) == 0 {
		return false, nil
	}
	// Turns are lines of one text; an end token inside it would end it.
	if n := len(w.tokens); p.cut.eos >= 0 && n > 0 && w.tokens[n-1] == p.cut.eos {
		w.tokens, w.answer = w.tokens[:n-1], w.answer[:n-1]
	}
	ids, err := p.in.Tokenizer.Encode("\n"+w.turns[0], false)
	if err != nil {
		return false, err
	}
	w.turns = w.turns[1:]
	if len(w.tokens)+len(ids) >= p.maxLen {
		return false, nil // the turns so far are a text of their own
	}
	w.tokens = append(w.tokens, ids...)
	w.answer = append(w.answer, make([]bool, len(ids))...)
	return true, nil
}

// mix is SplitMix64's finaliser over both words: prompts get unrelated seeds.
func mix(a, b uint64) uint64 {
	x := a + (b+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// write adds the batch to the open shard, in order, and gives back its keys and
// values.
func (p *pipeline) write(_ context.Context, batch []*work) error {
	for _, w := range batch {
		if err := p.w.Append(w.row); err != nil {
			return err
		}
		loss := 0
		for _, x := range w.answer {
			if x {
				loss++
			}
		}
		p.inputs = data.AddInputs(p.inputs, []data.Input{{Input: w.input, Rows: 1, Turns: w.messages, Cut: w.cut, Tokens: int64(len(w.tokens)), Loss: int64(loss)}})
		p.done.Tokens += int64(len(w.tokens))
		p.done.Sequences++
		w.row = nil
	}
	p.lab.finish(batch)
	p.report()
	return nil
}
