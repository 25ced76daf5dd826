package command

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"talf/internal/doctor"
)

func newDoctor(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Show what this machine offers and what talf uses of it",
		Long: `Doctor prints CPU features and the kernels that talf chose, memory, which GPUs can be
used or why not, the speed of a copy within a GPU's memory, and the versions that a
bug report needs. It fails if something keeps talf from running well.`,
		Example: "  talf doctor\n  talf doctor --json > report.json",
		RunE: func(*cobra.Command, []string) error {
			r, err := doctor.Examine()
			if err != nil {
				return err
			}
			if asJSON {
				err = a.printJSON(r)
			} else {
				err = r.Write(a.out)
			}
			if err == nil && len(r.Problems) > 0 {
				err = errors.New(strings.Join(r.Problems, "; "))
			}
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
