package trace

import (
	"fmt"
	"io"
)

// A Summary sums up a file, whichever part of it was shown.
type Summary struct {
	Header
	Rounds, Tokens int // of the whole file; the tokens are those emitted
	Shown          int // rounds
}

// Show reads a file and calls show with n of its rounds, or all for 0, beginning with
// round from. Rounds count from 1.
func Show(r io.Reader, from, n int, show func(s *Step, round int) error) (Summary, error) {
	var all Summary
	var err error
	all.Header, err = Read(r, func(s *Step) error {
		all.Rounds++
		all.Tokens += s.Kept
		if all.Rounds < from || n > 0 && all.Shown == n {
			return nil
		}
		all.Shown++
		return show(s, all.Rounds)
	})
	return all, err
}

// String returns the summary as a sentence.
func (s Summary) String() string {
	return fmt.Sprintf("%s, verified by %s, temperature %g: %d tokens in %d rounds, τ %.2f; %d shown",
		s.Method, s.Verify, s.Temperature, s.Tokens, s.Rounds, float64(s.Tokens)/float64(max(s.Rounds, 1)), s.Shown)
}
