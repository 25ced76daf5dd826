package data

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"talf/internal/durable"
	"talf/internal/vfs"
)

// A Stripe is the part of a set that one of Count writers makes: the shards whose
// number is Index modulo Count, with the same names as from a single writer. Its
// manifest has its own name until all parts are merged.
type Stripe struct {
	Index int `json:"index"`
	Count int `json:"count"`
}

// Whole returns the part of a single writer: the whole set.
func Whole() Stripe { return Stripe{Index: 0, Count: 1} }

// Validate reports an invalid index or count.
func (p Stripe) Validate() error {
	if p.Count < 1 || p.Count > 1e6 || p.Index < 0 || p.Index >= p.Count {
		return fmt.Errorf("index %d of %d, want 0 to count − 1", p.Index, p.Count)
	}
	return nil
}

// Shard returns the number of the part's i-th shard, from 0, in the set.
func (p Stripe) Shard(i int) int { return p.Index + i*p.Count }

// Owns reports whether the part includes shard number i of the set.
func (p Stripe) Owns(i int) bool { return i%p.Count == p.Index }

// String returns the index and the count in the form used in file names.
func (p Stripe) String() string { return fmt.Sprintf("%05d-of-%05d", p.Index, p.Count) }

func (p Stripe) manifest() string { return partPrefix + p.String() + ".json" }

func (p Stripe) lock() string {
	if p == Whole() {
		return lockName
	}
	return lockName + "-" + p.String()
}

const partPrefix = "part-"

// parts are the manifests of a set made by several writers.
type parts map[Stripe]*Manifest

// findParts reads the manifests of the parts in dir.
func findParts(dir string) (parts, error) {
	names, err := filesIn(dir, isPart)
	if err != nil {
		return nil, err
	}
	all := make(parts)
	for _, name := range names {
		m, err := readManifest(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // just merged by another writer
		}
		if err != nil {
			return nil, err
		}
		if m.Part == nil || filepath.Base(name) != m.Part.manifest() {
			return nil, fmt.Errorf("%s: the manifest of another part, or of none", name)
		}
		all[*m.Part] = m
	}
	return all, nil
}

// HasParts reports whether dir has parts of a set that have not been merged yet.
func HasParts(dir string) bool {
	names, err := filesIn(dir, isPart)
	return err == nil && len(names) > 0
}

func isPart(name string) bool {
	return strings.HasPrefix(name, partPrefix) && strings.Contains(name, "-of-") && strings.HasSuffix(name, ".json")
}

// filesIn returns the paths of the files in dir with wanted names, or none if dir does
// not exist. (Glob would treat a directory name with brackets as a pattern.)
func filesIn(dir string, want func(name string) bool) (paths []string, err error) {
	es, err := vfs.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range es {
		if want(e.Name()) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths, nil
}

// A MissingError says which parts of a set are not finished.
type MissingError struct {
	Count   int
	Indices []int // parts that have not started or not finished
}

// Error names the first missing parts.
func (e *MissingError) Error() string {
	if len(e.Indices) == 0 {
		return fmt.Sprintf("%d indices have finished, and are to be merged", e.Count)
	}
	const most = 8
	var names []string
	for _, i := range e.Indices[:min(len(e.Indices), most)] {
		names = append(names, strconv.Itoa(i))
	}
	if n := len(e.Indices); n > most {
		names = append(names, fmt.Sprintf("and %d more", n-most))
	}
	return fmt.Sprintf("%d indices make this set, of which %s have not finished", e.Count, strings.Join(names, ", "))
}

// missing says which parts are not complete.
func (all parts) missing() *MissingError {
	e := &MissingError{}
	for p := range all {
		e.Count = max(e.Count, p.Count)
	}
	for i := range e.Count {
		if m := all[Stripe{i, e.Count}]; m == nil || !m.Complete {
			e.Indices = append(e.Indices, i)
		}
	}
	return e
}

// Merge merges the parts in dir into one set, with byte for byte the same manifest as
// from a single writer. It changes nothing if the set is already whole, and returns a
// MissingError if a part is not finished. The shards must exist under their names;
// their contents are checked when they are read.
func Merge(dir string) error {
	return mergeParts(dir)
}

// mergeWait is how long a writer waits for another one that is merging, which takes a
// moment.
const mergeWait = 30 * time.Second

func mergeParts(dir string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("data: merge %s: %w", dir, err)
		}
	}()
	lock, err := durable.LockFile(filepath.Join(dir, lockName))
	for until := time.Now().Add(mergeWait); errors.Is(err, durable.ErrBusy) && time.Now().Before(until); {
		time.Sleep(20 * time.Millisecond)
		lock, err = durable.LockFile(filepath.Join(dir, lockName))
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	return mergeLocked(dir)
}

func mergeLocked(dir string) error {
	all, err := findParts(dir)
	if err != nil {
		return err
	}
	whole, err := readManifest(filepath.Join(dir, ManifestName))
	switch {
	case err == nil && whole.Complete:
		return removeParts(dir, all)
	case err == nil:
		return fmt.Errorf("%s is that of a run without an index, which is not finished", ManifestName)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case len(all) == 0:
		return fmt.Errorf("neither %s nor the manifests of parts: want a directory that parts of one labelling wrote to", ManifestName)
	}
	first := all[slices.SortedFunc(maps.Keys(all), func(a, b Stripe) int { return a.Index - b.Index })[0]]
	m := Manifest{Format: manifestFormat, Meta: first.Meta, Shards: []Shard{}, Complete: true}
	count, shards := first.Part.Count, 0
	for p, x := range all {
		if p.Count != count {
			return fmt.Errorf("parts of %d and of %d: delete those of another split", count, p.Count)
		}
		if d := m.Meta.diff(&x.Meta); d != "" {
			return fmt.Errorf("%s: %s as in %s: the parts are of different sets", p.manifest(), d, first.Part.manifest())
		}
		shards += len(x.Shards)
	}
	if e := all.missing(); len(e.Indices) > 0 {
		return e
	}
	for n := range shards {
		p := Stripe{n % count, count}
		x := all[p]
		if n/count >= len(x.Shards) {
			return fmt.Errorf("%s: %d shards, want %s as well, because other parts have later ones", p.manifest(), len(x.Shards), shardName(n))
		}
		s := x.Shards[n/count]
		st, err := os.Stat(filepath.Join(dir, s.File))
		if err != nil {
			return err
		}
		if st.Size() != s.Bytes {
			return fmt.Errorf("%s: %d bytes, want %d as in %s", s.File, st.Size(), s.Bytes, p.manifest())
		}
		m.Shards = append(m.Shards, s)
	}
	if err := writeManifest(dir, &m); err != nil {
		return err
	}
	return removeParts(dir, all)
}

// removeParts deletes the files that only the parts needed. On some systems a lock that
// another writer still holds while it exits remains.
func removeParts(dir string, all parts) error {
	if len(all) == 0 {
		return nil
	}
	var errs []error
	for p := range all {
		if err := vfs.Delete(filepath.Join(dir, p.manifest())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		_ = vfs.Delete(filepath.Join(dir, p.lock())) // see above
	}
	return errors.Join(append(errs, vfs.SyncDirectory(dir))...)
}
