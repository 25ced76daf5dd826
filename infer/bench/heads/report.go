package heads

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"talf/infer"
	"talf/infer/bench"
	"talf/internal/plot"
	"talf/internal/stats"
	"talf/internal/table"
)

// A Report is a figure or table of the publications, with confidence intervals.
type Report struct {
	Name   string `json:"name"`
	Doc    string `json:"doc"`
	Device string `json:"device"`
	// Temperature is the temperature of the measurements.
	Temperature float64         `json:"temperature"`
	Bootstrap   stats.Bootstrap `json:"bootstrap"`
	Methods     []MethodEval    `json:"methods,omitempty"`
	Ranks       []RankEval      `json:"ranks,omitempty"`
	// Text says what text Ranks are over, Split which part of the prompts: tune or report; empty: all.
	Text  string `json:"text,omitempty"`
	Split string `json:"split,omitempty"`

	evaluation Evaluation
	columns    []column // what runs
}

// ReadReport reads the JSON of an evaluation.
func ReadReport(b []byte) (*Report, error) {
	r := new(Report)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, err
	}
	e, err := Evaluations().Find(r.Name)
	if err != nil {
		return nil, err
	}
	r.evaluation = e
	return r, nil
}

// NewReport returns the report of e before any measurement, on a device.
func (e Evaluation) NewReport(device string, b stats.Bootstrap) *Report {
	return &Report{Name: e.Name, Doc: e.Doc, Device: device, Bootstrap: b, evaluation: e}
}

// Plan adds to c what the evaluation runs on draft models, at c's only temperature, and checks c.
func (r *Report) Plan(c *bench.Config, sources []bench.Source) error {
	r.columns = r.evaluation.columns(sources)
	for i := range r.columns {
		c.Methods = append(c.Methods, r.columns[i].Method)
	}
	return c.Validate()
}

// Run runs c, which Plan has planned, and evaluates it.
func (r *Report) Run(ctx context.Context, engine *infer.Engine, c bench.Config) error {
	var got []bench.Measurement
	c.Keep = func(m *bench.Measurement) error {
		got = append(got, *m)
		return nil
	}
	if _, err := bench.Run(ctx, engine, c); err != nil {
		return err
	}
	var err error
	r.Temperature = c.Temperatures[0]
	r.Methods, err = evaluate(r.columns, &c, got, r.Bootstrap)
	return err
}

// AddRanks evaluates the predictions of a head conditioned on its own ranked tokens.
func (r *Report) AddRanks(head string, items [][]Item, texts []Text) error {
	ranks, err := EvalRanks(head, items, texts, r.Bootstrap)
	r.Ranks = append(r.Ranks, ranks...)
	return err
}

// Figures draws r.
func (r *Report) Figures() []plot.Figure {
	if len(r.evaluation.rows) == 0 {
		return RankFigures(r.Ranks)
	}
	return r.evaluation.draw(r.Methods)
}

// Conditions says in a line what was measured.
func (r *Report) Conditions() string {
	head := r.Device + "; "
	if len(r.evaluation.rows) > 0 {
		head += fmt.Sprintf("temperature %g; ", r.Temperature)
	}
	if r.Text != "" {
		head += "over " + r.Text + "; "
	}
	if r.Split != "" {
		head += "the part " + r.Split + " of the prompts; "
	}
	return head + fmt.Sprintf("[ ] are %g%% confidence intervals", 100*r.Bootstrap.Level)
}

// Tables lays r out.
func (r *Report) Tables() []table.Table {
	if len(r.evaluation.rows) == 0 {
		return RankTables(r.Ranks)
	}
	return r.evaluation.layout(r.Methods)
}

// Write writes r for people.
func (r *Report) Write(w io.Writer, markdown bool) error {
	if _, err := fmt.Fprintf(w, "%s\n\n", r.Conditions()); err != nil {
		return err
	}
	return table.Write(w, r.Tables(), markdown)
}
