package samples

import (
	"context"
	"fmt"

	"talf/data/corpus"
	"talf/preprocess"
)

// An Index collects documents as tokens.
type Index interface {
	Add(tokens []int32) error
}

// Fill adds the sequences that preprocess would make from c's files to x. It returns
// the number of sequences that preprocess would drop, by reason. bad is called with
// lines that cannot be used, and done with the number of documents in x after each one.
func Fill(ctx context.Context, c preprocess.Config, r preprocess.Reader, x Index, bad func(corpus.BadLine), done func(documents int)) (dropped map[string]int, err error) {
	dropped = map[string]int{}
	documents := 0
	for s, err := range preprocess.Samples(ctx, c, r, bad) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		if s.Drop != "" {
			dropped[s.Drop]++
			continue
		}
		if err := x.Add(s.Tokens); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", s.File, s.Line, err)
		}
		documents++
		done(documents)
	}
	return dropped, nil
}
