package serve

import (
	"slices"
	"sync"

	"talf/infer/constrain"
	"talf/internal/limits"
	"talf/serve/wire"
	"talf/serve/wire/refuse"
	"talf/text/grammar"
	"talf/text/grammar/schema"
	"talf/text/tokenizer"
)

// formats compiles the formats that requests ask for, and keeps the last ones with what they have
// learnt. Those of one API key are kept apart from others', which could tell from the time of an
// answer what was asked before.
type formats struct {
	tok   *tokenizer.Tokenizer
	vocab func() (*grammar.Vocabulary, error) // made when it is first asked for
	ends  []int32

	mu   sync.Mutex
	kept []*kept // the last used last
}

type kept struct {
	tenant string
	format constrain.Format

	once sync.Once
	c    *constrain.Constraint
	err  error
}

func newFormats(tok *tokenizer.Tokenizer, vocab int, ends []int32) *formats {
	return &formats{tok: tok, ends: ends, vocab: sync.OnceValues(func() (*grammar.Vocabulary, error) {
		return constrain.Vocabulary(tok, vocab)
	})}
}

// constrained is a format in the form of package constrain.
func constrained(w wire.Format) constrain.Format {
	return constrain.Format{Kind: constrain.Kind(w.Kind), Text: w.Text, JSON: schema.Config{Blanks: w.Blanks, Others: w.Others}}
}

// compile returns the constraint of a format; nil if there is none.
func (f *formats) compile(tenant string, w wire.Format) (*constrain.Constraint, *refuse.Error) {
	if w.Kind == "" {
		return nil, nil
	}
	format := constrained(w)
	c, err := f.keep(tenant, format, func(v *grammar.Vocabulary) (*constrain.Constraint, error) {
		return constrain.NewFor(format, f.tok, v, f.ends)
	})
	if err != nil {
		return nil, refuse.Invalid(w.Param, "%v", err)
	}
	return c, nil
}

// keep returns the constraint of a format, which is made if it is not kept.
func (f *formats) keep(tenant string, format constrain.Format, make func(v *grammar.Vocabulary) (*constrain.Constraint, error)) (*constrain.Constraint, error) {
	k := f.find(tenant, format)
	k.once.Do(func() {
		v, err := f.vocab()
		if err == nil {
			k.c, err = make(v)
		}
		k.err = err
	})
	return k.c, k.err
}

// find returns the entry of a format, and forgets that which was used least recently if there are
// too many.
func (f *formats) find(tenant string, format constrain.Format) *kept {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := slices.IndexFunc(f.kept, func(k *kept) bool { return k.tenant == tenant && k.format == format })
	k := &kept{tenant: tenant, format: format}
	if at >= 0 {
		k = f.kept[at]
		f.kept = slices.Delete(f.kept, at, at+1)
	} else if len(f.kept) == limits.GrammarsKept {
		f.kept = slices.Delete(f.kept, 0, 1)
	}
	f.kept = append(f.kept, k)
	return k
}
