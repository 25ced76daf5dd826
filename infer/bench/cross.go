package bench

import (
	"cmp"
	"errors"
	"fmt"

	"talf/infer/draft"
	"talf/infer/verify"
	"talf/internal/hint"
)

// Axes are what Cross combines.
type Axes struct {
	Methods      []string // METHOD or METHOD@VERIFIER
	Verifiers    []string // of the methods that name none; nil for the usual ones
	Budgets      []int    // most nodes of a tree; nil for the methods' own limits
	Sources      []Source // draft models, for the methods that ask one
	Temperatures []float64
}

// ErrNoSource is wrapped with a method that asks a draft model if there is none.
var ErrNoSource = errors.New("asks a draft model, and none is given")

// Compare adds the methods of x to c, and those that learn a second time, cold; if answers have a
// format, all again held to it.
func (c *Config) Compare(x Axes) error {
	var err error
	if c.Methods, err = Cross(x); errors.Is(err, ErrNoSource) {
		return hint.Errorf("give {head} CKPT or {draft} DIR", "method: %w", err)
	} else if err != nil {
		return err
	}
	return cmp.Or(c.AddCold(), c.AddHeld())
}

// Cross combines methods with verifiers, budgets and, if they ask one, draft models. A verifier
// runs only at the temperatures that suit it.
func Cross(x Axes) ([]Method, error) {
	if len(x.Budgets) == 0 {
		x.Budgets = []int{0}
	}
	var out []Method
	for _, text := range x.Methods {
		spec, verifiers := text, x.Verifiers
		if method, v, named := verify.Cut(text); named {
			spec, verifiers = method, []string{v}
		}
		if len(verifiers) == 0 {
			verifiers = []string{""}
		}
		budgets := x.Budgets
		if spec == Baseline {
			budgets = []int{0} // plain decoding has no tree
		}
		sources, err := x.asked(spec)
		if err != nil {
			return nil, err
		}
		for _, v := range verifiers {
			at, err := suited(v, x.Temperatures)
			if err != nil {
				return nil, err
			}
			for _, b := range budgets {
				for _, s := range sources {
					out = append(out, Method{Spec: spec, Verify: v, Budget: b, Source: s.Source, SourceName: s.Name, Temperatures: at})
				}
			}
		}
	}
	return out, nil
}

// asked returns the draft models that a method asks, or one that is none.
func (x *Axes) asked(spec string) ([]Source, error) {
	line, _, err := draft.Find(spec)
	if err != nil {
		return nil, err
	}
	switch {
	case line.Source && len(x.Sources) == 0:
		return nil, fmt.Errorf("method %s %w", spec, ErrNoSource)
	case line.Source || line.May && len(x.Sources) > 0:
		return x.Sources, nil
	}
	return []Source{{}}, nil
}

// suited returns the temperatures that suit a verifier, nil for all.
func suited(verifier string, temperatures []float64) ([]float64, error) {
	if verifier == "" {
		return nil, nil
	}
	at := []float64{}
	var why error
	for _, t := range temperatures {
		if _, err := verify.New(verifier, t); err != nil {
			why = err
			continue
		}
		at = append(at, t)
	}
	if len(at) == 0 {
		return nil, why
	}
	return at, nil
}
