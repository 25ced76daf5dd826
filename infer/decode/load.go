package decode

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"talf/checkpoints"
	"talf/checkpoints/medusa"
	"talf/infer"
	"talf/infer/source"
	"talf/internal/hint"
	"talf/internal/limits"
	"talf/model"
	"talf/model/head"
	"talf/model/safetensors"
	"talf/text/tokenizer"
)

// LoadTokenizer loads the tokenizer of m's directory and checks that m knows all its
// tokens.
func LoadTokenizer(dir string, m *model.Model) (*tokenizer.Tokenizer, error) {
	t, err := tokenizer.Load(dir)
	if err != nil {
		return nil, err
	}
	if err := CheckTokenizer(dir, t, m); err != nil {
		return nil, err
	}
	return t, nil
}

// Tokenizer loads the tokenizer of dir, which splits texts as pre names unless it is empty, and tells warn what
// is odd about it. If ctx ends first, that is the error, and the load goes on unseen in memory alone.
func Tokenizer(ctx context.Context, dir, pre string, warn func(string)) (*tokenizer.Tokenizer, error) {
	return readTokenizer(dir, pre).wait(ctx, warn)
}

// A reading is a tokenizer that is being read.
type reading <-chan read

type read struct {
	tok *tokenizer.Tokenizer
	err error
	bug any
}

func readTokenizer(dir, pre string) reading {
	loaded := make(chan read, 1)
	go func() {
		var r read
		defer func() {
			r.bug = recover()
			loaded <- r
		}()
		r.tok, r.err = tokenizer.LoadAs(dir, pre)
	}()
	return loaded
}

// wait returns the tokenizer once it is read.
func (w reading) wait(ctx context.Context, warn func(string)) (*tokenizer.Tokenizer, error) {
	var r read
	select {
	case r = <-w:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	switch {
	case r.bug != nil:
		panic(r.bug) // where the caller's callers expect it
	case r.err != nil:
		return nil, r.err
	}
	for _, w := range r.tok.Warnings() {
		warn(w)
	}
	return r.tok, nil
}

// CheckTokenizer reports a tokenizer of dir with tokens that m does not know.
func CheckTokenizer(dir string, t *tokenizer.Tokenizer, m *model.Model) error {
	if v := m.Spec().Vocab; t.VocabSize() > v {
		return fmt.Errorf("%s: the tokenizer has %d tokens, but the model's vocabulary is %d", dir, t.VocabSize(), v)
	}
	return nil
}

// giveBack returns memory to the system that only loading needs: garbage.
func giveBack() { debug.FreeOSMemory() }

// MTPHead stands for the multi-token prediction module in the model's own files where a head's path is
// wanted. A directory of that name is ./mtp.
const MTPHead = "mtp"

// LoadHead loads a draft head for m from a checkpoint, from any EAGLE directory or, if path is MTPHead,
// from m's own files. With force, the head may have been trained for another target. warn, if not nil,
// is told what could not be checked, and of a head that is broken. A block drafter is refused: it runs along no text.
func LoadHead(path string, m *model.Model, force bool, warn func(string)) (*head.Head, error) {
	h, err := loadHead(path, m, force, warn)
	if err == nil && h.Spec().Block.On {
		return nil, errors.Join(fmt.Errorf("head: %s is a block drafter, which only drafts: want a head of EAGLE's kind", path), h.Close())
	}
	return h, err
}

// warnOf tells of a head's weight that is not finite.
func warnOf(flaw error, path string, warn func(string)) {
	if flaw != nil && warn != nil {
		warn(fmt.Sprintf("head %s: %v: its drafts are useless, though the output does not depend on them", path, flaw))
	}
}

func loadHead(path string, m *model.Model, force bool, warn func(string)) (*head.Head, error) {
	opt := head.Default()
	opt.Force, opt.Model = force, m.HeadOptions()
	if warn != nil {
		opt.Warn = func(why string) { warn("head " + path + ": " + why) }
	}
	if path == MTPHead {
		h, err := head.MTP(m, opt)
		if err != nil {
			return nil, fmt.Errorf("head: %w", err)
		}
		warnOf(h.Flaw(), path, warn)
		return h, nil
	}
	if medusa.Is(path) {
		return nil, fmt.Errorf("head: %s has Medusa heads, which only draft: want a head of EAGLE's kind", path)
	}
	if err := m.Identify(); err != nil { // with which the head's is compared
		return nil, err
	}
	h, err := checkpoints.LoadHead(path, m, opt)
	if err == nil {
		warnOf(h.Flaw(), path, warn)
		return h, nil
	}
	if kind, _ := kindOf(path); kind == LanguageModel {
		return nil, hint.Errorf("give it as {draft}", "head: %s is a language model, not a draft head", path)
	}
	return nil, fmt.Errorf("head: %w", err)
}

// HeadSource loads a draft head, a block drafter or Medusa heads as a source that keeps the last keep sequences.
func HeadSource(path string, m *model.Model, force bool, warn func(string), keep int) (infer.Source, io.Closer, error) {
	if medusa.Is(path) {
		h, err := medusa.Load(path, m)
		if err != nil {
			return nil, nil, fmt.Errorf("head: %w", err)
		}
		warnOf(h.Flaw(), path, warn)
		return source.NewMedusa(h), h, nil
	}
	h, err := loadHead(path, m, force, warn)
	if err != nil {
		return nil, nil, err
	}
	if h.Spec().Block.On {
		return source.NewBlock(h, keep), h, nil
	}
	return source.NewHead(h, keep), h, nil
}

// LoadDraft loads a language model that drafts for target, whose tokenizer is tok, and the translation between the two
// vocabularies. load loads a directory onto the target's device. pre says how a GGUF file's tokenizer splits texts
// where the file itself says nothing that is known: drafts do not depend on it.
func LoadDraft(dir, pre string, target *model.Model, tok *tokenizer.Tokenizer, load func(dir string) (*model.Model, error)) (*model.Model, *source.Vocab, error) {
	m, err := load(dir)
	if err != nil {
		if kind, _ := kindOf(dir); kind == DraftHead {
			return nil, nil, hint.Errorf("give it as {head}", "draft: %s is a draft head, not a language model", dir)
		}
		return nil, nil, fmt.Errorf("draft: %w", err)
	}
	v, err := pairVocab(dir, pre, m, target, tok)
	if err != nil {
		_ = m.Close()
		return nil, nil, fmt.Errorf("draft: %s: %w", dir, err)
	}
	return m, v, nil
}

func pairVocab(dir, pre string, m, target *model.Model, tok *tokenizer.Tokenizer) (*source.Vocab, error) {
	own, err := tokenizer.Load(dir)
	if err != nil && pre != "" {
		own, err = tokenizer.LoadAs(dir, pre)
	}
	if err == nil {
		err = CheckTokenizer(dir, own, m)
	}
	if err != nil {
		return nil, err
	}
	return source.NewVocab(tok, own, target.Spec().Vocab, m.Spec().Vocab)
}

// A Kind says what the tensors of a directory make up.
type Kind int

// The kinds.
const (
	OtherWeights Kind = iota
	LanguageModel
	DraftHead
)

// kindOf tells draft heads and language models apart by their tensors.
func kindOf(path string) (Kind, error) {
	set, err := openSet(path)
	if err != nil {
		return OtherWeights, err
	}
	defer func() { _ = set.Close() }()
	if _, ok := set.Tensor("fc.weight"); ok {
		return DraftHead, nil
	}
	for _, name := range set.Names() {
		if strings.Contains(name, "embed") {
			return LanguageModel, nil
		}
	}
	return OtherWeights, nil
}

// keeps reports whether some of a model's matrices are stored in blocks that weights as q4 keep on target's device. It
// is false for what cannot be opened.
func keeps(path string, target *model.Model) bool {
	set, err := openSet(path)
	if err != nil {
		return false
	}
	kept := model.Kept(set, target.Device())
	return set.Close() == nil && len(kept) > 0
}

func openSet(path string) (*safetensors.Set, error) {
	var set *safetensors.Set
	err := checkpoints.Read(path, func(dir string) (err error) {
		set, err = safetensors.OpenDir(dir)
		return err
	})
	return set, err
}

// FilesHash identifies the contents of the files that a draft method reads, such as datastores
// and shapes: another build may have the same name. It is empty if there are none.
func FilesHash(files []string) (string, error) {
	if len(files) == 0 {
		return "", nil
	}
	h := sha256.New()
	for _, name := range files {
		f, err := limits.Open(name)
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
