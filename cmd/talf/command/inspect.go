package command

import (
	"fmt"

	"github.com/spf13/cobra"

	"talf/internal/cli"
	"talf/internal/inspect"
)

func newInspect(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "inspect PATH",
		Short: "Describe a model, a checkpoint, Parquet shards or a safetensors file",
		Long: `Inspect describes what a path contains:

  a model or head directory   its architecture, size and tensors
  a checkpoint                the head, and the state of the training run
  Parquet shards              rows, tokens, label mass and settings; every value is
                              read and checked
  a safetensors file          its tensors

Inspect data shows training samples with the tokens in the loss marked.
Inspect head names why a draft head is seldom right.
Inspect trace draws the trees that generate --trace recorded.`,
		Example: "  talf inspect path/to/model\n  talf inspect labels --json\n  talf inspect labels/shard-00000.parquet",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := cli.Wait(cmd.Context(), func() (inspect.Description, error) { return inspect.Path(args[0]) })
			if err != nil {
				return err
			}
			return a.show(v, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.AddCommand(newInspectSamples(a), newInspectTrace(a), newInspectMetrics(a), newInspectHead(a))
	return c
}

// show prints v as text or as JSON.
func (a *app) show(v fmt.Stringer, asJSON bool) error {
	if asJSON {
		return a.printJSON(v)
	}
	a.printf("%s", v)
	return nil
}
