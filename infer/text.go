package infer

import (
	"strings"
	"unicode/utf8"
)

// A textStream turns tokens into text as they come: it waits for whole
// characters and holds back what may be the start of a stop string.
type textStream struct {
	decode func(ids []int32) string
	stops  []string
	ids    []int32
	from   int // ids[from:read] give the context that some decoders need: a leading space
	read   int // ids[:read] are in text
	text   string
	sent   int // bytes of text handed out
}

// add takes one token and reports whether a stop string is complete; the text
// then ends before it.
func (t *textStream) add(id int32) (stopped bool) {
	if t.decode == nil {
		return false
	}
	t.ids = append(t.ids, id)
	before, after := t.decode(t.ids[t.from:t.read]), t.decode(t.ids[t.from:])
	// A character that is not complete yet decodes to the replacement character;
	// four tokens are as many as one character's bytes can need.
	if len(after) < len(before) || strings.HasSuffix(after, string(utf8.RuneError)) && len(t.ids)-t.read < 4 {
		return false
	}
	old := len(t.text)
	t.text += after[len(before):]
	t.from, t.read = t.read, len(t.ids)
	cut := len(t.text)
	for _, s := range t.stops {
		if s == "" {
			continue
		}
		// Only matches that this token completes: earlier ones stopped already.
		lo := max(0, old-len(s)+1)
		if i := strings.Index(t.text[lo:], s); i >= 0 {
			cut, stopped = min(cut, lo+i), true
		}
	}
	t.text = t.text[:cut]
	return stopped
}

// take returns the new text that no stop string can claim, all of it at the end.
func (t *textStream) take(end bool) string {
	if t.decode == nil {
		return ""
	}
	if end && t.read < len(t.ids) { // an unfinished character
		before, after := t.decode(t.ids[t.from:t.read]), t.decode(t.ids[t.from:])
		if len(after) > len(before) {
			t.text += after[len(before):]
		}
		t.read = len(t.ids)
	}
	safe := len(t.text)
	if !end {
		for _, s := range t.stops {
			for n := min(len(s)-1, len(t.text)); n > 0; n-- {
				if strings.HasSuffix(t.text, s[:n]) {
					safe = min(safe, len(t.text)-n)
					break
				}
			}
		}
	}
	if safe <= t.sent {
		return ""
	}
	out := t.text[t.sent:safe]
	t.sent = safe
	return out
}
