package quickstart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"talf/infer"
	"talf/infer/bench"
	"talf/infer/bench/rig"
	"talf/infer/decode"
	"talf/infer/source"
	"talf/infer/trace"
	"talf/internal/demo"
	"talf/internal/durable"
	"talf/internal/vfs"
	"talf/model"
	"talf/model/head"
	"talf/model/identity"
	"talf/text/chat"
	"talf/text/tokenizer"
)

// A Row is a line of the table: one method with one head.
type Row struct {
	Method          string  `json:"method"`            // its specification
	Head            string  `json:"head,omitempty"`    // none, untrained, eagle or talf
	Tau             float64 `json:"tau"`               // tokens per target pass
	TokensPerSecond float64 `json:"tokens_per_second"` // mean over prompts
	// SpeedUp is over plain decoding of the same prompts, end to end, as bench defines it; Low and
	// High are the ends of its 95% interval. Decoding is the speed-up after the prompt.
	SpeedUp  float64   `json:"speed_up"`
	Low      float64   `json:"speed_up_low"`
	High     float64   `json:"speed_up_high"`
	Decoding float64   `json:"speed_up_decoding"`
	ByDepth  []float64 `json:"accepted_by_depth"` // share of passes that accept a node of depth 1, 2, …
	Tokens   int       `json:"tokens"`
	Passes   int       `json:"passes"`
	Equal    int       `json:"equal_outputs"` // outputs that are plain decoding's, token for token
	Outputs  int       `json:"outputs"`
}

// name is the method's name without its parameters, unless there is only one.
func (r *Row) name() string {
	name, params, _ := strings.Cut(r.Method, ":")
	if params != "" && !strings.Contains(params, ",") {
		return r.Method
	}
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

// deep returns the table of the deepened target without figures.
func (p *Plan) deep() []Row {
	all := []Row{{Method: "ar"}}
	for _, h := range []string{"eagle", "talf"} {
		for _, m := range p.Deep.Methods {
			all = append(all, Row{Method: m, Head: h})
		}
	}
	return all
}

// decode answers every prompt in every way. Because it is a measurement, it starts over after an
// interruption.
func (r *run) decode(ctx context.Context) error {
	c := comparison{rows: r.Plan.ways(), prompts: r.Plan.Prompts, tokens: r.Plan.MaxTokens, file: "compared.json", trace: "trace.jsonl"}
	if err := r.compare(ctx, &c); err != nil {
		return err
	}
	r.state.Result.Rows = c.rows
	var err error
	r.state.Result.Plots, err = savePlots(r.Dir, c.rows)
	return err
}

// decodeDeep answers some of the prompts on the deepened target.
func (r *run) decodeDeep(ctx context.Context) error {
	d := &r.Plan.Deep
	c := comparison{rows: r.Plan.deep(), layers: d.Layers, prompts: d.Prompts, tokens: d.MaxTokens, file: "compared-deep.json"}
	if err := r.compare(ctx, &c); err != nil {
		return err
	}
	r.state.Result.Deep = c.rows
	return nil
}

// A comparison is of methods and heads on prompts.
type comparison struct {
	rows            []Row
	layers          int // that the target is deepened to; 0: as it is
	prompts, tokens int
	file, trace     string // that results, and rounds of the last method on a prompt, are kept in
}

// compare measures the rows of x.
func (r *run) compare(ctx context.Context, x *comparison) error {
	m, closeModel, err := r.Tools.Open(ctx, r.path("model"), x.layers)
	if err != nil {
		return err
	}
	defer closeModel()
	tok, err := decode.LoadTokenizer(r.path("model"), m)
	if err != nil {
		return err
	}
	o := decode.Default()
	o.MaxTokens = x.tokens
	d, err := decode.New(decode.Config{Target: m, Tokenizer: tok, Options: o})
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }() // only read
	if x.layers == 0 {
		if err := r.writeUntrained(ctx, m); err != nil {
			return err
		}
	}
	c := bench.Default()
	c.MaxTokens = x.tokens
	c.Sets = make([]bench.Set, 1)
	set := &c.Sets[0]
	for i, p := range demo.Prompts(r.Plan.Seed, x.prompts+c.Warmup) {
		ids, err := d.Encode(ctx, chat.Prompt{Text: p, Special: true})
		if err != nil {
			return err
		}
		set.Prompts = append(set.Prompts, bench.Prompt{Name: fmt.Sprint(i), Tokens: ids})
	}
	sources := map[string]*source.Head{}
	for i := range x.rows {
		w := &x.rows[i]
		b := bench.Method{Label: w.Label(), Spec: w.Method}
		if w.Head != "" {
			if sources[w.Head] == nil {
				// A deepened model has other weights but the same outputs.
				h, err := decode.LoadHead(r.path(w.Head), m, x.layers > 0, nil)
				if err != nil {
					return err
				}
				defer func() { _ = h.Close() }()
				sources[w.Head] = source.NewHead(h, 0)
			}
			b.Source, b.SourceName = sources[w.Head], w.Head
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
	for i := range x.rows {
		x.rows[i].measured(&report.Rows[i])
	}
	all := &rig.Report{Report: report, Device: m.Device().Name(), DType: m.TypeName(), Layers: x.layers}
	if err := durable.WriteJSON(r.path(x.file), all); err != nil {
		return err
	}
	if x.trace == "" {
		return nil
	}
	return r.record(ctx, d.Engine(), &c, &c.Methods[len(c.Methods)-1], tok, x.trace)
}

// record keeps the rounds of m on the first prompt.
func (r *run) record(ctx context.Context, e *infer.Engine, c *bench.Config, m *bench.Method, tok *tokenizer.Tokenizer, name string) (err error) {
	mk, err := c.Open(m, 0, e.Target.Shape().Vocab)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mk.Close()) }()
	o := decode.Default()
	o.Method, o.MaxTokens = m.Spec, c.MaxTokens
	prompt := c.Sets[0].Prompts[0].Tokens
	req, err := o.Request(mk, m.Source, prompt, 0)
	if err != nil {
		return err
	}
	return durable.Write(r.path(name), func(w io.Writer) error {
		t, err := trace.NewWriter(w, trace.Header{Method: m.Title(), Prompt: len(prompt)}, func(id int32) string { return tok.Decode([]int32{id}, false) })
		if err != nil {
			return err
		}
		req.Trace = t.Round
		_, err = e.Generate(ctx, req)
		return err
	})
}

func (r *Row) measured(b *bench.Row) {
	r.Tau, r.TokensPerSecond = b.Pooled, b.Speed.Mean
	r.SpeedUp, r.Low, r.High, r.Decoding = b.EndToEnd.Value, b.EndToEnd.Low, b.EndToEnd.High, b.Decoding.Value
	r.Tokens, r.Passes, r.Equal, r.Outputs = b.Tokens, b.Passes, b.Equal, b.Outputs
	for d := 1; d < len(b.Depth) && b.Depth[d].Kept > 0; d++ {
		r.ByDepth = append(r.ByDepth, float64(b.Depth[d].Kept)/float64(b.Passes))
	}
}

// writeUntrained writes the control: a head with random weights.
func (r *run) writeUntrained(ctx context.Context, m *model.Model) error {
	dir := r.path("untrained")
	if err := vfs.DeleteAll(dir); err != nil { // an earlier run's
		return err
	}
	spec := m.Spec().DraftFor(false)
	return head.Write(ctx, dir, spec, identity.To(m.Identity()), head.Random(spec, r.Plan.Seed)...)
}
