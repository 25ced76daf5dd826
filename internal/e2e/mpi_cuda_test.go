//go:build mpi && gpu && cgo && linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"talf/cmd/talf/command"
	"talf/internal/e2e/talftest"
	"talf/train"
)

// TestMPIRanksTrainOnCUDADevices trains with two ranks, each on a device of its own: they make the weights of one process with both
// devices, bit for bit, since sums of two have one order. A run goes on with the bits of one that was whole, after a checkpoint,
// a device that is lost, and a rank that is killed.
func TestMPIRanksTrainOnCUDADevices(t *testing.T) {
	if !onEmulatedDevice(t) {
		return
	}
	t.Setenv("TALF_FAKE_DEVICES", "2")
	dir, text, tmp := talftest.TinyModel(t, talftest.TinyConfig(), 1), fewTexts(t), t.TempDir()
	const steps, last = 6, "step-00000006"
	args := func(out string, more ...string) []string {
		return append([]string{
			"train", "--kind", "lm", "--model", dir, "--data", text, "--out", filepath.Join(tmp, out), "--steps", strconv.Itoa(steps), "--rows", "32", "--window", "16", "--warmup", "1",
			"--lr", "1e-3", "--held-out", "0", "--save-every", "1", "--keep", "0", "--device", "cuda:all",
		}, more...)
	}
	weights := func(out string) string {
		t.Helper()
		w := talftest.Contents(t, filepath.Join(tmp, out, last))["model.safetensors"]
		if w == "" {
			t.Fatalf("%s: no weights", out)
		}
		return w
	}
	ranks := func(out string, more ...string) talftest.Result {
		return talftest.Finish(t, mpirun(t, 2, args(out, more...)...))
	}
	whole := func(out string, more ...string) {
		t.Helper()
		if r := ranks(out, more...); r.Code != command.ExitOK {
			t.Fatalf("exit %d\n%s", r.Code, r.Err)
		}
	}
	trace := filepath.Join(tmp, "trace")
	t.Setenv("TALF_FAKE_TRACE", trace)
	talftest.OK(t, "", args("one", "--nccl=false")...)
	t.Setenv("TALF_FAKE_TRACE", "")
	calls, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	whole("two")
	if weights("two") != weights("one") {
		t.Error("two ranks with a device each make other weights than one process with both")
	}
	const began, own = "the run began with the arithmetic of ", "cuda sm_90 f32, 2 devices"
	talftest.Run(t, "", args("two", "--resume")...).Refuses(t, command.ExitFailure, began+own+", MPI, now of "+own)
	if err := os.RemoveAll(filepath.Join(tmp, "two", last)); err != nil {
		t.Fatal(err)
	}
	whole("two", "--resume")
	if weights("two") != weights("one") {
		t.Error("a run that went on has other weights")
	}
	t.Setenv("TALF_FAKE_LOST", fmt.Sprintf("0,%d", strings.Count(string(calls), "launch ")/2*7/10))
	ranks("lost").Refuses(t, command.ExitFailure, "rank 1: step ", "the device is lost until the program ends")
	t.Setenv("TALF_FAKE_LOST", "")
	whole("lost", "--resume")
	if weights("lost") != weights("one") {
		t.Error("a device was lost, and the run went on with other weights")
	}

	out := filepath.Join(tmp, "killed")
	code, said := disturb(t, mpirun(t, 2, args("killed", "--quiet", "--steps", "2000", "--save-every", "0")...), 1, syscall.SIGKILL, func() bool {
		log, err := train.ReadMetrics(out)
		return err == nil && len(log) >= 3
	})
	if all := saved(t, out); code == command.ExitOK || len(said) != 1 || !strings.Contains(said[0], "rank 1 has ended") || len(all) != 1 {
		t.Errorf("a rank was killed: exit %d, %q, saved is %v", code, said, all)
	}
}
