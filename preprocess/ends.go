package preprocess

import (
	"fmt"
	"sync"
)

// ends counts the answers of a run that the target writes.
type ends struct {
	mu            sync.Mutex
	answers, once int // all, and those that ended at once: with their first token
	plain         int // of these, answers to texts without a chat template
	warned        bool
}

// soon is after how many answers a run tells for the first time that most end at once: it may go on for
// hours.
const soon = 32

// answered counts an answer to s.
func (p *pipeline) answered(s *sequence, atOnce bool) {
	p.ends.mu.Lock()
	p.ends.answers++
	if atOnce {
		p.ends.once++
		if s.talk == nil {
			p.ends.plain++
		}
	}
	p.ends.mu.Unlock()
	p.warnOfEnds(soon)
}

// warnOfEnds warns, once, if there are so many answers and most of them ended at once.
func (p *pipeline) warnOfEnds(least int) {
	e := &p.ends
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.warned || e.answers < least || 2*e.once <= e.answers || p.in.Warn == nil {
		return
	}
	e.warned = true
	why := "is the chat template the model's own?"
	if 2*e.plain > e.once {
		why = "these prompts are plain text without the chat template, as templates of fields, no chat template and models without one make them; " +
			"conversations and records with a prompt or turns go through the model's template"
	}
	p.in.Warn(fmt.Sprintf("%d of %d answers end with their first token: %s", e.once, e.answers, why))
}
