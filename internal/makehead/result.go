package makehead

import (
	"fmt"
	"path/filepath"
	"strings"
)

// A Result is what a finished run made and measured.
type Result struct {
	Plan Plan   `json:"plan"`
	Dir  string `json:"dir"`
	Head string `json:"head"`
	found
}

// headIn returns the head of the run in dir: the checkpoint that was best on text that was held out.
func headIn(dir string) string { return filepath.Join(dir, "head", "best") }

// Text says what the run measured, and what to do next with the model at the path model.
func (r *Result) Text(model string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "The head learnt %d tokens of answers and was best after %d of %d steps, with τ̂ %.2f on text held out.", r.Tokens, r.Best, r.Steps, r.TauHat)
	if r.Vocab > 0 {
		fmt.Fprintf(&b, " It predicts\n%d tokens, which have %.1f%% of what the model may write there.", r.Vocab, 100*r.Covered)
	}
	b.WriteString("\n\n")
	fmt.Fprintf(&b, "%-10s  %4s  %5s  %-19s  %5s  %5s   %s\n", "method", "temp", "τ", "speed-up", "round", "head", "rounds that accept a node at depth 1, 2, …")
	for i := range r.Rows {
		x := &r.Rows[i]
		var depth strings.Builder
		for _, share := range x.ByDepth {
			fmt.Fprintf(&depth, " %.2f", share)
		}
		fmt.Fprintf(&b, "%-10s  %4g  %5.2f  %-19s  %5.2f  %4.0f%%  %s\n", x.Method, x.Temperature, x.Tau,
			fmt.Sprintf("%.2f [%.2f, %.2f]", x.SpeedUp, x.Low, x.High), x.Round, 100*x.Draft, depth.String())
	}
	fmt.Fprintf(&b, `
τ is the tokens of a round, the model's own included; a round takes so many times the time of plain decoding's, of which
the head has its share. Speed-ups are from prompt to last token over plain decoding, with 95%% intervals over %d prompts
of up to %d tokens that the head has not seen. At temperature 0 the outputs are plain decoding's.

`, r.Plan.Report, r.Plan.Measure)
	if !r.Pays {
		b.WriteString(r.why() + "\n\n")
	}
	format := "vllm"
	switch {
	case linearBlock(r.Plan.Network):
		format = "talf" // which others do not read
	case strings.HasPrefix(r.Plan.Network, "block"):
		format = "block"
	case r.Vocab > 0 && r.Plan.Network == "eagle":
		format = "sglang" // vLLM knows no draft vocabulary of such heads
	}
	fmt.Fprintf(&b, `  talf generate %[1]s --head %[2]s --prompt 'Once upon a time' --stats
  talf serve %[1]s --head %[2]s
  talf export --head %[2]s --model %[1]s --format %[3]s --out %[4]s

A page about this run: talf report %[5]s --out report.html
`, model, r.Head, format, filepath.Join(r.Dir, format), r.Dir)
	return b.String()
}

// why says why the head does not pay.
func (r *Result) why() string {
	w, x := &r.Rows[0], &r.Rows[1]
	switch {
	case x.SpeedUp > max(w.SpeedUp, 1):
		return fmt.Sprintf("It is not certain that it pays on this machine: decoding is %.2f times as fast with it and %.2f times without. More prompts would tell.", x.SpeedUp, w.SpeedUp)
	case x.Draft > 0.4:
		return fmt.Sprintf("It does not pay on this machine: the head takes %.0f%% of the time. A smaller draft vocabulary costs less.", 100*x.Draft)
	case x.Tau < w.Tau+0.3:
		return fmt.Sprintf("It does not pay on this machine: a round keeps %.2f tokens, and %.2f without the head. More tokens to learn from raise that.", x.Tau, w.Tau)
	}
	return fmt.Sprintf("It does not pay on this machine: a round keeps %.2f tokens, but takes %.2f times the time of plain decoding's: rows of a tree cost too much here. With quantised weights they cost less with --act-bits 8.", x.Tau, x.Round)
}
