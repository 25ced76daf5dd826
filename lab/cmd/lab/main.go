// Command lab measures what a user of talf does not need: the tables of publications, recordings of
// what models say, and the tables of docs/measurements.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"talf/cmd/talf/command"
)

// program is the command line, which has talf's flags, log and exit codes.
var program = &command.Program{
	Use:   "lab",
	Short: "Measure draft methods as their publications do",
	Long: `lab is the laboratory of talf. It runs the tables of publications on the models and prompts
at hand, records what models say so that methods can be tried without them, and writes the
tables of docs/measurements. What a user compares on a model of their own is in talf bench
and talf eval.`,
	Example: "  lab bench --paper list\n  lab measurements --list",
	Commands: []func(*command.Session) *cobra.Command{
		newBench,
		newRecord,
		newReplay,
		newDecode,
		newKernels,
		newLoad,
		newMeasurements,
		newUnpack,
		newTarget,
	},
}

func main() { os.Exit(program.Main()) }
