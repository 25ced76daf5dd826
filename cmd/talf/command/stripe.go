package command

import (
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"talf/data"
)

// A stripeFlags holds --shard-index and --shard-count: which of several runs that
// make a set together this one is.
type stripeFlags struct {
	index, count int // count 0: what the environment says
	flags        *pflag.FlagSet
}

func (s *stripeFlags) add(f *pflag.FlagSet) {
	s.flags = f
	countVar(f, &s.index, "shard-index", 0, "which of --shard-count runs this is, from 0 (default: that of a Slurm array, a Kubernetes indexed Job or Open MPI)")
	countVar(f, &s.count, "shard-count", 0, "runs that make the set together (0: what Slurm or Open MPI say, or 1)")
}

// schedulers are those that number the runs they start.
var schedulers = []struct {
	name                     string
	index, count, min, steps string // environment variables; "": there is none
}{
	{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "", ""},
	{"Slurm", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_STEP"},
	{"Kubernetes", "JOB_COMPLETION_INDEX", "", "", ""},
}

// get returns the run's part of the set, and who said so.
func (s *stripeFlags) get(env func(string) (string, bool)) (p data.Stripe, from string, err error) {
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
	number := func(name string, def int) (int, error) {
		text, ok := env(name)
		if name == "" || !ok {
			return def, nil
		}
		v, err := strconv.Atoi(text)
		if err != nil || v < 0 {
			return 0, fmt.Errorf("the environment's %s is %q, want a whole number: give --shard-index and --shard-count", name, text)
		}
		return v, nil
	}
	found := data.Whole
	for _, x := range schedulers {
		if _, ok := env(x.index); !ok {
			continue
		}
		var v [4]int
		for i, name := range []string{x.index, x.count, x.min, x.steps} {
			if v[i], err = number(name, []int{0, 0, 0, 1}[i]); err != nil {
				return p, "", err
			}
		}
		one := data.Stripe{Index: (v[0] - v[2]) / max(v[3], 1), Count: v[1]}
		if one.Count == 0 {
			one.Count = s.count
		}
		if one.Count == 0 {
			return p, "", usagef("%s numbers this run (%s), but does not say how many there are: give --shard-count", x.name, x.index)
		}
		if one.Count == 1 {
			continue // alone
		}
		if count && one.Count != s.count {
			return p, "", usagef("--shard-count is %d, but %s runs %d", s.count, x.name, one.Count)
		}
		if found != data.Whole {
			return p, "", usagef("%s and %s both number this run: give --shard-index and --shard-count", from, x.name)
		}
		found, from = one, x.name
	}
	if count && found == data.Whole {
		return p, "", usagef("--shard-count is given, --shard-index is not, and nothing in the environment numbers this run")
	}
	if err := found.Validate(); err != nil {
		return p, "", fmt.Errorf("%s numbers this run %d of %d: give --shard-index and --shard-count", from, found.Index, found.Count)
	}
	return found, from, nil
}

func newMerge(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "merge DIR",
		Short: "Make one set of what several runs of preprocess wrote",
		Long: `Merge joins the parts that runs with --shard-index wrote, by their manifests: the
shards stay as they are. The last run to end does it by itself where all write to one
directory; where they do not, copy the files into one and merge them there. The set
is the one that a single run would have made, byte for byte.`,
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
