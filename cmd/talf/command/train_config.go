package command

import (
	"io"
	"slices"

	"github.com/spf13/pflag"

	"talf/checkpoints"
	"talf/internal/cli"
)

// trainFile returns the files that --config reads and --print-config writes.
func trainFile() *cli.FlagFile {
	return &cli.FlagFile{
		Without: []string{"config", "print-config", "json", "help", "verbose", "quiet"},
		Clashes: [][2]string{{"stage", "loss"}, {"stage", "steps"}, {"stage", "epochs"}, {"steps", "epochs"}},
	}
}

// printConfig writes all flags as a file that trainFile reads, except those for other kinds of runs.
func (o *trainOptions) printConfig(w io.Writer, f *pflag.FlagSet) error {
	other := slices.Concat(lmOnly, textOnly, labelOnly)
	switch {
	case o.kind == checkpoints.KindLM:
		other = slices.Concat(headOnly, labelOnly)
	case o.place.Online:
		other = lmOnly
	}
	return trainFile().Write(w, f, func(name string) bool { return slices.Contains(other, name) })
}
