// Package perplexity measures what a type of weights costs: how well a model predicts a text.
package perplexity

import (
	"context"
	"fmt"
	"math"

	"talf/internal/table"
	"talf/model"
	"talf/model/sample"
	"talf/text/tokenizer"
)

// A Result is how well a model predicts a text.
type Result struct {
	Model      string  `json:"model"`
	Tokens     int     `json:"tokens"` // predicted
	Windows    int     `json:"windows"`
	NLL        float64 `json:"nll"` // mean −log p of a token, natural logarithm
	Perplexity float64 `json:"perplexity"`
	// Above is the relative increase over the perplexity of the run's first model.
	Above float64 `json:"above_first"`
}

// OfText measures how well m, whose tokenizer is tok, predicts the first limit
// tokens of a text (0: all) in windows of the given length (0: as long as m can, at most
// 1024 tokens).
func OfText(ctx context.Context, name string, m *model.Model, tok *tokenizer.Tokenizer, text string, window, limit int) (Result, error) {
	ids, err := tok.Encode(text, false)
	if err != nil {
		return Result{}, err
	}
	if limit > 0 {
		ids = ids[:min(limit, len(ids))]
	}
	if window == 0 {
		window = min(1024, m.Spec().MaxPos)
	}
	before, _ := tok.Added()
	return Measure(ctx, name, m, ids, window, before)
}

// Measure splits ids into windows of the given length, of which the last may be
// shorter, and has m predict every token of a window but the first from those before it. Every
// window begins with the tokens before, such as BOS, which are not predicted: if there are any,
// all tokens of ids are.
func Measure(ctx context.Context, name string, m *model.Model, ids []int32, window int, before []int32) (Result, error) {
	p := Result{Model: name}
	v := m.Spec().Vocab
	given := max(1, len(before)) // tokens of a window that are not predicted
	if window <= given || window > m.Spec().MaxPos {
		return p, fmt.Errorf("windows of %d tokens, want %d to max_position_embeddings = %d", window, given+1, m.Spec().MaxPos)
	}
	step := window - len(before)
	row := make([]float32, v)
	var in []int32
	for at := 0; at < len(ids); at += step {
		in = append(append(in[:0], before...), ids[at:min(len(ids), at+step)]...)
		if len(in) <= given {
			break
		}
		nll, err := windowNLL(ctx, m, in, given, row)
		if err != nil {
			return p, err
		}
		p.NLL += nll
		p.Tokens += len(in) - given
		p.Windows++
	}
	if p.Tokens == 0 {
		return p, fmt.Errorf("%d tokens, want at least 2", len(ids))
	}
	p.NLL /= float64(p.Tokens)
	p.Perplexity = math.Exp(p.NLL)
	return p, nil
}

// windowNLL returns the sum of −log p of in[given:]. row is scratch [Vocab].
func windowNLL(ctx context.Context, m *model.Model, in []int32, given int, row []float32) (float64, error) {
	s := m.NewSeqOf(len(in))
	defer s.Close()
	const chunk = 256 // bounds the memory of logits
	sum := 0.0
	for i := 0; i < len(in)-1; i += chunk {
		n := min(chunk, len(in)-1-i)
		o, err := s.Append(ctx, in[i:i+n], nil, model.WantAll)
		if err != nil {
			return 0, err
		}
		for r := max(0, given-1-i); r < n; r++ {
			o.ReadLogits(row, r)
			sum -= math.Log(sample.Prob(row, in[i+r+1]))
		}
	}
	return sum, nil
}

// Table lays out the results.
func Table(rows []Result) table.Table {
	t := table.Table{Header: []string{"weights", "tokens", "windows", "nats a token", "perplexity", "above the first"}}
	for _, r := range rows {
		t.Cells = append(t.Cells, []string{
			r.Model, fmt.Sprint(r.Tokens), fmt.Sprint(r.Windows), fmt.Sprintf("%.5f", r.NLL),
			fmt.Sprintf("%.4f", r.Perplexity), fmt.Sprintf("%+.4f%%", 100*r.Above),
		})
	}
	return t
}
