package quickstart

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"talf/internal/durable"
	"talf/internal/plot"
)

// String returns the tables and says what to do next.
func (r *Result) String() string {
	var b strings.Builder
	writeRows(&b, r.Rows)
	equal, outputs := 0, 0
	for _, x := range slices.Concat(r.Rows, r.Deep) {
		if x.Head != "" { // plain decoding is not compared with itself
			equal, outputs = equal+x.Equal, outputs+x.Outputs
		}
	}
	fmt.Fprintf(&b, `
τ is the tokens of a pass of the model, its own included. Speed-ups are from prompt to last
token over plain decoding, in all, with 95%% intervals over prompts. %d prompts of up to %d
tokens, all methods in turn on each. %d of %d outputs of both tables are those of plain
decoding, token for token.
`, r.Plan.Prompts, r.Plan.MaxTokens, equal, outputs)
	if len(r.Deep) > 0 {
		d := &r.Plan.Deep
		fmt.Fprintf(&b, `
The model is so small that a pass over a tree costs much more than one over a token. In a
larger model both wait for the weights. Here is the same model, with the same heads and %d
of the prompts, deepened to %d layers of which the new ones change nothing: a model of the
cost of a larger one, not a larger model. salf chooses the tree by measured costs.
`, d.Prompts, d.Layers)
		writeRows(&b, r.Deep)
	}
	fmt.Fprintf(&b, `
Plots: %[1]s

A page about this run: talf report %[4]s --out report.html

Next, with the binary of go build ./cmd/talf and a model of your own (a directory in
Hugging Face layout):

  talf preprocess --model DIR --data text.jsonl --out labels
  talf train --model DIR --data labels --loss eagle --out heads/eagle
  talf train --model DIR --data labels --loss talf --init heads/eagle --out heads/talf
  talf generate --model DIR --head heads/talf --prompt 'Once upon a time' --stats

Or talk to this one:

  talf generate --model %[2]s --head %[3]s --prompt 'Once upon a time' --stats

Or serve it with the head that was just trained, and ask it from another terminal:

  talf serve --model %[2]s --head %[3]s
  curl http://127.0.0.1:8080/v1/completions -H 'Content-Type: application/json' -d '{"prompt": "Once upon a time", "max_tokens": 40, "temperature": 0}'
`, strings.Join(r.Plots, ", "), filepath.Join(r.dir, "model"), filepath.Join(r.dir, "talf"), r.dir)
	return b.String()
}

func writeRows(b *strings.Builder, rows []Row) {
	fmt.Fprintf(b, "\n%-12s  %-9s  %5s  %8s  %-19s   %s\n", "method", "head", "τ", "tokens/s", "speed-up", "rounds that accept a node at depth 1, 2, …")
	for i := range rows {
		x := &rows[i]
		head, speed := x.Head, fmt.Sprintf("%.2f [%.2f, %.2f]", x.SpeedUp, x.Low, x.High)
		if head == "" {
			head, speed = "–", "1.00"
		}
		var depth strings.Builder
		for _, share := range x.ByDepth {
			fmt.Fprintf(&depth, " %.2f", share)
		}
		fmt.Fprintf(b, "%-12s  %-9s  %5.2f  %8.0f  %-19s  %s\n", x.name(), head, x.Tau, x.TokensPerSecond, speed, depth.String())
	}
}

// savePlots draws τ and acceptance by depth of every row, as PNG and as SVG, and returns
// the paths of the two files.
func savePlots(dir string, rows []Row) ([]string, error) {
	tau := plot.Figure{Title: "Tokens per target pass (τ)"}
	kept := plot.Figure{Title: "Rounds that accept a node at this depth", X: "depth", FromZero: true, MaxY: 1}
	for i := range rows {
		name := rows[i].Label()
		tau.Series = append(tau.Series, plot.Series{Name: name, Y: []float64{rows[i].Tau}})
		s := plot.Series{Name: name} // also of one that drafts nothing, so that every row has the same colour in both
		for d, share := range rows[i].ByDepth {
			s.X, s.Y = append(s.X, float64(d+1)), append(s.Y, share)
		}
		kept.Series = append(kept.Series, s)
	}
	var paths []string
	for _, name := range []string{"quickstart.png", "quickstart.svg"} {
		path := filepath.Join(dir, name)
		err := durable.Write(path, func(w io.Writer) error { return plot.WriteRow(w, name, []plot.Figure{tau, kept}) })
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}
