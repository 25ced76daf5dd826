package makehead

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"talf/infer/bench"
	"talf/infer/bench/rig"
	"talf/infer/decode"
	"talf/infer/source"
	"talf/internal/durable"
)

// A Row is what one method did on prompts that the head has not seen.
type Row struct {
	Method      string  `json:"method"` // its specification
	Temperature float64 `json:"temperature"`
	Tau         float64 `json:"tau"` // tokens per target pass
	// SpeedUp is over plain decoding of the same prompts, end to end; Low and High are the ends of its 95%
	// interval. Decoding is the speed-up after the prompt.
	SpeedUp  float64 `json:"speed_up"`
	Low      float64 `json:"speed_up_low"`
	High     float64 `json:"speed_up_high"`
	Decoding float64 `json:"speed_up_decoding"`
	// Round is what a round costs of plain decoding's, and Draft the share of the decoding time that the head takes.
	Round   float64   `json:"round"`
	Draft   float64   `json:"draft_share"`
	ByDepth []float64 `json:"accepted_by_depth"` // share of passes that accept a node of depth 1, 2, …
	Equal   int       `json:"equal_outputs"`     // outputs that are plain decoding's, of those compared
	Outputs int       `json:"outputs"`
}

// choose measures all methods on one set of the prompts and keeps the fastest. Because it is a measurement, it starts
// over after an interruption.
func (r *run) choose(ctx context.Context) error {
	f := &r.state.Result
	rows, err := r.measure(ctx, "chosen.json", r.Plan.Methods, []float64{0}, 0, r.Plan.Choose+1)
	if err != nil {
		return err
	}
	f.Chosen, f.Method = rows, slices.MaxFunc(rows, func(a, b Row) int { return cmp.Compare(a.SpeedUp, b.SpeedUp) }).Method
	return nil
}

// report measures the chosen method on the other set.
func (r *run) report(ctx context.Context) (err error) {
	f := &r.state.Result
	f.Rows, err = r.measure(ctx, "compared.json", []string{f.Method}, []float64{0, 1}, r.Plan.Choose+1, r.Plan.held())
	return err
}

// measure compares methods with plain decoding on the prompts from one number to another, the first of which only warms
// up, and keeps all figures in a file.
func (r *run) measure(ctx context.Context, file string, methods []string, temperatures []float64, from, to int) ([]Row, error) {
	w, end, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	tasks, err := w.prompts(ctx, to)
	if err != nil {
		return nil, err
	}
	h, err := decode.LoadHead(r.Head(), w.model, false, r.Tools.Warn)
	if err != nil {
		return nil, err
	}
	defer func() { _ = h.Close() }() // only read
	o := decode.Default()
	d, err := decode.New(decode.Config{Target: w.model, Tokenizer: w.tok, Options: o})
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }() // only read
	c := bench.Default()
	c.MaxTokens, c.Temperatures, c.Sets = r.Plan.Measure, temperatures, make([]bench.Set, 1)
	for i := from; i < to; i++ {
		one := tasks[i].Begin()
		one.Ask()
		text, err := one.Prompt(ctx)
		if err != nil {
			return nil, err
		}
		ids, err := d.Encode(ctx, text)
		if err != nil {
			return nil, err
		}
		ids = ids[max(0, len(ids)-(w.model.Spec().MaxPos-c.MaxTokens)):] // the question is at the end
		c.Sets[0].Prompts = append(c.Sets[0].Prompts, bench.Prompt{Name: fmt.Sprint(i), Tokens: ids})
	}
	src := source.NewHead(h, 0)
	for _, m := range methods {
		c.Methods = append(c.Methods, bench.Method{Label: m, Spec: m, Source: src, SourceName: "head"})
	}
	set, done := r.Tools.Progress("measure", "answers")
	c.Progress = func(i, n int) { set(i, n, "") }
	got, err := bench.Run(ctx, d.Engine(), c)
	done()
	if err != nil {
		return nil, err
	}
	all := &rig.Report{Report: got, Device: w.model.Device().Name(), DType: w.model.TypeName(), ChatTemplate: w.template != nil}
	if err := durable.WriteJSON(r.path(file), all); err != nil {
		return nil, err
	}
	var rows []Row
	for _, m := range methods {
		for _, t := range temperatures {
			b := got.Row(m, "", t)
			if b == nil {
				return nil, fmt.Errorf("no figures of %s at temperature %v", m, t)
			}
			x := Row{
				Method: m, Temperature: t, Tau: b.Pooled, SpeedUp: b.EndToEnd.Value, Low: b.EndToEnd.Low, High: b.EndToEnd.High,
				Decoding: b.Decoding.Value, Draft: b.Draft, Equal: b.Equal, Outputs: b.Compared,
			}
			if x.Decoding > 0 {
				x.Round = x.Tau / x.Decoding
			}
			for _, rate := range b.Depth {
				x.ByDepth = append(x.ByDepth, float64(rate.Kept)/float64(max(b.Passes, 1)))
			}
			rows = append(rows, x)
		}
	}
	return rows, nil
}

// Head is the head that the run made: the checkpoint that was best on text that was held out.
func (c *Config) Head() string { return headIn(c.Dir) }
