package paper

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"talf/infer"
	"talf/infer/bench"
	"talf/internal/plot"
	"talf/internal/stats"
	"talf/internal/table"
)

// A Report is the result of a comparison, in the layout of the exhibits that it ran for.
type Report struct {
	*bench.Report
	Device string `json:"device"`
	DType  string `json:"dtype"`
	// ChatTemplate says that a chat template wrote some prompts.
	ChatTemplate bool `json:"chat_template,omitempty"`
	// Layers is the number of layers that the model was deepened to: a cost model of a larger
	// one.
	Layers int        `json:"deepened_to_layers,omitempty"`
	ByRank []RankLine `json:"heads_by_rank,omitempty"`
	// RankText says what text ByRank is over.
	RankText string `json:"heads_by_rank_over,omitempty"`
	// Split names the part of the prompts: tune or report; empty: all.
	Split string `json:"split,omitempty"`
	// Interrupted says that the run ended early and the figures cover a part of it.
	Interrupted bool `json:"interrupted,omitempty"`
	views       []*View
}

// Lay lays out the exhibits over r, whose Report must be set.
func (r *Report) Lay(exhibits []Exhibit, kit *Kit) {
	for i := range exhibits {
		r.views = append(r.views, exhibits[i].View(r.Report, kit))
	}
}

// Conditions says in a line what was measured.
func (r *Report) Conditions() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, weights %s", r.Device, r.DType)
	if r.Layers > 0 {
		fmt.Fprintf(&b, ", deepened to %d layers that add nothing: a cost model of a larger target", r.Layers)
	}
	fmt.Fprintf(&b, "; %d prompts of %d sets, %d of each for warm-up, up to %d tokens, seeds %v", r.Prompts, len(r.Sets), r.Warmup, r.MaxTokens, r.Seeds)
	if r.Repeat > 1 {
		fmt.Fprintf(&b, ", %d times", r.Repeat)
	}
	if r.Split != "" {
		fmt.Fprintf(&b, ", the part %s of the prompts", r.Split)
	}
	if r.ChatTemplate {
		b.WriteString(", asked by the chat template")
	}
	if r.Interrupted {
		b.WriteString("; INTERRUPTED: figures of a part")
	}
	return b.String()
}

// Write writes r for people: the conditions, the tables and a line for each head by rank.
func (r *Report) Write(w io.Writer, markdown bool) error {
	var b strings.Builder
	b.WriteString(r.Conditions() + "\n\n")
	tables := r.Tables()
	if len(r.views) > 0 { // the table of everything is in the JSON
		tables = nil
	}
	for _, v := range r.views {
		tables = append(tables, v.Layout()...)
	}
	if err := table.Write(&b, tables, markdown); err != nil {
		return err
	}
	if len(r.ByRank) > 0 {
		fmt.Fprintf(&b, "\nHeads given their own n-th ranked token, over %s; ECE over 10 bins of equal width / of equal numbers of items:\n", r.RankText)
	}
	writeRanks(&b, r.ByRank)
	_, err := io.WriteString(w, b.String())
	return err
}

// Figures returns the exhibits' figures or, if there are no exhibits, those of the whole report.
func (r *Report) Figures() []plot.Figure {
	var out []plot.Figure
	for _, v := range r.views {
		out = append(out, v.Draw()...)
	}
	if len(out) == 0 {
		out = r.Report.Figures()
	}
	return out
}

// writeRanks writes a line for each head with accuracy and calibration error by rank.
func writeRanks(b *strings.Builder, lines []RankLine) {
	for len(lines) > 0 {
		name := lines[0].Head
		n := slices.IndexFunc(lines, func(l RankLine) bool { return l.Head != name })
		if n < 0 {
			n = len(lines)
		}
		fmt.Fprintf(b, "%s, given its own n-th ranked token:", name)
		for _, l := range lines[:n] {
			fmt.Fprintf(b, "  n=%d accuracy %.3f, ECE %.3f / %.3f", l.Rank, l.Accuracy, l.ECE, l.ECEMass)
		}
		b.WriteString("\n")
		lines = lines[n:]
	}
}

// An EvalReport is a figure or table of the publications, with confidence intervals.
type EvalReport struct {
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
}

// ReadEval reads the JSON of an evaluation.
func ReadEval(b []byte) (*EvalReport, error) {
	r := new(EvalReport)
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
func (e Evaluation) NewReport(device string, b stats.Bootstrap) *EvalReport {
	return &EvalReport{Name: e.Name, Doc: e.Doc, Device: device, Bootstrap: b, evaluation: e}
}

// Run runs c, which has the methods of exhibit x at its first temperature, and evaluates
// them.
func (r *EvalReport) Run(ctx context.Context, engine *infer.Engine, c bench.Config, x *Exhibit, kit *Kit) error {
	var got []bench.Measurement
	c.Keep = func(m *bench.Measurement) error {
		got = append(got, *m)
		return nil
	}
	report, err := bench.Run(ctx, engine, c)
	if err != nil {
		return err
	}
	r.Temperature = x.Temperatures[0]
	r.Methods, err = x.View(report, kit).Evaluate(&c, got, r.Bootstrap)
	return err
}

// AddRanks evaluates the predictions of a head conditioned on its own ranked tokens.
func (r *EvalReport) AddRanks(head string, items [][]Item, texts []Text) error {
	ranks, err := EvalRanks(head, items, texts, r.Bootstrap)
	r.Ranks = append(r.Ranks, ranks...)
	return err
}

// Figures draws r.
func (r *EvalReport) Figures() []plot.Figure {
	if r.evaluation.Exhibit == "" {
		return RankFigures(r.Ranks)
	}
	return r.evaluation.Figures(r.Methods)
}

// Conditions says in a line what was measured.
func (r *EvalReport) Conditions() string {
	head := r.Device + "; "
	if r.evaluation.Exhibit != "" {
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
func (r *EvalReport) Tables() []table.Table {
	if r.evaluation.Exhibit == "" {
		return RankTables(r.Ranks)
	}
	return r.evaluation.Tables(r.Methods)
}

// Write writes r for people.
func (r *EvalReport) Write(w io.Writer, markdown bool) error {
	if _, err := fmt.Fprintf(w, "%s\n\n", r.Conditions()); err != nil {
		return err
	}
	return table.Write(w, r.Tables(), markdown)
}
