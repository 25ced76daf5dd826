package train

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"talf/checkpoints"
	"talf/data"
	"talf/internal/jsonl"
	"talf/train/dist"
	"talf/train/mix"
)

// recoverable returns a run of eight steps of which five are made, and the directory of one that
// was never stopped.
func recoverable(t *testing.T, keep int) (cfg Config, job HeadJob, whole string) {
	t.Helper()
	target := tinyTarget(t, device(t, 1))
	set := tinyData(t, target, 40, data.BF16)
	cfg = tinyConfig()
	cfg.Steps, cfg.SaveEvery, cfg.EvalEvery, cfg.Keep = 8, 1, 2, keep
	res, err := Head(t.Context(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	job = HeadJob{Target: target, Data: mix.Only(set), Out: filepath.Join(t.TempDir(), "run")}
	ctx, report := stopAfter(5)
	job.Report = report
	if _, err := Head(ctx, cfg, job); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want an interrupted run", err)
	}
	job.Report = nil
	return cfg, job, res.Dir
}

// warned returns a function that collects warnings.
func warned(job *HeadJob) *[]string {
	all := new([]string)
	job.Warn = func(w string) { *all = append(*all, w) }
	return all
}

func TestARunGoesOnFromTheNewestGoodCheckpoint(t *testing.T) {
	cfg, job, whole := recoverable(t, 0)
	bad, err := checkpoints.Find(job.Out)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(bad, checkpoints.WeightsFile), 100); err != nil {
		t.Fatal(err)
	}
	warnings := warned(&job)
	res, err := Head(t.Context(), cfg, job)
	if err != nil {
		t.Fatal(err)
	}
	sameFiles(t, "after a damaged checkpoint", files(t, whole), files(t, res.Dir))
	if len(*warnings) != 1 || !strings.Contains((*warnings)[0], bad) || !strings.Contains((*warnings)[0], "1 steps are made again") {
		t.Errorf("warnings %q, want one that names %s", *warnings, bad)
	}
	for i, m := range logOf(t, job.Out) {
		if m.Step != i+1 {
			t.Errorf("line %d of the log is of step %d", i+1, m.Step)
		}
	}
}

// The best checkpoint may have been deleted to save room: the run goes on, and the best of the
// evaluations to come is the best.
func TestARunGoesOnWithoutItsBestCheckpoint(t *testing.T) {
	cfg, job, _ := recoverable(t, 0)
	top, err := checkpoints.Find(filepath.Join(job.Out, "best"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(top); err != nil {
		t.Fatal(err)
	}
	warnings := warned(&job)
	res, err := Head(t.Context(), cfg, job)
	if err != nil {
		t.Fatal(err)
	}
	if len(*warnings) != 1 || !strings.Contains((*warnings)[0], top) {
		t.Errorf("warnings %q, want one that names %s", *warnings, top)
	}
	if found, err := checkpoints.Find(filepath.Join(job.Out, "best")); err != nil || found != res.Best || found == top || found == "" {
		t.Errorf("the best is %s, %v, named %s; %s was deleted", found, err, res.Best, top)
	}
}

// The log of a run whose checkpoints are elsewhere is not another run's to cut off.
func TestTheLogOfAnotherRunIsKept(t *testing.T) {
	cfg, job, _ := recoverable(t, 0)
	foreign := filepath.Join(t.TempDir(), "foreign")
	if err := os.Mkdir(foreign, 0o777); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(filepath.Join(job.Out, MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(foreign, MetricsFile)
	if err := os.WriteFile(path, log, 0o600); err != nil {
		t.Fatal(err)
	}
	own := job.Out
	job.Out = foreign
	if _, err := Head(t.Context(), cfg, job); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "another run") {
		t.Errorf("%v, want an error that names %s", err, path)
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != string(log) {
		t.Errorf("the log became %q, %v", now, err)
	}
	// The same run may begin again if it was killed before its first checkpoint, however often it
	// evaluates and saves; another may not.
	all, err := filepath.Glob(filepath.Join(own, "step-*"))
	if err != nil || len(all) == 0 {
		t.Fatalf("%v, %v", all, err)
	}
	for _, dir := range append(all, filepath.Join(own, checkpoints.BestFile)) {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	job.Out = own
	other := cfg
	other.LR *= 2
	if _, err := Head(t.Context(), other, job); err == nil || !strings.Contains(err.Error(), "another run") {
		t.Errorf("another run: %v", err)
	}
	cfg.SaveEvery = 4
	if _, err := Head(t.Context(), cfg, job); err != nil {
		t.Error(err)
	}
	if n := len(logOf(t, own)); n != cfg.Steps {
		t.Errorf("the log has %d lines, want %d", n, cfg.Steps)
	}
}

// A mortal member dies once a file is there.
type mortal struct {
	*dist.Member
	once string
	die  func()
}

func (m mortal) Gather(ctx context.Context, msg []byte) ([][]byte, error) {
	if _, err := os.Stat(m.once); err == nil {
		m.die()
	}
	return m.Member.Gather(ctx, msg)
}

// A run that fails because another rank does, just after it has opened its log, leaves the log to
// the next.
func TestALogIsClosedIfAnotherRankFails(t *testing.T) {
	r := newRanked(t, 2)
	path := filepath.Join(r.out, MetricsFile)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	for rank, m := range dist.Local(2, nil) {
		set, err := data.Open(r.data)
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		job := HeadJob{Target: tinyTarget(t, device(t, 1)), Data: mix.Only(set), Out: r.out, Group: m}
		// Both leave when the log is open, which is while they agree on it.
		job.Group = mortal{m, path, func() {
			cancel()
			if rank == 1 {
				m.Leave()
				runtime.Goexit()
			}
		}}
		_, tr, err := newHeadTask(r.cfg, job)
		if err != nil {
			t.Fatal(err)
		}
		tr.peers.Grace = 50 * time.Millisecond
		go func() {
			_, err := launch(ctx, job.Group, ready(tr))
			failed <- err
		}()
	}
	if err := <-failed; err == nil {
		t.Fatal("the run goes on without the other rank")
	}
	l, err := jsonl.Open(path, jsonl.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
