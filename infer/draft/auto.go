package draft

import (
	"errors"

	"talf/infer"
	"talf/internal/spec"
)

func autoMethod() Method {
	return Method{
		Line: spec.Line{Name: "auto", Doc: "one tree of all that the request can draft with, as far as that pays, and no draft where nothing does"},
		May:  true,
		Open: openAuto,
	}
}

func openAuto(_ spec.Values, e Env) (Maker, error) {
	names := []string{"suffix", "goose:harvest=rounds"}
	if e.Source {
		names = append(names, "salf")
	}
	var mks []*Maker
	closeAll := func() (err error) {
		for _, m := range mks {
			err = errors.Join(err, m.Close())
		}
		return err
	}
	var all []Candidate
	for _, name := range names {
		mk, m, err := Open(name, e)
		if err != nil {
			return Maker{}, errors.Join(err, closeAll())
		}
		mks = append(mks, mk)
		all = append(all, Candidate{Name: m.Name, Asks: m.Source, New: func() infer.Drafter { return mk.New() }})
	}
	return Maker{New: Union(all), Close: closeAll}, nil
}
