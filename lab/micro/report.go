package micro

import "talf/infer/bench/perplexity"

// A Report is the measurements of a machine.
type Report struct {
	perplexity.Report
	Passes  []PassRow   `json:"passes,omitempty"`
	Kernels []KernelRow `json:"kernels,omitempty"`
}

// NewReport returns an empty report about this machine, dated today.
func NewReport() *Report { return &Report{Report: *perplexity.NewReport()} }
