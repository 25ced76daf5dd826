package durable

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"talf/internal/vfs"
	"talf/internal/vfs/vfstest"
)

func TestWriteFileReplacesOrLeavesAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, text := range []string{"one", "another"} {
		if err := WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("the file holds %q, %v, want %q", got, err, text)
		}
	}
	if err := WriteFile(filepath.Join(dir, "none", "file"), nil); err == nil {
		t.Error("a file was written to a directory that does not exist")
	}
	taken := filepath.Join(dir, "taken")
	if err := os.Mkdir(taken, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(taken, []byte("x")); err == nil {
		t.Error("a directory was replaced by a file")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("%v are left, %v, want the file and the directory alone", left, err)
	}
}

// A link that somebody else has put in a file's place is not followed.
func TestALinkInTheWayIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	if err := os.WriteFile(victim, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, filepath.Join(dir, ".file.tmp")); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(filepath.Join(dir, "file"), []byte("new")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, filepath.Join(dir, ".file.lock")); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(filepath.Join(dir, "file"), []byte("newer")); err == nil {
		t.Error("a link was taken for the lock")
	}
	if b, err := os.ReadFile(victim); err != nil || string(b) != "kept" {
		t.Errorf("the file that a link names holds %q, %v", b, err)
	}
}

func TestTwoRunsDoNotWriteTheSameFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(path); !errors.Is(err, ErrBusy) {
		t.Errorf("%v, want %v", err, ErrBusy)
	}
	if _, err := io.WriteString(f, "text"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Commit(), f.Discard()); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, []byte("more")); err != nil {
		t.Error(err)
	}
	holds(t, filepath.Dir(path), "file")
}

func TestALockIsHeldByOne(t *testing.T) {
	for name, number := range map[string]error{"with locks": nil, "on a file system without locks": syscall.ENOSYS} {
		t.Run(name, func(t *testing.T) {
			vfstest.Fail(t, func(op *vfs.Op) error {
				if op.Kind == vfs.Lock {
					return number
				}
				return nil
			})
			dir := t.TempDir()
			path := filepath.Join(dir, "lock")
			a, err := LockFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := LockFile(path); !errors.Is(err, ErrBusy) {
				t.Errorf("%v, want %v", err, ErrBusy)
			}
			if err := a.Release(); err != nil {
				t.Fatal(err)
			}
			b, err := LockFile(path)
			if err != nil {
				t.Fatalf("the lock outlives its release: %v", err)
			}
			if err := b.Release(); err != nil {
				t.Fatal(err)
			}
			holds(t, dir, "lock")
		})
	}
}

// On a file system without locks, a process that has ended does not keep its locks; one on another
// machine may be running.
func TestTheLockOfAProcessThatHasEndedIsTaken(t *testing.T) {
	vfstest.Fail(t, func(op *vfs.Op) error {
		if op.Kind == vfs.Lock {
			return syscall.ENOTSUP
		}
		return nil
	})
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	const none = 1 << 30 // above the largest process id
	for text, want := range map[string]string{
		fmt.Sprintf(`{"host":%q,"pid":%d}`, host, none):        "",
		fmt.Sprintf(`{"host":%q,"pid":%d}`, host, os.Getpid()): fmt.Sprintf("process %d on %s", os.Getpid(), host),
		`{"host":"elsewhere","pid":1}`:                         "process 1 on elsewhere",
		`{"host":`:                                             "does not say who",
	} {
		dir := t.TempDir()
		owned := filepath.Join(dir, ".lock.owner")
		if err := os.WriteFile(owned, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		g, err := LockFile(filepath.Join(dir, "lock"))
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", text, err)
			} else if err := g.Release(); err != nil {
				t.Error(err)
			}
			continue
		}
		if refused(t, err, want, "remove that file", owned); !errors.Is(err, ErrBusy) {
			t.Errorf("%s: %v, want %v", text, err, ErrBusy)
		}
	}
}

// On a file system without locks, a full disk does not leave a file that keeps every later run away.
func TestAnOwnerFileThatCannotBeWrittenIsRemoved(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lock")
	for _, kind := range []vfs.Kind{vfs.Write, vfs.Close} {
		stop := vfstest.Fail(t, func(op *vfs.Op) error {
			switch {
			case op.Kind == vfs.Lock:
				return syscall.ENOSYS
			case op.Kind == kind && filepath.Base(op.Path) == ".lock.owner":
				return syscall.ENOSPC
			}
			return nil
		})
		if _, err := LockFile(path); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: %v, want what failed", kind, err)
		}
		stop()
		holds(t, dir, "lock")
	}
}

// Only a lock that another process has is called one.
func TestAnErrorOfLockingIsNotAnotherRun(t *testing.T) {
	vfstest.Fail(t, func(op *vfs.Op) error {
		if op.Kind == vfs.Lock {
			return syscall.EIO
		}
		return nil
	})
	path := filepath.Join(t.TempDir(), "lock")
	if _, err := LockFile(path); errors.Is(err, ErrBusy) || !errors.Is(err, syscall.EIO) {
		t.Errorf("%v, want EIO alone", err)
	} else {
		refused(t, err, path)
	}
}

func TestWhatCannotBeWrittenIsRefusedEarly(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"":                              "",
		file:                            "",
		filepath.Join(dir, "new"):       "",
		os.DevNull:                      os.DevNull + " is a device",
		dir:                             dir + " is a directory: want a file to write",
		filepath.Join(file, "x"):        filepath.Join(file, "x") + " cannot be written: " + file + " is a file, want a directory",
		filepath.Join(dir, "none", "x"): filepath.Join(dir, "none", "x") + " cannot be written: ",
	} {
		err := Writable(path)
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", path, err, want)
		}
	}
}
