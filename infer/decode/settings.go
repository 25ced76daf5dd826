package decode

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"talf/infer"
	"talf/infer/constrain"
	"talf/infer/trace"
	"talf/infer/verify"
	"talf/model/identity"
)

// Facts decide answers besides options and models.
type Facts struct {
	Seed     uint64
	Template string // hash of the chat template; "": none
}

// Settings are everything that decides the answers to prompts, so that a file never mixes answers
// of two kinds.
type Settings struct {
	Function *identity.Function `json:"function"`
	// Rest is the tokenizer, the chat template, sampling and the limits of answers, and, if the
	// text depends on it under the verifier, the draft method with the contents of its files.
	Rest identity.Spec `json:"options"`
}

// settingsPrefix begins the hashes of Settings: it has the version of what they cover.
const settingsPrefix = "talf-answers-1:"

// Hash identifies s.
func (s *Settings) Hash() string {
	f := *s.Function
	f.DerivedFrom = "" // it does not count
	raw := mustMarshal([]any{f, s.Rest})
	sum := sha256.Sum256(raw)
	return settingsPrefix + hex.EncodeToString(sum[:12])
}

func mustMarshal(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic("decode: " + err.Error()) // plain values, and JSON that was parsed before
	}
	return raw
}

// UnmarshalJSON reads what a file keeps, which names the function.
func (s *Settings) UnmarshalJSON(raw []byte) error {
	type plain Settings // without this method
	if err := json.Unmarshal(raw, (*plain)(s)); err != nil {
		return err
	}
	if s.Function == nil {
		return fmt.Errorf("function: missing, want what computed the answers")
	}
	return nil
}

// Against compares s, as it is now, with earlier settings.
func (s *Settings) Against(then *Settings) identity.Differences {
	return append(s.Function.Against(then.Function), s.Rest.Against(then.Rest)...)
}

// Settings returns everything that decides the answers to prompts. It reads the files of the
// draft method if the text depends on them under the verifier.
func (d *Decoder) Settings(f Facts) (*Settings, error) {
	if err := d.c.Target.Identify(); err != nil {
		return nil, err
	}
	o := &d.c.Options
	s := &Settings{Function: d.c.Target.Function(), Rest: identity.Spec{}}
	set := func(name string, value any) { s.Rest[name] = mustMarshal(value) }
	set("the tokenizer", d.c.Tokenizer.Hash())
	set("the chat template", f.Template)
	set("sampling", o.Sample)
	set("seed", f.Seed)
	set("max-tokens", o.MaxTokens)
	set("stop", append([]string{}, o.Stop...))
	set("ignore-eos", o.IgnoreEOS)
	if o.Format.Kind != constrain.Free {
		set("the format", o.Format)
	}
	if o.Sample.Temperature > 0 {
		set("seeds", "of every turn")
	}
	if v, err := verify.Find(o.Verify); err == nil && !v.Exact {
		set("verify", o.Verify)
		set("method", o.Method)
		draft, err := d.drafting()
		if err != nil {
			return nil, err
		}
		if draft != nil {
			if draft.Function != nil {
				set("the draft model", draft.Function.Hash())
				set("the draft model's tokenizer", draft.Tokenizer)
			}
			set("the files of the method", draft.Files)
		}
	}
	return s, nil
}

// An Identified source says which draft model it asks: the function, and the hash of its
// tokenizer unless that is the target's.
type Identified interface {
	Identity() (f *identity.Function, tokenizer string, err error)
}

// drafting identifies the draft model and the contents of the files that the method reads; nil
// if there is neither.
func (d *Decoder) drafting() (*trace.Draft, error) {
	files, err := FilesHash(d.maker.Files)
	if err != nil {
		return nil, err
	}
	t := trace.Draft{Files: files}
	if d.source != nil {
		if t.Function, t.Tokenizer, err = IdentityOf(d.source); err != nil {
			return nil, err
		}
	}
	if t == (trace.Draft{}) {
		return nil, nil
	}
	return &t, nil
}

// IdentityOf returns the Identity of a source, which must have one.
func IdentityOf(s infer.Source) (*identity.Function, string, error) {
	i, ok := s.(Identified)
	if !ok {
		return nil, "", fmt.Errorf("the draft model (%T) does not say what it is", s)
	}
	return i.Identity()
}
