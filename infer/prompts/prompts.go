// Package prompts reads files of prompts: texts to continue, and conversations in which a user
// asks.
package prompts

import (
	"fmt"
	"strings"

	"talf/data/corpus"
	"talf/infer/decode"
	"talf/text/chat"
)

// A Set is a file of prompts.
type Set struct {
	Prompts  []Prompt
	template *chat.Template // renders dialogues; nil: none
}

// A Prompt is a text to continue, or a user's questions turn by turn.
type Prompt struct {
	Place string   // in its file
	Turns []string // what the user says; a text alone
	Chat  bool     // it is a dialogue, and there is a template to render it
	doc   corpus.Doc
}

// Read reads a file of prompts. template renders dialogues; without one, conversations and several turns are written in plain
// text as a chat and a server write them, and a single prompt is a text. bad
// is called for every line that cannot be used. A file without any prompt is an error.
func Read(path string, c corpus.Config, template *chat.Template, bad func(corpus.BadLine)) (*Set, error) {
	set := &Set{template: template}
	unused := 0
	tell := func(b corpus.BadLine) {
		unused++
		bad(b)
	}
	for doc, err := range corpus.Load([]string{path}, c, tell) {
		if err != nil {
			return nil, err
		}
		p := Prompt{Place: doc.Place(), doc: doc, Chat: template != nil && (doc.Chat != nil || doc.Asked)}
		for _, s := range doc.Spans {
			p.Turns = append(p.Turns, s.Text)
		}
		if doc.Chat != nil {
			p.Turns = doc.Chat.Questions()
		}
		if len(p.Turns) == 0 || !set.Begin(&p).Ask() {
			tell(corpus.BadLine{File: doc.File, Input: doc.Input, Line: doc.Line, Item: doc.Item, Why: "a conversation in which no user asks"})
			continue
		}
		set.Prompts = append(set.Prompts, p)
	}
	if len(set.Prompts) == 0 {
		return nil, fmt.Errorf("%s has no prompts (%d lines could not be used)", path, unused)
	}
	return set, nil
}

// Begin begins the dialogue of a prompt, with all its turns.
func (s *Set) Begin(p *Prompt) *chat.Dialogue {
	switch {
	case p.Chat:
		return chat.NewDialogue(s.template, p.doc.Transcript())
	case p.doc.Chat != nil:
		return chat.NewPlainTranscript(p.doc.Transcript())
	case len(p.Turns) > 1:
		return chat.NewPlainDialogue(p.Turns...)
	}
	return chat.NewText(p.Turns...)
}

// Ask begins the dialogue of a single question, and asks it. Without a template it is a text to continue.
func Ask(template *chat.Template, question string) *chat.Dialogue {
	d := chat.NewText()
	if template != nil {
		*d = chat.Begin(template, "")
	}
	d.Say(question)
	d.Ask()
	return d
}

// First begins the dialogue of a prompt of which only the first turn is answered.
func (s *Set) First(p *Prompt) *chat.Dialogue {
	if p.Chat || p.doc.Chat != nil {
		return s.Begin(p)
	}
	return chat.NewText(p.Turns[0])
}

// Tasks returns the prompts to answer, each turn by turn.
func (s *Set) Tasks() []decode.Task {
	all := make([]decode.Task, len(s.Prompts))
	for i := range s.Prompts {
		p := &s.Prompts[i]
		all[i] = decode.Task{Place: p.Place, Key: strings.Join(p.Turns, "\n"), Begin: func() *chat.Dialogue { return s.Begin(p) }}
	}
	return all
}
