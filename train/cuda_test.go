//go:build gpu && linux && cgo

package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"talf/compute/cuda"
	"talf/compute/cuda/cudatest"
	"talf/data"
	"talf/model"
	"talf/train/dist"
	"talf/train/mix"
)

// onEmulatedDevice runs this test in a process that finds the emulated device's
// driver, and reports whether this is that process.
func onEmulatedDevice(t *testing.T) bool {
	t.Helper()
	const env = "TALF_TEST_ON_FAKE"
	if os.Getenv(env) != "" {
		return true
	}
	dir, err := cudatest.Driver(cudatest.Kernels())
	if errors.Is(err, cudatest.ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, library := range []func() (string, error){cudatest.BLAS, cudatest.NCCL} {
		beside, err := library()
		if err != nil {
			t.Fatal(err)
		}
		dir += string(os.PathListSeparator) + beside
	}
	args := []string{"-test.run=^" + t.Name() + "$", "-test.v"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	c := exec.Command(os.Args[0], args...)
	c.Env = append(cudatest.Environ(os.Environ(), dir), env+"=1")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	return false
}

// cudaTarget returns tinyTarget on a CUDA device.
func cudaTarget(t *testing.T, c cuda.Config) *model.Model {
	t.Helper()
	dev, err := cuda.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return tinyTarget(t, dev)
}

// byLibrary is a device whose products of training are all cuBLAS's, as far as it has them.
func byLibrary(bf16 bool) cuda.Config { return cuda.Config{BF16: bf16, BLAS: true, BLASFrom: 1} }

// curve trains and returns the log.
func curve(t *testing.T, target *model.Model, set *data.Set, cfg Config, out string) []metric {
	t.Helper()
	return curveOf(t, cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out})
}

func curveOf(t *testing.T, cfg Config, job HeadJob) []metric {
	t.Helper()
	if _, err := Head(context.Background(), cfg, job); err != nil {
		t.Fatal(err)
	}
	return logOf(t, job.Out)
}

// far returns the distance of the curves: losses, norms and evaluations relative to want's.
func far(t *testing.T, got, want []metric) (apart float64) {
	t.Helper()
	if len(got) != len(want) || len(got) == 0 {
		t.Fatalf("%d steps and %d", len(got), len(want))
	}
	off := func(a, b float64) { apart = max(apart, math.Abs(a-b)/math.Abs(b)) }
	for i := range want {
		off(got[i].Loss, want[i].Loss)
		off(got[i].Norm, want[i].Norm)
		if (got[i].Eval == nil) != (want[i].Eval == nil) {
			t.Fatalf("step %d: only one was evaluated", i+1)
		}
		if got[i].Eval != nil {
			off(got[i].Eval.Loss, want[i].Eval.Loss)
		}
	}
	return apart
}

// TestCUDATrainsAsTheCPUDoes compares a device's curves of loss, gradient norm and evaluation
// with the CPU's. Both multiply in f32 and differ in the order of sums; in bfloat16 a device has
// 8 bits of every factor.
func TestCUDATrainsAsTheCPUDoes(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	host := tinyTarget(t, device(t, 1))
	set := tinyData(t, host, 6, data.BF16)
	for _, c := range []struct {
		name, network, loss string
		linear              bool
		cuda                cuda.Config
		bound               float64
	}{
		{"eagle", "eagle", "eagle", false, cuda.Default(), 1e-5},
		{"talf", "eagle", "talf", false, cuda.Default(), 1e-5},
		{"hass", "eagle", "hass:top=2", false, cuda.Default(), 1e-5},
		{"hass from a linear start", "eagle", "hass:top=2", true, cuda.Default(), 1e-5},
		{"linear block", "block:size=3,linear=on,markov=vanilla,rank=6", "dflash:labels=tail,gamma=0", false, cuda.Default(), 1e-5},
		{"talf in bfloat16", "eagle", "talf", false, cuda.Config{BF16: true}, 5e-2},
		{"talf by cuBLAS", "eagle", "talf", false, byLibrary(false), 1e-5},
		{"talf in bfloat16 by cuBLAS", "eagle", "talf", false, byLibrary(true), 5e-2},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := tinyConfig()
			cfg.Network, cfg.Loss, cfg.Steps, cfg.Clip = c.network, c.loss, 4, 0.5
			if testing.Short() {
				cfg.Steps, cfg.Rows = 2, 32
			}
			job := HeadJob{Target: host, Data: mix.Only(set), Out: filepath.Join(t.TempDir(), "cpu"), Linear: c.linear}
			want := curveOf(t, cfg, job)
			job.Target, job.Out = cudaTarget(t, c.cuda), filepath.Join(t.TempDir(), "cuda")
			got := curveOf(t, cfg, job)
			apart := far(t, got, want)
			t.Logf("apart by %.2g of the CPU's", apart)
			if !(apart <= c.bound) {
				t.Errorf("off by %g of the CPU's, want at most %g", apart, c.bound)
			}
			if c.cuda.BF16 && apart < 1e-5 {
				t.Error("nothing was rounded to bfloat16")
			}
		})
	}
}

// TestCUDACopiesInBFloat16ChangeNoBits compares checkpoints of runs whose products read copies of weights, activations and
// gradients with those of runs whose products round floats: a copy that was not made anew would show.
func TestCUDACopiesInBFloat16ChangeNoBits(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	host := tinyTarget(t, device(t, 1))
	set := tinyData(t, host, 6, data.BF16)
	cfg := tinyConfig()
	cfg.Steps, cfg.EvalEvery, cfg.SaveEvery, cfg.EvalSeqs = 3, 2, 0, 1
	if testing.Short() {
		cfg.Rows = 32
	}
	for _, c := range []struct {
		name string
		run  func(c cuda.Config, out string) error
	}{
		{"talf", func(c cuda.Config, out string) error {
			cfg := cfg
			cfg.Loss = "talf"
			_, err := Head(t.Context(), cfg, HeadJob{Target: cudaTarget(t, c), Data: mix.Only(set), Out: out})
			return err
		}},
		{"eagle", func(c cuda.Config, out string) error {
			_, err := Head(t.Context(), cfg, HeadJob{Target: cudaTarget(t, c), Data: mix.Only(set), Out: out})
			return err
		}},
		{"language model", func(c cuda.Config, out string) error {
			dev, err := cuda.New(c)
			if err != nil {
				return err
			}
			defer dev.Close()
			spec := tinySpec()
			_, err = LM(t.Context(), cfg, LMJob{
				Device: dev, Spec: spec, Docs: [][]int32{{1, 2, 3, 4, 5, 6, 7, 8, 9}, {3, 1, 2, 0, 5, 9, 4, 30}, {7, 7, 8, 21, 33}, {2, 4, 8, 16, 32}}, Window: 8, Out: out,
			})
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			with, without := filepath.Join(t.TempDir(), "with"), filepath.Join(t.TempDir(), "without")
			if err := errors.Join(c.run(cuda.Config{BF16: true}, with), c.run(cuda.Config{BF16: true, NoCopies: true}, without)); err != nil {
				t.Fatal(err)
			}
			sameFiles(t, "copies in bfloat16", files(t, with), files(t, without))
		})
	}
}

// TestCUDAGradientsInBFloat16 compares the gradients of one step at equal weights: those of a device that multiplies in
// bfloat16 with f32's on the device, and with the CPU's whose activations are in bfloat16 for the backward pass. Every factor
// has 8 bits, whose errors of up to 2⁻⁹ are of either sign: a gradient is to be within 2% of its own norm.
func TestCUDAGradientsInBFloat16(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	host := tinyTarget(t, device(t, 1))
	set := tinyData(t, host, 6, data.BF16)
	for _, name := range []string{"eagle", "talf"} {
		gradients := func(target *model.Model, dtype string) (all [][]float32) {
			cfg := tinyConfig()
			cfg.Loss, cfg.DType = name, dtype
			if testing.Short() {
				cfg.Rows = 32
			}
			h, tr, err := newHeadTask(cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			defer tr.store.Close()
			h.params.Init(4)
			if err := tr.beginStage(0); err != nil {
				t.Fatal(err)
			}
			if _, _, err := h.readStep(); err != nil {
				t.Fatal(err)
			}
			if err := h.fill(t.Context(), 0, 1); err != nil {
				t.Fatal(err)
			}
			if err := tr.graph.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, n := range tr.nodes {
				all = append(all, append([]float32(nil), n.Grad()...))
			}
			return all
		}
		got := gradients(cudaTarget(t, cuda.Config{BF16: true}), F32)
		for what, want := range map[string][][]float32{
			"f32 on the device": gradients(cudaTarget(t, cuda.Default()), F32),
			"the CPU's":         gradients(host, BF16),
		} {
			worst, rounded := 0.0, false
			for i := range want {
				var diff, norm float64
				for j, w := range want[i] {
					d := float64(got[i][j]) - float64(w)
					diff, norm = diff+d*d, norm+float64(w)*float64(w)
				}
				rounded = rounded || diff > 0
				worst = max(worst, math.Sqrt(diff/norm))
			}
			if t.Logf("%s: off by up to %.2g of a gradient's norm from %s", name, worst, what); !(worst <= 0.02) || !rounded {
				t.Errorf("%s: off by %g from %s, rounded: %v", name, worst, what, rounded)
			}
		}
	}
}

// TestCUDAContinuesWithTheSameBits interrupts a run on a device at its steps.
func TestCUDAContinuesWithTheSameBits(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	host := tinyTarget(t, device(t, 1))
	set := tinyData(t, host, 6, data.None)
	cfg := tinyConfig()
	cfg.Steps, cfg.EvalEvery, cfg.SaveEvery, cfg.EvalSeqs = 3, 0, 0, 1
	if testing.Short() {
		cfg.Rows = 32
	}
	run := func(c cuda.Config) (whole string) {
		whole, parts := filepath.Join(t.TempDir(), "whole"), filepath.Join(t.TempDir(), "parts")
		curve(t, cudaTarget(t, c), set, cfg, whole)

		ctx, stop := context.WithCancel(context.Background())
		_, err := Head(ctx, cfg, HeadJob{Target: cudaTarget(t, c), Data: mix.Only(set), Out: parts, Report: func(p Progress) {
			if p.Step == 2 {
				stop()
			}
		}})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("interrupted: %v", err)
		}
		curve(t, cudaTarget(t, c), set, cfg, parts)
		if err := os.RemoveAll(filepath.Join(parts, "step-00000002")); err != nil {
			t.Fatal(err)
		}
		sameFiles(t, "a run that was interrupted", files(t, parts), files(t, whole))
		return whole
	}
	run(cuda.Default())
	by, own := run(byLibrary(true)), filepath.Join(t.TempDir(), "own")
	curve(t, cudaTarget(t, cuda.Config{BF16: true}), set, cfg, own)
	const last = "step-00000003/model.safetensors"
	if a := files(t, by)[last]; len(a) == 0 || bytes.Equal(a, files(t, own)[last]) {
		t.Error("cuBLAS took no part")
	}
}

// TestCUDANamesWhatIsNotFinite makes a run on a device diverge.
func TestCUDANamesWhatIsNotFinite(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	target := cudaTarget(t, cuda.Default())
	set := tinyData(t, tinyTarget(t, device(t, 1)), 6, data.BF16)
	cfg := tinyConfig()
	cfg.LR, cfg.Clip, cfg.Warmup, cfg.Decay, cfg.Accum = 10, 0, 0, 10, 1
	cfg.Steps, cfg.EvalEvery, cfg.SaveEvery = 40, 0, 0
	out := filepath.Join(t.TempDir(), "out")
	_, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out})
	if err == nil || !strings.Contains(err.Error(), "the run has diverged; try a smaller lr") || !strings.Contains(err.Error(), "first in the operation") {
		t.Errorf("a run that diverges: %v", err)
	}
	cfg = tinyConfig()
	cfg.DType = BF16
	if _, err := Head(context.Background(), cfg, HeadJob{
		Target: target, Data: mix.Only(set), Out: filepath.Join(t.TempDir(), "out"),
	}); err == nil || !strings.Contains(err.Error(), "dtype is bf16, want f32 on a CUDA device") {
		t.Errorf("bfloat16 activations on a CUDA device: %v", err)
	}
}

// TestCUDADevicesTrainTogether compares the curves of two devices with those of two ranks on the CPU, and
// interrupts their run.
func TestCUDADevicesTrainTogether(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	t.Setenv("TALF_FAKE_DEVICES", "2")
	r := newRanked(t, 4)
	r.cfg.Loss, r.cfg.Steps, r.cfg.Rows, r.cfg.EvalEvery, r.cfg.SaveEvery, r.cfg.EvalSeqs = "talf", 3, 32, 2, 0, 2
	r.data = filepath.Join(t.TempDir(), "few")
	tinyDataIn(t, r.data, tinyTarget(t, device(t, 1)), 6, data.BF16)
	host := r
	host.out += "-cpu"
	host.trains(2)

	r.job = func(rank int, j *HeadJob) {
		c := cuda.Default()
		c.Device = rank
		j.Target = cudaTarget(t, c)
		j.Arithmetic = "two devices"
	}
	whole := r
	whole.trains(2)
	if d := far(t, logOf(t, whole.out), logOf(t, host.out)); !(d <= 1e-5) {
		t.Errorf("off by %g of two ranks on the CPU, want at most 1e-5", d)
	} else {
		t.Logf("apart by %.2g of two ranks on the CPU", d)
	}
	parts := r
	parts.out += "-parts"
	ctx, stop := context.WithCancel(t.Context())
	parts.ctx = func(int) context.Context { return ctx }
	on := r.job
	parts.job = func(rank int, j *HeadJob) {
		on(rank, j)
		j.Report = func(p Progress) {
			if p.Step == 2 && rank == 1 {
				stop()
			}
		}
	}
	if _, errs := parts.run(2); !errors.Is(errs[0], context.Canceled) || !errors.Is(errs[1], context.Canceled) {
		t.Fatalf("interrupted: %v", errs)
	}
	parts.ctx, parts.job = nil, on
	parts.trains(2)
	same := func(what, out, as string, but ...string) {
		t.Helper()
		a, b := files(t, out), files(t, as)
		for name := range b {
			if strings.Contains(name, "step-00000003") && !slices.Contains(but, filepath.Base(name)) && !bytes.Equal(a[name], b[name]) {
				t.Errorf("%s: other bits in %s", what, name)
			}
		}
	}
	same("interrupted", parts.out, whole.out)

	// The sum of two devices by NCCL has the host's bits, and says what made it.
	by := ""
	joined := func(rank int, j *HeadJob) {
		on(rank, j)
		j.Joined = func(b string, why error) {
			if rank == 0 {
				by = fmt.Sprint(b, why)
			}
		}
	}
	direct := r
	direct.out += "-nccl"
	direct.job = joined
	direct.trains(2)
	if by != "NCCL 2.27.3<nil>" {
		t.Errorf("summed by %q", by)
	}
	same("NCCL", direct.out, whole.out, "trainer.json", "manifest.json")
	if state := string(files(t, direct.out)["step-00000003/trainer.json"]); !strings.Contains(state, `"arithmetic":"two devices, NCCL 2.27.3"`) {
		t.Errorf("the checkpoint does not say what summed: %s", state)
	}
	direct.job = on
	if _, errs := direct.run(2); errs[0] == nil || !strings.Contains(errs[0].Error(), "began with the arithmetic of two devices, NCCL 2.27.3, now of two devices,") {
		t.Errorf("without NCCL: %v", errs[0])
	}
	direct.job = joined
	const third = "step-00000003"
	want := files(t, direct.out)
	for i, c := range []struct{ plant, says string }{
		{"f3,0", "step 3: gradients of the devices: NCCL: unhandled cuda error"},
		{"h3,1", "step 3: gradients of the devices: device 1: NCCL: remote process exited"},
		{"o3,1", "step 3: gradients of the devices: rank "},
	} {
		t.Setenv("TALF_FAKE_NCCL_PLANT", c.plant)
		fails := direct
		fails.out += fmt.Sprint("-", i)
		_, errs := fails.run(2)
		for rank, err := range errs {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s, rank %d: %v, want %q", c.plant, rank, err, c.says)
			}
		}
		t.Setenv("TALF_FAKE_NCCL_PLANT", "")
		if got := files(t, fails.out); got["step-00000002/model.safetensors"] == nil || got[third+"/model.safetensors"] != nil {
			t.Errorf("%s: the second step was not saved", c.plant)
		}
		fails.trains(2)
		got := files(t, fails.out)
		for name := range want {
			if strings.HasPrefix(name, third) && !bytes.Equal(got[name], want[name]) {
				t.Errorf("%s, and the run went on: other bits in %s", c.plant, name)
			}
		}
	}
}

// TestCUDAInterruptsASumThatNeverEnds interrupts a run in a sum that no device and no library says anything of: it is ended before the
// ranks give each other up, and the step before it is saved.
func TestCUDAInterruptsASumThatNeverEnds(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	t.Setenv("TALF_FAKE_DEVICES", "2")
	r := newRanked(t, 2)
	r.cfg.Loss, r.cfg.Steps, r.cfg.Rows, r.cfg.EvalEvery, r.cfg.SaveEvery, r.cfg.EvalSeqs = "talf", 2, 32, 0, 0, 0
	trace := filepath.Join(t.TempDir(), "sums")
	t.Setenv("TALF_FAKE_NCCL_TRACE", trace)
	t.Setenv("TALF_FAKE_NCCL_PLANT", "s2,0")
	ctx, stop := context.WithCancel(t.Context())
	r.ctx = func(int) context.Context { return ctx }
	r.job = func(rank int, j *HeadJob) {
		c := cuda.Default()
		c.Device = rank
		j.Target = cudaTarget(t, c)
		j.Joined = func(string, error) {}
	}
	go func() {
		for ctx.Err() == nil {
			if b, _ := os.ReadFile(trace); bytes.Count(b, []byte("\n")) == 2 {
				stop()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_, errs := r.run(2)
	for rank, err := range errs {
		if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "step 2: gradients of the devices: not done 5s after an interruption") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	if got := files(t, r.out); got["step-00000001/model.safetensors"] == nil || got["step-00000002/model.safetensors"] != nil {
		t.Error("the step before was not saved")
	}
}

// A hearing group calls a function when a rank has told the others an error.
type hearing struct {
	*dist.Member
	hear func()
}

func (h hearing) Gather(ctx context.Context, msg []byte) ([][]byte, error) {
	all, err := h.Member.Gather(ctx, msg)
	for _, b := range all {
		if bytes.Contains(b, []byte(`"err"`)) {
			h.hear()
		}
	}
	return all, err
}

// A device is lost, and then the one that still had the last finished step: its weights, too, are an older step's, which nobody may
// take for the last one's.
func TestCUDADevicesThatAreLostTogetherSaveNothing(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	t.Setenv("TALF_FAKE_DEVICES", "4")
	const unread = "TALF_FAKE_UNREAD"
	for first, both := range map[int]bool{0: false, 2: true} {
		t.Setenv(unread, "")
		r := newRanked(t, 4)
		r.cfg.Loss, r.cfg.Steps, r.cfg.Rows, r.cfg.EvalEvery, r.cfg.SaveEvery, r.cfg.EvalSeqs = "talf", 3, 32, 0, 0, 0
		r.data = filepath.Join(t.TempDir(), "few")
		tinyDataIn(t, r.data, tinyTarget(t, device(t, 1)), 6, data.BF16)
		lose := func(rank int) { os.Setenv(unread, strings.Repeat("0,", first+rank)+"1") } // when it is next read, to the end of the process
		r.job = func(rank int, j *HeadJob) {
			c := cuda.Default()
			c.Device = first + rank
			j.Target = cudaTarget(t, c)
			if rank == 0 {
				j.Report = func(p Progress) {
					if p.Step == 2 {
						lose(0)
					}
				}
			} else if both {
				j.Group = hearing{j.Group.(*dist.Member), func() { lose(1) }}
			}
		}
		_, errs := r.run(2)
		for rank, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "rank 0: ") {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		if saved := files(t, r.out)["step-00000002/model.safetensors"] != nil; saved == both {
			t.Errorf("both devices are lost: %v, and a checkpoint is saved: %v (%v)", both, saved, errs)
		}
	}
}
