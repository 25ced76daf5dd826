package command

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/pflag"

	"talf/compute"
	"talf/compute/cpu/topology"
	"talf/infer/bench/micro"
	"talf/internal/durable"
	"talf/internal/version"
)

// A machineReport is the result of bench decode, bench kernels or bench perplexity.
type machineReport struct {
	Machine string            `json:"machine"`
	Device  string            `json:"device,omitempty"`
	Date    string            `json:"date"`
	Version version.Info      `json:"version"`
	Passes  []micro.PassRow   `json:"passes,omitempty"`
	Kernels []micro.KernelRow `json:"kernels,omitempty"`

	Perplexity []micro.Perplexity `json:"perplexity,omitempty"`
}

func newMachineReport() *machineReport {
	return &machineReport{Machine: cpuName(), Date: time.Now().UTC().Format(time.DateOnly), Version: version.Read()}
}

// printing holds the flags that say how a report is written.
type printing struct {
	out            string
	json, markdown bool
}

func (p *printing) flags(f *pflag.FlagSet) {
	f.StringVar(&p.out, "out", "", "JSON file for the results")
	f.BoolVar(&p.json, "json", false, "print JSON")
	f.BoolVar(&p.markdown, "markdown", false, "print a Markdown table")
}

func (p *printing) check() error {
	if p.json && p.markdown {
		return usagef("--json and --markdown exclude each other")
	}
	return canWrite(p.out)
}

// print writes r as the flags say. table prints it for people.
func (p *printing) print(a *app, r any, table func(markdown bool) error) error {
	var err error
	if p.out != "" {
		err = durable.WriteJSON(p.out, r)
	}
	// The result of hours is printed even if it could not be written.
	if p.json {
		return errors.Join(err, a.printJSON(r))
	}
	return errors.Join(err, table(p.markdown))
}

// dtypesVar adds --dtype for commands that compare types of weights.
func dtypesVar(f *pflag.FlagSet, dtypes *[]string) {
	f.StringSliceVar(dtypes, "dtype", []string{"f32", "bf16", "q8"}, "types that weights are kept as")
}

// parseDTypes reads a list of types of weights.
func parseDTypes(names []string) ([]compute.DType, error) {
	var out []compute.DType
	for _, n := range names {
		var d dtypeFlag
		if err := d.Set(n); err != nil || d == dtypeAuto {
			return nil, usagef("--dtype %q: want some of %s", n, dtypeNames())
		}
		out = append(out, compute.DType(d))
	}
	return out, nil
}

// cpuName names the machine's processor and cores.
func cpuName() string {
	return fmt.Sprintf("%s, %d cores", cmp.Or(topology.Processor(), runtime.GOARCH), runtime.NumCPU())
}
