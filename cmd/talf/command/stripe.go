package command

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"talf/data"
	"talf/internal/cli"
	"talf/internal/launch"
)

// A stripeFlags holds --shard-index and --shard-count, which number the runs that make
// a set together.
type stripeFlags struct {
	index, count int // count 0: what the environment says
	flags        *pflag.FlagSet
}

func (s *stripeFlags) add(f *pflag.FlagSet) {
	s.flags = f
	cli.CountVar(f, &s.index, "shard-index", 0, "number of this run among --shard-count, from 0 (default: as numbered by a Slurm array, a Kubernetes indexed Job or Open MPI)")
	cli.CountVar(f, &s.count, "shard-count", 0, "number of runs that make the set together (0: as Slurm or Open MPI say, else 1)")
}

// get returns the run's part of the set, and who numbered it.
func (s *stripeFlags) get(env launch.Env) (p data.Stripe, from string, err error) {
	index, count := s.flags.Changed("shard-index"), s.flags.Changed("shard-count") && s.count > 0
	p = data.Stripe{Index: s.index, Count: s.count}
	switch {
	case index && !count:
		return p, "", usagef("--shard-index is given, --shard-count is not")
	case index || count && s.count == 1:
		if err := p.Validate(); err != nil {
			return p, "", usagef("--shard-index, --shard-count: %w", err)
		}
		return p, "flags", nil
	}
	const give = "give --shard-index and --shard-count"
	places, err := launch.Tasks(env)
	if err != nil {
		return p, "", fmt.Errorf("%w: %s", err, give)
	}
	if len(places) > 1 {
		return p, "", usagef("%s and %s both number this run: %s", places[0].By, places[1].By, give)
	}
	if len(places) == 0 {
		if count {
			return p, "", usagef("--shard-count is given, --shard-index is not, and nothing in the environment numbers this run")
		}
		return data.Whole(), "", nil
	}
	at := places[0]
	p = data.Stripe{Index: at.Index, Count: at.Count}
	switch {
	case at.Count == 0 && !count:
		return p, "", usagef("%s numbers this run (%s), but does not say how many there are: give --shard-count", at.By, at.Variable)
	case at.Count == 0:
		p.Count = s.count
	case count && at.Count != s.count:
		return p, "", usagef("--shard-count is %d, but %s runs %d", s.count, at.By, at.Count)
	}
	if err := p.Validate(); err != nil {
		return p, "", fmt.Errorf("%s numbers this run %d of %d: %s", at.By, p.Index, p.Count, give)
	}
	return p, at.By, nil
}

func newMerge(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "merge DIR",
		Short: "Make one set of what several runs of preprocess wrote",
		Long: `Merge joins the parts written by runs with --shard-index. Only manifests change; the
shards stay as they are. If all runs write to one directory, the last to finish merges
by itself. Otherwise copy the files into one directory and merge them there. The set is
the same, byte for byte, as that of a single run.`,
		Example: "  talf preprocess merge labels",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if info, err := os.Stat(args[0]); err != nil {
				return err
			} else if !info.IsDir() {
				return fmt.Errorf("%s is a file: want a directory of shards", args[0])
			}
			if err := data.Merge(args[0]); err != nil {
				return err
			}
			set, err := data.Open(args[0])
			if err != nil {
				return err
			}
			defer set.Close()
			a.printf("%s: %d sequences in %d shards\n", args[0], set.Len(), len(set.Shards()))
			return nil
		},
	}
}
