package quickstart

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"talf/internal/durable"
	"talf/internal/plot"
)

// String returns the table and says what to do next.
func (r *Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%-6s  %-9s  %5s  %8s  %8s   %s\n", "method", "head", "τ", "tokens/s", "speed-up", "rounds that accept a node at depth 1, 2, …")
	equal, outputs := 0, 0
	for i := range r.Rows {
		x := &r.Rows[i]
		head := x.Head
		if head == "" {
			head = "–"
		} else { // plain decoding is not compared with itself
			equal, outputs = equal+x.Equal, outputs+x.Outputs
		}
		var depth strings.Builder
		for _, share := range x.ByDepth {
			fmt.Fprintf(&depth, " %.2f", share)
		}
		fmt.Fprintf(&b, "%-6s  %-9s  %5.2f  %8.0f  %7.2fx  %s\n", x.name(), head, x.Tau, x.TokensPerSecond, x.SpeedUp, depth.String())
	}
	fmt.Fprintf(&b, `
τ is the tokens of a pass of the model, its own included. %d prompts of up to %d
tokens; speeds are measured here, all methods in turn on each prompt. %d of %d
outputs are those of plain decoding, token for token. The model is so small that a
pass over a tree costs much more than one over a token: a larger model gains more
from the same τ.

Plots: %s

Next, with the binary of go build ./cmd/talf and a model of your own (a directory in
Hugging Face layout):

  talf preprocess --model DIR --data text.jsonl --out labels
  talf train --model DIR --data labels --loss eagle --out heads/eagle
  talf train --model DIR --data labels --loss talf --init heads/eagle --out heads/talf
  talf generate --model DIR --head heads/talf --prompt 'Once upon a time' --stats

Or talk to this one:

  talf generate --model %[6]s --head %[7]s --prompt 'Once upon a time' --stats

Or serve it with the head that was just trained, and ask it from another terminal:

  talf serve --model %[6]s --head %[7]s
  curl http://127.0.0.1:8080/v1/completions -H 'Content-Type: application/json' -d '{"prompt": "Once upon a time", "max_tokens": 40, "temperature": 0}'
`, r.Plan.Prompts, r.Plan.MaxTokens, equal, outputs, strings.Join(r.Plots, ", "), filepath.Join(r.dir, "model"), filepath.Join(r.dir, "talf"))
	return b.String()
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
