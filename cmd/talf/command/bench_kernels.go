package command

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"talf/compute/cpu"
	"talf/compute/cpu/kern"
	"talf/infer/bench/micro"
)

func newBenchKernels(a *app) *cobra.Command {
	var p printing
	var dtypes, classes, sizes []string
	var threads int
	c := micro.DefaultKernels()
	cmd := &cobra.Command{
		Use:   "kernels",
		Short: "Measure the matrix products of every kind of CPU kernel",
		Long: `Kernels measures products of few rows with weights in a core's own cache and in
memory, by type of weights and class of kernels, against two limits that are
measured between them: reading as much memory, and multiplying f32 numbers in the
first-level cache. 8-bit products may pass the second.`,
		Example: "  talf bench kernels\n  talf bench kernels --class avx2,portable --rows 1,16 --out kernels.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.check(); err != nil {
				return err
			}
			var err error
			if c.DTypes, err = parseDTypes(dtypes); err != nil {
				return err
			}
			if c.Sizes, err = parseSizes(sizes); err != nil {
				return err
			}
			if err := c.Validate(); err != nil {
				return usageError{err}
			}
			var devices []micro.KernelDevice
			for _, name := range classes {
				class, err := kern.ParseClass(name)
				if err != nil {
					return usageError{err}
				}
				cfg := cpu.Default()
				cfg.Class = class
				if threads > 0 {
					cfg.Threads = threads
				}
				dev, err := cpu.New(cfg)
				if err != nil {
					return err
				}
				defer func() { _ = dev.Close() }()
				devices = append(devices, micro.KernelDevice{
					Name: name, Device: dev, Probe: func(size int) micro.Probe { return dev.NewProbe(size) },
				})
			}
			r := newMachineReport()
			if r.Kernels, err = micro.Kernels(cmd.Context(), devices, c); err != nil {
				return err
			}
			return p.print(a, r, func(markdown bool) error {
				a.printf("%s, %s\n\n", r.Machine, r.Date)
				t := micro.KernelTable(r.Kernels)
				return t.Write(a.out, markdown)
			})
		},
	}
	var have []string
	for _, k := range kern.Available() {
		if k != kern.Portable { // seconds a product
			have = append(have, k.String())
		}
	}
	if len(have) == 0 {
		have = []string{kern.Portable.String()}
	}
	f := cmd.Flags()
	f.StringSliceVar(&classes, "class", have, "classes of kernels")
	f.StringSliceVar(&dtypes, "dtype", []string{"f32", "bf16", "q8"}, "types that weights are kept as")
	f.IntSliceVar(&c.Rows, "rows", c.Rows, "rows of the products; costs are over the first one's")
	f.StringSliceVar(&sizes, "sizes", sizeNames(c.Sizes), "outputs and inputs of the weights")
	f.IntVar(&c.Reps, "reps", c.Reps, "rounds over numbers of rows")
	threadsVar(f, &threads)
	p.flags(f)
	return cmd
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
