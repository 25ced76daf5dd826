package train

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"talf/checkpoints"
	"talf/compute"
	"talf/compute/cpu"
	"talf/data"
	"talf/model"
	"talf/model/arch"
	"talf/model/head"
	"talf/model/safetensors"
	"talf/train/mix"
)

// device returns a CPU device with this many threads.
func device(t testing.TB, threads int) *cpu.Device {
	t.Helper()
	c := cpu.Default()
	c.Threads = threads
	d, err := cpu.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// tinySpec is a Llama small enough to train in a test.
func tinySpec() *arch.Spec {
	s := arch.Llama()
	s.Vocab, s.Hidden, s.Layers, s.Heads, s.KVHeads, s.HeadDim, s.FFN, s.MaxPos, s.Tied = 40, 16, 2, 2, 1, 8, 24, 128, true
	return s
}

// tinyTarget returns a random model.
func tinyTarget(t testing.TB, dev compute.Device) *model.Model {
	t.Helper()
	m, err := model.New(tinySpec(), safetensors.Of("tiny target", tinyTensors()...), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func tinyTensors() []safetensors.Tensor {
	spec := tinySpec()
	r := rand.New(rand.NewPCG(5, 6))
	var ts []safetensors.Tensor
	add := func(name string, std float64, shape ...int) {
		n := 1
		for _, s := range shape {
			n *= s
		}
		f := make([]float32, n)
		for i := range f {
			if len(shape) == 1 {
				f[i] = 1
			} else {
				f[i] = float32(r.NormFloat64() * std)
			}
		}
		ts = append(ts, safetensors.F32(name, f, shape...))
	}
	for _, t := range spec.Tensors() {
		std := 0.3
		if t.Role == arch.Embed {
			std = 0.5
		}
		add(t.Name, std, t.Shape()...)
	}
	return ts
}

// tinyData writes random sequences with random trees and labels for target.
func tinyData(t testing.TB, target *model.Model, seqs int, features data.FeatureMode) *data.Set {
	t.Helper()
	return tinyDataIn(t, filepath.Join(t.TempDir(), "data"), target, seqs, features)
}

// tinyDataIn writes a set; taps are those of data.Taps, if not 0, 2 and 1.
func tinyDataIn(t testing.TB, dir string, target *model.Model, seqs int, features data.FeatureMode, taps ...int) *data.Set {
	t.Helper()
	spec := target.Spec()
	meta := data.Meta{
		Schema: data.SchemaVersion, Function: target.Function(), Tokenizer: "none", Hidden: spec.Hidden, Vocab: spec.Vocab,
		Branch: 4, Depth: 3, Labels: data.TopK, K: 4, Features: features, Seed: 1, Source: "test",
	}
	h := &headTask{job: HeadJob{Target: target}, meta: data.Meta{Hidden: spec.Hidden, Features: data.None}}
	if features == data.Taps {
		if meta.Taps = taps; taps == nil {
			meta.Taps = []int{0, 2, 1}
		}
		h.taps = meta.Taps
	}
	w, err := data.Create(dir, meta, data.Whole(), data.DefaultWriter())
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range seqs {
		n := 6 + r.IntN(20)
		rec := &data.Record{}
		for p := range n {
			rec.Tokens = append(rec.Tokens, int32(r.IntN(spec.Vocab)))
			rec.LossMask = append(rec.LossMask, p > 2 && r.IntN(4) > 0)
		}
		for p := range n {
			for j := range 9 {
				parent, tok := int32(-1), rec.Tokens[p]
				if j > 0 {
					tok = int32(r.IntN(spec.Vocab))
					if parent = 0; j > 4 {
						parent = int32(1 + r.IntN(4))
					}
				}
				rec.TreeTokens, rec.TreeParents = append(rec.TreeTokens, tok), append(rec.TreeParents, parent)
				perm := r.Perm(spec.Vocab)
				for k := range 4 {
					rec.LabelIDs = append(rec.LabelIDs, int32(perm[k]))
					rec.LabelProbs = append(rec.LabelProbs, []float32{0.4, 0.3, 0.1, 0.1}[k])
				}
				rec.Tail = append(rec.Tail, 0.1)
			}
		}
		if features != data.None {
			f, err := h.features(context.Background(), rec, false)
			if err != nil {
				t.Fatal(err)
			}
			rec.Features = data.AppendBF16(nil, f)
		}
		if err := w.Append(rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	set, err := data.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	return set
}

func tinyConfig() Config {
	c := Default()
	c.Steps, c.Rows, c.Accum, c.Warmup, c.LR = 6, 48, 2, 2, 1e-2
	c.Held, c.EvalEvery, c.SaveEvery, c.Keep = 0.1, 3, 2, 0
	return c
}

// files returns the contents of a directory's files, except for times.
func files(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	out := make(map[string][]byte)
	err := filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == MetricsFile || e.Name() == ".lock" {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		out[rel], err = os.ReadFile(p)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sameFiles(t testing.TB, what string, a, b map[string][]byte) {
	t.Helper()
	if len(a) == 0 || len(a) != len(b) {
		t.Errorf("%s: %d files and %d", what, len(a), len(b))
	}
	for name, x := range a {
		if !bytes.Equal(x, b[name]) {
			t.Errorf("%s: %s differs", what, name)
		}
	}
}

func TestThreadsAndStoredFeaturesDoNotChangeABit(t *testing.T) {
	for _, lossName := range []string{"eagle", "talf", "eal"} {
		var first map[string][]byte
		for threads := 1; threads <= 3; threads++ {
			dev := device(t, threads)
			target := tinyTarget(t, dev)
			cfg := tinyConfig()
			cfg.Loss = lossName
			cfg.Noise = 0.01
			out := t.TempDir()
			set := tinyData(t, target, 40, data.BF16)
			res, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out})
			if err != nil {
				t.Fatal(err)
			}
			if !res.Done || res.Step != cfg.Steps || res.Eval == nil || len(res.Eval.Levels) != 3 || res.Eval.Levels[2].Rows != 4*res.Eval.Levels[0].Rows {
				t.Errorf("result %+v, eval %+v", res, res.Eval)
			}
			got := files(t, out)
			if first == nil {
				first = got
			} else {
				sameFiles(t, lossName, first, got)
			}
		}
		// Without stored features the data differ, but the weights do not.
		dev := device(t, 1)
		target := tinyTarget(t, dev)
		cfg := tinyConfig()
		cfg.Loss = lossName
		cfg.Noise = 0.01
		out := t.TempDir()
		res, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(tinyData(t, target, 40, data.None)), Out: out})
		if err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(res.Dir, checkpoints.WeightsFile))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, first[filepath.Join(filepath.Base(res.Dir), checkpoints.WeightsFile)]) {
			t.Errorf("%s: recomputed features give other weights", lossName)
		}
	}
}

// stopAfter cancels a context when step n is reported.
func stopAfter(n int) (context.Context, func(Progress)) {
	ctx, cancel := context.WithCancel(context.Background())
	return ctx, func(p Progress) {
		if p.Step == n {
			cancel()
		}
	}
}

// resumesExactly makes a run whole, and one that is interrupted at every second step and resumed, and compares their
// last checkpoints. It returns the directory of the first.
func resumesExactly(t *testing.T, cfg Config, job func(dir string) HeadJob) (whole string) {
	t.Helper()
	whole, parts := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "parts")
	want, err := Head(context.Background(), cfg, job(whole))
	if err != nil {
		t.Fatal(err)
	}
	for stop := 1; ; stop += 2 {
		ctx, report := stopAfter(stop)
		j := job(parts)
		j.Report = report
		res, err := Head(ctx, cfg, j)
		if err == nil {
			if !res.Done || res.Step != want.Step {
				t.Fatalf("ended at step %d", res.Step)
			}
			break
		}
		if ctx.Err() == nil {
			t.Fatal(err)
		}
	}
	sameFiles(t, "a resumed run", files(t, filepath.Join(parts, filepath.Base(want.Dir))), files(t, want.Dir))
	return whole
}

func TestAnInterruptedRunContinuesWithTheSameBits(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 40, data.BF16)
	cfg := tinyConfig()
	cfg.SaveEvery = 0
	whole := t.TempDir()
	if _, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: whole}); err != nil {
		t.Fatal(err)
	}
	want := files(t, whole)
	for stop := 1; stop < cfg.Steps; stop++ {
		out := t.TempDir()
		ctx, report := stopAfter(stop)
		res, err := Head(ctx, cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out, Report: report})
		if !errors.Is(err, context.Canceled) || res.Step != stop || res.Done {
			t.Fatalf("stopped at %d: %+v, %v", stop, res, err)
		}
		res, err = Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out})
		if err != nil {
			t.Fatal(err)
		}
		got := files(t, res.Dir)
		for name, b := range want {
			if dir, file := filepath.Split(name); filepath.Base(dir) == filepath.Base(res.Dir) && !bytes.Equal(b, got[file]) {
				t.Errorf("stopped at %d: %s differs", stop, file)
			}
		}
	}
}

// Wherever a run is interrupted, it saves what its newest checkpoint lacks, and says so before, or nothing: a new run
// that has made no step writes nothing, nor does one that has got no further since it was resumed.
func TestAnInterruptedRunSavesOnlyWhatIsNew(t *testing.T) {
	target := tinyTarget(t, device(t, 1))
	set := tinyData(t, target, 40, data.BF16)
	cfg := tinyConfig()
	cfg.Steps, cfg.Warmup, cfg.EvalEvery, cfg.SaveEvery, cfg.Keep = 8, 1, 2, 0, 1
	out := t.TempDir()
	newest := func() (state string) {
		dir, err := checkpoints.Find(out)
		if err == nil {
			var b []byte
			b, err = os.ReadFile(filepath.Join(dir, checkpoints.StateFile))
			state = string(b)
		} else if some, ferr := checkpoints.Any(out); ferr == nil && !some {
			return ""
		}
		if err != nil {
			t.Fatal(err)
		}
		return state
	}
	was, first, got, pending, again := "", 0, 0, 0, 0
	for n := 1; ; n += 1 + n/16 {
		ctx, cancel := context.WithCancel(t.Context())
		var said []string
		reported := false // also a step whose checkpoint was due
		_, err := Head(endAfter(ctx, cancel, n), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out, Warn: func(w string) {
			said = append(said, w)
		}, Report: func(Progress) { reported = true }})
		cancel()
		if err == nil {
			break
		}
		is := newest()
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		saves := len(said) == 1 && strings.HasPrefix(said[0], "saving step ")
		switch {
		case is == was && len(said) > 0 && !reported:
			t.Errorf("asked %d times, said %q and saved nothing new", n, said)
		case is != was && !saves && !reported:
			t.Errorf("asked %d times, said %q and saved", n, said)
		case is == "":
			first++
		case is == was && strings.Contains(is, "\"pending\""):
			again++
		case is == was:
			got++
		case strings.Contains(is, "\"pending\""):
			pending++
		}
		if is != was {
			n /= 2
		}
		was = is
	}
	if first == 0 || pending == 0 || again == 0 || got == 0 {
		t.Errorf("interrupted %d times before anything, %d without, %d in and %d again in an evaluation: want all", first, got, pending, again)
	}
}

func TestATrainedHeadLoadsAndRefusesAnotherTarget(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 20, data.BF16)
	out := t.TempDir()
	if _, err := Head(context.Background(), tinyConfig(), HeadJob{Target: target, Data: mix.Only(set), Out: out}); err != nil {
		t.Fatal(err)
	}
	h, err := checkpoints.LoadHead(out, target, head.Default())
	if err != nil {
		t.Fatal(err)
	}
	if h.Spec().Hidden != target.Spec().Hidden {
		t.Errorf("hidden size %d", h.Spec().Hidden)
	}

	ts := tinyTensors()
	ts[0].Data[5] ^= 1
	other, err := model.New(tinySpec(), safetensors.Of("another target", ts...), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	opt := head.Default()
	if _, err := checkpoints.LoadHead(out, other, opt); err == nil || !strings.Contains(err.Error(), "the hash of the weights is") {
		t.Errorf("a head of another target: %v", err)
	}
	opt.Force = true
	if _, err := checkpoints.LoadHead(out, other, opt); err != nil {
		t.Errorf("forced: %v", err)
	}
	// Nor is it trained further for another target, or with another target's data.
	job := HeadJob{Target: other, Data: mix.Only(set), Out: t.TempDir(), Init: out}
	if _, err := Head(context.Background(), tinyConfig(), job); err == nil || !strings.Contains(err.Error(), "the hash of the weights is") {
		t.Errorf("another target's data: %v", err)
	}
	job.Data = mix.Only(tinyData(t, other, 20, data.BF16))
	if _, err := Head(context.Background(), tinyConfig(), job); err == nil || !strings.Contains(err.Error(), "initial head") {
		t.Errorf("another target's head to begin with: %v", err)
	}
}

func TestARunIsNotContinuedUnderOtherTerms(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 20, data.BF16)
	out := t.TempDir()
	job := HeadJob{Target: target, Data: mix.Only(set), Out: out}
	if _, err := Head(context.Background(), tinyConfig(), job); err != nil {
		t.Fatal(err)
	}
	cfg := tinyConfig()
	cfg.LR *= 2
	if _, err := Head(context.Background(), cfg, job); err == nil || !strings.Contains(err.Error(), "lr was") {
		t.Errorf("another learning rate: %v", err)
	}
	job.Data = mix.Only(tinyData(t, target, 21, data.BF16))
	if _, err := Head(context.Background(), tinyConfig(), job); err == nil || !strings.Contains(err.Error(), "other data") {
		t.Errorf("other data: %v", err)
	}
	// All steps are made: running it again changes nothing.
	before := files(t, out)
	job.Data = mix.Only(set)
	res, err := Head(context.Background(), tinyConfig(), job)
	if err != nil || !res.Done {
		t.Fatalf("%+v, %v", res, err)
	}
	sameFiles(t, "run again", before, files(t, out))
}

// entered returns the training of a new head, before its first step.
func entered(t *testing.T, cfg Config, job HeadJob) (*headTask, *trainer) {
	t.Helper()
	h, tr, err := newHeadTask(cfg, job)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tr.store.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := h.initWeights(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := tr.beginStage(0); err != nil {
		t.Fatal(err)
	}
	return h, tr
}

// Two micro-batches of two sequences are one batch of four: the loss and the
// gradient's norm agree to rounding.
func TestAccumulatedBatchesAreOneBatch(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 30, data.BF16)
	var steps [2]Progress
	for i := range steps {
		cfg := tinyConfig()
		cfg.Accum, cfg.Rows = 2-i, 1000
		h, tr := entered(t, cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir()})
		// The sequences are the same either way: readStep packs by length.
		var recs []mix.Sample
		for range 4 {
			r, err := h.source.Next()
			if err != nil {
				t.Fatal(err)
			}
			recs = append(recs, r)
			h.count += mix.Counted(r.Record, h.limit, 0)
		}
		h.micro = [][]mix.Sample{recs}
		if i == 0 {
			h.micro = [][]mix.Sample{recs[:2], recs[2:]}
		}
		tr.task = filled{h}
		p, err := tr.makeStep(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		steps[i] = p
	}
	a, b := steps[0], steps[1]
	if math.Abs(a.Loss-b.Loss) > 1e-5*b.Loss || math.Abs(a.Norm-b.Norm) > 1e-5*b.Norm || a.Positions != b.Positions {
		t.Errorf("two batches: loss %v, norm %v, %d positions; one: %v, %v, %d", a.Loss, a.Norm, a.Positions, b.Loss, b.Norm, b.Positions)
	}
}

// A filled task has its micro-batches already.
type filled struct{ *headTask }

func (f filled) readStep() (int, int, error) { return len(f.micro), f.count, nil }

func TestALanguageModelLearns(t *testing.T) {
	dev := device(t, 2)
	spec := tinySpec()
	docs := make([][]int32, 60)
	r := rand.New(rand.NewPCG(3, 4))
	for i := range docs { // the next token is a function of the last
		x := int32(r.IntN(spec.Vocab))
		for range 5 + r.IntN(60) {
			docs[i] = append(docs[i], x)
			x = (x*7 + 3) % int32(spec.Vocab)
		}
	}
	cfg := tinyConfig()
	cfg.Steps, cfg.Rows, cfg.Accum, cfg.LR, cfg.EvalEvery, cfg.SaveEvery = 200, 128, 1, 1e-2, 0, 100
	out := t.TempDir()
	job := LMJob{Device: dev, Spec: spec, Docs: docs, Window: 32, Out: out, Extra: map[string][]byte{"tokenizer.json": []byte("{}")}}
	res, err := LM(context.Background(), cfg, job)
	if err != nil {
		t.Fatal(err)
	}
	if res.Eval.Levels[0].Top1 < 0.95 {
		t.Errorf("next-token accuracy %v, loss %v", res.Eval.Levels[0].Top1, res.Eval.Loss)
	}
	for _, bf16 := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "model")
		if err := checkpoints.ExportLM(t.Context(), out, dir, bf16); err != nil {
			t.Fatal(err)
		}
		m, err := model.Load(dir, dev, model.Default())
		if err != nil {
			t.Fatal(err)
		}
		s := m.NewSeq()
		o, err := s.Append(context.Background(), docs[0][:4], nil, model.WantLast)
		if err != nil {
			t.Fatal(err)
		}
		ids, logp := make([]int32, 1), make([]float32, 1)
		o.TopK(ids, logp, 0, 1, 1)
		if ids[0] != docs[0][4] {
			t.Errorf("bf16 %v: predicts %d, want %d", bf16, ids[0], docs[0][4])
		}
		s.Close()
		m.Close()
	}
}

func TestALanguageModelStartsFromAnother(t *testing.T) {
	dev, spec, first, base := device(t, 1), tinySpec(), t.TempDir(), filepath.Join(t.TempDir(), "base")
	cfg := tinyConfig()
	cfg.Steps, cfg.Rows, cfg.LR, cfg.Warmup, cfg.Held, cfg.EvalEvery = 1, 16, 1e-3, 1, 0, 0
	job := LMJob{Device: dev, Spec: spec, Docs: [][]int32{{1, 2, 3, 4, 5}}, Window: 4, Out: first}
	lm := func() error { _, err := LM(t.Context(), cfg, job); return err }
	if err := lm(); err != nil {
		t.Fatal(err)
	}
	if err := checkpoints.ExportLM(t.Context(), first, base, false); err != nil {
		t.Fatal(err)
	}
	digest := func(init string) string {
		j := job
		j.Init, j.Out = init, t.TempDir()
		l, _, err := newLMTask(cfg, j)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.initWeights(t.Context()); err != nil {
			t.Fatal(err)
		}
		return l.params.Hash()
	}
	// A run's directory and the model that was exported from it are the same weights, which are not the seed's.
	if a, b, random := digest(first), digest(base), digest(""); a != b || a == random {
		t.Errorf("weights of the run %s, of the model %s, random ones %s", a, b, random)
	}
	// What it began with is not asked again by a run that goes on.
	job.Init, job.Out = base, filepath.Join(t.TempDir(), "run")
	if err := lm(); err != nil {
		t.Fatal(err)
	}
	job.Init, cfg.Steps = filepath.Join(base, "gone"), 2
	if err := lm(); err != nil {
		t.Fatal(err)
	}
	job.Out = t.TempDir()
	if err := lm(); err == nil || !strings.Contains(err.Error(), "initial model: ") || !strings.Contains(err.Error(), "gone") {
		t.Errorf("a model that is not there: %v", err)
	}
	other := *spec
	other.NormEps *= 2
	job.Init, job.Spec = base, &other
	if err := lm(); err == nil || !strings.Contains(err.Error(), "config.json: rms_norm_eps is 0.00001, want 0.00002 as in the model to train") {
		t.Errorf("another norm: %v", err)
	}
}

// countdown is a context that ends when it has been asked n times.
type countdown struct {
	context.Context
	cancel context.CancelFunc
	n      atomic.Int64 // several workers ask
}

func endAfter(ctx context.Context, cancel context.CancelFunc, n int) *countdown {
	c := &countdown{Context: ctx, cancel: cancel}
	c.n.Store(int64(n))
	return c
}

func (c *countdown) Err() error {
	if c.n.Add(-1) == 0 {
		c.cancel()
	}
	return c.Context.Err()
}

// Wherever the end of a run is interrupted, including the last evaluation, either the result is
// complete, or the run says that it is not and completes it when it is run again.
func TestTheLastEvaluationIsNotLost(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 40, data.BF16)
	cfg := tinyConfig()
	cfg.Steps, cfg.Warmup, cfg.EvalEvery = 2, 1, 1
	head := func(ctx context.Context, out string) (Result, error) {
		return Head(ctx, cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out})
	}
	run := func(n int, out string) (Result, int, error) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		c := endAfter(ctx, cancel, n)
		res, err := head(c, out)
		return res, n - int(c.n.Load()), err
	}
	want, asked, err := run(1<<30, t.TempDir())
	if err != nil || !want.Done || want.Eval == nil {
		t.Fatalf("%+v, %v", want, err)
	}
	interrupted := 0
	for n := asked; n > 0; n -= 17 {
		out := t.TempDir()
		res, _, err := run(n, out)
		if res.Step < cfg.Steps {
			break // in the steps, which have a test of their own
		}
		if res.Done != (err == nil) || res.Done && res.Eval == nil || err != nil && !errors.Is(err, context.Canceled) {
			t.Fatalf("ended when asked for the %d. of %d times: %+v, %v", n, asked, res, err)
		}
		if err == nil {
			continue
		}
		interrupted++
		if res, err = head(context.Background(), out); err != nil || !res.Done || res.Eval == nil || res.Eval.Loss != want.Eval.Loss {
			t.Fatalf("run again after the %d. of %d: %+v, %v", n, asked, res, err)
		}
	}
	if interrupted == 0 {
		t.Error("no run was interrupted in its last evaluation")
	}
}

func TestTheLogHoldsEveryStepOnce(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 40, data.BF16)
	cfg := tinyConfig()
	out := t.TempDir()
	ctx, report := stopAfter(3)
	if _, err := Head(ctx, cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out, Report: report}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	// A process that died had logged steps that it did not save, the last of them partly.
	path := filepath.Join(out, MetricsFile)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("{\"step\":4,\"loss\":99}\n{\"step\":5,\"lo"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))
	if len(lines) != cfg.Steps {
		t.Fatalf("%d lines for %d steps", len(lines), cfg.Steps)
	}
	for i, line := range lines {
		var m metric
		if err := json.Unmarshal(line, &m); err != nil || m.Step != i+1 || m.Loss == 99 || (m.Eval != nil) != (m.Step%cfg.EvalEvery == 0) {
			t.Errorf("line %d: %s, %v", i+1, line, err)
		}
	}
}

func TestBadConfigurationsAreRefusedByField(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*Config){
		"steps is 0":                         func(c *Config) { c.Steps = 0 },
		"rows is -1":                         func(c *Config) { c.Rows = -1 },
		"lr is NaN":                          func(c *Config) { c.LR = math.NaN() },
		"held-out is 1":                      func(c *Config) { c.Held = 1 },
		"beta2 is 1":                         func(c *Config) { c.Beta2 = 1 },
		"save-every is":                      func(c *Config) { c.SaveEvery = -2 },
		"patience is 3, but eval-every is 0": func(c *Config) { c.Patience, c.EvalEvery = 3, 0 },
		"patience is 2, but held-out is 0":   func(c *Config) { c.Patience, c.Held = 2, 0 },
		"stage 2: warmup is -1":              func(c *Config) { c.Stages = []Stage{{Loss: "talf", Steps: 1}, {Loss: "talf", Steps: 1, Warmup: -1}} },
	} {
		c := Default()
		change(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

func TestTheRateWarmsUpAndFallsAsACosine(t *testing.T) {
	c := Stage{LR: 2, MinLR: 0.1, Warmup: 4, Steps: 12}
	for step, want := range map[int]float64{1: 0.5, 4: 2, 8: 1.1, 12: 0.2} {
		if got := c.Rate(step); math.Abs(got-want) > 1e-12 {
			t.Errorf("step %d: %v, want %v", step, got, want)
		}
	}
	c.Warmup = 0
	if got := c.Rate(1); got >= 2 || got < 1.9 {
		t.Errorf("without warm-up: %v", got)
	}
}
