package command

import (
	"github.com/spf13/cobra"

	"talf/checkpoints"
	"talf/compute"
	"talf/internal/cli"
	"talf/internal/units"
	"talf/model/quantize"
)

func newQuantize(a *app) *cobra.Command {
	var dir, out, pre string
	var asJSON bool
	dt := checkpoints.DType(compute.Q8)
	c := &cobra.Command{
		Use:   "quantize MODEL --out DIR",
		Short: "Write a model with smaller weights",
		Long: `Quantize writes a copy of a model whose matrices are stored as q8 (8-bit integers
with a float16 scale for every 32 elements of a row), q4 (blocks of 256 or 32 integers of 4 bits,
which --dtype q4 keeps; embedding and LM head are q8 unless such blocks, or Q6_K, already) or as
bf16. Vectors, routers of experts and other files stay as they are; with q8 and q4, so does the
up-projection of latent attention. A draft head trained for the model works with the copy too.

The --dtype flag of other commands quantises each time a model is loaded; a
quantised copy saves that time, and disk space.`,
		Example: "  talf quantize MODEL --out DIR-q8\n  talf generate MODEL-q8 --prompt 'Once upon a time'",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.Need(cmd, "model", "out"); err != nil {
				return err
			}
			if t := compute.DType(dt); t != compute.Q8 && t != compute.Q4 && t != compute.BF16 {
				return usagef("--dtype is %s, want q8, q4 or bf16, which is what bf16dp is stored as", &dt)
			}
			path, err := checkpoints.FindModel(dir)
			if err != nil {
				return err
			}
			q, err := quantize.Model(cmd.Context(), path, out, compute.DType(dt), pre)
			if err != nil {
				return err
			}
			for _, w := range q.Warnings {
				a.warn(w)
			}
			if asJSON {
				return a.printJSON(q)
			}
			a.printf("%s: %d matrices as %s, %d other tensors: %s, before %s\n", q.Out, q.Matrices, q.DType, q.Kept,
				units.Bytes(uint64(q.To)), units.Bytes(uint64(q.From)))
			return nil
		},
	}
	f := c.Flags()
	modelVar(f, &dir, "")
	preVar(f, &pre)
	f.StringVar(&out, "out", "", "directory to write, new or empty")
	f.Var(&dt, "dtype", "type of the new weights: q8, q4 or bf16")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
