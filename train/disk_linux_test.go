package train

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"talf/checkpoints"
	"talf/data"
	"talf/train/mix"
)

// smallDisk returns a directory on a file system of this size.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("mounting a small file system takes privileges: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	return disk
}

// A model that does not fit on its disk leaves nothing; once there is room, it is written to the
// same directory.
func TestAModelIsExportedWholeOrNotAtAll(t *testing.T) {
	disk := smallDisk(t, "12k")
	docs := make([][]int32, 8)
	for i := range docs {
		docs[i] = []int32{1, 2, 3, 4, 5}
	}
	cfg := tinyConfig()
	cfg.Steps, cfg.Rows, cfg.Accum, cfg.EvalEvery = 1, 16, 1, 0
	out, to := t.TempDir(), filepath.Join(disk, "model")
	job := LMJob{Device: device(t, 1), Spec: tinySpec(), Docs: docs, Window: 8, Out: out, Extra: map[string][]byte{"tokenizer.json": []byte("{}")}}
	if _, err := LM(context.Background(), cfg, job); err != nil {
		t.Fatal(err)
	}
	err := checkpoints.ExportLM(t.Context(), out, to, false)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), filepath.Join(to, checkpoints.WeightsFile)) {
		t.Fatalf("%v, want ENOSPC and the file's name", err)
	}
	if es, err := os.ReadDir(disk); err != nil || len(es) > 0 {
		t.Errorf("left behind: %v, %v", es, err)
	}
	if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT, "size=4m"); err != nil {
		t.Fatal(err)
	}
	if err := checkpoints.ExportLM(t.Context(), out, to, false); err != nil {
		t.Error(err)
	}
}

// A disk that is really full: the run stops with one error that names the file, the previous
// checkpoint is intact, and once there is room the run finishes with the same bits.
func TestAFullDiskLosesNoCheckpoint(t *testing.T) {
	disk := smallDisk(t, "128k")
	dev := device(t, 1)
	target := tinyTarget(t, dev)
	set := tinyData(t, target, 40, data.BF16)
	cfg := tinyConfig()
	cfg.Steps, cfg.SaveEvery, cfg.EvalEvery = 8, 1, 0
	want, err := Head(context.Background(), cfg, HeadJob{Target: target, Data: mix.Only(set), Out: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(disk, "run")
	job := HeadJob{Target: target, Data: mix.Only(set), Out: out}
	res, err := Head(context.Background(), cfg, job)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), out) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("step %d: %v, want one line with ENOSPC and the file's name", res.Step, err)
	}
	t.Log(err)
	if left, _ := filepath.Glob(filepath.Join(out, ".*.tmp")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	dir, err := checkpoints.Find(out)
	if err != nil {
		t.Fatal(err)
	}
	s, err := checkpoints.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT, "size=4m"); err != nil {
		t.Fatal(err)
	}
	if res, err = Head(context.Background(), cfg, job); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, "with room again", files(t, want.Dir), files(t, res.Dir))
}
