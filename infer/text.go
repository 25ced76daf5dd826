package infer

import "strings"

// A Detokenizer turns tokens into text as they arrive, such as text/tokenizer's Stream. The
// text that Push returns is final and ends between characters; Flush returns the rest at the
// end.
type Detokenizer interface {
	Push(id int32) string
	Flush() string
}

// A textStream collects the text of an answer, and ends it before a stop string.
type textStream struct {
	detok Detokenizer // nil: no text
	stops []string
	text  string // so far, up to a stop string
	stop  string // that text ends before, "" so far
	all   strings.Builder
}

// add takes one token and reports whether a stop string is complete; the text
// then ends before it.
func (t *textStream) add(id int32) (stopped bool) {
	return t.detok != nil && t.write(t.detok.Push(id))
}

func (t *textStream) write(s string) (stopped bool) {
	if s == "" {
		return false
	}
	was := t.all.Len()
	t.all.WriteString(s)
	t.text = t.all.String()
	cut := -1
	for _, s := range t.stops {
		if s == "" {
			continue
		}
		// Only matches that this text completes: earlier ones stopped already.
		lo := max(0, was-len(s)+1)
		if i := strings.Index(t.text[lo:], s); i >= 0 && (cut < 0 || lo+i < cut) {
			cut, t.stop = lo+i, s
		}
	}
	if cut >= 0 {
		t.text = t.text[:cut]
	}
	return cut >= 0
}

// end adds the rest of the text; stopped says that it ended at a stop string. One may still be in
// a held-back character that was never completed.
func (t *textStream) end(stopped bool) {
	if t.detok != nil && !stopped {
		t.write(t.detok.Flush())
	}
}

// settled returns how much of text cannot belong to a stop string that is still incomplete.
func settled(text string, stops []string) int {
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
