package quickstart

import (
	"context"
	"fmt"
	"strings"

	"talf/infer/bench"
	"talf/infer/decode"
	"talf/infer/source"
	"talf/internal/demo"
	"talf/internal/vfs"
	"talf/model"
	"talf/model/chat"
	"talf/model/head"
	"talf/model/identity"
)

// A Row is a line of the table: one method with one head.
type Row struct {
	Method          string    `json:"method"`            // its specification
	Head            string    `json:"head,omitempty"`    // none, untrained, eagle or talf
	Tau             float64   `json:"tau"`               // tokens per target pass
	TokensPerSecond float64   `json:"tokens_per_second"` // mean over prompts
	SpeedUp         float64   `json:"speed_up"`          // over plain decoding of the same prompt, mean
	ByDepth         []float64 `json:"accepted_by_depth"` // share of passes that accept a node of depth 1, 2, …
	Tokens          int       `json:"tokens"`
	Passes          int       `json:"passes"`
	Equal           int       `json:"equal_outputs"` // outputs that are plain decoding's, token for token
	Outputs         int       `json:"outputs"`
}

// name is the method's name without its parameters.
func (r *Row) name() string {
	name, _, _ := strings.Cut(r.Method, ":")
	return name
}

// Label names the method and the head.
func (r *Row) Label() string {
	if r.Head == "" {
		return r.name()
	}
	return r.name() + ", " + r.Head
}

// ways returns the table without figures: plain decoding, then every method with every
// head.
func (p *Plan) ways() []Row {
	all := []Row{{Method: "ar"}}
	for _, h := range []string{"untrained", "eagle", "talf"} {
		for _, m := range p.Methods {
			all = append(all, Row{Method: m, Head: h})
		}
	}
	return all
}

// decode answers every prompt in every way. Because it is a measurement, it starts over after an
// interruption.
func (r *run) decode(ctx context.Context) error {
	m, closeModel, err := r.Tools.Open(r.path("model"))
	if err != nil {
		return err
	}
	defer closeModel()
	tok, err := decode.LoadTokenizer(r.path("model"), m)
	if err != nil {
		return err
	}
	o := decode.Default()
	o.MaxTokens = r.Plan.MaxTokens
	d, err := decode.New(decode.Config{Target: m, Tokenizer: tok, Options: o})
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // only read
	if err := r.writeUntrained(m); err != nil {
		return err
	}
	c := bench.Default()
	c.MaxTokens = r.Plan.MaxTokens
	c.Sets = make([]bench.Set, 1)
	set := &c.Sets[0]
	for i, p := range demo.Prompts(r.Plan.Seed, r.Plan.Prompts+c.Warmup) {
		ids, err := d.Encode(ctx, chat.Prompt{Text: p, Special: true})
		if err != nil {
			return err
		}
		set.Prompts = append(set.Prompts, bench.Prompt{Name: fmt.Sprint(i), Tokens: ids})
	}
	rows := r.Plan.ways()
	sources := map[string]*source.Head{}
	for i := range rows {
		w := &rows[i]
		b := bench.Method{Label: w.Label(), Spec: w.Method}
		if w.Head != "" {
			if sources[w.Head] == nil {
				h, err := decode.LoadHead(r.path(w.Head), m, false, nil)
				if err != nil {
					return err
				}
				defer func() { _ = h.Close() }()
				sources[w.Head] = source.NewHead(h, 0)
			}
			b.Source = sources[w.Head]
		}
		c.Methods = append(c.Methods, b)
	}
	show, end := r.Tools.Answers()
	defer end()
	c.Progress = show
	report, err := bench.Run(ctx, d.Engine(), c)
	if err != nil {
		return err
	}
	for i := range rows {
		rows[i].measured(&report.Rows[i])
	}
	r.state.Rows = rows
	r.state.Plots, err = savePlots(r.Dir, rows)
	return err
}

func (r *Row) measured(b *bench.Row) {
	r.Tau, r.TokensPerSecond, r.SpeedUp = b.Pooled, b.Speed.Mean, b.Speedup.Mean
	r.Tokens, r.Passes, r.Equal, r.Outputs = b.Tokens, b.Passes, b.Equal, b.Outputs
	for d := 1; d < len(b.Depth) && b.Depth[d].Kept > 0; d++ {
		r.ByDepth = append(r.ByDepth, float64(b.Depth[d].Kept)/float64(b.Passes))
	}
}

// writeUntrained writes the control: a head with random weights.
func (r *run) writeUntrained(m *model.Model) error {
	dir := r.path("untrained")
	if err := vfs.DeleteAll(dir); err != nil { // an earlier run's
		return err
	}
	spec := m.Spec().DraftFor(false)
	return head.Write(dir, spec, identity.To(m.Identity()), head.Random(spec, r.Plan.Seed)...)
}
