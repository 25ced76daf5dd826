package durable

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
	holds(t, dir)
	if d = newDir(t, dir); d.Write("one", text("1")) != nil || d.Discard() != nil {
		t.Error("the empty directory cannot be filled again")
	}
	holds(t, dir)
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

// A process that dies leaves its files and its journal.
func TestWhatACrashLeftIsNotInTheWay(t *testing.T) {
	dir := t.TempDir()
	crash := func() {
		d := newDir(t, dir)
		if err := errors.Join(d.Write("one", text("half")), d.Write("two", text("2"))); err != nil {
			t.Fatal(err)
		}
		_, err := NewDir(dir)
		refused(t, err, "another run")
		if err := d.journal.Close(); err != nil { // the lock goes with the process
			t.Fatal(err)
		}
	}
	crash()
	holds(t, dir, journalName, "one", "two")
	d := newDir(t, dir)
	if err := errors.Join(d.Write("one", text("1")), d.Commit()); err != nil {
		t.Fatal(err)
	}
	holds(t, dir, "one")
	if b, err := os.ReadFile(filepath.Join(dir, "one")); err != nil || string(b) != "1" {
		t.Errorf("%q, %v", b, err)
	}
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

// A second run opens the journal just before the first run commits, or finds the
// directory still empty and makes a journal just after. Neither costs the first run
// its files.
func TestARunThatComesAsAnotherCommitsTakesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		early bool
		want  string
	}{
		"a moment before": {true, "another run"},
		"a moment after":  {false, "not empty"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			d := newDir(t, dir)
			late := &Dir{path: dir}
			open := func() {
				var err error
				if late.journal, err = os.OpenFile(filepath.Join(dir, journalName), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if err := d.Write("one", text("1")); err != nil {
				t.Fatal(err)
			}
			if c.early {
				open()
			}
			if err := d.Commit(); err != nil {
				t.Fatal(err)
			}
			if !c.early {
				open()
			}
			if err := Lock(late.journal); err != nil {
				t.Fatal(err)
			}
			refused(t, late.take(), dir, c.want)
			holds(t, dir, "one")
			_ = late.journal.Close()
		})
	}
	t.Run("after a third has begun", func(t *testing.T) {
		dir := t.TempDir()
		first := newDir(t, dir)
		if err := first.Write("one", text("1")); err != nil {
			t.Fatal(err)
		}
		journal, err := os.OpenFile(filepath.Join(dir, journalName), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := first.Discard(); err != nil {
			t.Fatal(err)
		}
		third := newDir(t, dir)
		if err := errors.Join(third.Write("one", text("3")), Lock(journal)); err != nil {
			t.Fatal(err)
		}
		refused(t, (&Dir{path: dir, journal: journal}).take(), dir, "another run")
		holds(t, dir, journalName, "one")
		if err := errors.Join(journal.Close(), third.Commit()); err != nil {
			t.Fatal(err)
		}
		holds(t, dir, "one")
	})
}

func TestADirectoryIsReplacedWholeOrNotAtAll(t *testing.T) {
	parent := t.TempDir()
	path, temp := filepath.Join(parent, "step"), filepath.Join(parent, ".new")
	fill := func(s string) {
		d := newDir(t, temp)
		if err := errors.Join(d.Write(s, text(s)), d.Commit()); err != nil {
			t.Fatal(err)
		}
	}
	fill("1")
	if err := (Disk{}).Replace(temp, path); err != nil {
		t.Fatal(err)
	}
	fill("2")
	broken := errors.New("broken")
	if err := (Disk{Rename: func(string, string) error { return broken }}).Replace(temp, path); !errors.Is(err, broken) {
		t.Errorf("%v, want what failed", err)
	}
	holds(t, path, "1")
	if err := (Disk{}).Replace(temp, path); err != nil {
		t.Fatal(err)
	}
	holds(t, path, "2")
	holds(t, parent, "step")
	// A crash between the two renames, and one after them.
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
	if err := os.Mkdir(old, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Recover(parent, "st"); err != nil {
		t.Fatal(err)
	}
	holds(t, parent, "step")
}
