package checkpoints

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"talf/model/identity"
	"talf/model/modeltest"
)

// If an imported head does not fit on the disk, nothing is left that would obstruct the
// next attempt.
func TestAHeadIsImportedWholeOrNotAtAll(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=8k"); err != nil {
		t.Skipf("mounting a small file system takes privileges: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	_, m := target(t, modeltest.Default())
	d := openDraft(t, writeHead(t, m, nil, embedOf(t, m)))
	to := filepath.Join(disk, "head")
	if err := d.SaveHead(t.Context(), to, identity.Tie{}); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("%v, want ENOSPC", err)
	}
	if es, err := os.ReadDir(disk); err != nil || len(es) > 0 {
		t.Errorf("left behind: %v, %v", es, err)
	}
	if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT, "size=4m"); err != nil {
		t.Fatal(err)
	}
	if err := d.SaveHead(t.Context(), to, identity.Tie{}); err != nil {
		t.Error(err)
	}
}
