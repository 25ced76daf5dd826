package preprocess

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"
	"strings"
	"sync"

	"talf/data"
	"talf/data/corpus"
)

// Run makes the set in c.Out, or continues one that an earlier run left unfinished:
// finished shards are not touched. Equal configurations, inputs and weights give equal
// bytes on the CPU, for any kernels, threads, Rows and Tokens, and on other devices for
// the same in.Arithmetic. This holds wherever a run was interrupted and however many
// copies of the target label.
//
// With a stripe it makes only every Count-th shard, although it reads all of the input.
// The last run to finish merges the set, which is then byte for byte the same as that
// of a single run.
//
// If ctx is cancelled, Run returns its error. Shards finished before are kept. If a file
// changes while it is read, or has changed since an earlier run made shards of it, the
// set does not become complete.
func Run(ctx context.Context, c Config, in Inputs) (Stats, error) {
	if err := c.Validate(); err != nil {
		return Stats{}, err
	}
	var err error
	if c.Files, err = corpus.Expand(c.Files); err != nil {
		return Stats{}, fmt.Errorf("preprocess: %w", err)
	}
	maxLen, err := c.length(in.Target.Spec().MaxPos, in.Target.Spec().Rope.Switch())
	if err != nil {
		return Stats{}, err
	}
	files, err := hashFiles(c.Files)
	if err != nil {
		return Stats{}, err
	}
	meta, err := c.meta(&in, maxLen, files)
	if err != nil {
		return Stats{}, err
	}
	cut, err := newCutter(reader(&in), c.EOS, maxLen, in.regenerates())
	if err != nil {
		return Stats{}, err
	}
	w, err := data.Create(c.Out, meta, c.Stripe, c.Writer)
	if err != nil {
		return Stats{}, fmt.Errorf("preprocess: %w", err)
	}
	p := &pipeline{c: &c, in: &in, files: files, cut: cut, w: w, to: w, meta: meta, maxLen: maxLen, dropped: map[string]int{}}
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

// reader returns the Reader for the model of in.
func reader(in *Inputs) Reader {
	s := in.Target.Spec()
	r := Reader{Tokenizer: in.Tokenizer, Chat: in.Chat, Vocab: s.Vocab, Positions: s.MaxPos, Switch: s.Rope.Switch(), EOS: -1}
	if len(s.EOS) > 0 {
		r.EOS = s.EOS[0]
	}
	return r
}

// split returns what became of each file.
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

// A pipeline is one run: a reader divides the input into jobs, one worker per copy of
// the target labels them, and Run's goroutine writes them in order.
type pipeline struct {
	c      *Config
	in     *Inputs
	files  *inputFiles
	cut    *cutter
	w      *data.Writer
	to     sink // of the rows; w, unless they are not stored
	meta   data.Meta
	maxLen int

	bare    int            // so many sequences of the input have no trees: the first ones
	detail  bool           // shards record what became of each file
	dropped map[string]int // since the last shard
	inputs  []data.Input   // since the last shard
	done    Progress
	stats   Stats
	ends    ends
}

// A sink takes the rows of a run, shard by shard. See data.Writer.
type sink interface {
	Append(r *data.Record) error
	Cut(units int, dropped map[string]int, inputs []data.Input, text string) error
}

// A work is a sequence in a batch.
type work struct {
	*sequence
	unit int // its number in the input
	row  *data.Record
	labels

	answered chan struct{} // closed when an Answerer has answered it, or has failed
	failed   error
	why      string // it refused the prompt
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
	if err := p.count(ctx); err != nil {
		return err
	}
	workers, err := p.workers()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	// As many jobs may wait to be written as are being labelled, so that one is always
	// ready. Answerers are asked for those of two more, so that they never wait for labels.
	ahead := 0
	if p.in.Answerer != nil {
		ahead = 2
	}
	order, todo := make(chan *job, len(workers)+ahead), make(chan *job, ahead)
	slots := make(chan struct{}, p.c.Prompts)
	all := group{stop: stop}
	defer all.end()
	all.do(func() {
		defer close(order)
		defer close(todo)
		newJobs(p, made).read(ctx, func(j *job) bool {
			if p.in.Answerer != nil {
				for _, w := range j.part {
					w.answered = make(chan struct{})
					all.do(func() { p.ask(ctx, slots, w) })
				}
			}
			return give(ctx, order, j) && (len(j.part) == 0 || give(ctx, todo, j))
		})
	})
	for _, k := range workers {
		all.do(func() { k.run(ctx, todo) })
	}
	for j := range order {
		if len(j.part) > 0 {
			select {
			case <-j.done:
			case <-ctx.Done():
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := p.write(j); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	p.warnOfEnds(1)
	return p.files.check()
}

// A group is a set of goroutines, any of which stops all of them if it panics.
type group struct {
	stop context.CancelFunc
	all  sync.WaitGroup
	once sync.Once
	bug  any // value and stack of the first panic
}

func (c *group) do(f func()) {
	c.all.Go(func() {
		defer func() {
			if r := recover(); r != nil {
				c.once.Do(func() { c.bug = fmt.Sprintf("%v\n\n%s", r, debug.Stack()) })
				c.stop()
			}
		}()
		f()
	})
}

// end stops all goroutines and waits for them. It panics if one of them did.
func (c *group) end() {
	c.stop()
	c.all.Wait()
	if c.bug != nil {
		panic(c.bug)
	}
}

// give sends x unless ctx is cancelled first.
func give[T any](ctx context.Context, to chan<- T, x T) bool {
	select {
	case to <- x:
		return true
	case <-ctx.Done():
		return false
	}
}

// count reads the input once to find out how much there is to do.
func (p *pipeline) count(ctx context.Context) error {
	bad := 0
	var first corpus.BadLine
	docs := corpus.Load(p.c.Files, p.c.Load, func(b corpus.BadLine) {
		if bad++; bad == 1 {
			first = b
		}
	})
	p.detail = len(p.c.Files) > 1
	n := 0
	var rows []int // the sequences that will be rows, if only some have trees
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
		if p.c.TreeShare > 0 && s.drop == "" {
			rows = append(rows, n)
		}
		n++
	}
	if n == 0 {
		if bad > 0 {
			return fmt.Errorf("preprocess: no text in %d lines that are all bad; the first: %w", bad, first)
		}
		return fmt.Errorf("preprocess: no text in %v", p.c.Files)
	}
	if len(rows) > 0 {
		p.bare = rows[len(rows)-int(math.Ceil(p.c.TreeShare*float64(len(rows))))]
	}
	return nil
}

// drop counts a piece of input that did not become a row.
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

// write adds the rows of a job to the open shard, in order.
func (p *pipeline) write(j *job) error {
	for _, e := range j.met {
		if e.bad != nil && p.in.Bad != nil {
			p.in.Bad(*e.bad)
		}
		if e.chat {
			p.inputs = data.AddInputs(p.inputs, []data.Input{{Input: e.input, Conversations: 1}})
		}
		if e.drop != "" {
			p.drop(e.input, e.drop)
		}
		if e.sequence {
			p.done.Sequences++
		}
	}
	if j.err != nil {
		return j.err
	}
	for _, w := range j.part {
		p.done.Sequences++
		if w.drop != "" {
			p.drop(w.input, w.drop)
			if w.why != "" && p.in.Bad != nil {
				p.in.Bad(corpus.BadLine{File: w.file, Input: w.input, Line: w.line, Item: w.item, Why: w.why})
			}
			continue
		}
		if err := p.to.Append(w.row); err != nil {
			return fmt.Errorf("preprocess: write rows: %w", err)
		}
		loss := 0
		for _, x := range w.answer {
			if x {
				loss++
			}
		}
		p.inputs = data.AddInputs(p.inputs, []data.Input{{Input: w.input, Rows: 1, Turns: w.messages, Cut: w.cut, Tokens: int64(len(w.tokens)), Loss: int64(loss)}})
		p.done.Tokens += int64(len(w.tokens))
		w.row = nil
	}
	if len(j.part) > 0 {
		p.report()
	}
	if !j.ends {
		return nil
	}
	if !p.detail {
		p.inputs = nil
	}
	if err := p.to.Cut(j.units, p.dropped, p.inputs, j.text); err != nil {
		return err
	}
	clear(p.dropped)
	p.inputs = nil
	p.done.Shards++
	p.report()
	return nil
}
