package main

import (
	"context"
	"fmt"
	"os"
	"slices"

	"talf/infer"
	"talf/infer/draft"
	"talf/infer/source"
	"talf/infer/verify"
	"talf/internal/demo"
	"talf/model"
	"talf/model/head"
	"talf/model/sample"
)

// A quickRun is one way to decode.
type quickRun struct {
	method, head string
}

func (q *quick) runs() []quickRun {
	runs := []quickRun{{"ar", ""}}
	for _, h := range []string{"untrained", "eagle", "talf"} {
		for _, m := range q.plan.Methods {
			runs = append(runs, quickRun{m, h})
		}
	}
	return runs
}

// A quickDecoded is what decode.json holds: the decode stage goes on from it.
type quickDecoded struct {
	Prompts int           `json:"prompts"` // done
	Same    bool          `json:"same"`
	Stats   []infer.Stats `json:"stats"` // of each run
}

// decode answers every prompt in every way, in turn, so that all of them meet
// the same load of the machine.
func (q *quick) decode(ctx context.Context) error {
	o := decodeOptions{model: q.path("model"), method: "ar", sample: sample.Greedy(), maxTokens: q.plan.MaxTokens}
	d, err := o.open(0)
	if err != nil {
		return err
	}
	defer func() { d.close() }()
	if err := q.writeUntrained(d.model); err != nil {
		return err
	}
	sources := map[string]infer.Source{}
	for _, r := range q.runs() {
		if r.head == "" || sources[r.head] != nil {
			continue
		}
		h, err := loadHead(q.path(r.head), d.model, false)
		if err != nil {
			return err
		}
		defer func() { _ = h.Close() }()
		sources[r.head] = source.NewHead(h, 0)
	}
	prompts := demo.Prompts(q.plan.Seed, q.plan.Prompts)
	file := q.path("decode.json")
	done := quickDecoded{Same: true, Stats: make([]infer.Stats, len(q.runs()))}
	if _, err := readJSON(file, &done); err != nil {
		return err
	}
	if done.Prompts == 0 {
		// The first pass of everything pays for memory that later ones re-use.
		if _, err := q.decodeOne(ctx, d, sources, prompts[0]); err != nil {
			return err
		}
	}
	bar := q.a.progress("decode", "prompts")
	defer bar.end()
	for i := done.Prompts; i < len(prompts); i++ {
		seqs, err := q.decodeOne(ctx, d, sources, prompts[i])
		if err != nil {
			return err
		}
		for j, s := range seqs {
			done.Stats[j].Add(s.Stats())
			done.Same = done.Same && slices.Equal(s.Tokens(), seqs[0].Tokens())
		}
		done.Prompts = i + 1
		if err := writeJSON(file, &done); err != nil {
			return err
		}
		bar.set(int64(i+1), int64(len(prompts)), "")
	}
	bar.end()
	q.state.Rows, q.state.Same = q.state.Rows[:0], done.Same
	for j, r := range q.runs() {
		s := &done.Stats[j]
		row := quickRow{Method: r.method, Head: r.head, Tau: s.Tau(), ByDepth: byDepth(s), Tokens: s.Tokens}
		if t := s.Decode.Seconds(); t > 0 {
			row.TokensPerSecond = float64(s.Tokens) / t
		}
		if j == 0 {
			row.SpeedUp = 1
		} else if base := q.state.Rows[0].TokensPerSecond; base > 0 {
			row.SpeedUp = row.TokensPerSecond / base
		}
		q.state.Rows = append(q.state.Rows, row)
	}
	q.state.Plots, err = savePlot(q.dir, q.state.Rows)
	return err
}

// decodeOne answers one prompt in every way.
func (q *quick) decodeOne(ctx context.Context, d *decoder, sources map[string]infer.Source, prompt string) ([]*infer.Sequence, error) {
	ids, err := d.encode(prompt)
	if err != nil {
		return nil, err
	}
	var out []*infer.Sequence
	for _, r := range q.runs() {
		drafter, _, err := draft.New(r.method)
		if err != nil {
			return nil, err
		}
		s, err := d.engine.Generate(ctx, infer.Request{
			Prompt: ids, MaxTokens: q.plan.MaxTokens, Drafter: drafter, Source: sources[r.head],
			Verifier: new(verify.Greedy), Processor: &processor{Sampler: sample.New(sample.Greedy())},
		})
		if err != nil {
			return nil, fmt.Errorf("%s with the head %q: %w", r.method, r.head, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// writeUntrained writes the control: a head with the weights that training
// begins with.
func (q *quick) writeUntrained(m *model.Model) error {
	dir := q.path("untrained")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	spec := m.Spec().DraftFor(false)
	return head.Write(dir, spec, map[string]string{head.MetaTarget: m.Hash()}, head.Random(spec, q.plan.Seed)...)
}
