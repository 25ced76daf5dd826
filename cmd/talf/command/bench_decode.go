package command

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"talf/compute"
	"talf/infer/bench/micro"
	"talf/model"
	"talf/model/synth"
)

func newBenchDecode(a *app) *cobra.Command {
	var p printing
	var dir, shape, picture string
	var dtypes []string
	var context []int
	o := defaultMachine()
	c := micro.DefaultPasses()
	cmd := &cobra.Command{
		Use:   "decode [--model DIR | --shape NAME]",
		Short: "Measure what a pass costs by number of rows",
		Long: `Decode measures a pass of a model over trees of several sizes, in turn, and what
it costs over a pass of one row: a draft tree pays if that is less than the tokens
that it brings. Between the passes it reads as much memory as the weights take,
which is the limit for one row; the cost of attention over the context comes on
top. Without --model it takes random weights of a given shape: ` + shapeNames() + `.`,
		Example: `  talf bench decode --shape 110m --dtype f32,bf16,q8
  talf bench decode --model DIR --context 64,1024 --rows 1,8,60 --out passes.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.check(); err != nil {
				return err
			}
			if err := checkPlot(picture); err != nil {
				return err
			}
			if dir != "" && cmd.Flags().Changed("shape") {
				return usagef("--model and --shape exclude each other")
			}
			for _, c.Context = range context {
				if err := c.Validate(); err != nil {
					return usageError{err}
				}
			}
			types, err := parseDTypes(dtypes)
			if err != nil {
				return err
			}
			dev, err := o.openCPU()
			if err != nil {
				return err
			}
			defer func() { _ = dev.Close() }()
			var models []micro.PassModel
			for _, dt := range types {
				timed := micro.NewTimed(dev)
				o.dtype = dtypeFlag(dt)
				m, err := openPassModel(dir, shape, timed, &o)
				if err != nil {
					return err
				}
				defer func() { _ = m.Close() }()
				probe := dev.NewProbe(m.WeightBytes())
				models = append(models, micro.PassModel{Name: dt.String(), Model: m, Device: timed, Read: probe.Read})
			}
			r := newMachineReport()
			r.Device = dev.Name()
			for _, c.Context = range context {
				rows, err := micro.Passes(cmd.Context(), models, c)
				if err != nil {
					return err
				}
				r.Passes = append(r.Passes, rows...)
			}
			err = saveFigures(picture, micro.PassFigure(r.Passes))
			return errors.Join(err, p.print(a, r, func(markdown bool) error {
				a.printf("%s, %s, %s\n\n", r.Machine, r.Device, r.Date)
				t := micro.PassTable(r.Passes)
				return t.Write(a.out, markdown)
			}))
		},
	}
	f := cmd.Flags()
	f.StringVar(&dir, "model", "", "model directory in Hugging Face layout")
	f.StringVar(&shape, "shape", "110m", "shape of random weights")
	f.StringVar(&picture, "plot", "", "PNG or SVG file for a picture of the costs")
	f.StringSliceVar(&dtypes, "dtype", []string{"f32", "bf16", "q8"}, "types that weights are kept as")
	f.IntSliceVar(&c.Rows, "rows", c.Rows, "sizes of trees; costs are over the first one's")
	f.IntSliceVar(&context, "context", []int{c.Context}, "positions before the tree")
	countVar(f, &c.Prompt, "prompt", 0, "also measure a prompt of so many tokens, with logits of the last one (0: none)")
	f.IntVar(&c.Reps, "reps", c.Reps, "rounds over types and sizes")
	threadsVar(f, &o.threads)
	countVar(f, &o.layers, "layers", 0, "deepen --model to so many layers (0: as it is)")
	o.precision(f)
	p.flags(f)
	return cmd
}

func shapeNames() string {
	var names []string
	for _, s := range synth.Shapes() {
		names = append(names, s.Name+" ("+s.Doc+")")
	}
	return strings.Join(names, "; ")
}

// openPassModel loads the model of dir, or random weights of a shape.
func openPassModel(dir, shape string, dev compute.Device, o *machineOptions) (*model.Model, error) {
	if dir != "" {
		path, err := findModel(dir)
		if err != nil {
			return nil, err
		}
		return o.load(path, dev)
	}
	s, err := synth.FindShape(shape)
	if err != nil {
		return nil, usageError{err}
	}
	spec := s.Spec()
	set := synth.RandomWeights(spec, 1)
	return model.New(spec, set, dev, o.modelOptions(set, dev))
}
