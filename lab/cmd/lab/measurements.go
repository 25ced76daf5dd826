package main

import (
	"github.com/spf13/cobra"

	"talf/cmd/talf/command"
	"talf/lab/measurements"
)

func newMeasurements(*command.Session) *cobra.Command {
	var o measurements.Options
	c := &cobra.Command{
		Use:   "measurements [TABLE…]",
		Short: "Measure the tables of docs/measurements again",
		Long: `Measurements runs the tables of docs/measurements that a clone can run, all or those that are
named, and writes them there, each with the machine, the date, the commit and the commands,
and the figures that README.md and docs/performance.md quote. It is run in the repository and
fetches nothing.`,
		Example: `  lab measurements speed depth
  lab measurements --small speed
  lab measurements --make labels`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, names []string) error { return measurements.Run(cmd.Context(), &o, names) },
	}
	f := c.Flags()
	f.BoolVar(&o.Age, "age", false, "say which tables are older than the code that they measure")
	f.BoolVar(&o.List, "list", false, "list the tables")
	f.BoolVar(&o.Quote, "quote", false, "write the quoted figures alone")
	f.BoolVar(&o.Small, "small", false, "take few prompts, tokens and steps, print the tables and write none")
	f.BoolVar(&o.Make, "make", false, "make steps that tables need, named instead of tables: labels, heads, answers")
	f.StringVar(&o.Work, "work", ".cache/demo-large", "folder for models, labels, heads and results, in the repository; small runs add -small to its name")
	return c
}
