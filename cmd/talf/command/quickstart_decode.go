package command

import (
	"context"
	"fmt"
	"os"

	"talf/infer/bench"
	"talf/infer/decode"
	"talf/infer/source"
	"talf/internal/demo"
	"talf/model"
	"talf/model/chat"
	"talf/model/head"
)

// A quickRun is one way to decode.
type quickRun struct {
	method, head string
}

func (r quickRun) label() string {
	name := methodName(r.method)
	if r.head == "" {
		return name
	}
	return name + ", " + r.head
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

// decode answers every prompt in every way. It is a measurement: interrupted, it
// begins anew.
func (q *quick) decode(ctx context.Context) error {
	o := decodeOptions{model: q.path("model"), Options: decode.Default(), machine: defaultMachine()}
	o.MaxTokens = q.plan.MaxTokens
	d, err := o.open(q.a.log, 0, nil)
	if err != nil {
		return err
	}
	defer func() { d.close() }()
	if err := q.writeUntrained(d.model); err != nil {
		return err
	}
	c := bench.Default()
	c.MaxTokens = q.plan.MaxTokens
	c.Sets = make([]bench.Set, 1)
	set := &c.Sets[0]
	for i, p := range demo.Prompts(q.plan.Seed, q.plan.Prompts+c.Warmup) {
		ids, err := d.Encode(chat.Prompt{Text: p, Special: true})
		if err != nil {
			return err
		}
		set.Prompts = append(set.Prompts, bench.Prompt{Name: fmt.Sprint(i), Tokens: ids})
	}
	sources := map[string]*source.Head{}
	for _, r := range q.runs() {
		m := bench.Method{Label: r.label(), Spec: r.method}
		if r.head != "" {
			if sources[r.head] == nil {
				h, err := decode.LoadHead(q.path(r.head), d.model, false)
				if err != nil {
					return err
				}
				defer func() { _ = h.Close() }()
				sources[r.head] = source.NewHead(h, 0)
			}
			m.Source = sources[r.head]
		}
		c.Methods = append(c.Methods, m)
	}
	bar := q.a.progress("decode", "answers")
	defer bar.end()
	c.Progress = func(done, total int) { bar.set(int64(done), int64(total), "") }
	report, err := bench.Run(ctx, d.engine, c)
	if err != nil {
		return err
	}
	bar.end()
	q.state.Rows = q.state.Rows[:0]
	for i, r := range q.runs() {
		q.state.Rows = append(q.state.Rows, newQuickRow(r, &report.Rows[i]))
	}
	q.state.Plots, err = savePlot(q.dir, q.state.Rows)
	return err
}

func newQuickRow(r quickRun, b *bench.Row) quickRow {
	row := quickRow{
		Method: r.method, Head: r.head, Tau: b.Pooled, TokensPerSecond: b.Speed.Mean, SpeedUp: b.Speedup.Mean,
		Tokens: b.Tokens, Passes: b.Passes, Equal: b.Equal, Outputs: b.Outputs,
	}
	for d := 1; d < len(b.Depth) && b.Depth[d].Kept > 0; d++ {
		row.ByDepth = append(row.ByDepth, float64(b.Depth[d].Kept)/float64(b.Passes))
	}
	return row
}

// writeUntrained writes the control: a head with random weights.
func (q *quick) writeUntrained(m *model.Model) error {
	dir := q.path("untrained")
	if err := os.RemoveAll(dir); err != nil { // an earlier run's
		return err
	}
	spec := m.Spec().DraftFor(false)
	return head.Write(dir, spec, map[string]string{head.MetaTarget: m.Hash()}, head.Random(spec, q.plan.Seed)...)
}
