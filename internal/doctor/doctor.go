// Package doctor examines a machine: its processors and memory, the kernels and devices
// that can be used here or why not, and the versions that a bug report needs.
package doctor

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"

	"talf/compute/cpu"
	"talf/compute/cpu/kern"
	"talf/compute/cpu/topology"
	"talf/compute/devices"
	"talf/internal/units"
	"talf/internal/version"
)

// leastMemory is what talf quickstart needs, in bytes.
const leastMemory = 512 << 20

// A Report is what Examine finds.
type Report struct {
	Version  version.Info     `json:"version"`
	CPU      CPU              `json:"cpu"`
	Memory   Memory           `json:"memory"`
	GPU      devices.Report   `json:"gpu"`              // the first kind of device
	Others   []devices.Report `json:"others,omitempty"` // the other kinds
	Problems []string         `json:"problems"`         // what keeps talf from running well
}

// A CPU is what the processors offer and what the CPU device makes of it.
type CPU struct {
	topology.Topology
	Threads  int      `json:"threads"` // that the device uses
	Features []string `json:"features"`
	Device   string   `json:"device"`           // the device and the kernels it chose
	SelfTest string   `json:"self_test"`        // "passed", or which kernel failed and how
	Kernels  []string `json:"kernels"`          // classes that this process can run, slowest first
	Barred   []string `json:"barred,omitempty"` // classes that the machine has beyond what TALF_CLASS asks for
	NoAMX    string   `json:"no_amx,omitempty"` // why class amx is not among them
	Pairs    string   `json:"bf16dp,omitempty"` // what multiplies weights as bf16dp; "": plain Go
	Shapes   string   `json:"shapes,omitempty"` // how products cut many rows, measured now: a value of TALF_SHAPES
}

// A Memory is what this process may have: the machine's, or what its control groups allow.
type Memory struct {
	Total     uint64 `json:"total_bytes"` // 0: not known
	Available uint64 `json:"available_bytes"`
	Limit     string `json:"limit,omitempty"` // which control group sets it, if one does
}

// passed is what SelfTest says of kernels that compute what they should.
const passed = "passed"

// Examine opens and measures the devices of this machine, one after the other. The CPU's is not opened if the
// self-test of its kernels fails.
func Examine(selfTest func() error) (*Report, error) {
	r := &Report{Version: version.Read(), Problems: []string{}}
	r.CPU.Topology, r.CPU.Features = topology.Read(), topology.Features()
	for _, c := range kern.Offered() {
		if c <= kern.Best() {
			r.CPU.Kernels = append(r.CPU.Kernels, c.String())
		} else {
			r.CPU.Barred = append(r.CPU.Barred, c.String())
		}
	}
	if err := kern.NoAMX(); err != nil {
		r.CPU.NoAMX = err.Error()
	}
	r.CPU.Threads, r.CPU.SelfTest = cpu.Default().Threads, passed
	if err := selfTest(); err != nil {
		r.CPU.Device, r.CPU.SelfTest = fmt.Sprintf("cpu %v, which is not used here", kern.Best()), err.Error()
		r.Problems = append(r.Problems, fmt.Sprintf("the kernels of class %v fail their self-test: set %s to a class before it: %v", kern.Best(), kern.EnvClass, err))
	} else if err := r.CPU.open(); err != nil {
		return nil, err
	}
	r.Memory = Memory(topology.ReadMemory())
	kinds := devices.Examine()
	r.GPU, r.Others = kinds[0], kinds[1:]
	r.Problems = append(r.Problems, r.Memory.problems()...)
	return r, nil
}

// open says what the CPU's device chose.
func (c *CPU) open() error {
	dev, err := devices.OpenCPU(devices.Config{})
	if err != nil {
		return err
	}
	c.Device, c.Shapes, c.Pairs = dev.Name(), dev.Shapes(), dev.Pairs()
	if err := dev.Close(); err != nil {
		return fmt.Errorf("close the CPU device: %w", err)
	}
	return nil
}

func (m Memory) problems() []string {
	if m.Total == 0 || m.Available >= leastMemory {
		return nil
	}
	return []string{fmt.Sprintf("%s of memory are free: %s is the least that quickstart needs",
		units.Bytes(m.Available), units.Bytes(leastMemory))}
}

// Write writes the report for people, a line for each finding.
func (r *Report) Write(w io.Writer) error {
	var b bytes.Buffer
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", what, fmt.Sprintf(format, args...))
	}
	line("talf", "%s, %s, %s", r.Version.Version, r.Version.Go, r.Version.Platform)
	features := strings.Join(r.CPU.Features, " ")
	if features == "" {
		features = "no vector extensions in use"
	}
	line("cpu", "%s; %s", r.CPU.Topology, features)
	device := r.CPU.Device
	if r.CPU.Nodes > 1 {
		device += "; bind talf to one NUMA node, as with numactl --cpunodebind=0 --membind=0"
	}
	line("device", "%s", device)
	kernels := strings.Join(r.CPU.Kernels, " ")
	if len(r.CPU.Barred) > 0 {
		kernels += fmt.Sprintf("; %s=%s bars %s", kern.EnvClass, r.CPU.Kernels[len(r.CPU.Kernels)-1], strings.Join(r.CPU.Barred, " "))
	}
	if r.CPU.NoAMX != "" {
		kernels += "; " + r.CPU.NoAMX
	}
	line("kernels", "%s", kernels)
	line("self-test", "%s", r.CPU.SelfTest)
	if r.CPU.SelfTest == passed {
		line("bf16dp", "by %s", cmp.Or(r.CPU.Pairs, "plain Go, many times slower than bf16"))
	}
	if r.CPU.Shapes != "" {
		line("shapes", "%s", r.CPU.Shapes)
	}
	if r.Memory.Total > 0 {
		limit := ""
		if r.Memory.Limit != "" {
			limit = ", by " + r.Memory.Limit
		}
		line("memory", "%s free of %s%s", units.Bytes(r.Memory.Available), units.Bytes(r.Memory.Total), limit)
	} else {
		line("memory", "not known on %s", runtime.GOOS)
	}
	for _, kind := range append([]devices.Report{r.GPU}, r.Others...) {
		if kind.Reason != "" {
			line("gpu", "not used: %s", kind.Reason)
		}
		for _, d := range kind.Devices {
			line("gpu", "%s", deviceText(kind, d))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Version.Deps)) {
		line("module", "%s %s", name, r.Version.Deps[name])
	}
	_, err := w.Write(b.Bytes())
	return err
}

// deviceText describes a device and says what uses it, or why nothing can.
func deviceText(kind devices.Report, d devices.Info) string {
	s := fmt.Sprintf("%s, %s of memory, compute capability %s, driver for %s %s; ", d.Name, units.Bytes(uint64(d.Memory)), d.Capability, kind.API, kind.Driver)
	if d.Reason != "" {
		return s + "cannot be used: " + d.Reason
	}
	return s + fmt.Sprintf("used by --device %s; %s are free, and a copy moves %s a second", d.Device, units.Bytes(uint64(d.Free)), units.Bytes(uint64(d.CopyRate)))
}
