package perplexity

import (
	"cmp"
	"fmt"
	"runtime"
	"time"

	"talf/compute/cpu/topology"
	"talf/internal/version"
)

// A Report is the measurements of a machine.
type Report struct {
	Machine    string       `json:"machine"`
	Device     string       `json:"device,omitempty"`
	Date       string       `json:"date"`
	Version    version.Info `json:"version"`
	Perplexity []Result     `json:"perplexity,omitempty"`
}

// NewReport returns an empty report about this machine, dated today.
func NewReport() *Report {
	return &Report{
		Machine: fmt.Sprintf("%s, %d cores", cmp.Or(topology.Processor(), runtime.GOARCH), runtime.NumCPU()),
		Date:    time.Now().UTC().Format(time.DateOnly), Version: version.Read(),
	}
}

// Add adds a measurement and compares it with the report's first.
func (r *Report) Add(x Result) {
	if len(r.Perplexity) > 0 {
		x.Above = x.Perplexity/r.Perplexity[0].Perplexity - 1
	}
	r.Perplexity = append(r.Perplexity, x)
}
