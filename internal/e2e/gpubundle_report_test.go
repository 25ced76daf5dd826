//go:build gpu && linux && cgo

package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"talf/internal/durable"
	"talf/internal/version"
)

// A gpuReport is the measurements of talf on a machine with a GPU. Seconds are the best of
// several runs. A figure that was not measured is missing, never guessed.
type gpuReport struct {
	Version   version.Info       `json:"version"`
	Device    string             `json:"device"`
	Driver    string             `json:"driver"`
	Missing   []string           `json:"missing_entry_points"`
	Emulated  bool               `json:"emulated"` // the figures mean nothing
	CopyRate  float64            `json:"copy_bytes_per_second"`
	Library   string             `json:"library,omitempty"` // of large products
	NoLibrary string             `json:"no_library,omitempty"`
	Checks    []gpuCheck         `json:"checks"`
	Shapes    []*gpuShape        `json:"shapes"`
	Training  float64            `json:"training_positions_per_second,omitempty"` // of the head below
	TrainedOn string             `json:"trained_on,omitempty"`
	EndToEnd  []gpuMethod        `json:"end_to_end,omitempty"`
	Peers     map[string]gpuPeer `json:"peers,omitempty"` // by shape
	Goals     []gpuGoal          `json:"goals"`
	Finished  bool               `json:"finished"` // of a part: it finished
}

// A gpuCheck passes or fails.
type gpuCheck struct {
	Name    string  `json:"name"`
	Passed  bool    `json:"passed"`
	Seconds float64 `json:"seconds"`
}

// A gpuShape is the costs of a model of random weights.
type gpuShape struct {
	Name         string    `json:"name"`
	WeightBytes  int       `json:"weight_bytes"`
	TokensPerSec float64   `json:"tokens_per_second"`
	OfCopy       float64   `json:"bandwidth_of_copy"` // weight bytes a second over bytes that a copy moves
	Rows         []gpuRows `json:"rows"`
	// A draft step of a head of this shape, and the weights that it reads.
	DraftStep  float64      `json:"draft_step_seconds,omitempty"`
	DraftBytes int          `json:"draft_step_weight_bytes,omitempty"`
	Contexts   []gpuContext `json:"contexts"`
	// Operations per second for a prompt: with the device's own products, counted once, and with
	// the library's, counted as it computes them, in two planes.
	Prefill        float64 `json:"prefill_flops,omitempty"`
	LibraryPrefill float64 `json:"library_prefill_flops,omitempty"`
	// The cost of a pass with the library whatever its rows, and the bytes that unpacking
	// weights for it moves.
	LibraryFixed float64            `json:"library_fixed_seconds,omitempty"`
	UnpackBytes  float64            `json:"unpack_bytes,omitempty"`
	Labelling    []gpuLabel         `json:"labelling"`
	Training     map[string]float64 `json:"training_positions_per_second,omitempty"` // of a head, by --math
}

// gpuContext is passes after this many positions.
type gpuContext struct {
	Positions int     `json:"positions"`
	One       float64 `json:"seconds_of_one_row"`
	Most      float64 `json:"seconds_of_most_rows"`
}

// gpuRows is a pass of N rows.
type gpuRows struct {
	N       int     `json:"n"`
	Seconds float64 `json:"seconds"`
	Ratio   float64 `json:"ratio"` // to one row
}

// A gpuLabel is the preprocessor's speed.
type gpuLabel struct {
	Products  string  `json:"products"`
	Positions float64 `json:"positions_per_second"`
	Flops     float64 `json:"flops"` // of nine rows per position, counted once
}

// A gpuMethod is a row of talf bench.
type gpuMethod struct {
	Method       string  `json:"method"`
	Tau          float64 `json:"tau"`
	TokensPerSec float64 `json:"tokens_per_second"`
	Speedup      float64 `json:"speedup"`
	Equal        int     `json:"equal_outputs"`
	Outputs      int     `json:"outputs"`
}

// A gpuPeer is what torch_speed.py and vllm_speed.py of the bundle measure for a shape; 0 means
// not measured.
type gpuPeer struct {
	TokensPerSec float64            `json:"tokens_per_second"` // of transformers
	Prefill      float64            `json:"prefill_flops"`
	Matmul       float64            `json:"matmul_flops"` // of one large product in bfloat16
	Training     map[string]float64 `json:"training_positions_per_second"`
	VLLM         float64            `json:"vllm_tokens_per_second"`
}

// A gpuGoal is a speed or a property that the backend should reach.
type gpuGoal struct {
	Want  string `json:"want"`
	Got   string `json:"got,omitempty"`
	State string `json:"state"` // met, missed or waiting
}

// judge compares figures with the goals.
func (r *gpuReport) judge() {
	r.Goals = nil
	goal := func(want string, got, least float64, known bool, format string) {
		g := gpuGoal{Want: want, State: "waiting"}
		if known && !r.Emulated {
			g.Got = fmt.Sprintf(format, got)
			if g.State = "missed"; got >= least {
				g.State = "met"
			}
		}
		r.Goals = append(r.Goals, g)
	}
	i := slices.IndexFunc(r.Shapes, func(s *gpuShape) bool { return s != nil && s.Name == "8B" })
	s, have := &gpuShape{}, i >= 0
	if have {
		s = r.Shapes[i]
	}
	peer := r.Peers["8B"]
	// unsigned shows a figure that should be small.
	unsigned := func() {
		g := &r.Goals[len(r.Goals)-1]
		g.Got = strings.TrimPrefix(g.Got, "-")
	}
	ratio := func(n int) (float64, bool) {
		for _, x := range s.Rows {
			if x.N == n {
				return x.Ratio, true
			}
		}
		return 0, false
	}
	passed := func(name string) (bool, bool) {
		for _, c := range r.Checks {
			if c.Name == name {
				return c.Passed, true
			}
		}
		return false, false
	}
	goal("8B: plain decoding reaches 85% of the copy's bandwidth", s.OfCopy, 0.85, have, "%.2f")
	goal("8B: plain decoding is 3 times as fast as transformers", s.TokensPerSec/peer.TokensPerSec, 3, peer.TokensPerSec > 0 && s.TokensPerSec > 0, "%.2f times")
	for _, x := range []struct {
		n    int
		most float64
	}{{16, 1.1}, {60, 1.4}} {
		v, known := ratio(x.n)
		goal(fmt.Sprintf("8B: %d rows cost at most %g of one row", x.n, x.most), -v, -x.most, known, "%.2f")
		unsigned()
	}
	peak := max(s.LibraryPrefill, peer.Matmul)
	goal("8B: prefill reaches 60% of the library's peak", s.Prefill/peak, 0.6, s.Prefill > 0 && peak > 0, "%.2f")
	share := float64(s.DraftBytes) / float64(s.WeightBytes) / s.TokensPerSec // seconds
	goal("8B: a draft step costs at most 1.2 times its share of the weights' bytes", -s.DraftStep/share, -1.2, s.DraftStep > 0, "%.2f")
	unsigned()
	same, known := passed(treesHaveTheBits)
	bits := 0.0
	if same {
		bits = 1
	}
	goal("greedy output with drafts has the bits of plain decoding", bits, 1, known, "%g")
	rate := 0.0
	for _, l := range s.Labelling {
		rate = max(rate, l.Positions)
	}
	goal("8B: 2400 positions labelled a second (45% of the H200's bf16 peak)", rate, 2400, have && rate > 0, "%.0f")
	trained := max(s.Training["bf16"], s.Training["bf16"+byCublas])
	goal("8B: head training as fast as PyTorch with torch.compile", trained/peer.Training["bf16"], 1, trained > 0 && peer.Training["bf16"] > 0, "%.2f times")
}

// Parts of the measurements, besides partShape for every shape.
const (
	partChecks      = "checks"
	partConformance = "conformance"
	partTrees       = "trees"
	partHead        = "head"
	partShape       = "shape-"
	partReport      = "report"
)

const treesHaveTheBits = "trees have the bits of plain decoding"

// save writes what a part has found so far.
func (r *gpuReport) save(out, part string) error {
	dir := filepath.Join(out, "parts")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return durable.WriteJSON(filepath.Join(dir, part+".json"), r)
}

// bundleReport combines the parts' results in out and returns the checks that failed. Files that
// cannot be read do not keep others out of the report.
func bundleReport(out string, parts []string, dry bool) (failed []string, err error) {
	var errs []error
	all := &gpuReport{Version: version.Read(), Checks: []gpuCheck{}, Shapes: []*gpuShape{}, Emulated: dry}
	for _, name := range parts {
		var r gpuReport
		if _, err := durable.ReadJSON(filepath.Join(out, "parts", name+".json"), &r); err != nil {
			errs = append(errs, err)
		}
		all.Device, all.Driver = cmp.Or(all.Device, r.Device), cmp.Or(all.Driver, r.Driver)
		all.Library, all.NoLibrary = cmp.Or(all.Library, r.Library), cmp.Or(all.NoLibrary, r.NoLibrary)
		all.CopyRate, all.Training, all.TrainedOn = max(all.CopyRate, r.CopyRate), max(all.Training, r.Training), cmp.Or(all.TrainedOn, r.TrainedOn)
		all.Checks, all.Shapes, all.EndToEnd = append(all.Checks, r.Checks...), append(all.Shapes, r.Shapes...), append(all.EndToEnd, r.EndToEnd...)
		if len(r.Missing) > len(all.Missing) {
			all.Missing = r.Missing
		}
		if !r.Finished {
			all.Checks = append(all.Checks, gpuCheck{Name: "the end of part " + name})
		}
	}
	for _, s := range all.Shapes { // compared with the best memory speed seen
		if all.CopyRate > 0 {
			s.OfCopy = s.TokensPerSec * float64(s.WeightBytes) / all.CopyRate
		}
	}
	for _, name := range filepath.SplitList(os.Getenv(envPeers)) {
		var peers map[string]gpuPeer
		if _, err := durable.ReadJSON(name, &peers); err != nil {
			errs = append(errs, err)
		}
		for shape, x := range peers {
			if all.Peers == nil {
				all.Peers = map[string]gpuPeer{}
			}
			y := all.Peers[shape]
			y.TokensPerSec, y.Prefill, y.Matmul, y.VLLM = max(x.TokensPerSec, y.TokensPerSec), max(x.Prefill, y.Prefill), max(x.Matmul, y.Matmul), max(x.VLLM, y.VLLM)
			if len(x.Training) > 0 {
				y.Training = x.Training
			}
			all.Peers[shape] = y
		}
	}
	all.Finished = true
	all.judge()
	errs = append(errs, all.write(out))
	for _, c := range all.Checks {
		if !c.Passed {
			failed = append(failed, c.Name)
		}
	}
	return failed, errors.Join(errs...)
}

// write writes the report as JSON and Markdown.
func (r *gpuReport) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := durable.WriteJSON(filepath.Join(dir, "report.json"), r); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "report.md"), []byte(r.markdown()), 0o644)
}

func (r *gpuReport) markdown() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	p("# talf %s on %s\n\n", r.Version.Version, cmp.Or(r.Device, "no device"))
	if r.Emulated {
		p("A dry run on the emulated device: no figure means anything.\n\n")
	}
	p("Driver for CUDA %s; entry points that are missing: %s. ", cmp.Or(r.Driver, "none"), cmp.Or(strings.Join(r.Missing, ", "), "none"))
	if r.CopyRate > 0 {
		p("A copy reads and writes %.0f GB/s. ", r.CopyRate/1e9)
	}
	if r.Library != "" {
		p("Large products of labelling: %s.\n\n", r.Library)
	} else {
		p("No library of large products: %s.\n\n", cmp.Or(r.NoLibrary, "not looked for"))
	}
	p("| check | | seconds |\n|---|---|---|\n")
	for _, c := range r.Checks {
		state := "ok"
		if !c.Passed {
			state = "FAILED"
		}
		p("| %s | %s | %.1f |\n", c.Name, state, c.Seconds)
	}
	for _, s := range r.Shapes {
		if s == nil {
			continue
		}
		p("\n## %s\n\nWeights of %.2f GB in bf16. Plain decoding: %.1f tokens/s, %.2f of the copy's bandwidth", s.Name, float64(s.WeightBytes)/1e9, s.TokensPerSec, s.OfCopy)
		x := r.Peers[s.Name]
		if x.TokensPerSec > 0 {
			p("; transformers: %.1f tokens/s, prefill %.1f TFLOP/s", x.TokensPerSec, x.Prefill/1e12)
		}
		if x.VLLM > 0 {
			p("; vLLM: %.1f tokens/s", x.VLLM)
		}
		p(". Prefill: %.1f TFLOP/s", s.Prefill/1e12)
		if s.LibraryPrefill > 0 {
			p(", by the library %.1f, and %.2f ms of a pass whatever its rows; moving %.2f GB to unpack weights would take %.2f ms",
				s.LibraryPrefill/1e12, s.LibraryFixed*1e3, s.UnpackBytes/1e9, s.UnpackBytes/r.CopyRate*1e3)
		}
		if x.Matmul > 0 {
			p("; a large product of PyTorch's: %.1f", x.Matmul/1e12)
		}
		p(".\n\n")
		if s.DraftStep > 0 {
			p("A draft step of a head: %.3f ms for %.2f GB of weights.\n\n", s.DraftStep*1e3, float64(s.DraftBytes)/1e9)
		}
		for _, math := range slices.Sorted(maps.Keys(s.Training)) {
			p("Training a head with --math %s: %.0f positions/s", math, s.Training[math])
			if y := x.Training[strings.TrimSuffix(math, byCublas)]; y > 0 {
				p("; PyTorch with torch.compile: %.0f", y)
			}
			p(".\n\n")
		}
		p("| rows | ms | of one row |\n|---|---|---|\n")
		for _, x := range s.Rows {
			p("| %d | %.3f | %.2f |\n", x.N, x.Seconds*1e3, x.Ratio)
		}
		p("\n| behind positions | ms of one row | ms of most rows |\n|---|---|---|\n")
		for _, x := range s.Contexts {
			p("| %d | %.3f | %.3f |\n", x.Positions, x.One*1e3, x.Most*1e3)
		}
		p("\n| labelling by | positions/s | TFLOP/s |\n|---|---|---|\n")
		for _, l := range s.Labelling {
			p("| %s | %.0f | %.1f |\n", l.Products, l.Positions, l.Flops/1e12)
		}
	}
	if len(r.EndToEnd) > 0 {
		p("\n## A head trained here\n\nOf the small model that talf carries, on %s at %.0f positions/s.\n\n| method | τ | tokens/s | speed-up | equal |\n|---|---|---|---|---|\n", r.TrainedOn, r.Training)
		for _, x := range r.EndToEnd {
			p("| %s | %.2f | %.0f | %.2f | %d of %d |\n", x.Method, x.Tau, x.TokensPerSec, x.Speedup, x.Equal, x.Outputs)
		}
	}
	p("\n## Goals\n\n| goal | measured | |\n|---|---|---|\n")
	for _, g := range r.Goals {
		p("| %s | %s | %s |\n", g.Want, g.Got, g.State)
	}
	return b.String()
}
