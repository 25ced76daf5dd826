package main

import (
	"context"

	"github.com/spf13/cobra"

	"talf/checkpoints"
	"talf/cmd/talf/command"
	"talf/compute"
	"talf/compute/devices"
	"talf/infer/decode"
	"talf/internal/cli"
	"talf/internal/plot"
	"talf/lab/micro"
	"talf/model"
)

// A passOptions holds the flags of decode.
type passOptions struct {
	dir, shape string
	dtypes     []string
	contexts   []int
	passes     micro.PassConfig
	machine    decode.Machine
}

func newDecode(s *command.Session) *cobra.Command {
	o := passOptions{passes: micro.DefaultPasses(), machine: decode.DefaultMachine()}
	c := &cobra.Command{
		Use:   "decode [MODEL | --shape NAME]",
		Short: "Measure what a pass costs by number of rows",
		Long: `Decode measures passes of a model over trees of several sizes, which take turns, and
compares them with a pass of one row: a draft tree pays off if its pass costs less than the
tokens it gains. Between passes it reads as much memory as the weights take. That is the
limit for one row; attention over the context comes on top. Without --model it uses random
weights of a given shape, with q4 in blocks of Q4_0: ` + micro.ShapeNames() + `.`,
		Example: `  lab decode --shape 110m --dtype f32,bf16,q8
  lab decode MODEL --context 64,1024 --rows 1,8,60 --out passes.json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			types, err := o.check(cmd, s)
			if err != nil {
				return err
			}
			r, err := o.run(cmd.Context(), s.Loader(), types)
			if err != nil {
				return err
			}
			return s.Print(r, []plot.Figure{micro.PassFigure(r.Passes)}, func(markdown bool) error {
				if err := s.Printf("%s, %s, %s\n\n", r.Machine, r.Device, r.Date); err != nil {
					return err
				}
				t := micro.PassTable(r.Passes)
				return t.Write(s.Out(), markdown)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&o.dir, "model", "", "model (directory or .gguf), which may also be the first argument")
	cli.Arguments(f, "model")
	f.StringVar(&o.shape, "shape", "110m", "shape of random weights")
	command.DTypesVar(f, &o.dtypes)
	f.IntSliceVar(&o.passes.Rows, "rows", o.passes.Rows, "sizes of trees; costs are relative to the first")
	f.IntSliceVar(&o.contexts, "context", []int{o.passes.Context}, "positions before the tree")
	cli.CountVar(f, &o.passes.Prompt, "prompt", 0, "also measure a prompt of this many tokens, with the logits of the last one (0: none)")
	f.IntVar(&o.passes.Reps, "reps", o.passes.Reps, "how often every type and size is measured")
	cli.CountVar(f, &o.machine.Threads, "threads", 0, "CPU threads (0: one for each core)")
	cli.CountVar(f, &o.machine.Layers, "layers", 0, "deepen --model to this many layers (0: as it is)")
	command.PrecisionVar(f, &o.machine)
	s.PrintFlags(f, "draw the costs")
	return c
}

// check finds mistakes that show without a model and returns the types of weights.
func (o *passOptions) check(cmd *cobra.Command, s *command.Session) ([]compute.DType, error) {
	if err := s.CheckPrint(); err != nil {
		return nil, err
	}
	if o.dir != "" && cmd.Flags().Changed("shape") {
		return nil, cli.Usagef("--model and --shape exclude each other")
	}
	for _, o.passes.Context = range o.contexts {
		if err := o.passes.Validate(); err != nil {
			return nil, command.Usage(err)
		}
	}
	return command.ParseDTypes(o.dtypes)
}

func (o *passOptions) run(ctx context.Context, l *decode.Loader, types []compute.DType) (*micro.Report, error) {
	dev, err := devices.OpenCPU(o.machine.Config(nil))
	if err != nil {
		return nil, err
	}
	defer func() { _ = dev.Close() }()
	r := micro.NewReport()
	r.Device = dev.Name()
	r.Passes, err = micro.CPUPasses(ctx, dev, types, o.contexts, o.passes, func(dev compute.Device, dt compute.DType) (*model.Model, error) { return o.open(ctx, l, dev, dt) })
	return r, err
}

// open loads the model, or random weights of the shape.
func (o *passOptions) open(ctx context.Context, l *decode.Loader, dev compute.Device, dt compute.DType) (*model.Model, error) {
	o.machine.DType = checkpoints.DType(dt)
	if o.dir != "" {
		path, err := checkpoints.FindModel(o.dir)
		if err != nil {
			return nil, err
		}
		return l.On(ctx, path, &o.machine, dev)
	}
	spec, set, err := micro.OpenShape(o.shape)
	if err != nil {
		return nil, command.Usage(err)
	}
	if dt == compute.Q4 {
		set = micro.FourBit(spec, set)
	}
	return model.New(spec, set, dev, o.machine.Options(set, dev))
}
