//go:build mpi && cgo && linux

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"talf/checkpoints"
	"talf/cmd/talf/command"
	"talf/internal/e2e/talftest"
	"talf/train"
)

// mpirun prepares talf on n ranks of this machine.
func mpirun(t *testing.T, n int, args ...string) *exec.Cmd {
	t.Helper()
	path, err := exec.LookPath("mpirun")
	if err != nil {
		t.Skip("needs mpirun of Open MPI")
	}
	c := talftest.Command(t, args...)
	c.Args = append([]string{
		path, "-n", strconv.Itoa(n), "--oversubscribe", "--allow-run-as-root", "--bind-to", "none",
		"--mca", "odls_base_sigkill_timeout", "5", c.Path,
	}, args...)
	c.Path = path
	c.Env = append(c.Env, "GOMAXPROCS=2")
	return c
}

// An mpiRun trains steps of two batches, whichever ranks run them.
type mpiRun struct {
	talftest.World
	steps, save int
}

func (r *mpiRun) args(out string, more ...string) []string {
	return append([]string{
		"train", "--model", r.Model, "--data", r.Labels, "--loss", "eagle", "--rows", "128", "--warmup", "1", "--lr", "1e-3", "--keep", "0",
		"--eval-every", "0", "--threads", "1", "--steps", strconv.Itoa(r.steps), "--save-every", strconv.Itoa(r.save), "--out", out,
	}, more...)
}

func (r *mpiRun) alone(t *testing.T, out string, more ...string) {
	t.Helper()
	talftest.OK(t, "", r.args(out, append(more, "--accum", "2")...)...)
}

func (r *mpiRun) ranks(t *testing.T, out string, more ...string) {
	t.Helper()
	if res := talftest.Finish(t, mpirun(t, 2, r.args(out, more...)...)); res.Code != command.ExitOK {
		t.Fatalf("exit %d\n%s", res.Code, res.Err)
	}
}

// same compares the weights and the logged losses of two runs to within one millionth.
func (r *mpiRun) same(t *testing.T, what, got, want string) {
	t.Helper()
	const tolerance = 1e-6
	x, y := checkpointOf(t, got, r.steps), checkpointOf(t, want, r.steps)
	if len(x) == 0 || len(x) != len(y) {
		t.Fatalf("%s: %d tensors and %d", what, len(x), len(y))
	}
	for name := range x {
		size, diff := 0.0, 0.0
		for i, v := range x[name] {
			size, diff = max(size, math.Abs(float64(v))), max(diff, math.Abs(float64(v)-float64(y[name][i])))
		}
		if diff > tolerance*size {
			t.Errorf("%s: %s differs by %g of %g", what, name, diff, size)
		}
	}
	a, err := train.ReadMetrics(got)
	if err != nil {
		t.Fatal(err)
	}
	b, err := train.ReadMetrics(want)
	if err != nil {
		t.Fatal(err)
	}
	if len(a) != r.steps || len(b) != r.steps {
		t.Fatalf("%s: %d steps in the log and %d, want %d", what, len(a), len(b), r.steps)
	}
	for i := range a {
		if a[i].Step != i+1 || math.Abs(a[i].Loss-b[i].Loss) > tolerance*b[i].Loss || a[i].Positions != b[i].Positions {
			t.Errorf("%s: step %d: %+v, want %+v", what, i+1, a[i], b[i])
		}
	}
}

// checkpointOf reads the weights of a run's last checkpoint, which must be of the given step.
func checkpointOf(t *testing.T, out string, step int) map[string][]float32 {
	t.Helper()
	dir, err := checkpoints.Find(out)
	if err != nil {
		t.Fatal(err)
	}
	s, err := checkpoints.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if s.Manifest.Step != step {
		t.Errorf("%s: the last checkpoint is of step %d, want %d", out, s.Manifest.Step, step)
	}
	all := map[string][]float32{}
	for _, name := range s.Weights.Names() {
		x, err := s.Weights.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		if all[name], err = x.Float32s(); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// rankOf finds the process of a rank among mpirun's children.
func rankOf(t *testing.T, launcher, rank int) int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // ended
		}
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		env, err := os.ReadFile(filepath.Join(filepath.Dir(path), "environ"))
		if err != nil || f[1] != strconv.Itoa(launcher) || !slices.Contains(strings.Split(string(env), "\x00"), "OMPI_COMM_WORLD_RANK="+strconv.Itoa(rank)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	t.Fatalf("no rank %d of %d", rank, launcher)
	return 0
}

// disturb starts a run of two ranks and, when it is ready, sends a signal to a rank, or to
// mpirun itself (−1). It returns mpirun's exit code and talf's output without its progress.
func (r *mpiRun) disturb(t *testing.T, out string, rank int, sig syscall.Signal, ready func() bool) (code int, said []string) {
	t.Helper()
	return disturb(t, mpirun(t, 2, r.args(out, "--quiet")...), rank, sig, ready)
}

// disturb is the same for a run that mpirun prepared.
func disturb(t *testing.T, c *exec.Cmd, rank int, sig syscall.Signal, ready func() bool) (code int, said []string) {
	t.Helper()
	var errb bytes.Buffer
	c.Stderr = &errb
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	for !ready() {
		select {
		case err := <-ended:
			t.Fatalf("it ended before it was disturbed: %v\n%s", err, errb.String())
		case <-time.After(2 * time.Millisecond):
		}
	}
	pid := c.Process.Pid
	if rank >= 0 {
		pid = rankOf(t, pid, rank)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := <-ended; !errors.As(err, &exit) {
		t.Errorf("mpirun ended with %v", err)
	}
	for line := range strings.Lines(errb.String()) {
		if strings.HasPrefix(line, "talf: ") && !strings.HasPrefix(line, "talf: stopping") {
			said = append(said, strings.TrimSpace(line))
		}
	}
	if strings.Contains(errb.String(), "goroutine ") {
		t.Errorf("a panic reached the user:\n%s", errb.String())
	}
	return c.ProcessState.ExitCode(), said
}

func saved(t *testing.T, out string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(out, "step-*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Two ranks under mpirun make the same steps as one process with twice the batch.
func TestMPIRanksMakeTheStepsOfOneProcess(t *testing.T) {
	r := mpiRun{talftest.NewWorld(t), 50, 0}
	tmp := t.TempDir()
	one, two := filepath.Join(tmp, "one"), filepath.Join(tmp, "two")
	r.alone(t, one)
	r.ranks(t, two)
	r.same(t, "two ranks", two, one)
}

// If a rank is killed, the job stops with one message and a checkpoint of the last step, from
// which any number of ranks continues.
func TestMPIAKilledRankEndsTheJob(t *testing.T) {
	r := mpiRun{talftest.NewWorld(t), 60, 2}
	tmp := t.TempDir()
	whole := filepath.Join(tmp, "whole")
	r.alone(t, whole)
	for victim, want := range []string{"rank 0 has ended", "rank 1 has ended"} {
		out := filepath.Join(tmp, "killed-"+strconv.Itoa(victim))
		code, said := r.disturb(t, out, victim, syscall.SIGKILL, func() bool { return len(saved(t, out)) > 0 })
		if code == command.ExitOK || len(said) != 1 || !strings.Contains(said[0], want) || !strings.Contains(said[0], "--resume") {
			t.Errorf("rank %d was killed: exit %d, %q, want %q in one line", victim, code, said, want)
		}
		log, err := train.ReadMetrics(out)
		if err != nil {
			t.Fatal(err)
		}
		last := log[len(log)-1].Step
		if victim == 0 { // who saves, and may have been about to
			last -= last % r.save
			if _, err := os.Stat(filepath.Join(out, fmt.Sprintf("step-%08d", last))); err != nil {
				last -= r.save
			}
		}
		checkpointOf(t, out, last)
		if victim == 0 {
			r.ranks(t, out, "--resume")
			r.same(t, "resumed by two ranks", out, whole)
		} else {
			r.alone(t, out, "--resume")
			r.same(t, "resumed by one process", out, whole)
		}
	}
}

// A signal to mpirun interrupts all ranks: one checkpoint of the last step is left.
func TestMPIASignalSavesOnce(t *testing.T) {
	r := mpiRun{talftest.NewWorld(t), 10000, 0}
	out := filepath.Join(t.TempDir(), "run")
	code, said := r.disturb(t, out, -1, syscall.SIGTERM, func() bool {
		log, err := train.ReadMetrics(out)
		return err == nil && len(log) >= 3
	})
	if all := saved(t, out); code == command.ExitOK || len(all) != 1 {
		t.Errorf("exit %d, %q, checkpoints %v", code, said, all)
	}
	log, err := train.ReadMetrics(out)
	if err != nil {
		t.Fatal(err)
	}
	checkpointOf(t, out, log[len(log)-1].Step)
}
