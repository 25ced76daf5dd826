// Package gguf reads GGUF files, llama.cpp's format: a model's configuration, tokenizer, chat
// template and weights in one file (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
//
// A GGUF file is read as the Hugging Face directory that it was converted from. ReadFile returns
// config.json, tokenizer.json or tokenizer.model, and tokenizer_config.json, made from the file's
// keys; Tensors returns the weights by the names that they have in such a directory. So whatever
// takes a model directory takes a GGUF file, once it reads files through here. What the file
// does not say is not made up: see docs/models.md.
//
// Files are memory-mapped. Everything that a file says about sizes is compared with the bytes
// that it has before anything is allocated, and reading the header takes time linear in it.
package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"talf/internal/limits"
	"talf/internal/mapped"
	"talf/model/ggml"
)

// magic begins every GGUF file.
const magic = "GGUF"

// Bounds of the format, as in ggml.
const (
	maxName   = 63      // bytes of a tensor's name
	maxKey    = 1 << 16 // bytes of a key's name, exclusive
	maxDims   = 4
	maxSplits = 1 << 10 // parts of a model; published ones have up to some hundred
)

// Is reports whether path is a GGUF file, by its name or its first bytes. Everything else, such as
// a directory or nothing at all, is not.
func Is(path string) bool {
	info, err := os.Stat(path)
	if err != nil || info.IsDir() {
		return false
	}
	if strings.EqualFold(filepath.Ext(path), ".gguf") {
		return true
	}
	if !info.Mode().IsRegular() {
		return false
	}
	f, err := limits.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // read only
	var b [len(magic)]byte
	_, err = io.ReadFull(f, b[:])
	return err == nil && string(b[:]) == magic
}

// A File is an open GGUF file with all of its parts. It is safe for concurrent use until Close.
type File struct {
	Path string
	*contents
}

// The contents of a file are shared by all who have it open at the same time: a model and its tokenizer ask for them
// some ten times, and reading a large vocabulary takes a while.
type contents struct {
	keys  map[string]value
	infos []info   // in the order of the files
	heads [][]byte // what comes before the tensors' data, by file
	parts []func() error

	vocab func() (*vocab, *reader) // reads it once, and returns what says what is odd or wrong about it
	is    os.FileInfo              // of the file, before it was opened
	users int                      // under opened's lock
}

// opened are the files that are open, by path. Those of several parts are not shared.
var opened struct {
	sync.Mutex
	files map[string]*contents
}

// share returns the contents of a file that is open and has not changed since, or nil; and what the file is now.
func share(path string) (*contents, os.FileInfo) {
	is, err := os.Stat(path)
	if err != nil {
		return nil, nil // opening it says why
	}
	opened.Lock()
	defer opened.Unlock()
	c := opened.files[path]
	if c == nil || !os.SameFile(c.is, is) || c.is.Size() != is.Size() || !c.is.ModTime().Equal(is.ModTime()) {
		return nil, is
	}
	c.users++
	return c, is
}

// An info is an entry of the tensor table.
type info struct {
	name string
	typ  *ggml.Type
	dims []int // as safetensors has them: the length of a row comes last
	data []byte
	file string
}

// Open maps a GGUF file and checks its header. Of a model in several files it opens all, given the
// first. It does not look at the bytes of tensors.
func Open(path string) (f *File, err error) {
	defer mapped.Guard(&err)()
	f = &File{Path: path}
	var is os.FileInfo
	if f.contents, is = share(path); f.contents != nil {
		return f, nil
	}
	f.contents = &contents{is: is, users: 1}
	f.vocab = sync.OnceValues((&reader{f: &File{path, f.contents}}).readVocab)
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
			f = nil
		}
	}()
	if err := f.add(path); err != nil {
		return f, err
	}
	if err := f.splits(); err != nil || len(f.parts) > 1 || is == nil {
		return f, err
	}
	opened.Lock()
	defer opened.Unlock()
	if opened.files == nil {
		opened.files = make(map[string]*contents)
	}
	opened.files[path] = f.contents
	return f, nil
}

// Close unmaps the file if nobody else has it open. Data of its tensors must not be used afterwards.
func (f *File) Close() error {
	c := f.contents
	f.contents = &contents{}
	opened.Lock()
	defer opened.Unlock()
	if c.users--; c.users > 0 {
		return nil
	}
	if opened.files[f.Path] == c {
		delete(opened.files, f.Path)
	}
	var errs []error
	for _, unmap := range c.parts {
		errs = append(errs, unmap())
	}
	return errors.Join(errs...)
}

// Headers returns what each file has before the data of its tensors: mapped bytes, which opening it read. The
// lists of a tokenizer make them some 10 MiB.
func (f *File) Headers() [][]byte { return f.heads }

// add maps a file and takes its keys, if it is the first, and its tensors.
func (f *File) add(path string) error {
	data, unmap, err := mapped.Open(path)
	if err != nil {
		return fmt.Errorf("open GGUF file: %w", err)
	}
	f.parts = append(f.parts, unmap)
	keys, infos, head, err := parse(path, data)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	f.heads = append(f.heads, data[:head])
	if f.keys == nil {
		f.keys = keys
		f.infos = infos
		return nil
	}
	no, count := keys["split.no"], keys["split.count"]
	if want := uint64(len(f.parts) - 1); !no.is(want) || !count.same(f.keys["split.count"]) {
		return fmt.Errorf("%s: split.no is %v of split.count %v, want %d of %v as %s says", path, no, count, want, f.keys["split.count"], f.Path)
	}
	f.infos = append(f.infos, infos...)
	return nil
}

// part finds the number in the name of a part: NAME-00001-of-00003.gguf is the first of three.
var part = regexp.MustCompile(`^(.*)-([0-9]{5})-of-([0-9]{5})(\.[^.]*)$`)

// splits adds the other parts of a model in several files, which lie in the directory of the first.
func (f *File) splits() error {
	k := f.reader()
	count, no := k.count("split.count", 0), k.count("split.no", 0)
	tensors := k.count("split.tensors.count", 0)
	if k.err != nil || count <= 1 {
		return k.err
	}
	if count > maxSplits {
		k.bad("split.count", "at most %d", maxSplits)
		return k.err
	}
	name := part.FindStringSubmatch(filepath.Base(f.Path))
	if name == nil {
		return fmt.Errorf("%s is part %d of %d, want the name that llama.cpp gives it: NAME-%05d-of-%05d.gguf", f.Path, no+1, count, no+1, count)
	}
	of := func(i int) string {
		return filepath.Join(filepath.Dir(f.Path), fmt.Sprintf("%s-%05d-of-%s%s", name[1], i+1, name[3], name[4]))
	}
	if n, err := strconv.Atoi(name[3]); err != nil || n != count {
		return fmt.Errorf("%s: split.count is %d, want %s as the file's name says", f.Path, count, name[3])
	}
	if no != 0 || of(0) != filepath.Join(filepath.Dir(f.Path), filepath.Base(f.Path)) {
		return fmt.Errorf("%s is part %d of %d, want the first: %s", f.Path, no+1, count, of(0))
	}
	for i := 1; i < count; i++ {
		if err := f.add(of(i)); err != nil {
			return fmt.Errorf("part %d of %d: %w", i+1, count, err)
		}
	}
	if k.has("split.tensors.count") && tensors != len(f.infos) {
		return fmt.Errorf("%s: split.tensors.count is %d, but the parts have %d tensors", f.Path, tensors, len(f.infos))
	}
	seen := make(map[string]string, len(f.infos))
	for _, t := range f.infos {
		if first, dup := seen[t.name]; dup {
			return fmt.Errorf("%s: tensor %q is also in %s", t.file, t.name, first)
		}
		seen[t.name] = t.file
	}
	return nil
}

// A cursor reads the header of a file. After an error all reads give zeros.
type cursor struct {
	b   []byte
	at  int
	err error
}

func (c *cursor) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// take returns the next n bytes; what names them in errors.
func (c *cursor) take(n uint64, what string) []byte {
	if c.err == nil && n > uint64(len(c.b)-c.at) {
		c.fail("%s at byte %d takes %d bytes, but %d are left: truncated?", what, c.at, n, len(c.b)-c.at)
	}
	if c.err != nil {
		return nil
	}
	b := c.b[c.at:][:n:n]
	c.at += int(n)
	return b
}

func (c *cursor) u32(what string) uint32 {
	if b := c.take(4, what); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64(what string) uint64 {
	if b := c.take(8, what); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (c *cursor) text(what string) []byte { return c.take(c.u64(what), what) }

// parse reads the header of a file: its keys and its tensors, whose data is part of b.
func parse(path string, b []byte) (keys map[string]value, infos []info, head int, err error) {
	c := &cursor{b: b}
	tensors, n := c.start()
	keys = make(map[string]value)
	for i := uint64(0); i < n && c.err == nil; i++ {
		c.key(i, keys)
	}
	if c.err != nil {
		return nil, nil, 0, c.err
	}
	align, err := alignment(keys)
	if err != nil {
		return nil, nil, 0, err
	}
	var offsets []uint64
	seen := make(map[string]bool)
	for i := uint64(0); i < tensors && c.err == nil; i++ {
		t, offset := c.tensor(i, align)
		if c.err == nil && seen[t.name] {
			c.fail("tensor %q is there twice", t.name)
		}
		seen[t.name] = true
		t.file = path
		infos, offsets = append(infos, t), append(offsets, offset)
	}
	if c.err != nil {
		return nil, nil, 0, c.err
	}
	return keys, infos, c.at, place(b, c.at, align, infos, offsets)
}

// start reads what comes before the keys: magic, version and counts.
func (c *cursor) start() (tensors, keys uint64) {
	head := c.take(min(uint64(len(c.b)), 4), "the magic")
	switch {
	case string(head) == magic:
	case len(head) < 4:
		c.fail("%d bytes, want a GGUF file", len(c.b))
	case bytes.HasPrefix(c.b, []byte("version https://git-lfs")):
		c.fail("is a pointer of Git LFS, want the file itself: git lfs pull")
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		c.fail("is compressed by gzip, want the GGUF file that it holds")
	default:
		c.fail("begins with %q, want %q: not a GGUF file", head, magic)
	}
	switch v := c.u32("the version"); {
	case c.err != nil || v == 2 || v == 3:
	case v&0xffff == 0 && v != 0:
		c.fail("version %#x: a big-endian file, want a little-endian one", v)
	default:
		c.fail("version %d, want 2 or 3", v)
	}
	tensors, keys = c.u64("the number of tensors"), c.u64("the number of keys")
	switch left := uint64(len(c.b) - c.at); {
	case c.err != nil:
	case tensors > limits.Tensors || keys > limits.GGUFKeys:
		c.fail("%d tensors and %d keys, want at most %d and %d: %w", tensors, keys, limits.Tensors, limits.GGUFKeys, limits.ErrTooLarge)
	// A key takes at least 13 bytes, a tensor 32.
	case keys*13+tensors*32 > left:
		c.fail("%d tensors and %d keys do not fit the %d bytes that follow: truncated?", tensors, keys, left)
	}
	return tensors, keys
}

// key reads key i and its value.
func (c *cursor) key(i uint64, to map[string]value) {
	raw := c.text(fmt.Sprintf("the name of key %d", i))
	switch {
	case c.err != nil:
		return
	case len(raw) == 0 || len(raw) >= maxKey || !utf8.Valid(raw):
		c.fail("key %d has a name of %d bytes, want 1 to %d of UTF-8", i, len(raw), maxKey-1)
		return
	}
	name := string(raw)
	if _, dup := to[name]; dup {
		c.fail("key %q is there twice", name)
		return
	}
	what := fmt.Sprintf("the value of key %q", name)
	v := value{kind: c.u32(what), n: 1}
	if v.kind == kindArray {
		v.array, v.kind, v.n = true, c.u32(what), c.u64(what)
	}
	switch size := kindSizes[v.kind]; {
	case c.err != nil:
	case v.kind == kindString:
		from := c.at
		// Each takes 8 bytes or more, so that the loop ends with the file.
		for j := uint64(0); j < v.n && c.err == nil; j++ {
			c.text(what)
		}
		v.raw = c.b[from:c.at]
	case size == 0:
		c.fail("key %q has a value of type %d, want 0 to 12, and no array of arrays", name, v.kind)
	case v.n > uint64(len(c.b))/uint64(size):
		c.fail("key %q is an array of %d elements of %d bytes in a file of %d: truncated?", name, v.n, size, len(c.b))
	default:
		v.raw = c.take(v.n*uint64(size), what)
		if v.kind == kindBool && bytes.ContainsFunc(v.raw, func(r rune) bool { return r > 1 }) {
			c.fail("key %q is a bool of another value than 0 and 1", name)
		}
	}
	to[name] = v
}

// alignment returns general.alignment.
func alignment(keys map[string]value) (uint64, error) {
	v, ok := keys["general.alignment"]
	if !ok {
		return 32, nil
	}
	// A page is more than anybody aligns to.
	n, ok := v.uint()
	if v.kind != kindU32 || !ok || n == 0 || n&(n-1) != 0 || n > 1<<16 {
		return 0, fmt.Errorf("key \"general.alignment\" is %v, want a u32 that is a power of two up to %d", v, 1<<16)
	}
	return n, nil
}

// tensor reads entry i of the tensor table.
func (c *cursor) tensor(i, align uint64) (t info, offset uint64) {
	what := fmt.Sprintf("entry %d of the tensor table", i)
	name := c.text(what)
	switch {
	case c.err != nil:
		return t, 0
	case len(name) == 0 || len(name) > maxName || !utf8.Valid(name) || bytes.IndexByte(name, 0) >= 0:
		c.fail("tensor %d has the name %.70q, want 1 to %d bytes of UTF-8", i, name, maxName)
		return t, 0
	}
	t.name = string(name)
	n := c.u32(what)
	if c.err == nil && (n < 1 || n > maxDims) {
		c.fail("tensor %q has %d dimensions, want 1 to %d", t.name, n, maxDims)
		return t, 0
	}
	elems := uint64(1)
	for range n {
		d := c.u64(what)
		if c.err == nil && (d < 1 || d > math.MaxInt32 || elems > math.MaxInt64/d/8) {
			c.fail("tensor %q has a dimension of %d, want 1 to %d and a product that fits memory", t.name, d, math.MaxInt32)
		}
		if c.err != nil {
			return t, 0
		}
		elems *= d
		t.dims = append(t.dims, int(d))
	}
	id := c.u32(what)
	offset = c.u64(what)
	if c.err != nil {
		return t, 0
	}
	typ, err := ggml.ByID(id)
	if id == plainI64.ID && t.name == HeadVocab && n == 1 {
		typ, err = plainI64, nil
	}
	if err != nil {
		c.fail("tensor %q: %w", t.name, err)
		return t, 0
	}
	t.typ = typ
	if t.dims[0]%typ.Elems != 0 {
		c.fail("tensor %q has rows of %d elements, want a multiple of %d for %s", t.name, t.dims[0], typ.Elems, typ.Name)
	}
	if offset%align != 0 {
		c.fail("tensor %q begins at byte %d of the data, want a multiple of the alignment, %d", t.name, offset, align)
	}
	for len(t.dims) > 1 && t.dims[len(t.dims)-1] == 1 {
		t.dims = t.dims[:len(t.dims)-1]
	}
	slices.Reverse(t.dims)
	return t, offset
}

// size returns the bytes of a tensor. Its product was checked.
func (t *info) size() uint64 {
	n := uint64(1)
	for _, d := range t.dims {
		n *= uint64(d)
	}
	return n / uint64(t.typ.Elems) * uint64(t.typ.Size)
}

// place finds the tensors' bytes in file b, whose header ends at byte end.
func place(b []byte, end int, align uint64, infos []info, offsets []uint64) error {
	if len(infos) == 0 {
		return nil
	}
	start := (uint64(end) + align - 1) / align * align
	have := uint64(0)
	if start < uint64(len(b)) {
		have = uint64(len(b)) - start
	}
	order := make([]int, len(infos))
	for i := range infos {
		t, at := &infos[i], offsets[i]
		if n := t.size(); at > have || n > have-at {
			return fmt.Errorf("tensor %q is %d bytes at byte %d of the data, which has %d: truncated?", t.name, n, at, have)
		}
		from := start + at
		t.data = b[from:][:t.size():t.size()]
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		if offsets[i] != offsets[j] {
			if offsets[i] < offsets[j] {
				return -1
			}
			return 1
		}
		return i - j
	})
	for k := 1; k < len(order); k++ {
		p, t := &infos[order[k-1]], &infos[order[k]]
		if offsets[order[k-1]]+p.size() > offsets[order[k]] {
			return fmt.Errorf("tensor %q begins at byte %d of the data, inside %q", t.name, offsets[order[k]], p.name)
		}
	}
	return nil
}
