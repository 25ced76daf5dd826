package command

import (
	"errors"

	"github.com/spf13/pflag"

	"talf/checkpoints"
	"talf/compute"
	"talf/internal/durable"
)

// printing holds the flags that say how a report is written.
type printing struct {
	out            string
	json, markdown bool
}

func (p *printing) flags(f *pflag.FlagSet) {
	f.StringVar(&p.out, "out", "", "JSON file for the results")
	f.BoolVar(&p.json, "json", false, "print JSON")
	f.BoolVar(&p.markdown, "markdown", false, "print a Markdown table")
}

func (p *printing) check() error {
	if p.json && p.markdown {
		return usagef("--json and --markdown exclude each other")
	}
	return durable.Writable(p.out)
}

// print writes r as the flags say. table prints it as text.
func (p *printing) print(a *app, r any, table func(markdown bool) error) error {
	var err error
	if p.out != "" {
		err = durable.WriteJSON(p.out, r)
	}
	// The result of hours of work is printed even if it could not be written.
	if p.json {
		return errors.Join(err, a.printJSON(r))
	}
	return errors.Join(err, table(p.markdown))
}

// DTypesVar adds --dtype for commands that compare types of weights.
func DTypesVar(f *pflag.FlagSet, dtypes *[]string) {
	f.StringSliceVar(dtypes, "dtype", []string{"f32", "bf16", "q8"}, "types that weights are kept as, some of "+checkpoints.DTypeNames())
}

// ParseDTypes parses a list of types of weights.
func ParseDTypes(names []string) ([]compute.DType, error) {
	var out []compute.DType
	for _, n := range names {
		var d checkpoints.DType
		if err := d.Set(n); err != nil || d == checkpoints.Auto {
			return nil, usagef("--dtype %q: want some of %s", n, checkpoints.DTypeNames())
		}
		out = append(out, compute.DType(d))
	}
	return out, nil
}
