package preprocess

import (
	"context"
	"fmt"
	"slices"

	"talf/internal/splitmix"
)

// A worker labels jobs with one copy of the target.
type worker struct {
	p         *pipeline
	generator Generator // nil: answers are those of the text
	lab       *labeller
	name      string // of the device; "" if it is the only one
}

// workers returns a worker for every copy of the target.
func (p *pipeline) workers() ([]*worker, error) {
	copies := append([]Worker{{p.in.Target, p.in.Generator}}, p.in.Beside...)
	var all []*worker
	for _, c := range copies {
		if (c.Generator == nil) != (p.in.Generator == nil) {
			panic("preprocess: some copies of the target have a generator and some have not")
		}
		lab, err := newLabeller(p.c, c.Target, &p.meta, p.bare)
		if err != nil {
			return nil, err
		}
		k := &worker{p: p, generator: c.Generator, lab: lab}
		if len(copies) > 1 {
			k.name = c.Target.Device().Name()
		}
		all = append(all, k)
	}
	return all, nil
}

// run labels the jobs that it receives and frees the keys and values that a failure
// left.
func (k *worker) run(ctx context.Context, todo <-chan *job) {
	defer k.lab.close()
	k.bulk(true)
	defer k.bulk(false)
	for j := range todo {
		err := k.await(ctx, j.part)
		if err == nil {
			err = k.through(ctx, k.stages(), j.part)
		}
		if err != nil {
			if j.err = err; k.name != "" && ctx.Err() == nil {
				j.err = fmt.Errorf("%w (%s)", err, k.name)
			}
		}
		close(j.done)
	}
}

// bulk says whether the labeller's passes may use products whose bits depend on the
// contents of a pass. It has no effect unless Inputs.Bulk is set.
func (k *worker) bulk(on bool) {
	if k.p.in.Bulk {
		_, _ = k.lab.target.Bulk(on) // if there are none, there is nothing to allow
	}
}

// A stage does one thing to all sequences of a batch.
type stage struct {
	name string
	size func(*sequence) int // size that a sequence adds to a batch
	most int                 // maximum total size of a batch, unless one sequence is larger
	run  func(ctx context.Context, batch []*work) error
}

// stages lists the steps that sequences go through, in order. A stage with a smaller
// limit divides the batch that it is given. Before the stages come loading, templates
// and tokenising, which make the sequences; after them come the shards.
func (k *worker) stages() []stage {
	tokens := func(s *sequence) int { return len(s.tokens) }
	one := func(*sequence) int { return 1 }
	c := k.p.c
	all := []stage{
		{"regenerate", one, c.Prompts, k.regenerate},  // answers from the target itself
		{"prefill", tokens, c.Tokens, k.lab.prefill},  // keys, values and features of the text; labels of level 0
		{"grow trees", tokens, c.Tokens, k.lab.trees}, // labels of the deeper levels, one pass per level
		{"let go", tokens, c.Tokens, k.lab.finish},    // keys and values
	}
	if k.generator == nil {
		return all[1:]
	}
	return all
}

// first returns the first stage. What an Answerer does comes before all stages.
func (p *pipeline) first() stage {
	if p.in.Answerer != nil {
		return stage{size: func(*sequence) int { return 1 }, most: p.c.Prompts}
	}
	return (&worker{p: p, generator: p.in.Generator, lab: new(labeller)}).stages()[0]
}

// through runs sequences through stages, in order. A part that is small enough for the
// first stage goes through all stages before the next part starts.
func (k *worker) through(ctx context.Context, stages []stage, all []*work) error {
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
		return k.through(ctx, stages[1:], part)
	}
	size := 0
	for _, w := range all {
		if w.drop != "" {
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

// regenerate has the target answer all sequences at once, turn by turn.
func (k *worker) regenerate(ctx context.Context, batch []*work) error {
	k.bulk(false) // answers are decoded
	defer k.bulk(true)
	open := batch
	for turn := uint64(0); len(open) > 0; turn++ {
		prompts := make([]Prompt, len(open))
		for i, w := range open {
			prompts[i] = Prompt{Tokens: w.tokens, Max: k.p.maxLen - len(w.tokens), Seed: mix(k.p.c.Seed, uint64(w.unit)<<16|turn)}
		}
		answers, err := k.generator.Generate(ctx, prompts)
		if err != nil {
			return err
		}
		if len(answers) != len(open) {
			return fmt.Errorf("%d answers to %d prompts", len(answers), len(open))
		}
		var again []*work
		for i, w := range open {
			more, err := k.follow(ctx, w, answers[i])
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
func (k *worker) follow(ctx context.Context, w *work, answer []int32) (more bool, err error) {
	if len(answer) > k.p.maxLen-len(w.tokens) {
		return false, fmt.Errorf("an answer of %d tokens, want at most %d", len(answer), k.p.maxLen-len(w.tokens))
	}
	k.p.answered(w.sequence, len(answer) == 0 || len(answer) == 1 && slices.Contains(k.p.in.Target.Spec().EOS, answer[0]))
	for _, id := range answer {
		w.tokens, w.answer = append(w.tokens, id), append(w.answer, true)
	}
	if w.talk != nil {
		return k.p.cut.reply(ctx, w.sequence, answer)
	}
	if len(w.turns) == 0 {
		return false, nil
	}
	// Turns are lines of one text, which an end token inside would end.
	if n := len(w.tokens); k.p.cut.eos >= 0 && n > 0 && w.tokens[n-1] == k.p.cut.eos {
		w.tokens, w.answer = w.tokens[:n-1], w.answer[:n-1]
	}
	ids, err := k.p.in.Tokenizer.Encode("\n"+w.turns[0], false)
	if err != nil {
		return false, err
	}
	w.turns = w.turns[1:]
	if len(w.tokens)+len(ids) >= k.p.maxLen {
		return false, nil // the turns so far are a complete text
	}
	w.tokens = append(w.tokens, ids...)
	w.answer = append(w.answer, make([]bool, len(ids))...)
	return true, nil
}

// mix combines two words into a seed, so that prompts get unrelated seeds.
func mix(a, b uint64) uint64 { return splitmix.Mix(a + (b+1)*splitmix.Gamma) }
