package command

import (
	"talf/data/corpus"
	"talf/infer/prompts"
	"talf/text/chat"
)

// A promptSource names a file of prompts, and says how to read it.
type promptSource struct {
	path, template string
	chat           chatOptions
}

// readPrompts reads a file of prompts for the model at path, and also returns the hash of the
// chat template.
func (a *app) readPrompts(f *promptSource, path string) (*prompts.Set, string, error) {
	template, hash, err := f.chat.of(path)
	if err != nil {
		return nil, "", err
	}
	set, err := a.parsePrompts(f, template)
	return set, hash, err
}

// parsePrompts reads a file of prompts. Unusable lines are named in the log.
func (a *app) parsePrompts(f *promptSource, template *chat.Template) (*prompts.Set, error) {
	c := corpus.Default()
	c.Template = f.template
	if err := c.Validate(); err != nil {
		return nil, usageError(err)
	}
	bad := corpus.BadLines{Log: a.log}
	set, err := prompts.Read(f.path, c, template, bad.Add)
	if err == nil && bad.Count > 0 {
		a.log.Warn("prompts that could not be used", "count", bad.Count)
	}
	return set, err
}
