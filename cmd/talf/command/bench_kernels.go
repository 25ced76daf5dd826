package command

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"talf/compute/cpu"
	"talf/compute/cpu/kern"
	"talf/infer/bench/micro"
)

// A kernelOptions holds the flags of bench kernels.
type kernelOptions struct {
	classes, dtypes, sizes []string
	threads                int
	kernels                micro.KernelConfig
	printing
}

func newBenchKernels(a *app) *cobra.Command {
	o := kernelOptions{kernels: micro.DefaultKernels()}
	c := &cobra.Command{
		Use:   "kernels",
		Short: "Measure the matrix products of every class of CPU kernels",
		Long: `Kernels measures products of few rows with weights in a core's own cache and in memory,
by type of weights and class of kernels. In between it measures two limits: reading as much
memory, and multiplying f32 numbers in the first-level cache. 8-bit products may exceed the
second.`,
		Example: "  talf bench kernels\n  talf bench kernels --class avx2,portable --rows 1,16 --out kernels.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			r, err := o.run(cmd.Context())
			if err != nil {
				return err
			}
			return o.print(a, r, func(markdown bool) error {
				a.printf("%s, %s\n\n", r.Machine, r.Date)
				t := micro.KernelTable(r.Kernels)
				return t.Write(a.out, markdown)
			})
		},
	}
	f := c.Flags()
	f.StringSliceVar(&o.classes, "class", fastClasses(), "classes of kernels")
	dtypesVar(f, &o.dtypes)
	f.IntSliceVar(&o.kernels.Rows, "rows", o.kernels.Rows, "rows of the products; costs are relative to the first")
	f.StringSliceVar(&o.sizes, "sizes", sizeNames(o.kernels.Sizes), "outputs and inputs of the weights")
	f.IntVar(&o.kernels.Reps, "reps", o.kernels.Reps, "how often every number of rows is measured")
	threadsVar(f, &o.threads)
	o.printing.flags(f)
	return c
}

// check reads the lists and finds mistakes in them.
func (o *kernelOptions) check() error {
	if err := o.printing.check(); err != nil {
		return err
	}
	var err error
	if o.kernels.DTypes, err = parseDTypes(o.dtypes); err != nil {
		return err
	}
	if o.kernels.Sizes, err = parseSizes(o.sizes); err != nil {
		return err
	}
	if err := o.kernels.Validate(); err != nil {
		return usageError{err}
	}
	return nil
}

func (o *kernelOptions) run(ctx context.Context) (*machineReport, error) {
	var devices []micro.KernelDevice
	for _, name := range o.classes {
		class, err := kern.ParseClass(name)
		if err != nil {
			return nil, usageError{err}
		}
		c := cpu.Default()
		c.Class = class
		if o.threads > 0 {
			c.Threads = o.threads
		}
		dev, err := cpu.New(c)
		if err != nil {
			return nil, err
		}
		defer func() { _ = dev.Close() }()
		devices = append(devices, micro.KernelDevice{
			Name: name, Device: dev, Probe: func(size int) micro.Probe { return dev.NewProbe(size) },
		})
	}
	r := newMachineReport()
	var err error
	r.Kernels, err = micro.Kernels(ctx, devices, o.kernels)
	return r, err
}

// fastClasses are the classes that this machine has. The portable one takes seconds for a
// product and is left out if there is another.
func fastClasses() []string {
	var names []string
	for _, k := range kern.Available() {
		if k != kern.Portable {
			names = append(names, k.String())
		}
	}
	if len(names) == 0 {
		return []string{kern.Portable.String()}
	}
	return names
}

func sizeNames(sizes [][2]int) (names []string) {
	for _, s := range sizes {
		names = append(names, fmt.Sprintf("%dx%d", s[0], s[1]))
	}
	return names
}

func parseSizes(names []string) (sizes [][2]int, err error) {
	for _, n := range names {
		out, in, ok := strings.Cut(n, "x")
		a, err1 := strconv.Atoi(out)
		b, err2 := strconv.Atoi(in)
		if !ok || err1 != nil || err2 != nil {
			return nil, usagef("--sizes %q: want outputs and inputs, such as 512x768", n)
		}
		sizes = append(sizes, [2]int{a, b})
	}
	return sizes, nil
}
