package model

import "fmt"

// Resume returns the largest length, at most n, to which the sequence can be truncated: n unless the model
// has recurrent layers, whose states are there after few positions, or layers with windows, which keep what
// tokens at its end see, and at its places.
func (s *Seq) Resume(n int) int {
	for n < s.n {
		at := s.kv.Resume(s.rec.Resume(n))
		if at == n {
			break
		}
		n = at
	}
	return n
}

// KeepPast lets branches begin at the positions that are committed from now on, whatever the model's layers.
func (s *Seq) KeepPast() {
	s.kv.All = true
	s.rec.KeepPast()
}

// KeepAt makes layers with windows keep what a token after n others sees, so that the sequence and its
// forks can be truncated to n, or to slightly less, however long they are. It is for places where other texts
// go on, and comes before the text has passed them. Of several places the sequence keeps the earliest and the two newest.
func (s *Seq) KeepAt(n int) { s.kv.KeepAt(n) }

// checkPast panics unless a branch may begin after the first n positions.
func (s *Seq) checkPast(n int) {
	if n < s.n && s.kv.Resume(n) != n {
		panic(fmt.Sprintf("model: a branch after %d of %d positions of a model with windows, without KeepPast", n, s.n))
	}
}
