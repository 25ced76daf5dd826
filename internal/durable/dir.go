package durable

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"talf/internal/vfs"
)

// journalName is a file that a directory which is filled in place has until it is complete. It
// lists the names of the files that were begun, one per line.
const journalName = ".unfinished"

// During a replacement the old directory has this prefix until the new one has its name.
const oldPrefix = ".old-"

// A Dir is a new directory that is being filled with files. The caller finishes it with Commit,
// or with Discard, which leaves nothing. What a crash leaves the next NewDir removes, so it is not
// in the way of a retry.
//
// The directory appears under its name when it is complete. An empty directory that exists already
// may be a mount point, or have a parent that only others may write to, so it cannot be replaced: it
// is filled in place, with a journal in it until it is complete. The caller therefore writes the
// file by which readers recognise a complete directory last; its name is not on disk before those of
// the other files are.
type Dir struct {
	path string // the directory's name
	work string // where its files are written: path, or a hidden directory next to it

	lock    *Guard    // of work next to path; nil if the caller of ReplaceDir has one
	journal *vfs.File // of a directory that is filled in place, which it locks
	guard   *Guard    // the journal's lock

	replaces bool // a directory of this name may exist
	done     bool // committed or discarded
	names    []string
}

// NewDir begins the directory path, which must not exist or be empty, except for what an
// interrupted run left there. It refuses one that another process is filling.
func NewDir(path string) (*Dir, error) {
	path = filepath.Clean(path)
	d := &Dir{path: path, work: path}
	if _, err := os.Stat(path); err == nil {
		if err := d.inPlace(); err != nil {
			return nil, err
		}
		return d, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	if err := MakeDirs(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	var err error
	if d.lock, err = takeLock(hidden(path, lockSuffix)); err != nil {
		return nil, fmt.Errorf("make directory %s: %w", path, err)
	}
	if _, err = os.Lstat(path); err == nil { // the run that had the lock has just completed it
		err = errors.New("another run has just been writing here: want a new directory")
	} else if errors.Is(err, fs.ErrNotExist) {
		err = d.begin()
	}
	if err != nil {
		return nil, fmt.Errorf("make directory %s: %w", path, errors.Join(err, dropLock(d.lock)))
	}
	return d, nil
}

// ReplaceDir begins a directory that replaces the one at path on Commit, if there is one. The parent
// must exist, and the caller holds a lock that keeps others from writing there.
func ReplaceDir(path string) (*Dir, error) {
	d := &Dir{path: filepath.Clean(path), replaces: true}
	if err := d.begin(); err != nil {
		return nil, fmt.Errorf("make directory %s: %w", path, err)
	}
	return d, nil
}

// begin makes the hidden directory.
func (d *Dir) begin() error {
	d.work = hidden(d.path, tempSuffix)
	if err := vfs.DeleteAll(d.work); err != nil { // a crash left it
		return err
	}
	return vfs.MakeDir(d.work)
}

// inPlace begins a directory that exists.
func (d *Dir) inPlace() error {
	if err := vacant(d.path); err != nil {
		return err
	}
	var err error
	d.journal, err = vfs.OpenFile(filepath.Join(d.path, journalName), os.O_RDWR|os.O_CREATE|noFollow, 0o666)
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	if d.guard, err = Lock(d.journal); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", d.path, err), d.journal.Close())
	}
	if err := d.take(); err != nil {
		return errors.Join(err, d.guard.Release())
	}
	return nil
}

// take empties the directory once its journal is locked.
func (d *Dir) take() error {
	// Another run may have completed the directory since the journal was opened. What
	// that journal lists is not to be removed then.
	if same, err := named(d.journal); err != nil || !same {
		return errors.Join(fmt.Errorf("%s: another run has just been writing here: want a new directory", d.path), err)
	}
	if err := d.clear(); err != nil {
		return fmt.Errorf("clear the interrupted directory %s: %w", d.path, err)
	}
	if err := vfs.SyncDirectory(d.path); err != nil { // the journal must be there before its files
		return fmt.Errorf("make directory: %w", err)
	}
	return nil
}

// vacant refuses a directory with files unless an interrupted run left them.
func vacant(path string) error {
	es, err := vfs.List(path)
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	if len(es) == 0 {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(path, journalName)); err != nil {
		return fmt.Errorf("%s is not empty: want a new directory", path)
	}
	return nil
}

// clear removes the files that the journal of an interrupted run lists, and only these: there
// may be other files.
func (d *Dir) clear() error {
	text, err := io.ReadAll(d.journal)
	if err != nil {
		return err
	}
	for line := range bytes.Lines(text) {
		name, whole := strings.CutSuffix(string(line), "\n")
		if !whole { // the crash came before the file was made
			break
		}
		if name != filepath.Base(name) || name == "." || name == ".." {
			return fmt.Errorf("%s lists %q, want names of files", journalName, name)
		}
		if err := vfs.Delete(filepath.Join(d.path, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	es, err := vfs.List(d.path)
	if err != nil {
		return err
	}
	if len(es) > 1 {
		err := errors.New("it is not empty: want a new directory")
		if len(text) == 0 { // the journal is new: another run has just completed the directory
			err = errors.Join(err, vfs.Delete(filepath.Join(d.path, journalName)))
		}
		return err
	}
	if err := d.journal.Truncate(0); err != nil {
		return err
	}
	_, err = d.journal.Seek(0, io.SeekStart)
	return err
}

// Write creates a file with the data that fill writes, and flushes it to disk. If that fails, d
// is discarded. The file by which readers recognise a complete directory comes last.
func (d *Dir) Write(name string, fill func(w io.Writer) error) error {
	err := d.write(name, fill)
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(d.path, name), errors.Join(err, d.Discard()))
	}
	return nil
}

func (d *Dir) write(name string, fill func(w io.Writer) error) error {
	if d.done {
		return fs.ErrClosed
	}
	if name != filepath.Base(name) || strings.ContainsRune(name, '\n') {
		return fmt.Errorf("%q, want the name of a file", name)
	}
	if d.journal != nil {
		if _, err := io.WriteString(d.journal, name+"\n"); err != nil {
			return err
		}
		if err := d.journal.Sync(); err != nil {
			return err
		}
		if err := vfs.SyncDirectory(d.path); err != nil { // the names so far come before this one
			return err
		}
	}
	d.names = append(d.names, name)
	f, err := vfs.CreateNew(filepath.Join(d.work, name))
	if err != nil {
		return err
	}
	if err = fill(f); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Names returns the files that Write made, in their order.
func (d *Dir) Names() []string { return d.names }

// Commit completes the directory. Once it returns nil, it is on disk under its name. If it fails, d
// is discarded.
func (d *Dir) Commit() error {
	if d.done {
		return fmt.Errorf("write %s: %w", d.path, fs.ErrClosed)
	}
	err := vfs.SyncDirectory(d.work)
	if err == nil {
		switch {
		case d.journal != nil:
			err = d.endJournal()
		case d.replaces:
			err = replace(d.work, d.path)
		default:
			err = d.appear()
		}
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", d.path, errors.Join(err, d.Discard()))
	}
	d.done = true
	if d.lock != nil {
		if err := dropLock(d.lock); err != nil {
			return fmt.Errorf("write %s: %w", d.path, err)
		}
	}
	return nil
}

// appear gives the complete directory its name.
func (d *Dir) appear() error {
	if err := vfs.Move(d.work, d.path); err != nil {
		return err
	}
	if err := vfs.SyncDirectory(filepath.Dir(d.path)); err != nil {
		return errors.Join(err, vfs.Move(d.path, d.work)) // no success was reported: a retry finds nothing
	}
	return nil
}

// endJournal removes the journal, and only then gives up its lock: a run that was waiting for
// it finds the name gone, and does not take the complete files for an interrupted run's.
func (d *Dir) endJournal() error {
	err := dropLock(d.guard)
	d.journal = nil
	if err == nil {
		err = vfs.SyncDirectory(d.path)
	}
	return err
}

// Discard removes what was written unless d was committed.
func (d *Dir) Discard() error {
	if d.done {
		return nil
	}
	d.done = true
	if d.work != d.path {
		err := vfs.DeleteAll(d.work)
		if d.lock != nil {
			err = errors.Join(err, dropLock(d.lock))
		}
		return err
	}
	var errs []error
	for _, name := range d.names {
		if err := vfs.Delete(filepath.Join(d.path, name)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	err := errors.Join(errs...)
	switch {
	case d.journal == nil: // Commit has removed it
		return err
	case err != nil: // the next NewDir tries again
		return errors.Join(err, d.guard.Release())
	}
	return d.endJournal()
}

// replace gives the complete directory temp the name path; both have the same parent directory.
// A directory that had the name before is removed, or gets its name back if replace fails.
// Recover repairs what a crash leaves.
func replace(temp, path string) error {
	parent, name := filepath.Split(path)
	old := filepath.Join(parent, oldPrefix+name)
	if _, err := os.Lstat(path); err == nil {
		if err := vfs.Move(path, old); err != nil {
			return err
		}
	}
	if err := vfs.Move(temp, path); err != nil {
		if back := vfs.Move(old, path); !errors.Is(back, fs.ErrNotExist) {
			err = errors.Join(err, back)
		}
		return err
	}
	return errors.Join(vfs.SyncDirectory(filepath.Clean(parent)), vfs.DeleteAll(old))
}

// Recover completes replacements that a crash interrupted, of directories in parent whose names
// begin with prefix, and removes unfinished ones. An old directory gets its name back unless the new
// one has taken it. The caller holds a lock that keeps others from writing there.
func Recover(parent, prefix string) error {
	es, err := vfs.List(parent)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range es {
		path := filepath.Join(parent, e.Name())
		if strings.HasPrefix(e.Name(), "."+prefix) && strings.HasSuffix(e.Name(), tempSuffix) {
			errs = append(errs, vfs.DeleteAll(path))
			continue
		}
		name, ok := strings.CutPrefix(e.Name(), oldPrefix)
		if !ok || !strings.HasPrefix(name, prefix) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(parent, name)); errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, vfs.Move(path, filepath.Join(parent, name)))
		} else {
			errs = append(errs, vfs.DeleteAll(path))
		}
	}
	return errors.Join(errs...)
}
