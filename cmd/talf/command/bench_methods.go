package command

import (
	"fmt"
	"strings"

	"talf/infer/bench"
	"talf/infer/bench/paper"
	"talf/infer/draft"
	"talf/infer/verify"
)

func verifierNames() string {
	var names []string
	for _, m := range verify.Methods() {
		names = append(names, m.Name)
	}
	return strings.Join(names, ", ")
}

// addPapers adds what papers run and says what is left out. That nothing is left
// is a mistake.
func (a *app) addPapers(c *bench.Config, papers []paper.Exhibit, kit *paper.Kit) error {
	for _, w := range paper.Add(c, papers, kit) {
		a.log.Warn("left out", "variant", w)
	}
	if len(papers) > 0 && len(c.Methods) == 0 {
		return usagef("--paper %s: none of its methods can run: give --head CKPT, --draft DIR or --datastore FILE", papers[0].Name)
	}
	return nil
}

// benchMethods crosses methods with verifiers, budgets and, where they ask one,
// draft models.
func benchMethods(o *benchOptions, sources []bench.Source) ([]bench.Method, error) {
	budgets := o.budgets
	if len(budgets) == 0 {
		budgets = []int{0}
	}
	var out []bench.Method
	for _, arg := range o.methods {
		spec, verifiers := arg, o.verifiers
		if i := strings.LastIndex(arg, "@"); i >= 0 {
			spec, verifiers = arg[:i], []string{arg[i+1:]}
		}
		if len(verifiers) == 0 {
			verifiers = []string{""}
		}
		bounds := budgets
		if spec == bench.Baseline {
			bounds = []int{0} // it has no tree
		}
		line, _, err := draft.Find(spec)
		if err != nil {
			return nil, err
		}
		asked := []bench.Source{{}}
		if line.Source {
			if asked = sources; len(asked) == 0 {
				return nil, fmt.Errorf("--method %s asks a draft model: give --head CKPT or --draft DIR", spec)
			}
		}
		if line.May && len(sources) > 0 {
			asked = sources
		}
		for _, v := range verifiers {
			at, err := temperaturesOf(v, o.temperatures)
			if err != nil {
				return nil, err
			}
			for _, b := range bounds {
				for _, s := range asked {
					out = append(out, bench.Method{Spec: spec, Verify: v, Budget: b, Source: s.Source, SourceName: s.Name, Temperatures: at})
				}
			}
		}
	}
	return out, nil
}

// temperaturesOf returns those that a verifier is for; nil for all.
func temperaturesOf(verifier string, temperatures []float64) ([]float64, error) {
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
