package main

import (
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"talf/cmd/talf/command"
	"talf/infer/bench"
	"talf/infer/bench/rig"
	"talf/lab/papers"
)

func newBench(s *command.Session) *cobra.Command {
	var o tables
	c := s.Bench(&o)
	c.Short = "Run the tables of publications beside methods of one's own"
	c.Long = `Bench is talf bench with --paper, which runs the methods of a publication's table on the
model and prompts at hand, at the publication's temperatures, and prints the figures in its
layout. Several tables share one run, in which every method runs once. Heads are told apart
by their names: eagle, hass and talf stand for the losses of those names.`
	c.Example = `  lab bench --paper list
  lab bench MODEL --head heads/talf --draft lm=DIR --prompts maths=gsm8k.jsonl --paper salf:t4 --paper traversal --markdown`
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(o.names, "list") {
			return run(cmd, args)
		}
		t := papers.List()
		return t.Write(s.Out(), false)
	}
	return c
}

// tables are those that --paper names.
type tables struct {
	names     []string
	datastore string
	exhibits  []papers.Exhibit
	kit       *papers.Kit
	recorded  []float64 // temperatures of a recording; nil if there is none
}

func (t *tables) Flags(f *pflag.FlagSet) {
	f.StringArrayVar(&t.names, "paper", nil, "run a publication's `table`, ablation or sweep and print it in its layout, such as goose:t2, goose or all; list lists them (may be repeated)")
	f.StringVar(&t.datastore, "datastore", "", "datastore, made by talf datastore build, for rest in the tables of publications")
}

func (t *tables) Chosen() (bool, error) {
	var err error
	t.exhibits, err = papers.Select(t.names)
	return len(t.names) > 0, err
}

func (t *tables) Plan(c *bench.Config, x bench.Axes) (without []string, err error) {
	t.kit = &papers.Kit{Sources: x.Sources, Datastore: t.datastore, MaxTokens: c.MaxTokens, Temperatures: x.Temperatures}
	if t.recorded != nil {
		if err := t.kit.Only(t.exhibits, t.recorded); err != nil {
			return nil, err
		}
	}
	return papers.Plan(c, t.exhibits, t.kit)
}

func (t *tables) Lay(r *bench.Report) *rig.Layout {
	if len(t.exhibits) == 0 {
		return nil
	}
	out := new(rig.Layout)
	for i := range t.exhibits {
		v := t.exhibits[i].View(r, t.kit)
		out.Tables, out.Figures = append(out.Tables, v.Layout()...), append(out.Figures, v.Draw()...)
	}
	return out
}
