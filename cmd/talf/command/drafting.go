package command

import (
	"github.com/spf13/pflag"

	"talf/infer/decode"
)

// draftFlags adds the flags that name a draft model.
func draftFlags(f *pflag.FlagSet, d *decode.Drafting) {
	f.StringVar(&d.Head, "head", "", "checkpoint of a draft head, Medusa heads, or mtp: the module in the model's own files")
	f.StringVar(&d.Draft, "draft", "", "small language model (directory or .gguf) that drafts instead of a head")
	f.BoolVar(&d.Force, "force", false, "accept a head that was trained for another target")
}

func checkDraft(d *decode.Drafting) error {
	if d.Head != "" && d.Draft != "" {
		return usagef("--head and --draft exclude each other: a method asks one draft model")
	}
	return nil
}
