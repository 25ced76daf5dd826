package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/data"
	"talf/train/mix"
)

// isProfile reports whether a file is one that go tool pprof reads, by its first bytes, which are gzip's.
func isProfile(t *testing.T, dir, name string) bool {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.HasPrefix(b, []byte{0x1f, 0x8b})
}

// A profiled run has the bits of any other, and profiles beside them.
func TestAProfileChangesNothing(t *testing.T) {
	dev := device(t, 2)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 20, data.BF16)
	cfg := tinyConfig()
	cfg.Steps, cfg.Loss = 5, "talf"
	plain, out, prof := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "new", "profile")
	if _, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: plain}); err != nil {
		t.Fatal(err)
	}
	if _, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out, Profile: prof}); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, "a profiled run", files(t, out), files(t, plain))

	for _, name := range []string{cpuProfile, heapProfile} {
		if !isProfile(t, prof, name) {
			t.Errorf("%s is no profile", name)
		}
	}
}

// A directory that cannot be created stops a run before its first step.
func TestAProfileThatCannotBeWrittenIsRefused(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 20, data.BF16)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := Head(context.Background(), tinyConfig(), HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir(), Profile: file})
	if err == nil || !strings.Contains(err.Error(), "profile: ") || !strings.Contains(err.Error(), file) {
		t.Error(err)
	}
}

// Only the first rank writes a profile: if it cannot, the others do not wait for it.
func TestAProfileThatCannotBeWrittenStopsAllRanks(t *testing.T) {
	r := newRanked(t, 2)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	r.job = func(rank int, j *HeadJob) {
		if rank == 0 {
			j.Profile = file
		}
	}
	_, errs := r.run(2)
	for rank, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "rank 0: profile: ") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	if testing.Short() {
		return
	}
	// The first rank's work does not depend on whether it is measured.
	r.job = func(rank int, j *HeadJob) {
		if rank == 0 {
			j.Profile = filepath.Join(file+"s", "here")
		}
	}
	r.trains(2)
	profiled := files(t, r.out)
	r.job, r.out = nil, filepath.Join(t.TempDir(), "plain")
	r.trains(2)
	sameFiles(t, "a profiled run of two ranks", profiled, files(t, r.out))
}

// The measurements of an interrupted run are written, and so is a profile of the run that
// continues it.
func TestAnInterruptedRunIsProfiled(t *testing.T) {
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 20, data.BF16)
	cfg := tinyConfig()
	cfg.DType = BF16
	out, prof := t.TempDir(), t.TempDir()
	ctx, report := stopAfter(3)
	if _, err := Head(ctx, cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out, Profile: prof, Report: report}); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if !isProfile(t, prof, heapProfile) || os.Remove(filepath.Join(prof, heapProfile)) != nil {
		t.Error("an interrupted run leaves no profile")
	}
	if _, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: out, Profile: prof}); err != nil {
		t.Fatal(err)
	}
	if !isProfile(t, prof, heapProfile) {
		t.Error("the run that continues it has no profile")
	}
	if testing.Short() {
		return
	}
	plain := t.TempDir()
	if _, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: plain}); err != nil {
		t.Fatal(err)
	}
	got, want := files(t, out), files(t, plain)
	last := fmt.Sprintf("step-%08d", cfg.Steps)
	for name := range want {
		if strings.HasPrefix(name, last) && !bytes.Equal(got[name], want[name]) {
			t.Errorf("%s differs from an uninterrupted run's", name)
		}
	}
}
