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
	if len(after) < len(before) {
		return false
	}
	// A character that is not complete yet decodes to the replacement character;
	// four tokens are as many as one character's bytes can need. What stands before
	// it can already end the text.
	whole := strings.TrimRight(after[len(before):], string(utf8.RuneError))
	wait := len(before)+len(whole) < len(after) && len(t.ids)-t.read < 4
	if !wait {
		whole = after[len(before):]
	}
	text, cut := t.text+whole, -1
	for _, s := range t.stops {
		if s == "" {
			continue
		}
		// Only matches that this token completes: earlier ones stopped already.
		lo := max(0, len(t.text)-len(s)+1)
		if i := strings.Index(text[lo:], s); i >= 0 && (cut < 0 || lo+i < cut) {
			cut = lo + i
		}
	}
	if wait && cut < 0 {
		return false
	}
	t.from, t.read = t.read, len(t.ids)
	t.text = text
	if cut >= 0 {
		t.text = text[:cut]
	}
	return cut >= 0
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
