package command

import (
	"fmt"
	"strings"

	"talf/data/corpus"
	"talf/infer/decode"
	"talf/model/chat"
)

// A promptSource names a file of prompts, and says how to read it.
type promptSource struct {
	path, template string
	chat           chatOptions
}

// A promptSet is a file of prompts.
type promptSet struct {
	prompts      []prompt
	template     *chat.Template // that dialogues are written by; nil: none
	templateHash string         // "" without one
}

// A prompt is a text to continue, or what a user asks turn by turn.
type prompt struct {
	place string   // in its file
	turns []string // what the user says; a text alone
	doc   corpus.Doc
	chat  bool // it is a dialogue, if there is a template to write it
}

// readPrompts reads a file of prompts for the model in dir. Lines that cannot be used
// are named in the log.
func (a *app) readPrompts(f *promptSource, dir string) (*promptSet, error) {
	c := corpus.Default()
	c.Template = f.template
	if err := c.Validate(); err != nil {
		return nil, usageError{err}
	}
	dir, err := findModel(dir)
	if err != nil {
		return nil, err
	}
	set := &promptSet{}
	if set.template, set.templateHash, err = f.chat.load(dir); err != nil {
		return nil, err
	}
	bad := 0
	for doc, err := range corpus.Load([]string{f.path}, c, func(b corpus.BadLine) {
		a.badLine(&bad, b)
	}) {
		if err != nil {
			return nil, err
		}
		p := prompt{place: doc.Place(), doc: doc, chat: set.template != nil && (doc.Chat != nil || doc.Asked)}
		for _, s := range doc.Spans {
			p.turns = append(p.turns, s.Text)
		}
		if doc.Chat != nil {
			p.turns = doc.Chat.Questions()
		}
		if len(p.turns) == 0 || !set.begin(&p).Ask() {
			a.badLine(&bad, corpus.BadLine{File: doc.File, Input: doc.Input, Line: doc.Line, Item: doc.Item, Why: "a conversation in which no user asks"})
			continue
		}
		set.prompts = append(set.prompts, p)
	}
	if bad > 0 && len(set.prompts) > 0 {
		a.log.Warn("prompts that could not be used", "count", bad)
	}
	if len(set.prompts) == 0 {
		return nil, fmt.Errorf("%s has no prompts (%d lines could not be used)", f.path, bad)
	}
	return set, nil
}

// begin begins a prompt's dialogue.
func (s *promptSet) begin(p *prompt) *chat.Dialogue {
	switch {
	case p.chat:
		return chat.NewDialogue(s.template, p.doc.Transcript())
	case len(p.turns) > 1:
		return chat.NewPlainDialogue(p.turns...)
	}
	return chat.NewText(p.turns...)
}

// first begins a prompt whose first turn alone is answered.
func (s *promptSet) first(p *prompt) *chat.Dialogue {
	if p.chat {
		return s.begin(p)
	}
	return chat.NewText(p.turns[0])
}

// tasks are the prompts to answer.
func (s *promptSet) tasks() []decode.Task {
	all := make([]decode.Task, len(s.prompts))
	for i := range s.prompts {
		p := &s.prompts[i]
		all[i] = decode.Task{Place: p.place, Key: strings.Join(p.turns, "\n"), Begin: func() *chat.Dialogue { return s.begin(p) }}
	}
	return all
}
