package command

import (
	"context"
	"io"

	"github.com/spf13/pflag"

	"talf/infer"
	"talf/infer/decode"
	"talf/infer/source"
	"talf/internal/loading"
	"talf/model"
	"talf/text/tokenizer"
)

// A draftOptions holds the flags that name a draft model.
type draftOptions struct {
	head, draft string
	force       bool
}

func (o *draftOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.head, "head", "", "checkpoint of a draft head, Medusa heads, or mtp: the module in the model's own files")
	f.StringVar(&o.draft, "draft", "", "small language model (directory or .gguf) that drafts instead of a head")
	f.BoolVar(&o.force, "force", false, "accept a head that was trained for another target")
}

func (o *draftOptions) given() bool { return o.head != "" || o.draft != "" }

func (o *draftOptions) check() error {
	if o.head != "" && o.draft != "" {
		return usagef("--head and --draft exclude each other: a method asks one draft model")
	}
	return nil
}

// open loads the draft model of target, whose tokenizer is tok, as a source that keeps
// the last keep sequences.
func (o *draftOptions) open(ctx context.Context, a *app, target *model.Model, tok *tokenizer.Tokenizer, mach *loading.Machine, keep int) (infer.Source, io.Closer, error) {
	if o.draft == "" {
		return decode.HeadSource(o.head, target, o.force, a.warn, keep)
	}
	m, v, err := a.loader().Draft(ctx, o.draft, target, tok, mach)
	if err != nil {
		return nil, nil, err
	}
	return source.NewLM(m, v, keep), m, nil
}
