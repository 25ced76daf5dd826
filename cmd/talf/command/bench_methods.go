package command

import (
	"errors"
	"fmt"
	"strings"

	"talf/infer/bench"
	"talf/infer/bench/paper"
	"talf/infer/verify"
)

func verifierNames() string {
	var names []string
	for _, m := range verify.Methods() {
		names = append(names, m.Name)
	}
	return strings.Join(names, ", ")
}

// plan adds the methods of o and those of the exhibits to c, and checks the result.
func (a *app) plan(c *bench.Config, o *benchOptions, exhibits []paper.Exhibit, kit *paper.Kit) error {
	var err error
	if c.Methods, err = bench.Cross(bench.Axes{
		Methods: o.methods, Verifiers: o.verifiers, Budgets: o.budgets, Sources: kit.Sources, Temperatures: o.temperatures,
	}); errors.Is(err, bench.ErrNoSource) {
		return usageError(fmt.Errorf("--method: %w: give --head CKPT or --draft DIR", err))
	} else if err != nil {
		return usageError(err)
	}
	if err := c.AddCold(); err != nil {
		return usageError(err)
	}
	if len(c.Methods) == 0 && len(exhibits) > 0 {
		c.Temperatures = nil // the exhibits bring theirs
	}
	for _, v := range paper.Add(c, exhibits, kit) {
		a.log.Warn("left out", "variant", v)
	}
	if len(exhibits) > 0 && len(c.Methods) == 0 {
		return usagef("--paper %s: none of its methods can run: give --head CKPT, --draft DIR or --datastore FILE", exhibits[0].Name)
	}
	if err := c.Validate(); err != nil {
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
