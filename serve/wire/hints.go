package wire

import (
	"maps"
	"slices"
	"strings"
)

// A Hint is advice on how to answer. A chat template follows it if it reads one of its variables.
type Hint struct {
	Field     string // of the request
	variables map[string]any
}

// Variables are the names of the template's variables that have the hint.
func (h Hint) Variables() []string { return slices.Sorted(maps.Keys(h.variables)) }

// hint adds a hint.
func (p *Prompt) hint(field string, variables map[string]any) {
	p.Hints = append(p.Hints, Hint{field, variables})
}

// The values of OpenAI's API and Anthropic's.
var (
	efforts     = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}
	verbosities = []string{"low", "medium", "high"}
)

// effort reads how much a model is to think: templates have the word, or whether it thinks at all.
func (p *Prompt) effort(o *object, name string) {
	if word := o.word(name, efforts); word != "" {
		p.hint(o.at+name, map[string]any{"reasoning_effort": word, "enable_thinking": word != "none"})
	}
}

// verbosity reads how long an answer is to be.
func (p *Prompt) verbosity(o *object) {
	if word := o.word("verbosity", verbosities); word != "" {
		p.hint(o.at+"verbosity", map[string]any{"verbosity": word})
	}
}

// word reads one of several words, "" if the field is absent.
func (o *object) word(name string, words []string) string {
	if _, ok := o.has(name); !ok {
		return ""
	}
	word := o.text(name)
	if o.err == nil && !slices.Contains(words, word) {
		o.fail(name, "is %q, want one of %s", word, strings.Join(words, ", "))
	}
	return word
}
