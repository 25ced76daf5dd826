package durable

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"talf/internal/vfs"
	"talf/internal/vfs/vfstest"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, s); return err }
}

func newDir(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := NewDir(path)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func holds(t *testing.T, dir string, want ...string) {
	t.Helper()
	es, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range es {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s holds %q, want %q", dir, got, want)
	}
}

func refused(t *testing.T, err error, want ...string) {
	t.Helper()
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%v, want %q in the error", err, w)
		}
	}
}

func TestANewDirectoryIsFilledOrLeftEmpty(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	d := newDir(t, dir)
	if err := d.Write("one", text("1")); err != nil {
		t.Fatal(err)
	}
	full := errors.New("disk full")
	err := d.Write("two", func(w io.Writer) error { return errors.Join(text("2")(w), full) })
	if refused(t, err, filepath.Join(dir, "two")); !errors.Is(err, full) {
		t.Errorf("%v, want what failed", err)
	}
	holds(t, filepath.Dir(dir))
	if d = newDir(t, dir); d.Write("one", text("1")) != nil || d.Discard() != nil {
		t.Error("the directory cannot be filled again")
	}
	holds(t, filepath.Dir(dir))
	d = newDir(t, dir)
	if err := errors.Join(d.Write("one", text("1")), d.Write("two", text("2")), d.Commit(), d.Discard()); err != nil {
		t.Fatal(err)
	}
	if holds(t, dir, "one", "two"); !slices.Equal(d.Names(), []string{"one", "two"}) {
		t.Errorf("wrote %q", d.Names())
	}
	_, err = NewDir(dir)
	refused(t, err, "not empty")
}

// Abandon leaves what a process leaves that dies.
func abandon(t *testing.T, d *Dir) {
	t.Helper()
	g := d.lock
	if g == nil {
		g = d.guard
	}
	if err := g.Release(); err != nil { // the lock goes with the process
		t.Fatal(err)
	}
}

// A process that dies leaves its files and its journal, or the hidden directory and its lock.
func TestWhatACrashLeftIsNotInTheWay(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "new")
	crash := func() {
		d := newDir(t, dir)
		if err := errors.Join(d.Write("one", text("half")), d.Write("two", text("2"))); err != nil {
			t.Fatal(err)
		}
		if _, err := NewDir(dir); !errors.Is(err, ErrBusy) {
			t.Errorf("%v, want %v", err, ErrBusy)
		}
		abandon(t, d)
	}
	again := func() {
		d := newDir(t, dir)
		if err := errors.Join(d.Write("one", text("1")), d.Commit()); err != nil {
			t.Fatal(err)
		}
		holds(t, dir, "one")
		if b, err := os.ReadFile(filepath.Join(dir, "one")); err != nil || string(b) != "1" {
			t.Errorf("%q, %v", b, err)
		}
	}
	crash()
	holds(t, parent, ".new.lock", ".new.tmp")
	again()
	holds(t, parent, "new")
	dir = t.TempDir()
	crash()
	holds(t, dir, journalName, "one", "two")
	again()
	// Files from elsewhere stay, and are in the way.
	dir = t.TempDir()
	crash()
	if err := os.WriteFile(filepath.Join(dir, "other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := NewDir(dir)
		refused(t, err, dir, "not empty")
		holds(t, dir, journalName, "other")
	}
	// A name whose line is incomplete is not that of one of our files.
	dir = t.TempDir()
	for name, s := range map[string]string{journalName: "gone\nkept", "kept": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := NewDir(dir)
	refused(t, err, "not empty")
	holds(t, dir, journalName, "kept")
	if err := os.WriteFile(filepath.Join(dir, journalName), []byte("../kept\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = NewDir(dir)
	refused(t, err, "names of files")
}

// A second run opens the lock just before the first run commits, or just after. Neither costs the
// first run its files.
func TestARunThatComesAsAnotherCommitsTakesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		exists bool // the directory, before the run
		after  bool // the second run comes after the first has committed
		want   string
	}{
		"a moment before, in place": {true, false, "another run"},
		"a moment after, in place":  {true, true, "not empty"},
		"a moment before":           {false, false, "another run"},
		"a moment after":            {false, true, "another run"},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			dir := filepath.Join(parent, "dir")
			if c.exists {
				if err := os.Mkdir(dir, 0o777); err != nil {
					t.Fatal(err)
				}
			}
			d := newDir(t, dir)
			if err := d.Write("one", text("1")); err != nil {
				t.Fatal(err)
			}
			// The second run has found no complete directory, and opens the lock.
			at, committed := vfs.Create, false
			if !c.after {
				at = vfs.Lock
			}
			stop := vfs.SetTap(func(op *vfs.Op, run func() error) error {
				if !committed && op.Kind == at && strings.HasPrefix(op.Path, parent) {
					committed = true
					if err := d.Commit(); err != nil {
						t.Error(err)
					}
				}
				return run()
			})
			_, err := NewDir(dir)
			stop()
			refused(t, err, dir, c.want)
			holds(t, dir, "one")
			holds(t, parent, "dir")
		})
	}
	t.Run("after a third has begun", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "dir")
		first := newDir(t, dir)
		if err := first.Write("one", text("1")); err != nil {
			t.Fatal(err)
		}
		var third *Dir
		begun := false
		stop := vfs.SetTap(func(op *vfs.Op, run func() error) error {
			if begun || op.Kind != vfs.Lock {
				return run()
			}
			begun = true
			err := first.Discard()
			third = newDir(t, dir)
			if err := errors.Join(err, third.Write("one", text("3"))); err != nil {
				t.Error(err)
			}
			return run()
		})
		_, err := NewDir(dir)
		stop()
		if !errors.Is(err, ErrBusy) {
			t.Errorf("%v, want %v", err, ErrBusy)
		}
		if err := third.Commit(); err != nil {
			t.Fatal(err)
		}
		holds(t, dir, "one")
	})
}

// Nobody finds a directory under its name before it is complete.
func TestADirectoryAppearsWhenItIsComplete(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	d := newDir(t, dir)
	for _, name := range []string{"one", "two"} {
		if err := d.Write(name, text(name)); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after %s: %v, want no directory", name, err)
		}
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	holds(t, dir, "one", "two")
}

func TestADirectoryIsReplacedWholeOrNotAtAll(t *testing.T) {
	parent := t.TempDir()
	path := filepath.Join(parent, "step")
	fill := func(s string) error {
		d, err := ReplaceDir(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Write(s, text(s)); err != nil {
			t.Fatal(err)
		}
		return d.Commit()
	}
	if err := fill("1"); err != nil {
		t.Fatal(err)
	}
	stop := vfstest.Fail(t, func(op *vfs.Op) error {
		if op.Kind == vfs.Rename && strings.HasSuffix(op.Path, tempSuffix) {
			return syscall.EIO
		}
		return nil
	})
	if err := fill("2"); !errors.Is(err, syscall.EIO) {
		t.Errorf("%v, want what failed", err)
	}
	stop()
	holds(t, path, "1")
	holds(t, parent, "step")
	if err := fill("2"); err != nil {
		t.Fatal(err)
	}
	holds(t, path, "2")
	holds(t, parent, "step")
	// A crash between the two renames, one after them, and one before.
	old := filepath.Join(parent, oldPrefix+"step")
	if err := os.Rename(path, old); err != nil {
		t.Fatal(err)
	}
	if err := Recover(parent, "other"); err != nil {
		t.Fatal(err)
	}
	holds(t, parent, oldPrefix+"step")
	if err := Recover(parent, "st"); err != nil {
		t.Fatal(err)
	}
	holds(t, path, "2")
	for _, left := range []string{old, filepath.Join(parent, ".step"+tempSuffix)} {
		if err := os.Mkdir(left, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := Recover(parent, "st"); err != nil {
		t.Fatal(err)
	}
	holds(t, parent, "step")
}
