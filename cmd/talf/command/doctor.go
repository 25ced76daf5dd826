package command

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"talf/internal/cli"
	"talf/internal/doctor"
)

func newDoctor(a *app) *cobra.Command {
	var asJSON, selfTest bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Show what this machine offers and what talf uses of it",
		Long: `Doctor prints CPU features and the kernels that talf chose, whether these compute what
plain Go does, memory, which GPUs can be used or why not, the speed of a copy within a
GPU's memory, and the versions that a bug report needs. It fails if something keeps talf
from running well. TALF_CLASS=avx2, for example, bars kernels for better processors.`,
		Example: "  talf doctor\n  talf doctor --json > report.json",
		RunE: cli.Waiting(func(*cobra.Command, []string) error {
			if selfTest {
				return doctor.RunSelfTest(a.out)
			}
			r, err := doctor.Examine(func() error { return doctor.SelfTest(a.program) })
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
		}),
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&selfTest, "self-test", false, "run the self-test only, and print the name of each kernel before it runs")
	if err := c.Flags().MarkHidden("self-test"); err != nil {
		panic(err)
	}
	return c
}
