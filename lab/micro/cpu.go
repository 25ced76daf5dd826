package micro

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"talf/compute"
	"talf/compute/cpu"
	"talf/compute/cpu/kern"
	"talf/model"
)

// CPUKernels measures the products of classes of CPU kernels, with the given number of threads
// (0: one per core).
func CPUKernels(ctx context.Context, classes []kern.Class, threads int, c KernelConfig) ([]KernelRow, error) {
	var devices []KernelDevice
	for _, class := range classes {
		conf := cpu.Default()
		conf.Class = class
		if threads > 0 {
			conf.Threads = threads
		}
		dev, err := cpu.New(conf)
		if err != nil {
			return nil, err
		}
		defer func() { _ = dev.Close() }()
		devices = append(devices, KernelDevice{
			Name: class.String(), Device: dev, Probe: func(size int) Probe { return dev.NewProbe(size) },
		})
	}
	return Kernels(ctx, devices, c)
}

// CPUPasses measures passes of a model, with each type of weights and after each number of
// positions. load loads the model onto a device.
func CPUPasses(ctx context.Context, dev *cpu.Device, types []compute.DType, contexts []int, c PassConfig, load func(compute.Device, compute.DType) (*model.Model, error)) ([]PassRow, error) {
	var models []PassModel
	for _, dt := range types {
		timed := NewTimed(dev)
		m, err := load(timed, dt)
		if err != nil {
			return nil, err
		}
		defer func() { _ = m.Close() }()
		models = append(models, PassModel{Name: dt.String(), Model: m, Device: timed, Read: dev.NewProbe(m.WeightBytes()).Read})
	}
	var all []PassRow
	for _, c.Context = range contexts {
		rows, err := Passes(ctx, models, c)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	return all, nil
}

// FastClasses names the classes of kernels that this machine has. The portable one takes seconds
// per product and is left out if there is another.
func FastClasses() []string {
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

// SizeNames formats sizes as ParseSizes parses them.
func SizeNames(sizes [][2]int) (names []string) {
	for _, s := range sizes {
		names = append(names, fmt.Sprintf("%dx%d", s[0], s[1]))
	}
	return names
}

// ParseSizes parses outputs and inputs of weights, such as 512x768.
func ParseSizes(names []string) (sizes [][2]int, err error) {
	for _, n := range names {
		out, in, ok := strings.Cut(n, "x")
		a, err1 := strconv.Atoi(out)
		b, err2 := strconv.Atoi(in)
		if !ok || err1 != nil || err2 != nil {
			return nil, fmt.Errorf("%q: want outputs and inputs, such as 512x768", n)
		}
		sizes = append(sizes, [2]int{a, b})
	}
	return sizes, nil
}

// ParseClasses reads the names of classes of kernels.
func ParseClasses(names []string) (out []kern.Class, err error) {
	for _, name := range names {
		c, err := kern.ParseClass(name)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}
