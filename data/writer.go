package data

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"talf/internal/durable"
	"talf/internal/vfs"
)

// lockName is an empty file that a writer locks: two runs into one directory would
// overwrite each other's shards.
const lockName = ".lock"

// WriterOptions say how shards are laid out. They affect the bytes of a set but not its
// rows.
type WriterOptions struct {
	RowGroup int // bytes of values after which a row group ends, at most MaxRowGroup
}

// DefaultWriter returns the options that preprocessing uses. The shuffled reader holds
// whole row groups in memory, so small ones mix better.
func DefaultWriter() WriterOptions { return WriterOptions{RowGroup: 8 << 20} }

// A Writer writes a set, shard by shard. It is not safe for concurrent use.
//
// A shard appears under its name once it is complete and on disk. After a crash, Create
// finds the finished shards, and the caller continues after them.
type Writer struct {
	dir  string
	part Stripe
	opt  WriterOptions
	man  Manifest
	lock *durable.Guard

	// merged is true if all parts were complete and have been merged.
	merged bool

	cur  *shardWriter // nil between shards
	file *durable.File
	buf  *bufio.Writer
	sum  hash.Hash
	size int64
	err  error // the first failure: the open shard is lost
}

// Create starts or continues part p of the set in dir, which it creates if needed. It
// refuses a directory whose set has another meta. Several writers of one set may run at
// the same time, on one machine or on several that share dir; each has its own lock.
func Create(dir string, m Meta, p Stripe, opt WriterOptions) (*Writer, error) {
	if err := p.Validate(); err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("data: meta: %w", err)
	}
	if opt.RowGroup < 1 || opt.RowGroup > MaxRowGroup {
		return nil, fmt.Errorf("data: row groups of %d bytes, want 1..%d", opt.RowGroup, MaxRowGroup)
	}
	w := &Writer{dir: dir, part: p, opt: opt, man: Manifest{Format: manifestFormat, Meta: m, Shards: []Shard{}}}
	if p != Whole() {
		w.man.Part = &p
	}
	if err := w.open(); err != nil {
		w.unlock()
		return nil, fmt.Errorf("data: %w", err)
	}
	return w, nil
}

func (w *Writer) open() error {
	if err := durable.MakeDirs(w.dir); err != nil {
		return err
	}
	var err error
	if w.lock, err = durable.LockFile(filepath.Join(w.dir, w.part.lock())); err != nil {
		return err
	}
	old, err := w.old()
	if err != nil {
		return err
	}
	if old != nil {
		if d := w.man.Meta.Function.Against(old.Meta.Function); d != nil {
			return fmt.Errorf("%s: %s: the directory holds labels of another function; choose another directory or delete it",
				filepath.Join(w.dir, ManifestName), d.Since("the labels were made"))
		}
		if d := w.man.Meta.diff(&old.Meta); d != "" {
			return fmt.Errorf("%s: %s: the directory holds a set made with other settings; choose another or delete it", filepath.Join(w.dir, ManifestName), d)
		}
		w.man = *old
	}
	if err := durable.Sweep(filepath.Join(w.dir, w.man.name())); err != nil { // a killed run left it
		return err
	}
	for _, s := range w.man.Shards {
		st, err := os.Stat(filepath.Join(w.dir, s.File))
		if err != nil {
			return err
		}
		if st.Size() != s.Bytes {
			return fmt.Errorf("%s: %d bytes, want %d as in the manifest: delete the set and preprocess again", filepath.Join(w.dir, s.File), st.Size(), s.Bytes)
		}
	}
	return w.adopt()
}

// old returns the manifest that an earlier run left, or nil if there is none.
func (w *Writer) old() (*Manifest, error) {
	whole, err := readManifest(filepath.Join(w.dir, ManifestName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	parts, err := findParts(w.dir)
	if err != nil {
		return nil, err
	}
	if w.part == Whole() {
		if whole == nil && len(parts) > 0 {
			return nil, fmt.Errorf("%s: %w: name an index, or merge its parts", w.dir, parts.missing())
		}
		if whole != nil && whole.Complete {
			err = removeParts(w.dir, parts) // which an interrupted merge left
		}
		return whole, err
	}
	if whole != nil {
		if !whole.Complete {
			return nil, fmt.Errorf("%s: a run without an index started this set: finish it without one, or choose another directory", w.dir)
		}
		w.merged = len(parts) == 0 // otherwise the merge was interrupted
		return whole, nil          // it contains all parts
	}
	for p := range parts {
		if p.Count != w.part.Count {
			return nil, fmt.Errorf("%s: the set is split between %d indices, and this is one of %d", w.dir, p.Count, w.part.Count)
		}
	}
	return parts[w.part], nil
}

// adopt adds shards that were renamed just before a crash and so are missing from the
// manifest.
func (w *Writer) adopt() error {
	for !w.man.Complete {
		name := w.name()
		path := filepath.Join(w.dir, name)
		if err := durable.Sweep(path); err != nil {
			return err
		}
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		size, sum, err := hashFile(path)
		if err != nil {
			return err
		}
		f, err := vfs.OpenRead(path)
		if err != nil {
			return err
		}
		s, err := openShard(f, size)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if d := w.man.Meta.diff(&s.meta); d != "" {
			return fmt.Errorf("%s: %s: the shard belongs to another set", path, d)
		}
		w.man.Shards = append(w.man.Shards, s.info.shard(name, size, sum))
		if err := writeManifest(w.dir, &w.man); err != nil {
			return err
		}
	}
	return nil
}

// name returns the file name of the next shard.
func (w *Writer) name() string { return shardName(w.part.Shard(len(w.man.Shards))) }

func (i *shardInfo) shard(name string, size int64, sum string) Shard {
	return Shard{File: name, Rows: i.Rows, Tokens: i.Tokens, Loss: i.Loss, Units: i.Units, Dropped: i.Dropped, Inputs: i.Inputs, Text: i.Text, Bytes: size, SHA256: sum}
}

// Shards returns the finished shards of this writer, or those of the whole set if it is
// complete. The slice belongs to w.
func (w *Writer) Shards() []Shard { return w.man.Shards }

// Complete reports whether Close has completed this set, in this run or an earlier one.
func (w *Writer) Complete() bool { return w.man.Complete }

// Append adds a row to the open shard. It opens one if there is none.
func (w *Writer) Append(r *Record) error {
	if w.err != nil {
		return w.err
	}
	if w.man.Complete {
		return fmt.Errorf("data: %s is complete, want an unfinished set", w.dir)
	}
	if err := r.Check(&w.man.Meta); err != nil {
		return fmt.Errorf("data: row %d of %s: %w", w.rows(), w.name(), err)
	}
	if w.cur == nil {
		if err := w.begin(); err != nil {
			return w.fail(err)
		}
	}
	return w.fail(w.cur.append(r))
}

func (w *Writer) rows() int {
	if w.cur == nil {
		return 0
	}
	return w.cur.info.Rows
}

// fail keeps the first error and removes the broken file.
func (w *Writer) fail(err error) error {
	if err == nil {
		return nil
	}
	kept := ""
	if n := len(w.man.Shards); n > 0 {
		if _, err := os.Stat(filepath.Join(w.dir, w.man.Shards[n-1].File)); err == nil {
			kept = " (finished shards are kept: run again to continue)"
		}
	}
	w.err = fmt.Errorf("data: write %s: %w%s", filepath.Join(w.dir, w.name()), err, kept)
	w.discard()
	return w.err
}

func (w *Writer) begin() error {
	f, err := durable.Create(filepath.Join(w.dir, w.name()))
	if err != nil {
		return err
	}
	w.file, w.sum, w.size = f, sha256.New(), 0
	w.buf = bufio.NewWriterSize(io.MultiWriter(f, w.sum, (*counter)(&w.size)), 1<<16)
	w.cur, err = newShardWriter(w.buf, &w.man.Meta, w.opt.RowGroup)
	return err
}

// A counter counts bytes.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// Cut closes the open shard. units is the number of pieces of input in it, dropped says
// why some of them gave no row, and inputs what became of each file (nil: unknown). All
// are stored with the shard, which may be empty, and so is text (see Shard), except in
// schema 1.
func (w *Writer) Cut(units int, dropped map[string]int, inputs []Input, text string) error {
	if w.err != nil {
		return w.err
	}
	if w.man.Complete {
		return fmt.Errorf("data: %s is complete, want an unfinished set", w.dir)
	}
	return w.fail(w.cut(units, dropped, inputs, text))
}

func (w *Writer) cut(units int, dropped map[string]int, inputs []Input, text string) error {
	if w.cur == nil {
		if err := w.begin(); err != nil {
			return err
		}
	}
	w.cur.info.Units = units
	if w.man.Meta.Schema > 1 {
		w.cur.info.Text = text
	}
	if len(dropped) > 0 {
		w.cur.info.Dropped = maps.Clone(dropped)
	}
	w.cur.info.Inputs = AddInputs(nil, inputs) // a copy
	if err := w.cur.close(); err != nil {
		return err
	}
	if err := w.buf.Flush(); err != nil {
		return err
	}
	name := w.name()
	if err := w.file.Commit(); err != nil {
		return err
	}
	w.man.Shards = append(w.man.Shards, w.cur.info.shard(name, w.size, hex.EncodeToString(w.sum.Sum(nil))))
	w.cur, w.file = nil, nil
	return writeManifest(w.dir, &w.man)
}

// Close cuts an open shard, if it has rows, and marks the set complete. The last writer
// to be closed merges the parts.
func (w *Writer) Close() error {
	defer w.unlock()
	if w.err != nil {
		return w.err
	}
	if w.man.Complete {
		return w.merge()
	}
	if w.cur != nil {
		if err := w.Cut(w.cur.info.Rows, nil, nil, ""); err != nil {
			return err
		}
	}
	w.man.Complete = true
	if err := w.fail(writeManifest(w.dir, &w.man)); err != nil {
		return err
	}
	return w.merge()
}

// merge merges all parts into one set once each is complete.
func (w *Writer) merge() error {
	if w.part == Whole() || w.merged {
		return nil
	}
	err := mergeParts(w.dir)
	var missing *MissingError
	if errors.As(err, &missing) {
		return nil // another writer will
	}
	w.merged = err == nil
	return err
}

// Merged reports whether all parts of the set have been merged.
func (w *Writer) Merged() bool { return w.merged }

// Abort drops the open shard and leaves the finished ones for a later Create.
func (w *Writer) Abort() {
	w.discard()
	w.unlock()
	if w.err == nil {
		w.err = errors.New("data: the writer was aborted")
	}
}

func (w *Writer) discard() {
	if w.file != nil {
		_ = w.file.Discard() // the set is as it was before the shard
	}
	w.cur, w.file = nil, nil
}

func (w *Writer) unlock() {
	if w.lock != nil {
		_ = w.lock.Release() // nothing is written to it
		if w.merged {
			_ = vfs.Delete(filepath.Join(w.dir, w.part.lock())) // no longer needed
		}
		w.lock = nil
	}
}
