package durable

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// A File is a file being written.
type File interface {
	io.WriteCloser
	Sync() error
}

// A Disk creates files and renames directories. The zero value is the operating system's; tests
// set functions that fail.
type Disk struct {
	Create func(path string) (File, error)
	Rename func(from, to string) error
}

func (d Disk) create(path string) (File, error) {
	if d.Create != nil {
		return d.Create(path)
	}
	return os.Create(path)
}

func (d Disk) rename(from, to string) error {
	if d.Rename != nil {
		return d.Rename(from, to)
	}
	return os.Rename(from, to)
}

// journalName is a file that a directory has until it is complete. It lists the names of the
// files that were begun, one per line.
const journalName = ".unfinished"

// A Dir is a new directory that is being filled with files. The caller finishes it with Commit,
// or with Discard, which leaves nothing. The next NewDir removes what a crash left, so a retry
// finds nothing in its way.
type Dir struct {
	disk    Disk
	path    string
	journal *os.File // nil: committed or discarded
	names   []string
}

// NewDir is Disk.NewDir on the operating system's disk.
func NewDir(path string) (*Dir, error) { return Disk{}.NewDir(path) }

// NewDir creates the directory path, or takes it over if it is empty or contains only what an
// interrupted run left there. One that contains anything else is refused, as is one that another
// process is filling.
func (k Disk) NewDir(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o777); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	journal := filepath.Join(path, journalName)
	if err := vacant(path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(journal, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	if err := Lock(f); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: another run is writing here: %w", path, err), f.Close())
	}
	d := &Dir{disk: k, path: path, journal: f}
	if err := d.take(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return d, nil
}

// take empties the directory once its journal is locked.
func (d *Dir) take() error {
	// Another run may have completed the directory since the journal was opened. What
	// that journal lists is not to be removed then.
	own, err := d.journal.Stat()
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	named, err := os.Stat(filepath.Join(d.path, journalName))
	if err != nil || !os.SameFile(own, named) {
		return fmt.Errorf("%s: another run has just been writing here: want a new directory", d.path)
	}
	if err := d.clear(); err != nil {
		return fmt.Errorf("clear the interrupted directory %s: %w", d.path, err)
	}
	if err := SyncDir(d.path); err != nil { // the journal must be there before its files
		return fmt.Errorf("make directory: %w", err)
	}
	return nil
}

// vacant refuses a directory with files unless an interrupted run left them.
func vacant(path string) error {
	es, err := os.ReadDir(path)
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
		if err := os.Remove(filepath.Join(d.path, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	es, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	if len(es) > 1 {
		err := errors.New("it is not empty: want a new directory")
		if len(text) == 0 { // the journal is new: another run has just completed the directory
			err = errors.Join(err, os.Remove(filepath.Join(d.path, journalName)))
		}
		return err
	}
	return d.journal.Truncate(0)
}

// Write creates a file with the data that fill writes, and flushes it to disk. If that fails, d
// is discarded. The file by which readers recognise a complete directory comes last.
func (d *Dir) Write(name string, fill func(w io.Writer) error) error {
	path := filepath.Join(d.path, name)
	err := d.write(path, name, fill)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, errors.Join(err, d.Discard()))
	}
	return nil
}

func (d *Dir) write(path, name string, fill func(w io.Writer) error) error {
	if name != filepath.Base(name) || strings.ContainsRune(name, '\n') {
		return fmt.Errorf("%q, want the name of a file", name)
	}
	if _, err := io.WriteString(d.journal, name+"\n"); err != nil {
		return err
	}
	if err := d.journal.Sync(); err != nil {
		return err
	}
	d.names = append(d.names, name)
	f, err := d.disk.create(path)
	if err != nil {
		return err
	}
	if err = fill(f); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Commit completes the directory. If that fails, d is discarded.
func (d *Dir) Commit() error {
	err := SyncDir(d.path)
	if err == nil {
		err = d.end()
	}
	if err == nil {
		err = SyncDir(d.path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", d.path, errors.Join(err, d.undo()))
	}
	return nil
}

// end removes the journal, and only then gives up its lock: a run that was waiting for
// it finds the name gone, and does not take the complete files for an interrupted run's.
func (d *Dir) end() error {
	if d.journal == nil {
		return nil
	}
	name := d.journal.Name()
	err := os.Remove(name)
	closed := d.journal.Close()
	d.journal = nil
	if err != nil { // Windows removes no open file
		err = os.Remove(name)
	}
	return errors.Join(err, closed)
}

// Discard removes what was written unless d was committed.
func (d *Dir) Discard() error {
	if d.journal == nil {
		return nil
	}
	return d.undo()
}

func (d *Dir) undo() error {
	var errs []error
	for _, name := range d.names {
		if err := os.Remove(filepath.Join(d.path, name)); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	d.names = nil
	if err := errors.Join(errs...); err != nil { // the next NewDir tries again
		if d.journal != nil {
			err = errors.Join(err, d.journal.Close())
			d.journal = nil
		}
		return err
	}
	return d.end()
}

// Names returns the files that Write made, in their order.
func (d *Dir) Names() []string { return d.names }

// During a replacement the old directory has this prefix until the new one has its name.
const oldPrefix = ".old-"

// Replace gives the complete directory temp the name path; both have the same parent directory.
// A directory that had the name before is removed, or gets its name back if Replace fails.
// Recover repairs what a crash leaves.
func (k Disk) Replace(temp, path string) error {
	parent, name := filepath.Split(path)
	old := filepath.Join(parent, oldPrefix+name)
	if _, err := os.Lstat(path); err == nil {
		if err := os.Rename(path, old); err != nil {
			return err
		}
	}
	if err := k.rename(temp, path); err != nil {
		if back := os.Rename(old, path); !errors.Is(back, os.ErrNotExist) {
			err = errors.Join(err, back)
		}
		return err
	}
	return errors.Join(SyncDir(filepath.Clean(parent)), os.RemoveAll(old))
}

// Recover completes replacements that a crash interrupted, of directories in parent whose names
// begin with prefix: the old directory gets its name back unless the new one has taken it.
func Recover(parent, prefix string) error {
	es, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range es {
		name, ok := strings.CutPrefix(e.Name(), oldPrefix)
		if !ok || !strings.HasPrefix(name, prefix) {
			continue
		}
		old, path := filepath.Join(parent, e.Name()), filepath.Join(parent, name)
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			errs = append(errs, os.Rename(old, path))
		} else {
			errs = append(errs, os.RemoveAll(old))
		}
	}
	return errors.Join(errs...)
}
