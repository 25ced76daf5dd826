package mix

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"talf/data/corpus"
	"talf/internal/limits"
	"talf/model/arch"
	"talf/model/gguf"
	"talf/text/tokenizer"
)

// A Text is what a language model is trained on.
type Text struct {
	Spec   *arch.Spec        // the model's sizes
	Docs   [][]int32         // each ends with the model's first end token
	Tokens int64             // in all documents
	Extra  map[string][]byte // files of the tokenizer, by name
}

// ReadText reads a model's sizes and tokenizer from the directory dir, and documents from files.
// bad is called for lines that are left out.
func ReadText(dir string, files []string, c corpus.Config, bad func(corpus.BadLine)) (*Text, error) {
	var err error
	t := Text{Extra: map[string][]byte{}}
	if t.Spec, err = arch.Load(dir); err != nil {
		return nil, err
	}
	if t.Spec.Arch != "llama" {
		return nil, fmt.Errorf("%s: model_type is %q, want \"llama\" for a language model that is trained", filepath.Join(dir, "config.json"), t.Spec.Arch)
	}
	tok, err := tokenizer.Load(dir)
	if err != nil {
		return nil, err
	}
	if tok.VocabSize() > t.Spec.Vocab {
		return nil, fmt.Errorf("%s: the tokenizer has %d tokens, but vocab_size is %d", dir, tok.VocabSize(), t.Spec.Vocab)
	}
	for doc, err := range corpus.Load(files, c, bad) {
		if err != nil {
			return nil, err
		}
		if doc.Chat != nil {
			return nil, fmt.Errorf("%s: a conversation: language models are trained on texts", doc.Place())
		}
		var text strings.Builder
		for _, s := range doc.Spans {
			text.WriteString(s.Text)
		}
		ids, err := tok.Encode(text.String(), true)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", doc.Place(), err)
		}
		if eos := t.Spec.EOS; len(eos) > 0 && (len(ids) == 0 || ids[len(ids)-1] != eos[0]) {
			ids = append(ids, eos[0])
		}
		t.Docs = append(t.Docs, ids)
		t.Tokens += int64(len(ids))
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "generation_config.json"} {
		b, err := gguf.ReadFile(dir, name, limits.TokenizerBytes)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		t.Extra[name] = b
	}
	return &t, nil
}
