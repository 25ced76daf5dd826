package papers

import (
	"fmt"
	"slices"

	"talf/infer/bench"
	"talf/internal/table"
)

// Plan adds what the exhibits run to c, which has the methods of a command line, if it names any. It
// returns the variants of exhibits that are left out because the kit lacks something for them.
func Plan(c *bench.Config, exhibits []Exhibit, k *Kit) (without []string, err error) {
	if len(c.Methods) == 0 && len(exhibits) > 0 {
		c.Temperatures = nil // the exhibits bring theirs
	}
	without = Add(c, exhibits, k)
	if len(exhibits) > 0 && len(c.Methods) == 0 {
		return without, fmt.Errorf("--paper %s: none of its methods can run: give --head CKPT, --draft DIR or --datastore FILE", exhibits[0].Name)
	}
	return without, nil
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
