//go:build gpu && linux && cgo

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/cmd/talf/command"
	"talf/compute/cuda/cudatest"
	"talf/internal/e2e/talftest"
)

// TestSeveralCUDADevicesTrainOneRun trains with two devices through the command line: with one batch each, they make the
// weights of one device that runs both. Then each of the two is lost in the middle: the error names it, the last finished step
// is saved, and the run goes on with the bits of one that was whole.
func TestSeveralCUDADevicesTrainOneRun(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	t.Setenv("TALF_FAKE_DEVICES", "2")
	dir, text, tmp := talftest.TinyModel(t, talftest.TinyConfig(), 1), fewTexts(t), t.TempDir()
	args := func(out string, more ...string) []string {
		return append([]string{
			"train", "--kind", "lm", "--model", dir, "--data", text, "--out", filepath.Join(tmp, out), "--steps", "4", "--rows", "32", "--window", "16", "--warmup", "1", "--lr", "1e-3",
			"--held-out", "0.2", "--save-every", "0",
		}, more...)
	}
	both := []string{"--device", "cuda:0,cuda:1"}
	const last = "step-00000004"
	weights := func(out string) string {
		t.Helper()
		w := talftest.Contents(t, filepath.Join(tmp, out, last))["model.safetensors"]
		if w == "" {
			t.Fatalf("%s: no weights", out)
		}
		return w
	}
	trace := filepath.Join(tmp, "trace")
	t.Setenv("TALF_FAKE_TRACE", trace)
	talftest.OK(t, "", args("whole", both...)...)
	t.Setenv("TALF_FAKE_TRACE", "")
	calls, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	launches := strings.Count(string(calls), "launch ") / 2 // of each device
	state := talftest.Contents(t, filepath.Join(tmp, "whole", last))["trainer.json"]
	if !strings.Contains(state, `"arithmetic":"cuda sm_90 f32, 2 devices"`) {
		t.Errorf("the checkpoint does not say what trained: %s", state)
	}
	talftest.OK(t, "", args("one", "--device", "cuda:0", "--accum", "2")...)
	if weights("one") != weights("whole") {
		t.Error("one device with both batches makes other weights")
	}
	for i, lost := range []string{"%d", "0,%d"} {
		out := fmt.Sprintf("lost%d", i)
		t.Setenv("TALF_FAKE_LOST", fmt.Sprintf(lost, launches*7/10))
		r := talftest.Run(t, "", args(out, both...)...)
		r.Refuses(t, command.ExitFailure, fmt.Sprintf("cuda:%d: step ", i), "the device is lost until the program ends")
		if saved, err := filepath.Glob(filepath.Join(tmp, out, "step-*")); err != nil || len(saved) != 1 || filepath.Base(saved[0]) == last {
			t.Errorf("device %d was lost, and saved is %v, %v", i, saved, err)
		}
		t.Setenv("TALF_FAKE_LOST", "0")
		talftest.Run(t, "", args(out, "--device", "cuda:0", "--resume", "--accum", "2")...).Refuses(t, command.ExitFailure,
			"the run began with the arithmetic of cuda sm_90 f32, 2 devices, now of cuda sm_90 f32")
		talftest.OK(t, "", args(out, append(both, "--resume")...)...)
		if weights(out) != weights("whole") {
			t.Errorf("device %d was lost, and the run went on with other weights", i)
		}
	}
	talftest.Run(t, "", args("none", "--device", "cuda:0,cuda:2")...).Refuses(t, command.ExitFailure, "cuda:2: cuda: no device 2: the driver finds 2")
	talftest.Run(t, "", "train", "--model", dir, "--data", text, "--out", filepath.Join(tmp, "none"), "--online", "--device", "cuda:all").Refuses(t, command.ExitUsage,
		"each of 2 devices would label all of the text")
}

// TestNCCLSumsGradientsOfCUDADevices trains with two devices whose gradients do not pass the host: the weights are those of sums in
// the host's memory, a run names what summed and goes on with that alone, and a device that is lost takes no step with it.
func TestNCCLSumsGradientsOfCUDADevices(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	nccl, err := cudatest.NCCL()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("LD_LIBRARY_PATH", nccl+string(os.PathListSeparator)+os.Getenv("LD_LIBRARY_PATH"))
	t.Setenv("TALF_FAKE_DEVICES", "2")
	dir, text, tmp := talftest.TinyModel(t, talftest.TinyConfig(), 1), fewTexts(t), t.TempDir()
	const steps, last = 4, "step-00000004"
	train := func(out string, more ...string) talftest.Result {
		return talftest.Run(t, "", append([]string{
			"train", "--kind", "lm", "--model", dir, "--data", text, "--out", filepath.Join(tmp, out), "--steps", fmt.Sprint(steps), "--rows", "32", "--window", "16", "--warmup", "1",
			"--lr", "1e-3", "--held-out", "0", "--save-every", "0", "--device", "cuda:0,cuda:1",
		}, more...)...)
	}
	weights := func(out string) string {
		return talftest.Contents(t, filepath.Join(tmp, out, last))["model.safetensors"]
	}
	read := map[string]int{} // bytes from devices
	launches := 0
	for _, c := range []struct{ out, flag, by string }{{"host", "--nccl=false", ""}, {"direct", "--nccl", `gradients="NCCL 2.27.3"`}} {
		trace := filepath.Join(tmp, "trace-"+c.out)
		t.Setenv("TALF_FAKE_TRACE", trace)
		r := train(c.out, c.flag)
		if r.Code != command.ExitOK || !strings.Contains(r.Err, c.by) {
			t.Fatalf("%s: exit %d, want %q\n%s", c.flag, r.Code, c.by, r.Err)
		}
		t.Setenv("TALF_FAKE_TRACE", "")
		calls, err := os.ReadFile(trace)
		if err != nil {
			t.Fatal(err)
		}
		launches = strings.Count(string(calls), "launch ") / 2
		for line := range strings.Lines(string(calls)) {
			var n int
			if _, err := fmt.Sscanf(line, "dtoh %d", &n); err == nil {
				read[c.out] += n
			}
		}
	}
	if w := weights("direct"); w == "" || w != weights("host") {
		t.Error("NCCL makes other weights than the host")
	}
	// In each step, the host reads all gradients of both devices.
	if gradients, less := steps*2*(len(weights("host"))-4096), read["host"]-read["direct"]; less < gradients {
		t.Errorf("%d bytes were read with NCCL, and %d without: %d are gradients", read["direct"], read["host"], gradients)
	}
	const began, both = "the run began with the arithmetic of ", "cuda sm_90 f32, 2 devices"
	train("direct", "--resume", "--nccl=false").Refuses(t, command.ExitFailure, began+both+", NCCL 2.27.3, now of "+both)
	train("host", "--resume").Refuses(t, command.ExitFailure, began+both+", now of "+both+", NCCL 2.27.3")
	for i, plant := range []string{"TALF_FAKE_LOST", "TALF_FAKE_NCCL_PLANT"} {
		out := fmt.Sprint("lost", i)
		t.Setenv(plant, []string{fmt.Sprintf("0,%d", launches*7/10), "l3,1"}[i])
		train(out).Refuses(t, command.ExitFailure, "step 3: ", "cuda:1: ", "the device is lost until the program ends")
		if saved, err := filepath.Glob(filepath.Join(tmp, out, "step-*")); err != nil || len(saved) != 1 || filepath.Base(saved[0]) != "step-00000002" {
			t.Errorf("a device was lost in step 3, and saved is %v, %v", saved, err)
		}
		t.Setenv(plant, "")
		if r := train(out, "--resume"); r.Code != command.ExitOK {
			t.Fatalf("exit %d\n%s", r.Code, r.Err)
		}
		if weights(out) != weights("direct") {
			t.Error("a device was lost, and the run went on with other weights")
		}
	}
}
