package infer

import "talf/model/sample"

// A Logged is a token of the output with its log probability under the target alone, before
// penalties, temperature and truncation, and the likeliest tokens at its place.
type Logged struct {
	sample.Likely
	Top []sample.Likely
}

// log notes the log probabilities of the tokens that a round emitted: token i follows node path[i].
func (s *Sequence) log(rows Rows, path []int, tokens []int32) {
	if !s.req.LogProbs {
		return
	}
	if len(s.row) != s.scores.vocab {
		s.row = make([]float32, s.scores.vocab)
	}
	for i, id := range tokens {
		rows.Logits(s.row, path[i])
		own, top := sample.LogProbs(nil, s.row, id, s.req.Top)
		s.logged = append(s.logged, Logged{own, top})
	}
}
