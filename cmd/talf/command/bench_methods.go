package command

import (
	"cmp"
	"strings"

	"talf/infer/bench"
	"talf/infer/verify"
	"talf/internal/cli"
)

func verifierNames() string { return strings.Join(verify.Names(), ", ") }

// plan adds the methods and the tables of o to c, and checks the result.
func (a *app) plan(c *bench.Config, o *benchOptions, sources []bench.Source) error {
	x := bench.Axes{Methods: o.methods, Verifiers: o.verifiers, Budgets: o.budgets, Sources: sources, Temperatures: o.temperatures}
	if err := c.Compare(x); err != nil {
		return usageError(err)
	}
	without, err := o.tables.Plan(c, x)
	for _, v := range without {
		a.log.Warn("left out", "variant", v)
	}
	return cli.Usage(cmp.Or(err, c.Validate()))
}

// benchProgress shows the progress of a run of c. The caller calls done when it has finished.
func (a *app) benchProgress(c *bench.Config, name string) (done func()) {
	bar := a.progress(name, "answers")
	c.Progress = func(done, total int) { bar.Set(int64(done), int64(total), "") }
	return bar.End
}
