//go:build gpu && linux && cgo

package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"talf/compute"
	"talf/compute/computetest"
	"talf/compute/cpu"
	"talf/compute/cuda"
	"talf/compute/cuda/cudatest"
	"talf/data"
	"talf/data/corpus"
	"talf/infer/bench"
	"talf/internal/demo"
	"talf/internal/durable"
	"talf/internal/e2e/talftest"
	"talf/internal/version"
	"talf/model"
	"talf/model/arch"
	"talf/model/head"
	"talf/model/modeltest"
	"talf/model/safetensors"
	"talf/model/synth"
	"talf/preprocess"
	"talf/train"
	"talf/train/mix"
	"talf/tree"
)

// Variables that tools/gpubundle/run.sh sets. Every part of the measurements is a separate
// process: if one breaks or does not finish in time, the others are not lost.
const (
	envBundle = "TALF_GPU_BUNDLE" // directory of the report
	envPart   = "TALF_GPU_PART"   // the part to run; "report" combines the others
	envParts  = "TALF_GPU_PARTS"  // the parts that ran
	envDry    = "TALF_GPU_DRY"    // tiny shapes on the emulated device
	envPeers  = "TALF_GPU_PEERS"  // what PyTorch measured on the same machine
)

// A gpuPlan is what is measured for which shapes.
type gpuPlan struct {
	shapes    map[string]gpuModel
	rows      []int
	contexts  []int // positions after which rows are timed, the first for all of rows
	prompt    int
	tokens    int // decoded
	reps      int
	sequences int // labelled, of length
	length    int
	batch     int      // positions of a training step
	steps     int      // of the shape's head
	label     []string // flags of the small model's labelling, training and decoding
	train     []string
	bench     []string
	documents int
}

// A gpuModel is one stored layer that is repeated: the cost of a pass does not depend on the
// weights.
type gpuModel struct {
	vocab, hidden, layers, heads, kvHeads, ffn int
	tied                                       bool
}

func bundlePlan(dry bool) gpuPlan {
	if dry {
		return gpuPlan{
			shapes: map[string]gpuModel{"tiny": {64, 32, 2, 2, 1, 32, true}},
			rows:   []int{1, 3}, contexts: []int{4, 40}, prompt: 8, tokens: 1, reps: 1, sequences: 1, length: 6, batch: 8, steps: 2,
			label: []string{"--max-len", "8", "--k", "2", "--depth", "2"}, train: []string{"--steps", "1", "--rows", "16", "--held-out", "0"},
			bench: []string{"--max-tokens", "3", "--limit", "1", "--warmup", "0", "--repeat", "1"}, documents: 2,
		}
	}
	return gpuPlan{
		shapes: map[string]gpuModel{
			"0.5B": {151936, 896, 24, 14, 2, 4864, true},
			"1B":   {128256, 2048, 16, 32, 8, 8192, true},
			"8B":   {128256, 4096, 32, 32, 8, 14336, false},
		},
		rows: []int{1, 2, 4, 8, 16, 24, 32, 48, 60, 64}, contexts: []int{256, 2048, 8192, 32768}, prompt: 2048, tokens: 64, reps: 8,
		sequences: 16, length: 1024, batch: 1024, steps: 10,
		train: []string{"--steps", "400", "--rows", "1024"}, bench: []string{"--max-tokens", "128", "--limit", "16"}, documents: 1500,
	}
}

// TestGPUBundleOnACUDADevice runs a part of the measurements if run.sh asks for it. Otherwise it
// is a dry run, on the emulated device, of a bundle as make gpu-bundle packs it: of all parts,
// and of some whose device is lost.
func TestGPUBundleOnACUDADevice(t *testing.T) {
	if out := os.Getenv(envBundle); out != "" {
		bundlePart(t, out, os.Getenv(envPart), os.Getenv(envDry) != "")
		return
	}
	if !onEmulatedDevice(t) {
		return
	}
	dir := unpackedBundle(t)
	run := func(env []string, args ...string) (r gpuReport, text string, res talftest.Result) {
		out := t.TempDir()
		c := exec.Command("bash", append([]string{filepath.Join(dir, "run.sh"), "--dry-run", out}, args...)...)
		c.Dir, c.Env = t.TempDir(), append(env, "PATH="+os.Getenv("PATH"), "HOME="+t.TempDir(), "TMPDIR="+t.TempDir())
		res = talftest.Finish(t, c)
		b, err := os.ReadFile(filepath.Join(out, "report.md"))
		if err != nil {
			t.Fatalf("%v\n%s", err, res.Err)
		}
		if found, err := durable.ReadJSON(filepath.Join(out, "report.json"), &r); err != nil || !found {
			t.Fatalf("report.json: %v, %v", found, err)
		}
		return r, string(b), res
	}
	r, text, res := run(nil)
	if res.Code != 0 {
		t.Errorf("exit %d\n%s\n%s", res.Code, res.Err, text)
	}
	for _, want := range []string{"A dry run on the emulated device", "emulated device, compute capability 9.0", "| products | ok |", "## tiny", "## A head trained here", "| waiting |"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "| met |") || strings.Contains(text, "| missed |") || strings.Contains(text, "FAILED") {
		t.Errorf("a dry run decides, or fails:\n%s", text)
	}
	if len(r.Shapes) != 1 {
		t.Fatalf("%d shapes", len(r.Shapes))
	}
	if s := r.Shapes[0]; s.TokensPerSec <= 0 || len(s.Rows) != 2 || len(s.Contexts) != 2 || s.Prefill <= 0 || s.LibraryPrefill <= 0 || len(s.Labelling) != 2 || s.Labelling[0].Positions <= 0 ||
		s.DraftStep <= 0 || s.DraftBytes <= 0 || len(s.Training) != 4 || s.Training["bf16"] <= 0 || s.Training["bf16"+byCublas] <= 0 {
		t.Errorf("%+v", s)
	}
	if len(r.EndToEnd) < 3 || r.Training <= 0 || r.CopyRate <= 0 {
		t.Errorf("%+v", r)
	}
	for _, g := range r.Goals {
		if g.State != "waiting" || g.Got != "" {
			t.Errorf("%+v", g)
		}
	}

	// Failures are reported all the same, and in the status.
	r, text, res = run([]string{"TALF_FAKE_LOST=300"}, "checks", "shape-tiny")
	if res.Code == 0 || !strings.Contains(text, "| products | ok |") || !strings.Contains(text, "| FAILED |") || len(r.Checks) < 4 {
		t.Errorf("a device that is lost: exit %d\n%s", res.Code, text)
	}
	// So is a part that did not finish or left nothing.
	out := t.TempDir()
	if err := (&gpuReport{Checks: []gpuCheck{{Name: "a", Passed: true}, {Name: "b"}}}).save(out, "half"); err != nil {
		t.Fatal(err)
	}
	if failed, err := bundleReport(out, []string{"half", "none"}, true); err != nil || !slices.Equal(failed, []string{"b", "the end of part half", "the end of part none"}) {
		t.Errorf("failed: %q, %v", failed, err)
	}
}

// unpackedBundle returns a directory with what make gpu-bundle packs.
func unpackedBundle(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	drivers := map[string]func() (string, error){
		"libcuda.so.1":    func() (string, error) { return cudatest.Driver(cudatest.Kernels()) },
		"libcublas.so.12": cudatest.BLAS,
	}
	dir := t.TempDir()
	files := map[string]string{"talf-gpu.test": self}
	for _, name := range []string{"run.sh", "torch_speed.py", "vllm_speed.py"} {
		files[name] = filepath.Join("..", "..", "tools", "gpubundle", name)
	}
	for name, driver := range drivers {
		from, err := driver()
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Join("emulated", name)] = filepath.Join(from, name)
	}
	for name, from := range files {
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(from, to); err == nil {
			continue
		}
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// bundlePart runs a part and writes what it found to out after every check.
func bundlePart(t *testing.T, out, part string, dry bool) {
	p := bundlePlan(dry)
	if part == partReport {
		failed, err := bundleReport(out, strings.Fields(os.Getenv(envParts)), dry)
		if err != nil || len(failed) > 0 {
			t.Errorf("failed: %q, %v", failed, err)
		}
		return
	}
	r := &gpuReport{Version: version.Read(), Checks: []gpuCheck{}, Shapes: []*gpuShape{}, Emulated: dry}
	save := func() {
		if err := r.save(out, part); err != nil {
			t.Error(err)
		}
	}
	defer func() { r.Finished = true; save() }()
	check := func(name string, f func(*testing.T)) {
		since := time.Now()
		ok := t.Run(name, f)
		r.Checks = append(r.Checks, gpuCheck{name, ok, time.Since(since).Seconds()})
		save()
	}
	save()
	e := cuda.Examine()
	r.Driver, r.Missing = e.Driver, e.Missing
	if len(e.Devices) > 0 {
		r.Device = fmt.Sprintf("cuda:0 %s, compute capability %d.%d", e.Devices[0].Name, e.Devices[0].Major, e.Devices[0].Minor)
	}
	open := func(t *testing.T, c cuda.Config) compute.Device {
		dev, err := cuda.New(c)
		if err != nil {
			t.Fatal(err)
		}
		return dev
	}
	if part == partChecks {
		check("symbols, kernels", func(t *testing.T) {
			if err := open(t, cuda.Default()).Close(); err != nil {
				t.Error(err)
			}
		})
		check("products", func(t *testing.T) {
			dev := open(t, cuda.Default())
			defer dev.Close()
			sameProducts(t, dev)
		})
		check("copy", func(t *testing.T) {
			dev := open(t, cuda.Default())
			defer dev.Close()
			r.measureCopy(t, dev)
		})
		return
	}
	if part == partConformance {
		// CI runs it on the emulated device under its own name, and a dry run only some of it.
		check("conformance with float64", func(t *testing.T) { computetest.Run(t, func() compute.Device { return open(t, cuda.Default()) }) })
		return
	}
	if part == partTrees {
		t.Setenv(envOnFake, "real")
		check(treesHaveTheBits, TestTreesOnACUDADeviceHaveTheBitsOfPlainDecoding)
		if !dry { // as above
			check("trees of 256 nodes and batches of 8 x 60", TestLargeTreesOnACUDADevice)
		}
		return
	}
	if part == partHead {
		check("a head trained here", func(t *testing.T) { r.endToEnd(t, p) })
		return
	}
	name, ok := strings.CutPrefix(part, partShape)
	if _, known := p.shapes[name]; !ok || !known {
		t.Fatalf("there is no part %q", part)
	}
	check("shape "+name, func(t *testing.T) {
		dev := open(t, cuda.Default())
		defer dev.Close()
		r.measureCopy(t, dev)
		s := &gpuShape{Name: name}
		r.shape(t, dev, s, p, check)
	})
}

// measureCopy measures the bandwidth that reading weights is compared with.
func (r *gpuReport) measureCopy(t *testing.T, dev compute.Device) {
	rate, err := cuda.CopyRate(dev)
	if err != nil {
		t.Fatal(err)
	}
	r.CopyRate = max(r.CopyRate, rate)
}

// bestOf returns the shortest time in seconds of reps runs after a warm-up run.
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

// shape measures a model of random weights. Measurements after decoding are a separate check:
// they may not fit where the model does.
func (r *gpuReport) shape(t *testing.T, dev compute.Device, s *gpuShape, p gpuPlan, check func(string, func(*testing.T))) {
	ctx, g := t.Context(), p.shapes[s.Name]
	spec := arch.Llama()
	spec.Vocab, spec.Hidden, spec.Layers, spec.Heads, spec.KVHeads = g.vocab, g.hidden, 1, g.heads, g.kvHeads
	spec.HeadDim, spec.FFN, spec.MaxPos, spec.Tied = g.hidden/g.heads, g.ffn, 1<<16, g.tied
	deep, set, err := synth.Deepen(spec, synth.RandomWeights(spec, 1), g.layers)
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
	s.WeightBytes = m.WeightBytes()
	rng := rand.New(rand.NewPCG(7, 7))
	random := func(n int) []int32 {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = rng.Int32N(int32(g.vocab))
		}
		return ids
	}
	seq := m.NewSeq()
	defer seq.Close()
	grow := func(t *testing.T, n int) {
		if _, err := seq.Append(ctx, random(n-seq.Len()), nil, model.WantNone); err != nil {
			t.Fatal(err)
		}
	}
	grow(t, p.contexts[0])
	id, logp := make([]int32, 64), make([]float32, 64)
	// Plain decoding: the token of one pass is the input of the next.
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
	pass := func(t *testing.T, n int) gpuRows {
		var tr tree.Tree
		tr.Reset(1, n)
		for i := 1; i < n; i++ {
			tr.Add((i-1)/2, int32(i%g.vocab))
		}
		return gpuRows{N: n, Seconds: bestOf(p.reps, func() {
			b := seq.Branch(seq.Len())
			o, err := m.Forward(ctx, []model.Segment{{Rows: b, Tree: &tr, Want: model.WantAll}})
			if err != nil {
				t.Fatal(err)
			}
			o.TopK(id, logp, 0, n, 1)
			b.Drop()
		})}
	}
	for _, n := range p.rows {
		x := pass(t, n)
		s.Rows = append(s.Rows, x)
		s.Rows[len(s.Rows)-1].Ratio = x.Seconds / s.Rows[0].Seconds
	}
	r.Shapes = append(r.Shapes, s) // what follows may fail
	check("draft step of "+s.Name, func(t *testing.T) { s.draftStep(t, m, p) })
	// Two operations per weight and row; only one row needs the LM head.
	flops := 2 * (float64(s.WeightBytes)/2 - float64(g.vocab)*float64(g.hidden))
	prefill := func(t *testing.T, n int) float64 {
		prompt := random(n)
		return flops * float64(n) / bestOf(max(1, p.reps/4), func() {
			c := m.NewSeq()
			defer c.Close()
			if _, err := c.Append(ctx, prompt, nil, model.WantLast); err != nil {
				t.Fatal(err)
			}
		})
	}
	dir := t.TempDir()
	check("prefill and labels of "+s.Name, func(t *testing.T) {
		s.Prefill = prefill(t, p.prompt)
		m.Function() // read before a clock runs
		s.Labelling = append(s.Labelling, gpuLabel{Products: "the device's own", Positions: labelRate(t, m, p, false, filepath.Join(dir, "own"))})
		by, why := m.Bulk(true)
		if why != nil {
			r.NoLibrary = why.Error()
		} else {
			r.Library = by
			long := prefill(t, p.prompt)
			s.LibraryPrefill = 2 * long // two planes
			// Unpacking does not depend on the rows: it is what half of them cost besides their
			// half.
			half := prefill(t, p.prompt/2)
			s.LibraryFixed = flops * float64(p.prompt) * (1/half - 1/long)
			s.UnpackBytes = 2 * float64(s.WeightBytes)
			s.Labelling = append(s.Labelling, gpuLabel{Products: by, Positions: labelRate(t, m, p, true, filepath.Join(dir, "library"))})
			if _, err := m.Bulk(false); err != nil {
				t.Error(err)
			}
		}
		for i := range s.Labelling {
			s.Labelling[i].Flops = s.Labelling[i].Positions * 9 * float64(s.WeightBytes)
		}
	})
	check("long contexts of "+s.Name, func(t *testing.T) {
		for _, n := range p.contexts {
			if seq.Len() < n {
				grow(t, n)
			}
			one, most := pass(t, 1), pass(t, p.rows[len(p.rows)-1])
			s.Contexts = append(s.Contexts, gpuContext{n, one.Seconds, most.Seconds})
		}
	})
	for _, math := range []string{"f32", "bf16", "f32" + byCublas, "bf16" + byCublas} {
		check("training a head of "+s.Name+" in "+math, func(t *testing.T) { s.training(t, deep, set, math, filepath.Join(dir, "own"), p) })
	}
}

// draftStep times a step of a head: a row, and its ten most likely tokens.
func (s *gpuShape) draftStep(t *testing.T, m *model.Model, p gpuPlan) {
	ctx, opt := t.Context(), head.Default()
	opt.Model = m.Options()
	spec := m.Spec().DraftFor(false)
	h, err := head.FromTensors(spec, m, opt, head.Random(spec, 1)...)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	ids := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}
	target, seq := m.NewSeq(), h.NewSeq()
	defer target.Close()
	defer seq.Close()
	o, err := target.Append(ctx, ids, nil, model.WantNone)
	if err != nil {
		t.Fatal(err)
	}
	var in []model.Feature
	for i := range len(ids) - 1 {
		in = append(in, o.Feature(0, i))
	}
	if _, err := seq.Append(ctx, ids[1:], in, model.WantNone); err != nil {
		t.Fatal(err)
	}
	id, logp := make([]int32, 10), make([]float32, 10)
	next := []int32{1}
	sec := bestOf(p.reps, func() {
		c := seq.Fork()
		defer c.Close()
		for range p.tokens {
			o, err := c.Append(ctx, next, in[:1], model.WantLast)
			if err != nil {
				t.Fatal(err)
			}
			o.TopK(id, logp, 0, 1, len(id))
			next[0] = id[0]
		}
	})
	s.DraftBytes, s.DraftStep = h.WeightBytes(), sec/float64(p.tokens)
}

// byCublas is behind the name of a type in which cuBLAS multiplies.
const byCublas = ", cuBLAS"

// training measures steps of a head with the loss eagle, as torch_speed.py does: positions per
// second, in the best step. Where there is no cuBLAS, nothing is measured with it.
func (s *gpuShape) training(t *testing.T, spec *arch.Spec, set *safetensors.Set, math, labels string, p gpuPlan) {
	in, library := strings.CutSuffix(math, byCublas)
	dev, err := cuda.New(cuda.Config{BF16: in == "bf16", BLAS: library})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if _, why := dev.Abilities().Training.TrainsWith(); library && why != nil {
		t.Log(why)
		return
	}
	opt := model.Default()
	opt.Lazy = true // only its LM head and embedding are needed
	m, err := model.New(spec, set, dev, opt)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := data.Open(labels)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	cfg := train.Default()
	cfg.Loss, cfg.Steps, cfg.Rows, cfg.Accum, cfg.Warmup, cfg.Held, cfg.EvalEvery, cfg.SaveEvery = "eagle", p.steps, p.batch, 1, 1, 0, 0, 0
	best := 0.0
	_, err = train.Head(t.Context(), cfg, train.HeadJob{Target: m, Data: mix.Only(rows), Out: filepath.Join(t.TempDir(), "head"), Report: func(x train.Progress) {
		if x.Step > 1 { // the first allocates memory
			best = max(best, float64(x.Positions)/x.Seconds)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if s.Training == nil {
		s.Training = map[string]float64{}
	}
	s.Training[math] = best
}

// numbered is a tokenizer of texts made of numbers.
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

// labelRate returns the positions per second that preprocess labels with trees of nine nodes,
// for a set in the directory out.
func labelRate(t *testing.T, m *model.Model, p gpuPlan, library bool, out string) float64 {
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
	c := preprocess.Default()
	c.Files, c.Out = []string{talftest.Write(t, filepath.Join(t.TempDir(), "in.txt"), text.String())}, out
	c.Load.Format, c.EOS, c.Rows, c.Tokens = corpus.Paragraphs, preprocess.EOSNever, preprocess.DeviceRows, preprocess.DeviceTokens
	since := time.Now()
	st, err := preprocess.Run(t.Context(), c, preprocess.Inputs{Target: m, Tokenizer: numbered{}, TokenizerHash: "ids", Bulk: library, Arithmetic: "bundle"})
	if err != nil {
		t.Fatal(err)
	}
	return float64(st.Tokens) / time.Since(since).Seconds()
}

// endToEnd labels, trains and decodes with the embedded model.
func (r *gpuReport) endToEnd(t *testing.T, p gpuPlan) {
	dir := t.TempDir()
	target, text, set, head := filepath.Join(dir, "target"), filepath.Join(dir, "text.jsonl"), filepath.Join(dir, "set"), filepath.Join(dir, "head")
	if err := demo.Unpack(target); err != nil {
		t.Fatal(err)
	}
	if err := demo.WriteJSONL(text, demo.Corpus(9, p.documents)); err != nil {
		t.Fatal(err)
	}
	if r.Emulated {
		if err := modeltest.Write(target, talftest.TinyConfig(), 1); err != nil {
			t.Fatal(err)
		}
	}
	talftest.OK(t, "", append([]string{"preprocess", "--model", target, "--data", text, "--out", set, "--eos", "always", "--device", "cuda:0", "--quiet"}, p.label...)...)
	r.TrainedOn = "cuda:0"
	talftest.OK(t, "", append([]string{"train", "--model", target, "--data", set, "--out", head, "--eval-every", "0", "--quiet", "--device", "cuda:0"}, p.train...)...)
	log, err := train.ReadMetrics(head)
	if err != nil || len(log) == 0 {
		t.Fatalf("%d steps, %v", len(log), err)
	}
	for _, x := range log {
		r.Training = max(r.Training, float64(x.Positions)/x.Seconds)
	}
	prompts := talftest.PromptFile(t, 20)
	var report bench.Report
	out := talftest.OK(t, "", append([]string{
		"bench", "--model", target, "--head", head, "--prompts", prompts, "--device", "cuda:0", "--method", "salf", "--method", "beam", "--json",
	}, p.bench...)...)
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
