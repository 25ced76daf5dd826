package command

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	syscpu "golang.org/x/sys/cpu"

	"talf/compute/cpu"
	"talf/compute/cpu/kern"
	"talf/compute/cpu/topology"
	"talf/compute/devices"
	"talf/internal/units"
	"talf/internal/version"
)

// A health is what doctor finds.
type health struct {
	Version version.Info `json:"version"`
	CPU     struct {
		topology.Topology
		Threads  int      `json:"threads"` // that the device uses
		Features []string `json:"features"`
		Device   string   `json:"device"`           // the device and the kernels it chose
		Kernels  []string `json:"kernels"`          // values of TALF_CPU that work here, slowest first
		NoAMX    string   `json:"no_amx,omitempty"` // why class amx is not among them
	} `json:"cpu"`
	Memory struct {
		Total     uint64 `json:"total_bytes"` // 0: not known
		Available uint64 `json:"available_bytes"`
	} `json:"memory"`
	GPU      devices.Report   `json:"gpu"`              // the first kind of device
	Others   []devices.Report `json:"others,omitempty"` // the other kinds
	Problems []string         `json:"problems"`
}

func newDoctor(a *app) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Show what this machine offers and what talf uses of it",
		Long: `Doctor prints CPU features and the kernels that talf chose, memory, which GPUs can be
used or why not, the speed of a copy within a GPU's memory, and the versions that a
bug report needs. It fails if something keeps talf from running well.`,
		Example: "  talf doctor\n  talf doctor --json > report.json",
		RunE: func(*cobra.Command, []string) error {
			h, err := examine()
			if err != nil {
				return err
			}
			if asJSON {
				if err := a.printJSON(h); err != nil {
					return err
				}
			} else {
				a.printHealth(h)
			}
			if len(h.Problems) > 0 {
				return errors.New(strings.Join(h.Problems, "; "))
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func examine() (*health, error) {
	h := &health{Version: version.Read(), Problems: []string{}}
	h.CPU.Topology = topology.Read()
	h.CPU.Features = cpuFeatures()
	for _, c := range kern.Available() {
		h.CPU.Kernels = append(h.CPU.Kernels, c.String())
	}
	if err := kern.NoAMX(); err != nil {
		h.CPU.NoAMX = err.Error()
	}
	dev, err := devices.OpenCPU(devices.Config{})
	if err != nil {
		return nil, err
	}
	h.CPU.Device, h.CPU.Threads = dev.Name(), cpu.Default().Threads
	if err := dev.Close(); err != nil {
		return nil, fmt.Errorf("close the CPU device: %w", err)
	}
	h.Memory.Total, h.Memory.Available = memory()
	reports := devices.Examine()
	h.GPU, h.Others = reports[0], reports[1:]
	const least = 512 << 20
	if h.Memory.Total > 0 && h.Memory.Available < least {
		h.Problems = append(h.Problems, fmt.Sprintf("%s of memory are free: %s is the least that quickstart needs",
			units.Bytes(h.Memory.Available), units.Bytes(least)))
	}
	return h, nil
}

// cpuFeatures lists the instruction sets that matter to the kernels or to the reader of a
// bug report.
func cpuFeatures() []string {
	var has []string
	add := func(name string, ok bool) {
		if ok {
			has = append(has, name)
		}
	}
	switch runtime.GOARCH {
	case "amd64":
		add("avx2", syscpu.X86.HasAVX2)
		add("fma", syscpu.X86.HasFMA)
		add("f16c", syscpu.X86.HasF16C)
		add("avx512f", syscpu.X86.HasAVX512F)
		add("avx512bw", syscpu.X86.HasAVX512BW)
		add("avx512dq", syscpu.X86.HasAVX512DQ)
		add("avx512vl", syscpu.X86.HasAVX512VL)
		add("avx512vnni", syscpu.X86.HasAVX512VNNI)
		add("avx512bf16", syscpu.X86.HasAVX512BF16)
		add("amx-bf16", syscpu.X86.HasAMXBF16)
		add("amx-int8", syscpu.X86.HasAMXInt8)
	case "arm64":
		add("asimd", syscpu.ARM64.HasASIMD)
		add("asimddp", syscpu.ARM64.HasASIMDDP)
		add("sve", syscpu.ARM64.HasSVE)
		add("sve2", syscpu.ARM64.HasSVE2)
	}
	return has
}

func (a *app) printHealth(h *health) {
	a.printf("talf      %s, %s, %s\n", h.Version.Version, h.Version.Go, h.Version.Platform)
	a.printf("cpu       %s; %s\n", topologyText(h.CPU.Topology), orNone(strings.Join(h.CPU.Features, " ")))
	device := h.CPU.Device
	if h.CPU.Nodes > 1 {
		device += "; bind talf to one NUMA node, as with numactl --cpunodebind=0 --membind=0"
	}
	a.printf("device    %s\n", device)
	kernels := strings.Join(h.CPU.Kernels, " ")
	if h.CPU.NoAMX != "" {
		kernels += "; " + h.CPU.NoAMX
	}
	a.printf("kernels   %s\n", kernels)
	if h.Memory.Total > 0 {
		a.printf("memory    %s free of %s\n", units.Bytes(h.Memory.Available), units.Bytes(h.Memory.Total))
	} else {
		a.printf("memory    not known on %s\n", runtime.GOOS)
	}
	a.printReport(h.GPU)
	for _, r := range h.Others {
		a.printReport(r)
	}
	for _, name := range slices.Sorted(maps.Keys(h.Version.Deps)) {
		a.printf("module    %s %s\n", name, h.Version.Deps[name])
	}
}

// printReport prints a line for each device of a kind, and why there is none.
func (a *app) printReport(r devices.Report) {
	if r.Reason != "" {
		a.printf("gpu       not used: %s\n", r.Reason)
	}
	for _, d := range r.Devices {
		a.printf("gpu       %s, %s of memory, compute capability %s, driver for %s %s; ", d.Name, units.Bytes(uint64(d.Memory)), d.Capability, r.API, r.Driver)
		if d.Reason != "" {
			a.printf("cannot be used: %s\n", d.Reason)
			continue
		}
		a.printf("used by --device %s; %s are free, and a copy moves %s a second\n", d.Device, units.Bytes(uint64(d.Free)), units.Bytes(uint64(d.CopyRate)))
	}
}

// topologyText returns, for example, "8 CPUs of 4 cores, at most 3.5 at a time".
func topologyText(t topology.Topology) string {
	s := fmt.Sprintf("%d CPUs of %d cores", t.CPUs, t.Cores)
	if t.Nodes > 1 {
		s += fmt.Sprintf(" in %d NUMA nodes", t.Nodes)
	}
	if t.Quota > 0 {
		s += fmt.Sprintf(", at most %g at a time", t.Quota)
	}
	return s
}

func orNone(s string) string {
	if s == "" {
		return "no vector extensions in use"
	}
	return s
}
