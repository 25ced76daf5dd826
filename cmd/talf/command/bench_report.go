package command

import (
	"errors"

	"talf/infer/bench/paper"
)

// reportBench draws, writes and prints r as o says.
func (a *app) reportBench(r *paper.Report, o *benchOptions) error {
	err := saveFigures(o.picture, r.Figures()...)
	return errors.Join(err, o.print(a, r, func(markdown bool) error { return r.Write(a.out, markdown) }))
}

// printExhibits lists what --paper runs.
func (a *app) printExhibits() error {
	t := paper.List()
	return t.Write(a.out, false)
}
