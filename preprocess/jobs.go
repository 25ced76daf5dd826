package preprocess

import (
	"context"
	"errors"
	"iter"

	"talf/data/corpus"
)

// A job is some input on its way from the reader to the shards.
type job struct {
	met  []event       // before its sequences
	part []*work       // to be labelled
	done chan struct{} // closed when they are, or have failed
	err  error

	ends  bool // the shard ends behind it
	units int  // sequences of that shard, those dropped included
}

// An event is what the reader met and the shards count.
type event struct {
	input    int
	bad      *corpus.BadLine // to be told
	chat     bool            // a conversation
	drop     string          // why something becomes no row
	sequence bool            // a sequence
}

// jobs is the reader: it cuts the input into jobs of at most as much as the first
// stage takes.
type jobs struct {
	p    *pipeline
	made int // finished shards
	size func(*sequence) int
	most int

	open *job
	sum  int // of sizes in the open job
}

func newJobs(p *pipeline, made int) *jobs {
	st := p.first()
	return &jobs{p: p, made: made, size: st.size, most: st.most, open: new(job)}
}

// read gives all jobs, in order, until give reports false. A failure is the last
// job's.
func (r *jobs) read(ctx context.Context, give func(*job) bool) {
	if err := r.shards(ctx, give); err != nil {
		give(&job{met: r.open.met, err: err})
		return
	}
	give(&job{met: r.open.told()})
}

// errStopped says that nobody takes jobs any more.
var errStopped = errors.New("preprocess: stopped")

func (r *jobs) shards(ctx context.Context, give func(*job) bool) error {
	p := r.p
	tell := func(b corpus.BadLine, drop string) {
		r.open.met = append(r.open.met, event{input: b.Input, bad: &b, drop: drop})
	}
	p.cut.bad = func(b corpus.BadLine) { tell(b, "") }
	docs := corpus.Load(p.c.Files, p.c.Load, func(b corpus.BadLine) { tell(b, dropBad) })
	next, stop := iter.Pull2(p.cut.sequences(ctx, docs))
	defer stop()
	// Every run reads the same sequences and cuts them into the same shards; those
	// that are finished or another run's are passed over.
	for shard := 0; ; shard++ {
		if p.c.Stripe.Owns(shard) && shard >= p.c.Stripe.Shard(r.made) {
			if more, err := r.shard(next, give, shard*p.c.Shard); err != nil || !more {
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
				if r.made > 0 && shard <= p.c.Stripe.Shard(r.made-1) {
					return errors.New("preprocess: the input has fewer sequences than finished shards hold")
				}
				return nil
			}
		}
		r.open.met = r.open.told() // the run that makes the shard counts them
	}
}

// told returns the events of a job, to be told but not counted.
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
// more.
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
			r.open.ends, r.open.units = true, units
			return units == r.p.c.Shard, r.give(give)
		case s.chat:
			r.open.met = append(r.open.met, event{input: s.input, chat: true})
		}
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

// counts reports whether the open job has something that a shard counts.
func (r *jobs) counts() bool {
	for _, e := range r.open.met {
		if e.drop != "" {
			return true
		}
	}
	return false
}

// give gives the open job and opens the next.
func (r *jobs) give(give func(*job) bool) error {
	r.open.done = make(chan struct{})
	if !give(r.open) {
		return errStopped
	}
	r.open, r.sum = new(job), 0
	return nil
}
