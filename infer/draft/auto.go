package draft

import (
	"errors"
	"fmt"

	"talf/infer"
	"talf/infer/draft/chooser"
	"talf/internal/spec"
)

func autoMethod() Method {
	return Method{
		Line: spec.Line{
			Name: "auto", Main: "try",
			Doc: "the method and tree size that currently pay most, or no draft if none pays",
			Params: []spec.Param{
				spec.Specs("try", "", "methods to choose from, joined by +, with parameters separated by ;, as in pld+salf:th=auto;N=40 (empty: what the request can use)"),
			},
		},
		May:  true,
		Open: openAuto,
	}
}

// candidates are tried if none are named: methods that need no draft model and no rows of the
// prompt, and one that asks a draft model if there is one.
func candidates(e Env) []string {
	all := []string{"pld", "goose:harvest=rounds", "recycle:rows,harvest=rounds"}
	if e.Source {
		all = append(all, "salf:th=auto")
	}
	return all
}

func openAuto(v spec.Values, e Env) (Maker, error) {
	try := v.Specs("try")
	if len(try) == 0 {
		try = candidates(e)
	}
	e.Unpaused = true
	var mks []*Maker
	closeAll := func() (err error) {
		for _, m := range mks {
			err = errors.Join(err, m.Close())
		}
		return err
	}
	var files []string
	var all []chooser.Candidate
	for _, s := range try {
		mk, m, err := Open(s, e)
		switch {
		case err != nil:
		case m.Name == "auto":
			err = errors.New("auto does not choose itself")
		case m.Name == "ar":
			err = errors.New("auto drafts nothing if nothing pays: leave ar out")
		case m.Source && !e.Source:
			err = fmt.Errorf("%s asks a draft model, and there is none", s)
		case mk.Draw != infer.Chosen:
			err = fmt.Errorf("%s draws children at random; auto would drop some of them, and no verifier is lossless with that", s)
		}
		if mk != nil {
			mks, files = append(mks, mk), append(files, mk.Files...)
		}
		if err != nil {
			return Maker{}, errors.Join(err, closeAll())
		}
		all = append(all, chooser.Candidate{Name: m.Name, Asks: m.Source || m.May && e.Source, New: mk.New})
	}
	maker := func(sampled bool) Maker {
		return Maker{New: chooser.New(all, sampled), Learns: true, Files: files, Close: closeAll}
	}
	// What is learnt from greedy answers misleads at other temperatures, so that it is kept apart.
	mk, warm := maker(e.Temperature > 0), maker(true)
	if e.Temperature == 0 {
		mk.At = func(float64) Maker { return warm }
	}
	return mk, nil
}
