package infer

import (
	"slices"
	"time"
)

// output is what a sequence has put out.
type output struct {
	text   textStream
	logged []Logged  // of the output, if asked for
	echoed []Logged  // of the prompt but its first token, as far as it has run, if asked for
	row    []float32 // a row of logits
	reason Reason    // why it has ended, if it has
	err    error
	stats  Stats
	opened time.Time
}

// Tokens returns the output so far. The slice belongs to the sequence; its contents do not
// change in later rounds.
func (s *Sequence) Tokens() []int32 { return slices.Clip(s.tokens[s.prompt:]) }

// Text returns the text of the output without the stop string. It is empty without
// Detok.
func (s *Sequence) Text() string { return s.text.text }

// Done reports whether the sequence has ended, and why.
func (s *Sequence) Done() (Reason, bool) { return s.reason, s.reason != "" }

// Err returns what made the sequence fail, or why it was cancelled.
func (s *Sequence) Err() error { return s.err }

// Stats returns the counts so far.
func (s *Sequence) Stats() *Stats { return &s.stats }

// A Delta is what some rounds add to the output. Text lags behind Tokens while a character
// is incomplete or a stop string may have begun. Tokens may be kept but not changed.
type Delta struct {
	// Prompt are the log probabilities of the prompt's tokens but the first, if the request asks
	// for them. They come with the first tokens of the output.
	Prompt []Logged
	Tokens []int32
	Logged []Logged // of Tokens, if the request asks for log probabilities
	Text   string
	Reason Reason
	Stop   string // the stop string that ended the output, if the reason is Stop
}

// A Snapshot is the output of a sequence so far. It stays as it is while the sequence goes on, so
// that it can be read elsewhere. The zero value is that of a sequence without output.
type Snapshot struct {
	Tokens []int32
	Logged []Logged // of Tokens, if the request asks for log probabilities
	Reason Reason
	Read   int // tokens of the prompt that have run, or were kept of an earlier one; fewer again after a preemption
	prompt []Logged
	text   string
	stops  []string
	stop   string
}

// Snapshot returns the output so far.
func (s *Sequence) Snapshot() Snapshot {
	return Snapshot{
		Tokens: s.Tokens(), Logged: slices.Clip(s.logged), Reason: s.reason, Read: min(s.done, s.prompt), prompt: slices.Clip(s.echoed), text: s.text.text, stops: s.text.stops, stop: s.text.stop,
	}
}

// A Reader hands out the output of one sequence piece by piece. The zero value has read nothing.
type Reader struct {
	tokens, bytes int
	ended         bool
}

// Next returns what s adds to what was read before; ok is false if that is nothing. The last
// delta has the reason for the end.
func (r *Reader) Next(s *Snapshot) (d Delta, ok bool) {
	if r.ended {
		return d, false
	}
	n := len(s.text)
	if s.Reason == "" {
		n = max(r.bytes, settled(s.text, s.stops))
	}
	d = Delta{Tokens: slices.Clip(s.Tokens[r.tokens:]), Logged: slices.Clip(s.Logged[min(r.tokens, len(s.Logged)):]), Text: s.text[r.bytes:n], Reason: s.Reason}
	if r.tokens == 0 && len(s.Tokens) > 0 {
		d.Prompt = s.prompt
	}
	if s.Reason == Stop {
		d.Stop = s.stop
	}
	r.tokens, r.bytes, r.ended = len(s.Tokens), n, s.Reason != ""
	return d, len(d.Tokens) > 0 || d.Text != "" || d.Reason != ""
}
