package command

import (
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"talf/checkpoints"
	"talf/compute"
	"talf/infer"
	"talf/infer/decode"
	"talf/infer/source"
	"talf/model"
	"talf/model/tokenizer"
)

// A draftOptions holds the flags that name a draft model.
type draftOptions struct {
	head, draft string
	force       bool
}

func (o *draftOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.head, "head", "", "checkpoint of a draft head, Medusa heads, or mtp: the module in the model's own files")
	f.StringVar(&o.draft, "draft", "", "directory of a small language model that drafts instead of a head")
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
// the last keep sequences. warn is told what could not be checked.
func (o *draftOptions) open(warn func(string), target *model.Model, tok *tokenizer.Tokenizer, mach *machineOptions, keep int) (infer.Source, io.Closer, error) {
	if o.draft == "" {
		return decode.HeadSource(o.head, target, o.force, warn, keep)
	}
	m, v, err := loadDraft(o.draft, target, tok, mach)
	if err != nil {
		return nil, nil, err
	}
	return source.NewLM(m, v, keep), m, nil
}

// loadDraft loads a language model that drafts for target, on its device. Asked for q4, a model
// that has nothing to keep has its own type of weights: the answer does not depend on it.
func loadDraft(path string, target *model.Model, tok *tokenizer.Tokenizer, mach *machineOptions) (*model.Model, *source.Vocab, error) {
	dir, err := checkpoints.FindModel(path)
	if err != nil {
		return nil, nil, fmt.Errorf("draft: %w", err)
	}
	alone := *mach
	alone.Layers = 0 // of the target
	if alone.DType == checkpoints.DType(compute.Q4) && !decode.Keeps(dir, target) {
		alone.DType = checkpoints.Auto // q4 would refuse it
	}
	return decode.LoadDraft(dir, target, tok, func(dir string) (*model.Model, error) { return alone.load(dir, target.Device()) })
}
