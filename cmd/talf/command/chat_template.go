package command

import (
	"cmp"
	"time"

	"github.com/spf13/pflag"

	"talf/checkpoints"
	"talf/internal/limits"
	"talf/model/gguf"
	"talf/text/chat"
)

// noTemplate is the name that stands for no chat template.
const noTemplate = "none"

// A chatOptions says how conversations become text.
type chatOptions struct {
	file string // "": the model's own template
	date string // "": chat.FixedDate, or whatever day it is if live
	live bool   // nothing that is written is compared with what another day writes
	// control: messages may hold special tokens.
	control bool
}

// controlFlag is the name of the flag for control.
const controlFlag = "control-tokens-in-messages"

func (o *chatOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.file, "chat-template", "", "Jinja chat template (default: the model's own; "+noTemplate+": prompts are plain text)")
	f.StringVar(&o.date, "date", chat.FixedDate, "date that chat templates write as today's")
	f.BoolVar(&o.control, controlFlag, false, "take texts of special tokens in messages for these tokens, as transformers does (default: they are text)")
}

// today lets templates write the day that it is, unless --date says another; but adds to its help.
func (o *chatOptions) today(f *pflag.FlagSet, but string) {
	o.live, o.date = true, ""
	date := f.Lookup("date")
	date.DefValue = ""
	date.Usage += ", such as " + chat.FixedDate + " (default: today" + but + ")"
}

// check reports an option that is wrong.
func (o *chatOptions) check() error {
	_, err := o.day()
	return err
}

func (o *chatOptions) day() (time.Time, error) {
	return parseDay(cmp.Or(o.date, chat.FixedDate))
}

// parseDay reads the value of --date.
func parseDay(s string) (time.Time, error) {
	d, err := time.Parse(time.DateOnly, s)
	if err != nil {
		return d, usagef("--date %q, want a day like %s", s, chat.FixedDate)
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
	t, hash, err := chat.Open(dir, o.file, day, o.control)
	if t != nil && o.live && o.date == "" {
		t = t.WithClock(time.Now)
	}
	return t, hash, err
}

// of is load for the model at path.
func (o *chatOptions) of(path string) (*chat.Template, string, error) {
	dir, err := checkpoints.FindModel(path)
	if err == nil {
		_, err = gguf.ReadFile(dir, checkpoints.ConfigFile, limits.ConfigBytes) // what is no model has no template, either
	}
	if err != nil {
		return nil, "", err
	}
	return o.load(dir)
}

// A rawFlag is --raw: what is written is continued as it stands.
type rawFlag bool

func (r *rawFlag) flag(f *pflag.FlagSet) {
	f.BoolVar((*bool)(r), "raw", false, "continue the text as it stands, without the chat template")
}

// check reports flags of templates beside --raw.
func (r rawFlag) check(f *pflag.FlagSet) error {
	for _, name := range []string{"system", "chat-template", "date", controlFlag} {
		if bool(r) && f.Changed(name) {
			return usagef("--raw and --%s exclude each other: raw text has no template", name)
		}
	}
	return nil
}
