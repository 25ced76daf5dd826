package paper

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"talf/infer/bench"
	"talf/internal/table"
)

// Plan adds to c the methods of a command line, those that learn a second time as cold ones, all
// again in the format of the answers if there is one, and what the exhibits run, and checks the
// result. It returns the variants of exhibits that are left out because the kit lacks something
// for them.
func Plan(c *bench.Config, x bench.Axes, exhibits []Exhibit, k *Kit) (without []string, err error) {
	if c.Methods, err = bench.Cross(x); errors.Is(err, bench.ErrNoSource) {
		return nil, fmt.Errorf("--method: %w: give --head CKPT or --draft DIR", err)
	} else if err != nil {
		return nil, err
	}
	if err := cmp.Or(c.AddCold(), c.AddHeld()); err != nil {
		return nil, err
	}
	if len(c.Methods) == 0 && len(exhibits) > 0 {
		c.Temperatures = nil // the exhibits bring theirs
	}
	without = Add(c, exhibits, k)
	if len(exhibits) > 0 && len(c.Methods) == 0 {
		return without, fmt.Errorf("--paper %s: none of its methods can run: give --head CKPT, --draft DIR or --datastore FILE", exhibits[0].Name)
	}
	return without, c.Validate()
}

// Only leaves to the exhibits the temperatures that a recording has. It fails if one of them is left
// with none.
func (k *Kit) Only(exhibits []Exhibit, recorded []float64) error {
	for i := range exhibits {
		x := &exhibits[i]
		x.Temperatures = slices.DeleteFunc(slices.Clone(k.At(x)), func(t float64) bool { return !slices.Contains(recorded, t) })
		if len(x.Temperatures) == 0 {
			return fmt.Errorf("--paper %s: the recording has none of its temperatures", x.Name)
		}
	}
	return nil
}

// List lays out the exhibits.
func List() table.Table {
	t := table.Table{Header: []string{"table", "what", "methods"}}
	for _, x := range Exhibits().Lines {
		t.Cells = append(t.Cells, []string{x.Name, x.Doc, fmt.Sprint(len(x.Variants))})
	}
	return t
}
