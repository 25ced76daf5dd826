package command

import (
	"context"
	"errors"
	"fmt"

	"talf/data"
	"talf/model/chat"
	"talf/preprocess"
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

// A prompt is a text that goes on, or what a user asks in turn.
type prompt struct {
	place string   // in its file
	turns []string // what the user says; a text alone
	doc   data.Doc
	chat  bool // it is a dialogue, if there is a template to write it
}

// errRefused is the cause of the error of a dialogue that the chat template refuses.
var errRefused = errors.New("the chat template refuses it")

// readPrompts reads a file of prompts for the model in dir. Lines that cannot be used
// are named in the log.
func (a *app) readPrompts(f *promptSource, dir string) (*promptSet, error) {
	c := data.DefaultLoad()
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
	for doc, err := range data.Load([]string{f.path}, c, func(b data.BadLine) {
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
			p.turns = doc.Chat.Ask()
		}
		if len(p.turns) == 0 || !set.begin(&p).ask() {
			a.badLine(&bad, data.BadLine{File: doc.File, Input: doc.Input, Line: doc.Line, Item: doc.Item, Why: "a conversation in which no user asks"})
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

// A talk goes through the turns of one prompt.
type talk struct {
	template *chat.Template
	dialogue *preprocess.Dialogue // nil: plain text

	turns []string // still to come
	said  string   // the one that is answered
	text  string   // all of it, in plain text
	plain bool     // with the marks of a dialogue
}

// begin begins a prompt.
func (s *promptSet) begin(p *prompt) *talk {
	t := &talk{turns: p.turns, plain: len(p.turns) > 1}
	if p.chat {
		t.template, t.dialogue = s.template, preprocess.NewDialogue(&p.doc)
	}
	return t
}

// ask goes to the next turn and reports whether there is one.
func (t *talk) ask() bool {
	if t.dialogue != nil {
		return t.dialogue.Ask()
	}
	if len(t.turns) == 0 {
		return false
	}
	t.said, t.turns = t.turns[0], t.turns[1:]
	if t.plain {
		t.text += dialogueTurn(t.said, t.text == "")
	} else {
		t.text = t.said
	}
	return true
}

// asked returns what is to be answered.
func (t *talk) asked() string {
	if t.dialogue != nil {
		return t.dialogue.Asked()
	}
	return t.said
}

// prompt returns the text before the answer, and whether the tokenizer adds special
// tokens to it: templates write their own.
func (t *talk) prompt(ctx context.Context) (text string, special bool, err error) {
	if t.dialogue == nil {
		return t.text, true, nil
	}
	text, err = t.dialogue.Prompt(ctx, t.template)
	if err != nil {
		err = fmt.Errorf("%w: %w", errRefused, err)
	}
	return text, false, err
}

// answer takes the model's answer into what was said.
func (t *talk) answer(text string) {
	if t.dialogue != nil {
		t.dialogue.Answer(text)
	}
	t.text += text
}
