package samples

import (
	"context"
	"fmt"

	"talf/data/corpus"
	"talf/preprocess"
)

// An Index takes documents as tokens.
type Index interface {
	Add(tokens []int32) error
}

// Fill adds what preprocess would make of c's files to x. It returns how many sequences
// preprocess would drop, by reason. bad is told of lines that cannot be used, done of how
// many documents x has after each.
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
