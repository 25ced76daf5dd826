// Package datastore keeps a text as token ids with their suffix array in one
// file, and finds what followed a context in it: the datastore of REST (He et
// al. 2024, §3.2).
//
// All numbers are little endian:
//
//	  0  8 bytes  magic "talfsa\r\n"
//	  8  uint32   version, 1
//	 12  uint32   bytes of the header, 128
//	 16  uint64   entries n: tokens, and one end after each document
//	 24  uint64   documents
//	 32  uint32   vocabulary: token ids are below
//	 36  uint32   CRC-32C of everything after the header
//	 40  32 bytes SHA-256 that identifies the tokenizer
//	 72  52 bytes zero
//	124  uint32   CRC-32C of the header before
//	128  [n]int32 token ids; -1 ends a document
//	     [n]int32 starts of the suffixes, in lexicographic order
package datastore

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"runtime/debug"
	"slices"
	"sort"
	"sync/atomic"
	"unsafe"

	"talf/internal/mapped"
)

const (
	magic      = "talfsa\r\n"
	version    = 1
	headerSize = 128
)

// end is the entry after a document's last token. Continuations stop there.
const end = -1

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// An Info describes a file by its header.
type Info struct {
	Tokens    int    // not counting ends of documents
	Documents int    //
	Vocab     int    // token ids are below
	Tokenizer string // SHA-256 in hexadecimal
}

// A Builder collects documents. It needs four bytes of memory per token, and about twenty more
// while it sorts.
type Builder struct {
	vocab     int
	tokenizer [32]byte
	documents int
	ids       []int32
	starts    []int32 // of the suffixes, in their order; nil: to be sorted
}

// NewBuilder begins a datastore of token ids below vocab, produced by the tokenizer with this
// hash: a SHA-256 in hexadecimal.
func NewBuilder(vocab int, tokenizer string) (*Builder, error) {
	b := &Builder{vocab: vocab}
	if vocab < 1 || vocab > math.MaxInt32-1 {
		return nil, fmt.Errorf("datastore: vocabulary of %d, want 1..%d", vocab, math.MaxInt32-1)
	}
	h, err := hex.DecodeString(tokenizer)
	if err != nil || len(h) != len(b.tokenizer) {
		return nil, fmt.Errorf("datastore: tokenizer hash %q, want a SHA-256 in hexadecimal", tokenizer)
	}
	copy(b.tokenizer[:], h)
	return b, nil
}

// Add appends a document. One without tokens is left out.
func (b *Builder) Add(ids []int32) error {
	if len(ids) == 0 {
		return nil
	}
	if len(b.ids)+len(ids)+1 > math.MaxInt32 {
		return fmt.Errorf("datastore: more than %d tokens, want several files", math.MaxInt32)
	}
	for i, id := range ids {
		if id < 0 || int(id) >= b.vocab {
			return fmt.Errorf("datastore: token %d is %d, want 0..%d", i, id, b.vocab-1)
		}
	}
	b.ids = append(append(b.ids, ids...), end)
	b.documents, b.starts = b.documents+1, nil
	return nil
}

// Info describes the documents added so far.
func (b *Builder) Info() Info {
	return Info{
		Tokens: len(b.ids) - b.documents, Documents: b.documents, Vocab: b.vocab,
		Tokenizer: hex.EncodeToString(b.tokenizer[:]),
	}
}

// Sort sorts the suffixes, which takes most of the time that WriteTo takes: that sorts them unless they are.
func (b *Builder) Sort() {
	if b.starts != nil {
		return
	}
	for i := range b.ids {
		b.ids[i]++ // ids and end as 0..vocab
	}
	b.starts = suffixArray(b.ids, int32(b.vocab))
	for i := range b.ids {
		b.ids[i]--
	}
}

// WriteTo sorts the suffixes and writes the file.
func (b *Builder) WriteTo(w io.Writer) (int64, error) {
	if b.documents == 0 {
		return 0, errors.New("datastore: no document has a token, want at least one")
	}
	b.Sort()
	sum := crc32.Update(crc32.Checksum(raw(b.ids), castagnoli), castagnoli, raw(b.starts))
	h := make([]byte, headerSize)
	copy(h, magic)
	le := binary.LittleEndian
	le.PutUint32(h[8:], version)
	le.PutUint32(h[12:], headerSize)
	le.PutUint64(h[16:], uint64(len(b.ids)))
	le.PutUint64(h[24:], uint64(b.documents))
	le.PutUint32(h[32:], uint32(b.vocab))
	le.PutUint32(h[36:], sum)
	copy(h[40:], b.tokenizer[:])
	le.PutUint32(h[124:], crc32.Checksum(h[:124], castagnoli))
	var n int64
	for _, part := range [][]byte{h, raw(b.ids), raw(b.starts)} {
		k, err := w.Write(part)
		n += int64(k)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// little says that numbers have the file's byte order in memory.
var little = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// raw returns v in the file's encoding: the same memory if the byte order is the same.
func raw(v []int32) []byte {
	if little && len(v) > 0 {
		return unsafe.Slice((*byte)(unsafe.Pointer(&v[0])), 4*len(v))
	}
	b := make([]byte, 4*len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint32(b[4*i:], uint32(x))
	}
	return b
}

// numbers is the inverse of raw.
func numbers(b []byte) []int32 {
	if p := unsafe.SliceData(b); little && uintptr(unsafe.Pointer(p))%4 == 0 {
		return unsafe.Slice((*int32)(unsafe.Pointer(p)), len(b)/4)
	}
	v := make([]int32, len(b)/4)
	for i := range v {
		v[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

// A Store is an open file. It is safe for concurrent use.
//
// Its numbers lie in the mapping, and Open has checked them; but another program can still write
// or truncate the file. So look-ups check again what would take them out of bounds, and after a
// fault they find nothing and Err says why.
type Store struct {
	info  Info
	ids   []int32
	sa    []int32 // starts of suffixes, in order
	block []int32 // [vocab+1]: suffixes [block[t], block[t+1]) begin with token t
	close func() error
	fault atomic.Pointer[error]
}

// Open maps a file if the system can, and reads it otherwise. It verifies the checksums before
// it returns, which reads the file once. tokenizer is the hash that the file must have; empty
// accepts any.
func Open(path, tokenizer string) (*Store, error) {
	data, unmap, err := mapped.Open(path)
	if err != nil {
		return nil, fmt.Errorf("datastore: %w", err)
	}
	s, err := parseMapped(path, data)
	if err == nil && tokenizer != "" && s.info.Tokenizer != tokenizer {
		err = fmt.Errorf("datastore %s: it was built with the tokenizer %.12s…, this model's is %.12s…: build it again with this model", path, s.info.Tokenizer, tokenizer)
	}
	if err != nil {
		return nil, errors.Join(err, unmap())
	}
	s.close = unmap
	return s, nil
}

// parseMapped is Parse of mapped bytes.
func parseMapped(path string, data []byte) (s *Store, err error) {
	defer mapped.Guard(&err)()
	return Parse(path, data)
}

// guard is deferred by what reads the mapping, with debug.SetPanicOnFault(true) as its argument.
// It keeps a fault for Err. It costs less than mapped.Guard.
func (s *Store) guard(before bool) {
	debug.SetPanicOnFault(before)
	if v := recover(); v != nil {
		err := mapped.Fault(v)
		if err == nil {
			panic(v)
		}
		err = fmt.Errorf("datastore %w", err)
		s.fault.CompareAndSwap(nil, &err)
	}
}

// Err returns why look-ups find nothing any more, or nil: the file was cut short while the store
// was open, or its disk failed.
func (s *Store) Err() error {
	if err := s.fault.Load(); err != nil {
		return *err
	}
	return nil
}

// Parse reads the bytes of a file, which the store keeps. name is used in errors.
func Parse(name string, data []byte) (*Store, error) {
	fail := func(format string, args ...any) (*Store, error) {
		return nil, fmt.Errorf("datastore %s: %s", name, fmt.Sprintf(format, args...))
	}
	le := binary.LittleEndian
	if len(data) < len(magic) || string(data[:len(magic)]) != magic {
		return fail("its first bytes are %q, want %q: it is not a datastore", data[:min(len(data), len(magic))], magic)
	}
	if len(data) < headerSize {
		return fail("%d bytes, want a header of %d: it is truncated", len(data), headerSize)
	}
	if v := le.Uint32(data[8:]); v != version {
		return fail("version %d, want %d", v, version)
	}
	if got, want := crc32.Checksum(data[:124], castagnoli), le.Uint32(data[124:]); got != want {
		return fail("the header's checksum is %08x, want %08x: it is damaged", got, want)
	}
	if n := le.Uint32(data[12:]); n != headerSize {
		return fail("a header of %d bytes, want %d", n, headerSize)
	}
	n, documents, vocab := le.Uint64(data[16:]), le.Uint64(data[24:]), le.Uint32(data[32:])
	switch {
	case n < 1 || n > math.MaxInt32:
		return fail("%d entries, want 1..%d", n, math.MaxInt32)
	case documents < 1 || documents > n/2:
		return fail("%d documents in %d entries, want 1..%d", documents, n, n/2)
	case vocab < 1 || vocab > math.MaxInt32-1:
		return fail("a vocabulary of %d, want 1..%d", vocab, math.MaxInt32-1)
	case uint64(vocab) > 64*n+(1<<20):
		// The index of first tokens is built in memory.
		return fail("a vocabulary of %d for %d entries, which no tokenizer has", vocab, n)
	}
	if want := headerSize + 8*n; uint64(len(data)) != want {
		what := "it is truncated"
		if uint64(len(data)) > want {
			what = "something follows its end"
		}
		return fail("%d bytes, want %d for %d entries: %s", len(data), want, n, what)
	}
	body := data[headerSize:]
	if got, want := crc32.Checksum(body, castagnoli), le.Uint32(data[36:]); got != want {
		return fail("the checksum of its contents is %08x, want %08x: it is damaged", got, want)
	}
	s := &Store{
		info: Info{
			Tokens: int(n - documents), Documents: int(documents), Vocab: int(vocab),
			Tokenizer: hex.EncodeToString(data[40:72]),
		},
		ids: numbers(body[:4*n]), sa: numbers(body[4*n:]),
		block: make([]int32, vocab+1),
		close: func() error { return nil },
	}
	ends := 0
	for i, id := range s.ids {
		switch {
		case id == end:
			ends++
		case id < 0 || uint32(id) >= vocab:
			return fail("entry %d is token %d, want -1..%d", i, id, vocab-1)
		default:
			s.block[id]++
		}
	}
	if ends != s.info.Documents || s.ids[n-1] != end {
		return fail("%d ends of documents, want %d and the last entry to be one", ends, documents)
	}
	for i, at := range s.sa {
		if at < 0 || uint64(at) >= n {
			return fail("suffix %d starts at %d, want 0..%d", i, at, n-1)
		}
	}
	at := int32(ends)
	for t, c := range s.block {
		s.block[t] = at
		at += c
	}
	return s, nil
}

// Info describes the file.
func (s *Store) Info() Info { return s.info }

// Close releases the file.
func (s *Store) Close() error {
	f := s.close
	s.ids, s.sa, s.block, s.close = nil, nil, nil, func() error { return nil }
	return f()
}

// Check verifies that the suffixes are in order and each occurs once, which no checksum proves.
// It takes 16 bytes of memory per token and a pass over all of them.
func (s *Store) Check() (err error) {
	defer mapped.Guard(&err)()
	rank := make([]int32, len(s.sa)+1)
	for i := range rank {
		rank[i] = -1
	}
	for i, at := range s.sa {
		if rank[at] >= 0 {
			return fmt.Errorf("datastore: suffixes %d and %d both start at %d", rank[at], i, at)
		}
		rank[at] = int32(i)
	}
	for i := 1; i < len(s.sa); i++ {
		a, b := s.sa[i-1], s.sa[i]
		if s.ids[a] > s.ids[b] || s.ids[a] == s.ids[b] && rank[a+1] > rank[b+1] {
			return fmt.Errorf("datastore: suffixes %d and %d are not in order", i-1, i)
		}
	}
	return nil
}

// A Match is a run of tokens and its occurrences in the store.
type Match struct {
	lo, hi int32 // suffixes [lo,hi) begin with it
	n      int32 // tokens
}

// Count returns the number of occurrences.
func (m Match) Count() int { return int(m.hi - m.lo) }

// First returns the first n occurrences, in the order of the suffixes.
func (m Match) First(n int) Match {
	m.hi = min(m.hi, m.lo+int32(min(n, m.Count())))
	return m
}

// Len returns the number of tokens.
func (m Match) Len() int { return int(m.n) }

// at returns entry k of suffix i, counted from 0.
func (s *Store) at(i, k int) int32 {
	if j := uint(s.sa[i]) + uint(k); j < uint(len(s.ids)) {
		return s.ids[j]
	}
	return end
}

// Find returns the occurrences of the whole context; Count is 0 if there are none. The empty
// context occurs everywhere.
func (s *Store) Find(context []int32) (found Match) {
	defer s.guard(debug.SetPanicOnFault(true))
	if s.fault.Load() != nil {
		return Match{}
	}
	return s.find(context)
}

func (s *Store) find(context []int32) Match {
	if len(context) == 0 {
		return Match{0, int32(len(s.sa)), 0}
	}
	t := context[0]
	if t < 0 || int(t) >= s.info.Vocab {
		return Match{}
	}
	m := Match{s.block[t], int32(len(s.sa)), int32(len(context))}
	if int(t)+1 < len(s.block) {
		m.hi = s.block[t+1]
	}
	size := int(m.hi - m.lo)
	lo := sort.Search(size, func(i int) bool { return s.compare(m.lo+int32(i), context) >= 0 })
	hi := lo + sort.Search(size-lo, func(i int) bool { return s.compare(m.lo+int32(lo+i), context) > 0 })
	m.lo, m.hi = m.lo+int32(lo), m.lo+int32(hi)
	return m
}

// compare compares suffix i, which begins with context's first token, with context. It returns
// 0 if the suffix begins with context.
func (s *Store) compare(i int32, context []int32) int {
	from := uint(s.sa[i])
	for k := 1; k < len(context); k++ {
		x := int32(end)
		if at := from + uint(k); at < uint(len(s.ids)) {
			x = s.ids[at]
		}
		if x != context[k] {
			if x < context[k] {
				return -1
			}
			return 1
		}
	}
	return 0
}

// Longest returns the longest suffix of context, between least and most tokens, that occurs in
// the store; its Count is 0 if there is none.
func (s *Store) Longest(context []int32, least, most int) (found Match) {
	defer s.guard(debug.SetPanicOnFault(true))
	if s.fault.Load() != nil {
		return Match{}
	}
	// If a suffix of context occurs, all shorter ones do.
	var best Match
	lo, hi := least, min(most, len(context))
	for lo <= hi {
		n := (lo + hi + 1) / 2
		if m := s.find(context[len(context)-n:]); m.Count() > 0 {
			best, lo = m, n+1
		} else {
			hi = n - 1
		}
	}
	return best
}

// A Next is a token that follows a match, and the longer match that the two form.
type Next struct {
	Token int32
	Match
}

// samples bounds the suffixes that Append looks at: a run of equal tokens that makes up at
// least this fraction of a match is certain to be hit.
const samples = 48

// Append appends the tokens that follow m most often, best first, ties to the lower id, at most
// most of them. Counts are exact. If a match has more than 48 occurrences, tokens that follow
// in less than a 48th of them may be left out.
func (s *Store) Append(dst []Next, m Match, most int) (out []Next) {
	out = dst // after a fault
	defer s.guard(debug.SetPanicOnFault(true))
	if s.fault.Load() != nil {
		return dst
	}
	first, k, last := len(dst), int(m.n), int(m.hi)
	step := max(1, m.Count()/samples)
	from := int(m.lo) // after the last run
	for i := from; i < last; {
		t := s.at(i, k)
		lo := i
		if step > 1 {
			lo = s.bound(from, i, k, t)
		}
		hi, gap := i+1, 1
		for hi+gap <= last && s.at(hi+gap-1, k) == t {
			hi, gap = hi+gap, 2*gap
		}
		hi = s.bound(hi, min(hi+gap, last), k, t+1)
		if uint32(t) < uint32(s.info.Vocab) { // the end of a document is no token
			x := Next{t, Match{int32(lo), int32(hi), m.n + 1}}
			j := len(dst)
			for j > first && dst[j-1].Count() < x.Count() {
				j--
			}
			if len(dst)-first < most {
				dst = slices.Insert(dst, j, x)
			} else if j < len(dst) {
				copy(dst[j+1:], dst[j:])
				dst[j] = x
			}
		}
		from = hi
		i += (hi - i + step - 1) / step * step
	}
	return dst
}

// bound returns the first of suffixes [lo,hi) whose entry k is at least t, hi if there is none.
func (s *Store) bound(lo, hi, k int, t int32) int {
	for lo < hi {
		mid := lo + (hi-lo)/2
		if s.at(mid, k) < t {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}
