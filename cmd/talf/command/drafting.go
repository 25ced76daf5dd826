package command

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"talf/checkpoints"
	"talf/infer"
	"talf/infer/bench"
	"talf/infer/draft"
	"talf/infer/source"
	"talf/model"
	"talf/model/head"
	"talf/model/safetensors"
	"talf/model/tokenizer"
)

// A draftOptions holds the flags that name a draft model.
type draftOptions struct {
	head, draft string
	force       bool
}

func (o *draftOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.head, "head", "", "checkpoint of a draft head")
	f.StringVar(&o.draft, "draft", "", "directory of a small language model that drafts in a head's place")
	f.BoolVar(&o.force, "force", false, "use a head that was trained for other weights")
}

func (o *draftOptions) given() bool { return o.head != "" || o.draft != "" }

func (o *draftOptions) check() error {
	if o.head != "" && o.draft != "" {
		return usagef("--head and --draft exclude each other: a method asks one draft model")
	}
	return nil
}

// fits refuses a method that lacks its draft model, and one that would leave it
// lying. Plain decoding may be compared with anything.
func (o *draftOptions) fits(m draft.Method) error {
	var with, without []string
	for _, x := range draft.Methods() {
		if x.Source || x.May {
			with = append(with, x.Name)
		}
		if !x.Source {
			without = append(without, x.Name)
		}
	}
	switch {
	case o.given() && !m.Source && !m.May && m.Name != "ar":
		return usagef("--method %s asks no draft model: leave --head and --draft out, or choose a method that asks one: %s", m.Name, strings.Join(with, ", "))
	case o.given() || !m.Source:
		return nil
	}
	return usagef("--method %s asks a draft model: give --head CKPT or --draft DIR, or a method without one: %s", m.Name, strings.Join(without, ", "))
}

// open loads the draft model of target, whose tokenizer is tok, as a source that
// keeps the last keep sequences.
func (o *draftOptions) open(target *model.Model, tok *tokenizer.Tokenizer, mach *machineOptions, keep int) (infer.Source, func(), error) {
	if o.draft != "" {
		m, v, err := loadDraft(o.draft, target, tok, mach)
		if err != nil {
			return nil, nil, err
		}
		return source.NewLM(m, v, keep), func() { _ = m.Close() }, nil
	}
	h, err := loadHead(o.head, target, o.force)
	if err != nil {
		return nil, nil, err
	}
	return source.NewHead(h, keep), func() { _ = h.Close() }, nil
}

// loadHead loads a head for m from a checkpoint, or from any EAGLE directory.
func loadHead(path string, m *model.Model, force bool) (*head.Head, error) {
	opt := head.Default()
	opt.Force, opt.Model = force, m.Options()
	h, err := checkpoints.LoadHead(path, m, opt)
	if err != nil {
		if kind, _ := kindOf(path); kind == languageModel {
			return nil, fmt.Errorf("head: %s is no draft head but a language model: give it as --draft", path)
		}
		return nil, fmt.Errorf("head: %w", err)
	}
	return h, nil
}

// weightsHash identifies the weights that are meant by path, as model.HashOf does.
func weightsHash(path string) (string, error) {
	dir, err := checkpoints.Find(path)
	if err != nil {
		return "", err
	}
	set, err := safetensors.OpenDir(dir)
	if err != nil {
		return "", err
	}
	defer func() { _ = set.Close() }()
	return model.HashOf(set), nil
}

// filesHash identifies the contents of files that a method reads, such as datastores
// and shapes: another build may lie under the same name. It is empty if there are none.
func filesHash(files []string) (string, error) {
	if len(files) == 0 {
		return "", nil
	}
	h := sha256.New()
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return "", err
		}
		_, err = io.Copy(h, f)
		_ = f.Close() // it was read only
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// hashFiles notes what the methods of c read.
func hashFiles(c *bench.Config) error {
	for i := range c.Methods {
		m := &c.Methods[i]
		mk, _, err := draft.Open(m.Spec, draft.Env{Tokenizer: c.Tokenizer, Source: m.Source != nil})
		if err != nil {
			return err
		}
		if err := mk.Close(); err != nil {
			return err
		}
		if m.Files, err = filesHash(mk.Files); err != nil {
			return err
		}
	}
	return nil
}

// A weightKind is what the tensors of a directory make up.
type weightKind int

const (
	otherWeights weightKind = iota
	languageModel
	draftHead
)

// kindOf tells heads and language models apart by their tensors.
func kindOf(path string) (weightKind, error) {
	dir, err := checkpoints.Find(path)
	if err != nil {
		return otherWeights, err
	}
	set, err := safetensors.OpenDir(dir)
	if err != nil {
		return otherWeights, err
	}
	defer func() { _ = set.Close() }()
	if _, ok := set.Tensor("fc.weight"); ok {
		return draftHead, nil
	}
	for _, name := range set.Names() {
		if strings.Contains(name, "embed") {
			return languageModel, nil
		}
	}
	return otherWeights, nil
}

// loadDraft loads a language model that drafts for target, on its device, and
// holds its vocabulary against the target's tokenizer.
func loadDraft(path string, target *model.Model, tok *tokenizer.Tokenizer, mach *machineOptions) (*model.Model, *source.Vocab, error) {
	dir, err := findModel(path)
	if err != nil {
		return nil, nil, fmt.Errorf("draft: %w", err)
	}
	alone := *mach
	alone.layers = 0 // of the target
	m, err := alone.load(dir, target.Device())
	if err != nil {
		if kind, _ := kindOf(dir); kind == draftHead {
			return nil, nil, fmt.Errorf("draft: %s is no language model but a draft head: give it as --head", path)
		}
		return nil, nil, fmt.Errorf("draft: %w", err)
	}
	v, err := pairVocab(dir, m, target, tok)
	if err != nil {
		_ = m.Close()
		return nil, nil, fmt.Errorf("draft: %s: %w", path, err)
	}
	return m, v, nil
}

func pairVocab(dir string, m, target *model.Model, tok *tokenizer.Tokenizer) (*source.Vocab, error) {
	own, err := loadTokenizer(dir, m)
	if err != nil {
		return nil, err
	}
	return source.NewVocab(tok, own, target.Spec().Vocab, m.Spec().Vocab)
}
