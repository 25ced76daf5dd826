package command

import (
	"cmp"
	"time"

	"github.com/spf13/pflag"

	"talf/model/chat"
)

// noTemplate is the name that stands for no chat template.
const noTemplate = "none"

// templateDate is the date that templates write unless another is given. Sets and continued runs
// must not change from day to day; this is the date that Llama 3.1's template falls back on.
const templateDate = "2024-07-26"

// A chatOptions says how conversations become text.
type chatOptions struct {
	file string // "": the model's own template
	date string // "": templateDate
	// control: messages may hold special tokens.
	control bool
}

// controlFlag is the name of the flag for control.
const controlFlag = "control-tokens-in-messages"

func (o *chatOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.file, "chat-template", "", "Jinja chat template (default: the model's own; "+noTemplate+": prompts are plain text)")
	f.StringVar(&o.date, "date", templateDate, "date that chat templates write as today's")
	f.BoolVar(&o.control, controlFlag, false, "take texts of special tokens in messages for these tokens, as transformers does (default: they are text)")
}

// check reports an option that is wrong.
func (o *chatOptions) check() error {
	_, err := o.day()
	return err
}

func (o *chatOptions) day() (time.Time, error) {
	return parseDay(cmp.Or(o.date, templateDate))
}

// parseDay reads the value of --date.
func parseDay(s string) (time.Time, error) {
	d, err := time.Parse(time.DateOnly, s)
	if err != nil {
		return d, usagef("--date %q, want a day like %s", s, templateDate)
	}
	return d, nil
}

// load returns the template of the model in dir and a hash of everything that decides what it
// writes; no template if there is none.
func (o *chatOptions) load(dir string) (*chat.Template, string, error) {
	day, err := o.day()
	if err != nil || o.file == noTemplate {
		return nil, "", err
	}
	return chat.Open(dir, o.file, day, o.control)
}
