package command

import (
	"talf/internal/version"

	"github.com/spf13/cobra"
)

func newVersion(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version, the commit and its date, and the Go release",
		Example: "  talf version\n  talf version --json",
		RunE: func(*cobra.Command, []string) error {
			v := version.Read()
			if asJSON {
				return a.printJSON(v)
			}
			a.printf("%s\n", v)
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
