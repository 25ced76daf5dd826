package preprocess_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"talf/compute/cpu"
	"talf/model"
	"talf/model/modeltest"
	"talf/preprocess"
)

// A real full disk: a file system of 96 KiB. The run stops with one error that names
// the file. Once there is space, it continues to the same bytes.
func TestFullDisk(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=96k"); err != nil {
		t.Skipf("mounting a small file system takes privileges: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	dir := modeltest.Random(t, modeltest.Default(), 5)
	m, beside := target(t, dir, cpu.Default(), model.Default()), target(t, dir, cpu.Default(), model.Default())
	in := preprocess.Inputs{Target: m, Tokenizer: numbers{1}}
	whole := config(t, write(t, "in.jsonl", problems(60, 97)))
	if _, err := preprocess.Run(context.Background(), whole, in); err != nil {
		t.Fatal(err)
	}
	in.Beside = []preprocess.Worker{{Target: beside}} // which is labelling when the disk is full
	c := whole
	c.Tokens = 40
	c.Out = filepath.Join(disk, "set")
	_, err := preprocess.Run(context.Background(), c, in)
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), c.Out) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("%v, want one line with ENOSPC and the file's name", err)
	}
	t.Log(err)
	for _, m := range []*model.Model{m, beside} {
		if used := m.KV().Used; used != 0 {
			t.Fatalf("%d KV blocks are still held", used)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(c.Out, "*.tmp")); len(left) > 0 {
		t.Fatalf("left behind: %v", left)
	}
	if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT, "size=4m"); err != nil {
		t.Fatal(err)
	}
	st, err := preprocess.Run(context.Background(), c, in)
	if err != nil || st.Resumed == 0 {
		t.Fatalf("with space again: %+v, %v", st, err)
	}
	sameSet(t, whole.Out, c.Out)
	if err := os.RemoveAll(c.Out); err != nil {
		t.Fatal(err)
	}
}
