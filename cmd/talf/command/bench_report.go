package command

import (
	"errors"

	"talf/infer/bench/rig"
)

// reportBench draws, writes and prints r as o says.
func (a *app) reportBench(r *rig.Report, o *benchOptions) error {
	err := saveFigures(o.picture, r.Figures()...)
	return errors.Join(err, o.print(a, r, func(markdown bool) error { return r.Write(a.out, markdown) }))
}
