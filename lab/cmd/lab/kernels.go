package main

import (
	"github.com/spf13/cobra"

	"talf/cmd/talf/command"
	"talf/compute/cpu/kern"
	"talf/internal/cli"
	"talf/lab/micro"
)

// A kernelOptions holds the flags of kernels.
type kernelOptions struct {
	classes, dtypes, sizes []string
	threads                int
	kernels                micro.KernelConfig
}

func newKernels(s *command.Session) *cobra.Command {
	o := kernelOptions{kernels: micro.DefaultKernels()}
	c := &cobra.Command{
		Use:   "kernels",
		Short: "Measure the matrix products of every class of CPU kernels",
		Long: `Kernels measures products of few rows with weights in a core's own cache and in memory,
by type of weights and class of kernels. In between it measures two limits: reading as much
memory, and multiplying f32 numbers in the first-level cache. 8-bit products may exceed the
second.`,
		Example: "  lab kernels\n  lab kernels --class avx2,portable --rows 1,16 --out kernels.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			classes, err := o.check(s)
			if err != nil {
				return err
			}
			r := micro.NewReport()
			if r.Kernels, err = micro.CPUKernels(cmd.Context(), classes, o.threads, o.kernels); err != nil {
				return err
			}
			return s.Print(r, nil, func(markdown bool) error {
				if err := s.Printf("%s, %s\n\n", r.Machine, r.Date); err != nil {
					return err
				}
				t := micro.KernelTable(r.Kernels)
				return t.Write(s.Out(), markdown)
			})
		},
	}
	f := c.Flags()
	f.StringSliceVar(&o.classes, "class", micro.FastClasses(), "classes of kernels")
	command.DTypesVar(f, &o.dtypes)
	f.IntSliceVar(&o.kernels.Rows, "rows", o.kernels.Rows, "rows of the products; costs are relative to the first")
	f.StringSliceVar(&o.sizes, "sizes", micro.SizeNames(o.kernels.Sizes), "outputs and inputs of the weights")
	f.IntVar(&o.kernels.Reps, "reps", o.kernels.Reps, "how often every number of rows is measured")
	cli.CountVar(f, &o.threads, "threads", 0, "CPU threads (0: one for each core)")
	s.PrintFlags(f, "")
	return c
}

// check reads the lists and finds mistakes in them.
func (o *kernelOptions) check(s *command.Session) (classes []kern.Class, err error) {
	if err := s.CheckPrint(); err != nil {
		return nil, err
	}
	if o.kernels.DTypes, err = command.ParseDTypes(o.dtypes); err != nil {
		return nil, err
	}
	if o.kernels.Sizes, err = micro.ParseSizes(o.sizes); err != nil {
		return nil, cli.Usagef("--sizes %w", err)
	}
	if err := o.kernels.Validate(); err != nil {
		return nil, command.Usage(err)
	}
	if classes, err = micro.ParseClasses(o.classes); err != nil {
		return nil, command.Usage(err)
	}
	return classes, nil
}
