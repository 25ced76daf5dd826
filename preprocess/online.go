package preprocess

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"talf/data"
	"talf/data/corpus"
)

// Online returns the set that Run would write, without writing it: the target labels its
// sequences when a reader comes to them, in the memory of the reader. It reads the text and cuts
// it, and a Generator's answers are written, before it returns; what it keeps is 5 bytes of each
// token. c.Out and c.Stripe have no meaning, and in.Answerer and in.Beside are refused. in.Progress counts
// the sequences that were labelled, in every epoch.
//
// One read makes the labels of up to c.Tokens tokens, or of one sequence, and none are made
// ahead of the reader, so labels wait in memory for it and never the other way round. Labels of up
// to keep bytes are kept for the next epoch and the next evaluation, those that were made first;
// all others are made again, with the same bits. Products that depend on the contents of a pass
// are therefore never allowed (Inputs.Bulk). Reading ends with ctx's error when ctx ends. The
// target must not run elsewhere while a reader reads.
func Online(ctx context.Context, c Config, in Inputs, keep int64) (*data.Set, Stats, error) {
	c.Out, c.Stripe = ".", data.Whole()
	if err := c.Validate(); err != nil {
		return nil, Stats{}, err
	}
	if in.Answerer != nil || len(in.Beside) > 0 || in.Bulk {
		return nil, Stats{}, errors.New("preprocess: a set that is not stored is labelled by one target, whose products do not depend on the pass")
	}
	p := &pipeline{c: &c, in: &in, dropped: map[string]int{}}
	var err error
	if c.Files, err = corpus.Expand(c.Files); err != nil {
		return nil, Stats{}, fmt.Errorf("preprocess: %w", err)
	}
	if p.maxLen, err = c.length(in.Target.Spec().MaxPos, in.Target.Spec().Rope.Switch()); err != nil {
		return nil, Stats{}, err
	}
	if p.files, err = hashFiles(c.Files); err != nil {
		return nil, Stats{}, err
	}
	if p.meta, err = c.meta(&in, p.maxLen, p.files); err != nil {
		return nil, Stats{}, err
	}
	if p.cut, err = newCutter(reader(&in), c.EOS, p.maxLen, in.regenerates()); err != nil {
		return nil, Stats{}, err
	}
	m := &maker{file: c.Files[0], most: c.Tokens, left: keep, kept: map[int]data.Record{}}
	if err := p.texts(ctx, m); err != nil {
		return nil, p.stats, err
	}
	for _, s := range m.shards {
		p.stats.add(s)
	}
	p.stats.split(m.shards, c.Files)
	if len(m.rows) == 0 {
		return nil, p.stats, fmt.Errorf("preprocess: nothing to learn in %v", c.Files)
	}
	workers, err := p.workers()
	if err != nil {
		return nil, p.stats, err
	}
	k := workers[0]
	k.generator = nil // it has answered
	m.label = func(batch []*work) error {
		defer k.lab.close() // of what a failure left
		err := k.through(ctx, k.stages(), batch)
		for _, w := range batch {
			p.done.Sequences++
			p.done.Tokens += int64(len(w.tokens))
		}
		p.report()
		return err
	}
	set, err := data.Unstored(p.meta, m.shards, m, c.Writer)
	return set, p.stats, err
}

// texts gives the sequences of the input to m, with their answers.
func (p *pipeline) texts(ctx context.Context, m *maker) error {
	p.to, p.detail = m, true
	progress := p.in.Progress
	p.in.Progress = nil
	defer func() { p.in.Progress = progress }()
	k := &worker{p: p, generator: p.in.Generator, lab: new(labeller)}
	var failed error
	newJobs(p, 0).read(ctx, func(j *job) bool {
		if failed != nil {
			return false
		}
		if k.generator != nil && j.err == nil {
			j.err = k.through(ctx, k.stages()[:1], j.part)
		}
		for _, w := range j.part {
			w.row = &data.Record{Tokens: w.tokens, LossMask: w.answer}
		}
		failed = p.write(j)
		return failed == nil
	})
	p.done = Progress{AllSequences: len(m.rows)}
	if failed == nil {
		failed = p.files.check()
	}
	return failed
}

// A maker labels the rows of a set that is not stored. It is the sink of their texts.
type maker struct {
	file   string // that the rows came from, or the first of several
	rows   []data.Record
	shards []data.Shard
	cut    int // rows in shards
	label  func([]*work) error
	most   int // tokens that are labelled at once

	mu   sync.Mutex
	kept map[int]data.Record
	left int64 // bytes that may still be kept
}

// Append adds a row to the open shard.
func (m *maker) Append(r *data.Record) error {
	m.rows = append(m.rows, data.Record{Tokens: slices.Clip(r.Tokens), LossMask: slices.Clip(r.LossMask)})
	return nil
}

// Cut ends the shard.
func (m *maker) Cut(units int, dropped map[string]int, inputs []data.Input, _ string) error {
	s := data.Shard{File: m.file, Units: units, Rows: len(m.rows) - m.cut, Dropped: maps.Clone(dropped), Inputs: inputs}
	h := sha256.New()
	for _, r := range m.rows[m.cut:] {
		b := binary.LittleEndian.AppendUint64(nil, uint64(len(r.Tokens)))
		for i, id := range r.Tokens {
			b = append(binary.LittleEndian.AppendUint32(b, uint32(id)), 0)
			if r.LossMask[i] {
				b[len(b)-1] = 1
				s.Loss++
			}
		}
		h.Write(b)
		s.Tokens += int64(len(r.Tokens))
	}
	s.SHA256 = hex.EncodeToString(h.Sum(nil))
	m.shards, m.cut = append(m.shards, s), len(m.rows)
	return nil
}

// Text returns the tokens and the mask of a row.
func (m *maker) Text(row int) data.Record { return m.rows[row] }

// Make labels the first of rows and those after it, up to most tokens, unless one has more.
func (m *maker) Make(rows []data.Record, at []data.Place) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var batch []*work
	var of []int // rows that batch will be
	tokens, n := 0, 0
	for ; n < len(rows); n++ {
		if r, ok := m.kept[at[n].Row]; ok {
			rows[n] = r
			continue
		}
		if tokens += len(rows[n].Tokens); len(batch) > 0 && tokens > m.most {
			break
		}
		of = append(of, n)
		batch = append(batch, &work{sequence: &sequence{tokens: rows[n].Tokens, answer: rows[n].LossMask}})
	}
	if len(batch) == 0 {
		return n, nil
	}
	if err := m.label(batch); err != nil {
		return 0, err
	}
	for i, w := range batch {
		rows[of[i]] = *w.row
		if size := w.row.Bytes(); size <= m.left {
			m.kept[at[of[i]].Row] = *w.row
			m.left -= size
		}
	}
	return n, nil
}
