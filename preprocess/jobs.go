package preprocess

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"

	"talf/data/corpus"
)

// A job is a piece of input that passes from the reader to the shards.
type job struct {
	met  []event       // events before its sequences
	part []*work       // to be labelled
	done chan struct{} // closed when they have been labelled or have failed
	err  error

	ends  bool   // the shard ends after it
	units int    // sequences of that shard, including dropped ones
	text  string // identifies them
}

// An event is something that the reader met and that the shards count.
type event struct {
	input    int
	bad      *corpus.BadLine // to be reported
	chat     bool            // a conversation
	drop     string          // why something does not become a row
	sequence bool            // a sequence
}

// jobs is the reader. It divides the input into jobs that are small enough for the
// first stage.
type jobs struct {
	p    *pipeline
	made int // finished shards
	size func(*sequence) int
	most int

	open *job
	sum  int     // total size of the open job
	text *digest // of the open shard
}

func newJobs(p *pipeline, made int) *jobs {
	st := p.first()
	return &jobs{p: p, made: made, size: st.size, most: st.most, open: new(job), text: newDigest()}
}

// read passes all jobs to give, in order. A failure is in the last job.
func (r *jobs) read(ctx context.Context, give func(*job) bool) {
	if err := r.shards(ctx, give); err != nil {
		give(&job{met: r.open.met, err: err})
		return
	}
	give(&job{met: r.open.told()})
}

// errStopped says that no more jobs are wanted.
var errStopped = errors.New("preprocess: stopped")

func (r *jobs) shards(ctx context.Context, give func(*job) bool) error {
	p := r.p
	tell := func(b corpus.BadLine, drop string) {
		r.open.met = append(r.open.met, event{input: b.Input, bad: &b, drop: drop})
	}
	p.cut.bad = func(b corpus.BadLine) { tell(b, "") }
	load := p.c.Load
	load.Open = p.files.open
	docs := corpus.Load(p.c.Files, load, func(b corpus.BadLine) { tell(b, dropBad) })
	next, stop := iter.Pull2(p.cut.sequences(ctx, docs))
	defer stop()
	// Every run reads the same sequences and divides them into the same shards. It
	// skips shards that are finished or belong to another run.
	for shard := 0; ; shard++ {
		if p.c.Stripe.Owns(shard) && shard >= p.c.Stripe.Shard(r.made) {
			if more, err := r.shard(next, give, shard*p.c.Shard); err != nil || !more {
				return err
			}
			continue
		}
		if more, err := r.skip(next, shard); err != nil || !more {
			return err
		}
		r.open.met = r.open.told() // the run that makes the shard counts them
	}
}

// skip reads the sequences of a shard that is finished or belongs to another run, and
// reports whether there may be more input. A finished shard must have been made of them.
func (r *jobs) skip(next func() (*sequence, error, bool), shard int) (more bool, err error) {
	p := r.p
	units := 0
	for ; units < p.c.Shard; units++ {
		s, err, ok := next()
		if err != nil {
			return false, err
		}
		if !ok {
			break
		}
		r.text.add(s)
	}
	text := r.text.text()
	if p.c.Stripe.Owns(shard) {
		switch made := &p.w.Shards()[(shard-p.c.Stripe.Index)/p.c.Stripe.Count]; {
		case units < made.Units:
			return false, errors.New("preprocess: the input has fewer sequences than finished shards hold")
		case made.Text != "" && made.Text != text:
			return false, fmt.Errorf("preprocess: %s was made of other text than the input has now: %w; delete the set and start again",
				filepath.Join(p.c.Out, made.File), errChanged)
		}
	}
	return units == p.c.Shard, nil
}

// told returns those events of a job that are only reported, not counted.
func (j *job) told() []event {
	var all []event
	for _, e := range j.met {
		if e.bad != nil {
			all = append(all, event{bad: e.bad})
		}
	}
	return all
}

// shard gives the jobs of the next Shard sequences and reports whether there may be
// more input.
func (r *jobs) shard(next func() (*sequence, error, bool), give func(*job) bool, first int) (more bool, err error) {
	for units := 0; ; units++ {
		var s *sequence
		ok := units < r.p.c.Shard
		if ok {
			if s, err, ok = next(); err != nil {
				return false, err
			}
		}
		switch {
		case !ok && units == 0 && !r.counts():
			return false, nil
		case !ok:
			r.open.ends, r.open.units, r.open.text = true, units, r.text.text()
			return units == r.p.c.Shard, r.give(give)
		case s.chat:
			r.open.met = append(r.open.met, event{input: s.input, chat: true})
		}
		r.text.add(s)
		if s.drop != "" {
			r.open.met = append(r.open.met, event{input: s.input, drop: s.drop, sequence: true})
			continue
		}
		n := r.size(s)
		if len(r.open.part) > 0 && r.sum+n > r.most {
			if err := r.give(give); err != nil {
				return false, err
			}
		}
		r.open.part, r.sum = append(r.open.part, &work{sequence: s, unit: first + units}), r.sum+n
	}
}

// counts reports whether the open job contains anything that a shard counts.
func (r *jobs) counts() bool {
	for _, e := range r.open.met {
		if e.drop != "" {
			return true
		}
	}
	return false
}

// give passes on the open job and opens the next.
func (r *jobs) give(give func(*job) bool) error {
	r.open.done = make(chan struct{})
	if !give(r.open) {
		return errStopped
	}
	r.open, r.sum = new(job), 0
	return nil
}
