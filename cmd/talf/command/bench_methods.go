package command

import (
	"strings"

	"talf/infer/bench"
	"talf/infer/bench/paper"
	"talf/infer/verify"
)

func verifierNames() string { return strings.Join(verify.Names(), ", ") }

// plan adds the methods of o and those of the exhibits to c, and checks the result.
func (a *app) plan(c *bench.Config, o *benchOptions, exhibits []paper.Exhibit, kit *paper.Kit) error {
	without, err := paper.Plan(c, bench.Axes{
		Methods: o.methods, Verifiers: o.verifiers, Budgets: o.budgets, Sources: kit.Sources, Temperatures: o.temperatures,
	}, exhibits, kit)
	for _, v := range without {
		a.log.Warn("left out", "variant", v)
	}
	if err != nil {
		return usageError(err)
	}
	return nil
}

// benchProgress shows the progress of a run of c. The caller calls done when it has finished.
func (a *app) benchProgress(c *bench.Config, name string) (done func()) {
	bar := a.progress(name, "answers")
	c.Progress = func(done, total int) { bar.Set(int64(done), int64(total), "") }
	return bar.End
}
