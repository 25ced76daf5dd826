// Package stop collects the text of an answer and ends it before a stop string.
package stop

import "strings"

// A Detokenizer turns tokens into text as they arrive, such as text/tokenizer's Stream. The
// text that Push returns is final and ends between characters; Flush returns the rest at the
// end.
type Detokenizer interface {
	Push(id int32) string
	Flush() string
}

// A Stream collects the text of a sequence.
type Stream struct {
	Detok Detokenizer // nil: no text
	Stops []string
	Text  string // so far, up to a stop string
	Stop  string // that Text ends before, "" so far
	all   strings.Builder
}

// Add takes one token and reports whether a stop string is complete; the text
// then ends before it.
func (t *Stream) Add(id int32) (stopped bool) {
	return t.Detok != nil && t.write(t.Detok.Push(id))
}

func (t *Stream) write(s string) (stopped bool) {
	if s == "" {
		return false
	}
	was := t.all.Len()
	t.all.WriteString(s)
	t.Text = t.all.String()
	cut := -1
	for _, s := range t.Stops {
		if s == "" {
			continue
		}
		// Only matches that this text completes: earlier ones stopped already.
		lo := max(0, was-len(s)+1)
		if i := strings.Index(t.Text[lo:], s); i >= 0 && (cut < 0 || lo+i < cut) {
			cut, t.Stop = lo+i, s
		}
	}
	if cut >= 0 {
		t.Text = t.Text[:cut]
	}
	return cut >= 0
}

// End adds the rest of the text; stopped says that it ended at a stop string. One may still be in
// a held-back character that was never completed.
func (t *Stream) End(stopped bool) {
	if t.Detok != nil && !stopped {
		t.write(t.Detok.Flush())
	}
}

// Settled returns how much of text cannot belong to a stop string that is still incomplete.
func Settled(text string, stops []string) int {
	safe := len(text)
	for _, s := range stops {
		for n := min(len(s)-1, len(text)); n > len(text)-safe; n-- {
			if strings.HasSuffix(text, s[:n]) {
				safe = len(text) - n
				break
			}
		}
	}
	return safe
}
