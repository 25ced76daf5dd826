package command

import (
	"errors"
	"fmt"

	"talf/infer/bench/paper"
	"talf/internal/table"
)

// reportBench draws, writes and prints r as o says.
func (a *app) reportBench(r *paper.Report, o *benchOptions) error {
	err := saveFigures(o.picture, r.Figures()...)
	return errors.Join(err, o.print(a, r, func(markdown bool) error { return r.Write(a.out, markdown) }))
}

// printExhibits lists what --paper runs.
func (a *app) printExhibits() error {
	t := table.Table{Header: []string{"table", "what", "methods"}}
	for _, x := range paper.Exhibits().Lines {
		t.Cells = append(t.Cells, []string{x.Name, x.Doc, fmt.Sprint(len(x.Variants))})
	}
	return t.Write(a.out, false)
}
