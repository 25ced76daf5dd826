package makehead

import (
	"context"
	"fmt"

	"talf/infer/bench"
	"talf/infer/bench/rig"
	"talf/infer/decode"
	"talf/internal/durable"
)

// A Row is what one method did on prompts that the head has not seen.
type Row struct {
	Method      string  `json:"method"` // without or with the head
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

// The methods that are compared: auto needs no head, and has to be better with one.
const (
	without = "auto"
	with    = "auto, head"
)

// measure compares drafting with the head and without it with plain decoding, on prompts that nothing is learnt from. The
// first of them only warms up. Because it is a measurement, it starts over after an interruption.
func (r *run) measure(ctx context.Context) error {
	w, end, err := r.open(ctx, false)
	if err != nil {
		return err
	}
	defer end()
	tasks := w.prompts(r.Plan.held())
	src, h, err := decode.HeadSource(r.Head(), w.model, false, r.Tools.Warn, 0)
	if err != nil {
		return err
	}
	defer func() { _ = h.Close() }() // only read
	o := decode.Default()
	d, err := decode.New(decode.Config{Target: w.model, Tokenizer: w.tok, Options: o})
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // only read
	c := bench.Default()
	c.MaxTokens, c.Temperatures, c.Sets = r.Plan.Measure, []float64{0, 1}, make([]bench.Set, 1)
	for i := range r.Plan.held() {
		one := tasks[i].Begin()
		one.Ask()
		text, err := one.Prompt(ctx)
		if err != nil {
			return err
		}
		ids, err := d.Encode(ctx, text)
		if err != nil {
			return err
		}
		ids = ids[max(0, len(ids)-(w.model.Spec().MaxPos-c.MaxTokens)):] // the question is at the end
		c.Sets[0].Prompts = append(c.Sets[0].Prompts, bench.Prompt{Name: fmt.Sprint(i), Tokens: ids})
	}
	c.Methods = []bench.Method{
		{Label: without, Spec: "auto"},
		{Label: with, Spec: "auto", Source: src, SourceName: "head"},
	}
	set, done := r.Tools.Progress("measure", "answers")
	c.Progress = func(i, n int) { set(i, n, "") }
	got, err := bench.Run(ctx, d.Engine(), c)
	done()
	if err != nil {
		return err
	}
	all := &rig.Report{Report: got, Device: w.model.Device().Name(), DType: w.model.TypeName(), ChatTemplate: w.template != nil}
	if err := durable.WriteJSON(r.path("compared.json"), all); err != nil {
		return err
	}
	f := &r.state.Result
	f.Rows, f.Pays = nil, pays(got.Compared)
	for _, t := range c.Temperatures {
		for _, m := range []string{without, with} {
			b := got.Row(m, "", t)
			if b == nil {
				return fmt.Errorf("no figures of %s at temperature %v", m, t)
			}
			x := Row{
				Method: m, Temperature: t, Tau: b.Pooled, SpeedUp: b.EndToEnd.Value, Low: b.EndToEnd.Low, High: b.EndToEnd.High,
				Decoding: b.Decoding.Value, Draft: b.Draft, Equal: b.Equal, Outputs: b.Compared,
			}
			if x.Decoding > 0 {
				x.Round = x.Tau / x.Decoding
			}
			for _, rate := range b.Depth[min(1, len(b.Depth)):] { // the root is not drafted
				x.ByDepth = append(x.ByDepth, float64(rate.Kept)/float64(max(b.Passes, 1)))
			}
			f.Rows = append(f.Rows, x)
		}
	}
	return nil
}

// pays reports whether greedy decoding is faster with the head than without it and than plain decoding, beyond doubt.
func pays(all []bench.Comparison) bool {
	n := 0
	for _, c := range all {
		if c.Temperature == 0 {
			if c.Against != with || c.Ratio.High >= 1 {
				return false
			}
			n++
		}
	}
	return n > 0
}

// Head is the head that the run made: the checkpoint that was best on text that was held out.
func (c *Config) Head() string { return headIn(c.Dir) }
