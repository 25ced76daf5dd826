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
	for i, id := range tokens {
		s.logged = append(s.logged, s.logRow(rows, path[i], id))
	}
}

// logRow returns the log probability of token id after node n.
func (s *Sequence) logRow(rows Rows, n int, id int32) Logged {
	if len(s.row) != s.scores.vocab {
		s.row = make([]float32, s.scores.vocab)
	}
	rows.Logits(s.row, n)
	own, top := sample.LogProbs(nil, s.row, id, s.req.Top)
	return Logged{own, top}
}

// loggedRows bounds the part of a prompt in one pass whose log probabilities are asked for: the
// others of the pass wait until they are computed, for a time that grows with the vocabulary.
const loggedRows = 64

// logChunk notes the log probabilities of the prompt's tokens that follow those of a chunk, unless
// they ran before a preemption. Numbers that are not finite end the sequence: they have no
// probabilities.
func (s *Sequence) logChunk(rows Rows) {
	if !s.req.PromptLogProbs || s.done < s.seen {
		return
	}
	if err := rows.Err(); err != nil {
		s.fail(err)
		return
	}
	for n, id := range s.tokens[s.done+1 : s.done+1+s.chunk.Len()] {
		s.echoed = append(s.echoed, s.logRow(rows, n, id))
	}
}
