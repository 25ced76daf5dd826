package vfstest

import (
	"crypto/sha256"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"talf/internal/vfs"
)

// An inode is a file or a directory of the model of a disk: what processes see of it, and what was
// flushed.
type inode struct {
	dir            bool
	data, synced   []byte            // of a file
	names, flushed map[string]*inode // of a directory
}

func newDir() *inode {
	return &inode{dir: true, names: map[string]*inode{}, flushed: map[string]*inode{}}
}

// A Journal is what a command did below a directory, operation by operation, in the order in which
// it took effect.
//
// The model of a disk is as strict as POSIX: a file's content outlasts a power failure if Sync
// returned after it was written, a name if its directory was synced after it was created, removed or
// renamed. A rename within a directory happens or does not, but never halfway.
type Journal struct {
	dir   string
	mu    sync.Mutex
	root  *inode
	open  map[*vfs.File]*inode
	first *inode // a copy of root before the first operation
	ops   []change
}

// A change is an operation that succeeded.
type change struct {
	kind     vfs.Kind
	path, to string
	file     *vfs.File
	flag     int
	data     []byte
	at       int64 // of a write; size of a truncation
}

// Watch records what happens below dir until stop is called. What is there now is on disk.
func Watch(t testing.TB, dir string) (j *Journal, stop func()) {
	t.Helper()
	root, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	j = &Journal{dir: dir, first: root}
	return j, set(t, j.tap)
}

func load(path string) (*inode, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		b, err := os.ReadFile(path)
		return &inode{data: b, synced: b}, err
	}
	n := newDir()
	es, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	for _, e := range es {
		if n.names[e.Name()], err = load(filepath.Join(path, e.Name())); err != nil {
			return nil, err
		}
	}
	n.flushed = maps.Clone(n.names)
	return n, nil
}

// tap carries out an operation and notes it.
func (j *Journal) tap(op *vfs.Op, run func() error) error {
	if !under(j.dir, op.Path) {
		return run()
	}
	j.mu.Lock() // the order of the notes is that of the effects
	defer j.mu.Unlock()
	c := change{kind: op.Kind, path: op.Path, to: op.To, flag: op.Flag, at: op.Size}
	if op.Kind == vfs.Write {
		at, err := op.File.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		c.at, c.data = at, slices.Clone(op.Data)
	}
	if err := run(); err != nil {
		return err
	}
	c.file = op.File
	switch op.Kind {
	case vfs.Open, vfs.Read, vfs.ReadDir, vfs.Lock, vfs.Close:
	default:
		j.ops = append(j.ops, c)
	}
	return nil
}

// Len returns the number of operations that change something.
func (j *Journal) Len() int { return len(j.ops) }

// Op describes operation i.
func (j *Journal) Op(i int) string {
	c := j.ops[i]
	rel, err := filepath.Rel(j.dir, c.path)
	if err != nil {
		rel = c.path
	}
	return string(c.kind) + " " + rel
}

// Replay calls visit with every state that the disk may have after a power failure between two
// operations: done is the number of operations before it. A state that was visited before with the
// same done == Len() is left out. It stops when visit returns false.
func (j *Journal) Replay(visit func(done int, s State) bool) {
	j.root, j.open = clone(j.first, map[*inode]*inode{}), map[*vfs.File]*inode{}
	seen := map[[sha256.Size]byte]bool{}
	for done := 0; ; done++ {
		if done == len(j.ops) {
			clear(seen) // of the end more is required
		}
		for _, how := range losses {
			s := State{Name: how.name, root: how.keep(j.root)}
			if h := s.hash(); !seen[h] {
				seen[h] = true
				if !visit(done, s) {
					return
				}
			}
		}
		if done == len(j.ops) {
			return
		}
		j.apply(&j.ops[done])
	}
}

// clone copies a tree; inodes with several names stay one.
func clone(n *inode, made map[*inode]*inode) *inode {
	if c := made[n]; c != nil {
		return c
	}
	c := *n
	made[n] = &c
	if n.dir {
		c.names, c.flushed = map[string]*inode{}, map[string]*inode{}
		for name, child := range n.names {
			c.names[name] = clone(child, made)
		}
		for name, child := range n.flushed {
			c.flushed[name] = clone(child, made)
		}
	}
	return &c
}

// at returns the inode at path, or nil.
func (j *Journal) at(path string) *inode {
	rel, err := filepath.Rel(j.dir, path)
	if err != nil {
		panic("vfstest: " + err.Error())
	}
	n := j.root
	if rel == "." {
		return n
	}
	for name := range strings.SplitSeq(rel, string(filepath.Separator)) {
		if n == nil || !n.dir {
			return nil
		}
		n = n.names[name]
	}
	return n
}

func (j *Journal) apply(c *change) {
	parent, name := j.at(filepath.Dir(c.path)), filepath.Base(c.path)
	switch c.kind {
	case vfs.Create:
		n := parent.names[name]
		if n == nil {
			n = new(inode)
			parent.names[name] = n
		}
		if c.flag&os.O_TRUNC != 0 {
			n.data = nil
		}
		j.open[c.file] = n
	case vfs.Write:
		n := j.open[c.file]
		data := slices.Clone(n.data) // synced may be the same bytes
		if end := int(c.at) + len(c.data); end > len(data) {
			data = append(data, make([]byte, end-len(data))...)
		}
		copy(data[c.at:], c.data)
		n.data = data
	case vfs.Truncate:
		n := j.open[c.file]
		n.data = append(slices.Clone(n.data), make([]byte, max(0, int(c.at)-len(n.data)))...)[:c.at]
	case vfs.Sync:
		n := j.open[c.file]
		n.synced = n.data
	case vfs.Mkdir:
		parent.names[name] = newDir()
	case vfs.Remove:
		delete(parent.names, name)
	case vfs.Rename:
		to := j.at(filepath.Dir(c.to))
		to.names[filepath.Base(c.to)] = parent.names[name]
		delete(parent.names, name)
	case vfs.SyncDir:
		n := j.at(c.path)
		n.flushed = maps.Clone(n.names)
	default:
		panic("vfstest: no model of " + string(c.kind))
	}
}

// A loss is one way in which a disk loses what was not flushed.
type loss struct {
	name  string
	names func(dir *inode) map[string]*inode
	data  func(file *inode) []byte
}

func (l *loss) keep(n *inode) *inode {
	if !n.dir {
		return &inode{data: l.data(n)}
	}
	c := newDir()
	for name, child := range l.names(n) {
		c.names[name] = l.keep(child)
	}
	return c
}

var losses = []loss{
	{"all that was not flushed is lost", flushedNames, flushedData},
	{"names are kept, data are not", allNames, flushedData},
	{"names are kept, data are zeros", allNames, zeros},
	{"names are kept, data are torn", allNames, torn},
	{"nothing is lost, as when the process is killed", allNames, func(f *inode) []byte { return f.data }},
	{"files are removed, new names are lost", removals, flushedData},
	{"new names are kept, files are not removed", creations, flushedData},
}

func flushedNames(d *inode) map[string]*inode { return d.flushed }
func allNames(d *inode) map[string]*inode     { return d.names }
func flushedData(f *inode) []byte             { return f.synced }

// zeros has the file's length, and zeros where data was not flushed.
func zeros(f *inode) []byte {
	b := make([]byte, len(f.data))
	copy(b, f.synced)
	return b
}

// torn has half of what was not flushed.
func torn(f *inode) []byte {
	kept := 0
	for kept < min(len(f.data), len(f.synced)) && f.data[kept] == f.synced[kept] {
		kept++
	}
	return f.data[:kept+(len(f.data)-kept)/2]
}

// removals has the names that were flushed, less those of files that have no name any more.
func removals(d *inode) map[string]*inode {
	named := map[*inode]bool{}
	for _, n := range d.names {
		named[n] = true
	}
	out := maps.Clone(d.flushed)
	maps.DeleteFunc(out, func(name string, n *inode) bool { return d.names[name] == nil && !named[n] })
	return out
}

// creations has all names, and those of files that were removed.
func creations(d *inode) map[string]*inode {
	named := map[*inode]bool{}
	for _, n := range d.names {
		named[n] = true
	}
	out := maps.Clone(d.names)
	for name, n := range d.flushed {
		if out[name] == nil && !named[n] {
			out[name] = n
		}
	}
	return out
}

// A State is what a disk may hold after a power failure.
type State struct {
	Name string // how the disk lost what was not flushed
	root *inode
}

// Restore makes dir, which it empties first, hold the state.
func (s State) Restore(t testing.TB, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := s.root.write(dir); err != nil {
		t.Fatal(err)
	}
}

func (n *inode) write(path string) error {
	if !n.dir {
		return os.WriteFile(path, n.data, 0o666)
	}
	if err := os.Mkdir(path, 0o777); err != nil {
		return err
	}
	for name, child := range n.names {
		if err := child.write(filepath.Join(path, name)); err != nil {
			return err
		}
	}
	return nil
}

// hash identifies the state's contents.
func (s State) hash() (sum [sha256.Size]byte) {
	h := sha256.New()
	s.root.list(h, "")
	h.Sum(sum[:0])
	return sum
}

func (n *inode) list(w io.Writer, path string) {
	if !n.dir {
		sum := sha256.Sum256(n.data)
		_, _ = io.WriteString(w, path+"\x00"+string(sum[:]))
		return
	}
	_, _ = io.WriteString(w, path+"/\x00")
	for _, name := range slices.Sorted(maps.Keys(n.names)) {
		n.names[name].list(w, path+"/"+name)
	}
}
