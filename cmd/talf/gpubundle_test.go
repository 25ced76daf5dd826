//go:build gpu && linux && cgo

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"talf/compute"
	"talf/compute/computetest"
	"talf/compute/cpu"
	"talf/compute/cuda"
	"talf/data"
	"talf/infer/bench"
	"talf/internal/demo"
	"talf/model"
	"talf/model/arch"
	"talf/preprocess"
	"talf/tree"
)

// What tools/gpubundle/run.sh sets: where the report goes, and what transformers
// measured on the same machine.
const (
	envBundle = "TALF_GPU_BUNDLE"
	envPeers  = "TALF_GPU_PEERS"
)

// A gpuReport is what a machine with a GPU says of talf. Seconds are the best of
// several runs. A figure that was not measured is absent, never guessed.
type gpuReport struct {
	Version      buildVersion       `json:"version"`
	Device       string             `json:"device"`
	Driver       string             `json:"driver"`
	Missing      []string           `json:"missing_entry_points"`
	Emulated     bool               `json:"emulated"` // no figure means anything
	CopyRate     float64            `json:"copy_bytes_per_second"`
	Library      string             `json:"library,omitempty"` // of large products
	NoLibrary    string             `json:"no_library,omitempty"`
	LibraryPeak  float64            `json:"library_flops,omitempty"`
	Checks       []gpuCheck         `json:"checks"`
	Shapes       []*gpuShape        `json:"shapes"`
	Training     float64            `json:"training_positions_per_second,omitempty"` // of the head below
	TrainedOn    string             `json:"trained_on,omitempty"`
	EndToEnd     []gpuMethod        `json:"end_to_end,omitempty"`
	Transformers map[string]gpuPeer `json:"transformers,omitempty"`
	Goals        []gpuGoal          `json:"goals"`
}

// A gpuCheck is right or wrong.
type gpuCheck struct {
	Name    string  `json:"name"`
	Passed  bool    `json:"passed"`
	Seconds float64 `json:"seconds"`
}

// A gpuShape is what a model of random weights costs.
type gpuShape struct {
	Name         string     `json:"name"`
	WeightBytes  int        `json:"weight_bytes"`
	TokensPerSec float64    `json:"tokens_per_second"`
	OfCopy       float64    `json:"bandwidth_of_copy"` // weight bytes a second over bytes that a copy moves
	Rows         []gpuRows  `json:"rows"`
	Prefill      float64    `json:"prefill_flops"`
	Labelling    []gpuLabel `json:"labelling"`
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
	Flops     float64 `json:"flops"` // of nine rows a position, counted once
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

// A gpuPeer is what transformers.py of the bundle measures of a shape.
type gpuPeer struct {
	TokensPerSec float64 `json:"tokens_per_second"`
	Prefill      float64 `json:"prefill_flops"`
}

// A gpuGoal is a speed or a property that the backend is held to.
type gpuGoal struct {
	Want  string `json:"want"`
	Got   string `json:"got,omitempty"`
	State string `json:"state"` // met, missed or waiting
}

// A gpuPlan is what is measured of which shapes.
type gpuPlan struct {
	shapes    map[string]gpuModel
	names     []string
	copyBytes int
	rows      []int
	context   int
	prompt    int
	tokens    int // decoded
	reps      int
	sequences int // labelled, of length
	length    int
	demo      []string // bench's flags
	documents int
	steps     int
}

// A gpuModel is one stored layer that is repeated: what a pass costs does not depend
// on what the weights are.
type gpuModel struct {
	vocab, hidden, layers, heads, kvHeads, ffn int
	tied                                       bool
}

func bundlePlan(emulated bool) gpuPlan {
	if emulated {
		return gpuPlan{
			shapes: map[string]gpuModel{"tiny": {64, 32, 2, 2, 1, 32, true}}, names: []string{"tiny"}, copyBytes: 1 << 12,
			rows: []int{1, 3}, context: 4, prompt: 8, tokens: 1, reps: 1, sequences: 1, length: 4,
		}
	}
	return gpuPlan{
		shapes: map[string]gpuModel{
			"0.5B": {151936, 896, 24, 14, 2, 4864, true},
			"1B":   {128256, 2048, 16, 32, 8, 8192, true},
			"8B":   {128256, 4096, 32, 32, 8, 14336, false},
		},
		names: []string{"0.5B", "1B", "8B"}, copyBytes: 1 << 30,
		rows: []int{1, 2, 4, 8, 16, 24, 32, 48, 60, 64}, context: 256, prompt: 2048, tokens: 64, reps: 8, sequences: 16, length: 1024,
		demo: []string{"--max-tokens", "128", "--limit", "16"}, documents: 1500, steps: 400,
	}
}

// TestGPUBundleOnACUDADevice measures this machine's device where run.sh asks for it,
// and else is a dry run of that on the emulated device.
func TestGPUBundleOnACUDADevice(t *testing.T) {
	out := os.Getenv(envBundle)
	if out == "" {
		if !onEmulatedDevice(t) {
			return
		}
		out = t.TempDir()
	}
	r := &gpuReport{Version: readVersion(), Checks: []gpuCheck{}, Shapes: []*gpuShape{}}
	r.Emulated = os.Getenv(envBundle) == ""
	// Whatever fails, what was found before is written.
	defer func() {
		r.judge()
		if err := r.write(out); err != nil {
			t.Error(err)
		}
	}()
	r.measure(t, bundlePlan(r.Emulated))
	if !r.Emulated {
		return
	}
	r.judge()
	if err := r.write(out); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(out, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"emulated device", "| products | ok |", "## tiny", "rows | ", "positions/s", "| waiting |"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the report lacks %q:\n%s", want, b)
		}
	}
	if s := r.Shapes[0]; s.TokensPerSec <= 0 || len(s.Rows) != 2 || len(s.Labelling) == 0 || s.Labelling[0].Positions <= 0 {
		t.Errorf("%+v", s)
	}
	var again gpuReport
	if found, err := readJSON(filepath.Join(out, "report.json"), &again); err != nil || !found || len(again.Goals) != len(r.Goals) {
		t.Errorf("report.json: %v, %v", found, err)
	}
}

func (r *gpuReport) measure(t *testing.T, p gpuPlan) {
	ctx := context.Background()
	check := func(name string, f func(*testing.T)) {
		since := time.Now()
		ok := t.Run(name, f)
		r.Checks = append(r.Checks, gpuCheck{name, ok, time.Since(since).Seconds()})
	}
	e := cuda.Examine()
	r.Driver, r.Missing = e.Driver, e.Missing
	var dev compute.Device
	check("symbols, kernels", func(t *testing.T) {
		if e.Reason != "" {
			t.Fatal(e.Reason)
		}
		var err error
		if dev, err = cuda.New(cuda.Default()); err != nil {
			t.Fatal(err)
		}
	})
	if dev == nil {
		return
	}
	defer func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}()
	r.Device = dev.Name()
	check("products", func(t *testing.T) { sameProducts(t, dev) })
	if !r.Emulated { // CI runs them on the emulated device by their own names
		check("conformance with float64", func(t *testing.T) {
			computetest.Run(t, func() compute.Device {
				d, err := cuda.New(cuda.Default())
				if err != nil {
					t.Fatal(err)
				}
				return d
			})
		})
		check("trees have the bits of plain decoding", func(t *testing.T) { t.Setenv(envOnFake, "real"); TestTreesOnACUDADeviceHaveTheBitsOfPlainDecoding(t) })
	}
	check("copy", func(t *testing.T) { r.CopyRate = copyRate(t, dev, p) })
	for _, name := range p.names {
		check("shape "+name, func(t *testing.T) { r.Shapes = append(r.Shapes, r.shape(ctx, t, dev, name, p)) })
		runtime.GC()
	}
	if len(p.demo) > 0 {
		check("a head trained here", func(t *testing.T) { r.endToEnd(t, p) })
	}
	if b, err := os.ReadFile(os.Getenv(envPeers)); err == nil {
		if err := json.Unmarshal(b, &r.Transformers); err != nil {
			t.Errorf("%s: %v", os.Getenv(envPeers), err)
		}
	}
}

// bestOf returns the least seconds of reps runs after one that warms up.
func bestOf(reps int, f func()) float64 {
	f()
	least := math.Inf(1)
	for range reps {
		since := time.Now()
		f()
		least = min(least, time.Since(since).Seconds())
	}
	return least
}

// sameProducts compares the device's products with the CPU's.
func sameProducts(t *testing.T, dev compute.Device) {
	host, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	const rows, in, out = 9, 96, 40
	rng := rand.New(rand.NewPCG(1, 2))
	x, w := make([]float32, rows*in), make([]float32, out*in)
	for _, s := range [][]float32{x, w} {
		for i := range s {
			s[i] = float32(rng.NormFloat64())
		}
	}
	raw := make([]byte, 0, 4*len(w))
	for _, v := range w {
		b := math.Float32bits(v)
		raw = append(raw, byte(b), byte(b>>8), byte(b>>16), byte(b>>24))
	}
	for _, as := range []compute.DType{compute.F32, compute.BF16, compute.Q8} {
		var got [2][]float32
		for i, d := range []compute.Device{host, dev} {
			packed, err := d.Pack(as, compute.Matrix{Rows: out, Cols: in, Type: compute.F32, Data: raw})
			if err != nil {
				t.Fatal(err)
			}
			a, err1 := d.Alloc(compute.F32, rows, in)
			b, err2 := d.Alloc(compute.F32, rows, out)
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			q := d.Queue()
			q.Write(a, x)
			q.Linear(b, a, &compute.Linear{W: packed}, compute.Store, rows)
			got[i] = make([]float32, rows*out)
			q.Read(got[i], b, 0)
			if err := q.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for i, v := range got[0] {
			// Both have activations of 16 bits against bf16 and q8 weights.
			if d := math.Abs(float64(v - got[1][i])); !(d <= 1e-3*max(1, math.Abs(float64(v)))) {
				t.Fatalf("%v: element %d is %g, the CPU's %g", as, i, got[1][i], v)
			}
		}
	}
}

// copyRate returns the bytes that a copy reads and writes a second: what reading
// weights is held against.
func copyRate(t *testing.T, dev compute.Device, p gpuPlan) float64 {
	width := min(1<<16, p.copyBytes/4)
	rows := p.copyBytes / 4 / width
	q := dev.Queue()
	var b [2]compute.Buffer
	for i := range b {
		var err error
		if b[i], err = dev.Alloc(compute.F32, rows, width); err != nil {
			t.Fatal(err)
		}
	}
	order := make([]int32, rows)
	for i := range order {
		order[i] = int32(i)
	}
	s := bestOf(p.reps, func() {
		q.Gather(b[0], 0, 0, b[1], order)
		if err := q.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	return 2 * 4 * float64(rows*width) / s
}

// shape measures a model of random weights.
func (r *gpuReport) shape(ctx context.Context, t *testing.T, dev compute.Device, name string, p gpuPlan) *gpuShape {
	g := p.shapes[name]
	spec := arch.Llama()
	spec.Vocab, spec.Hidden, spec.Layers, spec.Heads, spec.KVHeads = g.vocab, g.hidden, 1, g.heads, g.kvHeads
	spec.HeadDim, spec.FFN, spec.MaxPos, spec.Tied = g.hidden/g.heads, g.ffn, 4096, g.tied
	deep, set, err := bench.Deepen(spec, bench.RandomWeights(spec, 1), g.layers)
	if err != nil {
		t.Fatal(err)
	}
	opt := model.Default()
	opt.DType, opt.KV, opt.MaxRows = compute.BF16, compute.BF16, 2048
	m, err := model.New(deep, set, dev, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s := &gpuShape{Name: name, WeightBytes: m.WeightBytes()}
	rng := rand.New(rand.NewPCG(7, 7))
	random := func(n int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = rng.Int32N(int32(g.vocab))
		}
		return ids
	}
	seq := m.NewSeq()
	if _, err := seq.Append(ctx, random(p.context), nil, model.WantNone); err != nil {
		t.Fatal(err)
	}
	id, logp := make([]int32, 64), make([]float32, 64)
	// Plain decoding: the token that a pass gives goes into the next.
	next := []int32{1}
	sec := bestOf(p.reps, func() {
		c := seq.Fork()
		defer c.Close()
		for range p.tokens {
			o, err := c.Append(ctx, next, nil, model.WantLast)
			if err != nil {
				t.Fatal(err)
			}
			o.TopK(id, logp, 0, 1, 1)
			next[0] = id[0]
		}
	})
	s.TokensPerSec = float64(p.tokens) / sec
	s.OfCopy = s.TokensPerSec * float64(s.WeightBytes) / r.CopyRate
	for _, n := range p.rows {
		var tr tree.Tree
		tr.Reset(1, n)
		for i := 1; i < n; i++ {
			tr.Add((i-1)/2, int32(i%g.vocab))
		}
		sec := bestOf(p.reps, func() {
			b := seq.Branch(seq.Len())
			o, err := m.Forward(ctx, []model.Segment{{Rows: b, Tree: &tr, Want: model.WantAll}})
			if err != nil {
				t.Fatal(err)
			}
			o.TopK(id, logp, 0, n, 1)
			b.Drop()
		})
		s.Rows = append(s.Rows, gpuRows{N: n, Seconds: sec})
		s.Rows[len(s.Rows)-1].Ratio = sec / s.Rows[0].Seconds
	}
	seq.Close()
	// Two operations a weight and row; one row alone needs the LM head.
	flops := 2 * (float64(s.WeightBytes)/2 - float64(g.vocab)*float64(g.hidden))
	prompt := random(p.prompt)
	prefill := func() float64 {
		return flops * float64(p.prompt) / bestOf(max(1, p.reps/4), func() {
			c := m.NewSeq()
			defer c.Close()
			if _, err := c.Append(ctx, prompt, nil, model.WantLast); err != nil {
				t.Fatal(err)
			}
		})
	}
	s.Prefill = prefill()
	products := []bool{false}
	by, why := m.Bulk(true)
	if why == nil {
		r.Library = by
		products = append(products, true)
		r.LibraryPeak = max(r.LibraryPeak, 2*prefill()) // two planes
	} else {
		r.NoLibrary = why.Error()
	}
	for _, library := range products {
		l := gpuLabel{Products: "the device's own"}
		if library {
			l.Products = by
		}
		l.Positions = labelRate(t, m, p, library)
		l.Flops = l.Positions * 9 * float64(s.WeightBytes)
		s.Labelling = append(s.Labelling, l)
	}
	return s
}

// numbered is a tokenizer of texts that are numbers.
type numbered struct{}

func (numbered) Encode(text string, _ bool) ([]int32, error) {
	var all []int32
	for _, f := range strings.Fields(text) {
		n, err := strconv.ParseInt(f, 10, 32)
		if err != nil {
			return nil, err
		}
		all = append(all, int32(n))
	}
	return all, nil
}

// labelRate returns the positions that preprocess labels a second, of trees of nine
// nodes.
func labelRate(t *testing.T, m *model.Model, p gpuPlan, library bool) float64 {
	if _, err := m.Bulk(false); err != nil && library {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 3))
	var text strings.Builder
	for range p.sequences {
		for range p.length {
			fmt.Fprintf(&text, "%d ", rng.Int32N(int32(m.Spec().Vocab)))
		}
		text.WriteString("\n\n")
	}
	dir := t.TempDir()
	c := preprocess.Default()
	c.Files, c.Out = []string{write(t, filepath.Join(dir, "in.txt"), text.String())}, filepath.Join(dir, "set")
	c.Load.Format, c.EOS, c.Rows, c.Tokens = data.Paragraphs, preprocess.EOSNever, cudaRows, cudaTokens
	m.Hash() // read before the clock runs
	since := time.Now()
	st, err := preprocess.Run(t.Context(), c, preprocess.Inputs{Target: m, Tokenizer: numbered{}, TokenizerHash: "ids", Bulk: library, Arithmetic: "bundle"})
	if err != nil {
		t.Fatal(err)
	}
	return float64(st.Tokens) / time.Since(since).Seconds()
}

// endToEnd labels, trains and decodes with the model that talf carries.
func (r *gpuReport) endToEnd(t *testing.T, p gpuPlan) {
	dir := t.TempDir()
	target, text, set, head := filepath.Join(dir, "target"), filepath.Join(dir, "text.jsonl"), filepath.Join(dir, "set"), filepath.Join(dir, "head")
	if err := demo.Unpack(target); err != nil {
		t.Fatal(err)
	}
	if err := demo.WriteJSONL(text, demo.Corpus(9, p.documents)); err != nil {
		t.Fatal(err)
	}
	ok(t, "", "preprocess", "--model", target, "--data", text, "--out", set, "--eos", "always", "--device", "cuda:0", "--quiet")
	r.TrainedOn = "cpu"
	args := []string{"train", "--model", target, "--data", set, "--out", head, "--steps", strconv.Itoa(p.steps), "--rows", "1024", "--eval-every", "0", "--quiet"}
	if newTrain(&app{}).Flags().Lookup("device") != nil {
		r.TrainedOn, args = "cuda:0", append(args, "--device", "cuda:0")
	}
	since := time.Now()
	ok(t, "", args...)
	r.Training = float64(p.steps) * 1024 / time.Since(since).Seconds()
	prompts := promptFile(t, 20)
	var report bench.Report
	out := ok(t, "", append([]string{
		"bench", "--model", target, "--head", head, "--prompts", prompts, "--device", "cuda:0", "--method", "salf", "--method", "beam", "--json",
	}, p.demo...)...)
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	for _, x := range report.Rows {
		r.EndToEnd = append(r.EndToEnd, gpuMethod{x.Method, x.Pooled, x.Speed.Mean, x.Speedup.Mean, x.Equal, x.Outputs})
		if x.Equal != x.Compared {
			t.Errorf("%s: %d of %d outputs are plain decoding's", x.Method, x.Equal, x.Compared)
		}
	}
}

// judge holds figures to the goals.
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
	peer, peers := r.Transformers["8B"]
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
	goal("8B: plain decoding is 3 times as fast as transformers", s.TokensPerSec/peer.TokensPerSec, 3, have && peers, "%.2f times")
	for _, x := range []struct {
		n    int
		most float64
	}{{16, 1.1}, {60, 1.4}} {
		v, known := ratio(x.n)
		goal(fmt.Sprintf("8B: %d rows cost at most %g of one row", x.n, x.most), -v, -x.most, known, "%.2f")
		if g := &r.Goals[len(r.Goals)-1]; g.Got != "" {
			g.Got = fmt.Sprintf("%.2f", v)
		}
	}
	goal("8B: prefill reaches 60% of the library's peak", s.Prefill/r.LibraryPeak, 0.6, have && r.LibraryPeak > 0, "%.2f")
	goal("a draft step costs at most 1.2 times its share of the weights' bytes", 0, 0, false, "")
	same, known := passed("trees have the bits of plain decoding")
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
	goal("head training as fast as PyTorch with torch.compile", 0, 0, false, "")
}

// write writes the report as JSON and Markdown.
func (r *gpuReport) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(dir, "report.json"), r); err != nil {
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
	p("Driver for CUDA %s; entry points that are missing: %s. A copy moves %.0f GB/s. ", r.Driver, cmp.Or(strings.Join(r.Missing, ", "), "none"), r.CopyRate/1e9)
	if r.Library != "" {
		p("Large products of labelling: %s, %.0f TFLOP/s at most.\n\n", r.Library, r.LibraryPeak/1e12)
	} else {
		p("No library of large products: %s.\n\n", r.NoLibrary)
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
		if x, known := r.Transformers[s.Name]; known {
			p("; transformers: %.1f tokens/s, prefill %.1f TFLOP/s", x.TokensPerSec, x.Prefill/1e12)
		}
		p(". Prefill: %.1f TFLOP/s.\n\n| rows | ms | of one row |\n|---|---|---|\n", s.Prefill/1e12)
		for _, x := range s.Rows {
			p("| %d | %.3f | %.2f |\n", x.N, x.Seconds*1e3, x.Ratio)
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
