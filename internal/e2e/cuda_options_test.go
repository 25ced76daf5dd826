//go:build gpu && linux && cgo

package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/cmd/talf/command"
	"talf/compute/cuda/cudatest"
	"talf/compute/devices"
	"talf/internal/e2e/talftest"
	"talf/train"
)

// TestDoctorExaminesCUDADevices checks that usable devices are measured, and that the report
// says why others cannot be used.
func TestDoctorExaminesCUDADevices(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	t.Setenv("TALF_FAKE_DEVICES", "2")
	t.Setenv("TALF_FAKE_BUSY", "0,500000000")
	examined := func() (found []devices.Info, text string) {
		var h struct {
			GPU struct {
				Devices []devices.Info `json:"devices"`
			} `json:"gpu"`
		}
		if err := json.Unmarshal([]byte(talftest.OK(t, "", "doctor", "--json")), &h); err != nil {
			t.Fatal(err)
		}
		if len(h.GPU.Devices) != 2 {
			t.Fatalf("%d devices", len(h.GPU.Devices))
		}
		return h.GPU.Devices, talftest.OK(t, "", "doctor")
	}
	found, text := examined()
	for i, d := range found {
		if d.Reason != "" || d.Free <= 0 || d.Free > d.Memory || !(d.CopyRate > 1e6) {
			t.Errorf("device %d: %+v", i, d)
		}
	}
	if busy := found[0].Free - found[1].Free; busy != 500000000 {
		t.Errorf("%d bytes are free of one and %d of the other", found[0].Free, found[1].Free)
	}
	for _, want := range []string{"emulated device", "used by --device cuda:0", "used by --device cuda:1", "a copy moves "} {
		if !strings.Contains(text, want) {
			t.Errorf("doctor prints\n%s\nwithout %q", text, want)
		}
	}
	if strings.Contains(text, "moves 0") {
		t.Errorf("doctor prints\n%s", text)
	}
	t.Setenv("TALF_FAKE_IMAGE", "218")
	found, text = examined()
	if d := found[0]; !strings.Contains(d.Reason, "the driver does not understand the kernels") || d.CopyRate != 0 || !strings.Contains(text, "cannot be used: cuda: open device 0") {
		t.Errorf("%+v\n%s", d, text)
	}
}

// TestAutoTakesTheRoomiestCUDADevice labels on the device with most free memory.
func TestAutoTakesTheRoomiestCUDADevice(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	t.Setenv("TALF_FAKE_DEVICES", "3")
	t.Setenv("TALF_FAKE_BUSY", "300000000,200000000,100000000")
	r := talftest.Run(t, "", "preprocess", "--model", talftest.TinyModel(t, talftest.TinyConfig(), 1), "--data", fewTexts(t), "--out", filepath.Join(t.TempDir(), "set"),
		"--k", "1", "--depth", "1", "--max-len", "4", "--device", "auto")
	if r.Code != command.ExitOK || !strings.Contains(r.Err, "cuda:2 emulated device") {
		t.Errorf("exit %d\n%s", r.Code, r.Err)
	}
}

// TestCublasOnACUDADevice labels with the library and without: the labels are alike, and no set
// has both.
func TestCublasOnACUDADevice(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	blas, err := cudatest.BLAS()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("LD_LIBRARY_PATH", blas+string(os.PathListSeparator)+os.Getenv("LD_LIBRARY_PATH"))
	dir, text := talftest.TinyModel(t, talftest.TinyConfig(), 1), fewTexts(t)
	label := func(out string, more ...string) talftest.Result {
		return talftest.Run(t, "", append([]string{
			"preprocess", "--model", dir, "--data", text, "--out", out, "--k", "4", "--depth", "2", "--max-len", "10", "--device", "cuda:0",
		}, more...)...)
	}
	with, without := filepath.Join(t.TempDir(), "set"), filepath.Join(t.TempDir(), "set")
	if r := label(with); r.Code != command.ExitOK || !strings.Contains(r.Err, "cuBLAS 12.8.4") {
		t.Fatalf("exit %d\n%s", r.Code, r.Err)
	}
	if r := label(without, "--cublas=false"); r.Code != command.ExitOK || !strings.Contains(r.Err, "the device's own: cuBLAS is turned off") {
		t.Fatalf("exit %d\n%s", r.Code, r.Err)
	}
	compareSets(t, without, with)
	a, b := talftest.Contents(t, with), talftest.Contents(t, without)
	differ := false
	for name := range a {
		differ = differ || strings.HasSuffix(name, ".parquet") && a[name] != b[name]
	}
	if !differ {
		t.Error("the library took no part: both sets have the same bytes")
	}
	const library = "cuda sm_90 f32, cuBLAS 12.8.4 on 4 multiprocessors, --rows 2048 --tokens 8192"
	label(with, "--cublas=false").Refuses(t, command.ExitFailure, "arithmetic: of "+library+", want of cuda sm_90 f32")
	label(without).Refuses(t, command.ExitFailure, "arithmetic: of cuda sm_90 f32, want of "+library)
	label(with, "--rows", "1024").Refuses(t, command.ExitFailure, "--rows 2048", "--rows 1024")
}

// TestLanguageModelsTrainOnACUDADevice compares a language model's curve on the device with the
// CPU's, and decodes there with the exported model.
func TestLanguageModelsTrainOnACUDADevice(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	dir, text := talftest.TinyModel(t, talftest.TinyConfig(), 1), fewTexts(t)
	args := func(out string, more ...string) []string {
		return append([]string{
			"train", "--kind", "lm", "--model", dir, "--data", text, "--out", out, "--steps", "3", "--rows", "32", "--window", "16", "--warmup", "1", "--lr", "1e-3",
			"--held-out", "0.2", "--eval-every", "2", "--save-every", "1",
		}, more...)
	}
	tmp := t.TempDir()
	cpu, device, half, model := filepath.Join(tmp, "cpu"), filepath.Join(tmp, "cuda"), filepath.Join(tmp, "half"), filepath.Join(tmp, "model")
	talftest.OK(t, "", args(cpu)...)
	talftest.OK(t, "", args(device, "--device", "cuda:0", "--export", model)...)
	talftest.OK(t, "", args(half, "--device", "cuda:0", "--math", "bf16")...)
	for out, bound := range map[string][2]float64{device: {0, 1e-5}, half: {1e-5, 5e-2}} {
		if apart := curvesApart(t, out, cpu); !(apart > bound[0] || bound[0] == 0) || !(apart <= bound[1]) {
			t.Errorf("%s: off by %.2g of the CPU's, want at most %v", filepath.Base(out), apart, bound)
		} else {
			t.Logf("%s: apart by %.2g of the CPU's", filepath.Base(out), apart)
		}
	}
	talftest.OK(t, "", "generate", "--model", model, "--prompt", "A cat", "--max-tokens", "3", "--device", "cuda:0")

	// A run continues only with what started it, with the bits of an uninterrupted one.
	whole := talftest.Contents(t, filepath.Join(device, "step-00000003"))
	for _, name := range []string{filepath.Join(device, "step-00000003"), filepath.Join(device, "best.json")} {
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
	}
	const began = "the run began with the arithmetic of "
	talftest.Run(t, "", args(device, "--resume")...).Refuses(t, command.ExitFailure, "trainer.json", began+"cuda sm_90 f32, now of the CPU")
	talftest.Run(t, "", args(device, "--resume", "--device", "cuda:0", "--math", "bf16")...).Refuses(t, command.ExitFailure, began+"cuda sm_90 f32, now of cuda sm_90 bf16")
	talftest.Run(t, "", args(cpu, "--resume", "--device", "auto")...).Refuses(t, command.ExitFailure, began+"the CPU, now of cuda sm_90 f32")
	talftest.OK(t, "", args(device, "--resume", "--device", "auto")...)
	if got := talftest.Contents(t, filepath.Join(device, "step-00000003"))["model.safetensors"]; got == "" || got != whole["model.safetensors"] {
		t.Error("a run that stopped and went on has other weights than one that did not")
	}
}

// TestTrainingWithCublasOnACUDADevice trains with the library and without: the curves are alike, and no run goes on with the other.
func TestTrainingWithCublasOnACUDADevice(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	blas, err := cudatest.BLAS()
	if err != nil {
		t.Fatal(err)
	}
	tmp, dir, text := t.TempDir(), talftest.TinyModel(t, talftest.TinyConfig(), 1), fewTexts(t)
	trace := filepath.Join(tmp, "trace")
	t.Setenv("TALF_FAKE_BLAS_TRACE", trace)
	t.Setenv("LD_LIBRARY_PATH", blas+string(os.PathListSeparator)+os.Getenv("LD_LIBRARY_PATH"))
	train := func(out string, more ...string) talftest.Result {
		return talftest.Run(t, "", append([]string{
			"train", "--kind", "lm", "--model", dir, "--data", text, "--out", filepath.Join(tmp, out), "--steps", "2", "--rows", "64", "--window", "16", "--warmup", "1",
			"--lr", "1e-3", "--held-out", "0.2", "--save-every", "1", "--device", "cuda:0", "--math", "bf16",
		}, more...)...)
	}
	for out, want := range map[string]string{"with": "cuBLAS 12.8.4", "without": "the device's own: cuBLAS is turned off"} {
		if r := train(out, fmt.Sprintf("--cublas=%v", out == "with")); r.Code != command.ExitOK || !strings.Contains(r.Err, want) {
			t.Fatalf("exit %d\n%s", r.Code, r.Err)
		}
	}
	products, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	// Of the LM head alone, whose products are large: logits, gradients of its inputs, and its own.
	for _, kind := range []string{"TN ", "NN ", "NT "} {
		if !strings.Contains(string(products), kind) {
			t.Errorf("the library computed no product %q:\n%s", kind, products)
		}
	}
	if apart := curvesApart(t, filepath.Join(tmp, "with"), filepath.Join(tmp, "without")); !(apart > 0) || !(apart <= 1e-3) {
		t.Errorf("off by %g of the device's own products", apart)
	}
	const last = "step-00000002"
	whole := talftest.Contents(t, filepath.Join(tmp, "with", last))["model.safetensors"]
	for _, name := range []string{last, "best.json"} {
		if err := os.RemoveAll(filepath.Join(tmp, "with", name)); err != nil {
			t.Fatal(err)
		}
	}
	const began, own, library = "the run began with the arithmetic of ", "cuda sm_90 bf16 (version 2)", "cuda sm_90 bf16 (version 2), cuBLAS 12.8.4 on 4 multiprocessors"
	train("with", "--resume", "--cublas=false").Refuses(t, command.ExitFailure, began+library+", now of "+own)
	train("without", "--resume").Refuses(t, command.ExitFailure, began+own+", now of "+library)
	t.Setenv("TALF_FAKE_SMS", "3")
	train("with", "--resume").Refuses(t, command.ExitFailure, began+library+", now of "+own+", cuBLAS 12.8.4 on 3 multiprocessors")
	t.Setenv("TALF_FAKE_SMS", "4")
	if r := train("with", "--resume"); r.Code != command.ExitOK {
		t.Fatalf("exit %d\n%s", r.Code, r.Err)
	}
	if got := talftest.Contents(t, filepath.Join(tmp, "with", last))["model.safetensors"]; got == "" || got != whole {
		t.Error("a run that stopped and went on with cuBLAS has other weights than one that did not")
	}
}

// curvesApart returns the distance of a run's losses, gradient norms and evaluations from
// another's, relative to the latter.
func curvesApart(t *testing.T, out, as string) (apart float64) {
	t.Helper()
	a, err := train.ReadMetrics(out)
	if err != nil {
		t.Fatal(err)
	}
	b, err := train.ReadMetrics(as)
	if err != nil {
		t.Fatal(err)
	}
	if len(a) != len(b) || len(a) == 0 {
		t.Fatalf("%d steps and %d", len(a), len(b))
	}
	off := func(x, y float64) { apart = max(apart, math.Abs(x-y)/math.Abs(y)) }
	for i := range b {
		off(a[i].Loss, b[i].Loss)
		off(a[i].Norm, b[i].Norm)
		if (a[i].Eval == nil) != (b[i].Eval == nil) {
			t.Fatalf("step %d: only one was evaluated", i+1)
		}
		if b[i].Eval != nil {
			off(a[i].Eval.Loss, b[i].Eval.Loss)
		}
	}
	return apart
}

// TestWhatTrainingOnACUDADeviceRefuses checks that the command line is refused before anything
// is loaded.
func TestWhatTrainingOnACUDADeviceRefuses(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	args := func(more ...string) []string {
		return append([]string{"train", "--model", "none", "--data", "none", "--out", filepath.Join(t.TempDir(), "out")}, more...)
	}
	for _, device := range []string{"cuda:0", "auto"} {
		talftest.Run(t, "", args("--device", device, "--dtype", "bf16")...).Refuses(t, command.ExitUsage, "dtype bf16 is for the CPU", "--math bf16")
	}
}
