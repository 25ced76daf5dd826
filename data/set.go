package data

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"talf/internal/limits"
	"talf/internal/vfs"
)

// A Set is the finished shards in a directory, or a single shard. It is safe for
// concurrent use.
type Set struct {
	dir      string
	meta     Meta
	complete bool
	shards   []Shard
	groups   []group // in order
	rows     int
	id       string
	window   int64 // bytes that a reader decodes at once
	maker    Maker // of the rows, if they are not stored

	mu   sync.Mutex
	open []*openFile // most recently used last
	seen []bool      // shards whose hashes have been checked
}

// A group is a row group and the place of its rows in the set.
type group struct {
	shard, index int
	first, rows  int
	bytes        int64 // uncompressed
}

type openFile struct {
	shard int
	f     *vfs.File
	s     *shardFile
}

// maxOpen bounds the number of open files of a set.
const maxOpen = 16

// Open reads the manifest of a directory, or the one shard at path, and checks that
// every file's size, metadata and columns agree. Contents are checked when they are
// read, first by the manifest's hash, then field by field.
func Open(path string) (*Set, error) {
	s, err := openSet(path)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	return s, nil
}

func openSet(path string) (*Set, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	s := &Set{dir: path, window: windowBytes}
	if st.IsDir() {
		m, err := readManifest(filepath.Join(path, ManifestName))
		if errors.Is(err, fs.ErrNotExist) {
			parts, err := findParts(path)
			if err != nil {
				return nil, err
			}
			if len(parts) > 0 {
				return nil, fmt.Errorf("%s: %w", path, parts.missing())
			}
			return nil, fmt.Errorf("%s: no %s, want a directory written by talf preprocess", path, ManifestName)
		}
		if err != nil {
			return nil, err
		}
		s.meta, s.shards, s.complete = m.Meta, m.Shards, m.Complete
	} else {
		size, sum, err := hashFile(path)
		if err != nil {
			return nil, err
		}
		s.dir = filepath.Dir(path)
		s.shards = []Shard{{File: filepath.Base(path), Bytes: size, SHA256: sum}}
	}
	s.seen = make([]bool, len(s.shards))
	id := sha256.New()
	for i := range s.shards {
		if err := s.index(i, st.IsDir()); err != nil {
			s.Close()
			return nil, err
		}
		io.WriteString(id, s.shards[i].SHA256)
	}
	s.id = hex.EncodeToString(id.Sum(nil))
	return s, nil
}

// index checks shard i against the manifest, if there is one, and lists its
// row groups.
func (s *Set) index(i int, listed bool) error {
	want := &s.shards[i]
	path := filepath.Join(s.dir, want.File)
	o, err := s.handle(i)
	if err != nil {
		return err
	}
	if !listed {
		s.meta, s.seen[i] = o.s.meta, true
		*want = o.s.info.shard(want.File, want.Bytes, want.SHA256)
	}
	if d := s.meta.diff(&o.s.meta); d != "" {
		return fmt.Errorf("%s: %s as in the manifest", path, d)
	}
	if o.s.info.Rows != want.Rows || o.s.info.Tokens != want.Tokens {
		return fmt.Errorf("%s: %d rows with %d tokens, want %d with %d as in the manifest", path, o.s.info.Rows, o.s.info.Tokens, want.Rows, want.Tokens)
	}
	for j, g := range o.s.groups {
		s.groups = append(s.groups, group{shard: i, index: j, first: s.rows, rows: int(g.NumRows), bytes: g.TotalByteSize})
		s.rows += int(g.NumRows)
	}
	return nil
}

// handle returns an open shard; the caller must hold mu or have sole access.
func (s *Set) handle(i int) (*openFile, error) {
	for j, o := range s.open {
		if o.shard == i {
			s.open = append(append(s.open[:j], s.open[j+1:]...), o)
			return o, nil
		}
	}
	path := filepath.Join(s.dir, s.shards[i].File)
	f, err := limits.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && st.Size() != s.shards[i].Bytes {
		err = fmt.Errorf("%s: %d bytes, want %d as in the manifest: the file is truncated or foreign", path, st.Size(), s.shards[i].Bytes)
	}
	var p *shardFile
	if err == nil {
		if p, err = openShard(f, st.Size()); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	if len(s.open) == maxOpen {
		s.open[0].f.Close()
		s.open = append(s.open[:0], s.open[1:]...)
	}
	o := &openFile{shard: i, f: f, s: p}
	s.open = append(s.open, o)
	return o, nil
}

// read returns the records of group g.
func (s *Set) read(g *group) ([]Record, error) {
	if s.maker != nil {
		return nil, errors.New("data: the set is not stored: only readers make its labels")
	}
	return s.readWith(g, (*shardFile).read)
}

func (s *Set) readWith(g *group, read func(*shardFile, int) ([]Record, error)) ([]Record, error) {
	if s.maker != nil { // what else they have is made when a reader comes to it
		rows := make([]Record, g.rows)
		for i := range rows {
			rows[i] = s.maker.Text(g.first + i)
		}
		return rows, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	path := filepath.Join(s.dir, s.shards[g.shard].File)
	if !s.seen[g.shard] {
		_, sum, err := hashFile(path)
		if err != nil {
			return nil, fmt.Errorf("data: %w", err)
		}
		if sum != s.shards[g.shard].SHA256 {
			return nil, fmt.Errorf("data: %s: SHA-256 %s, want %s as in the manifest: the file is corrupt", path, sum, s.shards[g.shard].SHA256)
		}
		s.seen[g.shard] = true
	}
	o, err := s.handle(g.shard)
	if err != nil {
		return nil, fmt.Errorf("data: %w", err)
	}
	out, err := read(o.s, g.index)
	if err != nil {
		return nil, fmt.Errorf("data: %s: %w", path, err)
	}
	return out, nil
}

// Meta returns the information that all rows share.
func (s *Set) Meta() Meta { return s.meta }

// Len returns the number of rows.
func (s *Set) Len() int { return s.rows }

// Complete reports whether the set's writer finished. For a single shard this is
// unknown and false.
func (s *Set) Complete() bool { return s.complete }

// Shards returns the list of files. The slice belongs to s.
func (s *Set) Shards() []Shard { return s.shards }

// ID identifies the contents: a hash of the shards' hashes.
func (s *Set) ID() string { return s.id }

// Close closes the files. Readers of s fail afterwards.
func (s *Set) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, o := range s.open {
		errs = append(errs, o.f.Close())
	}
	s.open = nil
	return errors.Join(errs...)
}

// Stats are sums over all rows of a set. Other readers of the Parquet files can compare
// their sums with them.
type Stats struct {
	Rows       int              `json:"rows"`
	Tokens     int64            `json:"tokens"`
	LossTokens int64            `json:"loss_tokens"`
	TokenSum   int64            `json:"token_sum"`  // Σ token ids
	TreeSum    int64            `json:"tree_sum"`   // Σ tree token ids
	Labels     int64            `json:"labels"`     // labelled nodes
	LabelMass  float64          `json:"label_mass"` // Σ stored probabilities, in float64, without tails
	TailMass   float64          `json:"tail_mass"`  // Σ tails
	Features   int64            `json:"features"`   // positions with a hidden state
	Bytes      int64            `json:"bytes"`      // of the files
	Units      int              `json:"units"`
	Dropped    map[string]int   `json:"dropped,omitempty"`
	Inputs     []Input          `json:"inputs,omitempty"`
	PerToken   float64          `json:"bytes_per_token"`
	Columns    map[string]int64 `json:"column_bytes"` // compressed
	TopK       []int            `json:"top_k,omitempty"`
	Levels     []Level          `json:"levels"`

	mass, tail kahan
}

// A kahan is a compensated sum. Over millions of labels, a plain sum loses digits that
// other readers' sums have.
type kahan struct{ sum, lost float64 }

func (k *kahan) add(x []float32) {
	for _, v := range x {
		k.add1(float64(v))
	}
}

func (k *kahan) add1(v float64) {
	y := v - k.lost
	t := k.sum + y
	k.lost = (t - k.sum) - y
	k.sum = t
}

// Stats reads the whole set.
func (s *Set) Stats() (Stats, error) {
	st := Stats{Rows: s.rows, Columns: map[string]int64{}, TopK: topCounts(&s.meta)}
	levels := newLevels(&s.meta)
	for _, sh := range s.shards {
		st.Bytes += sh.Bytes
		st.Units += sh.Units
		st.Inputs = AddInputs(st.Inputs, sh.Inputs)
		for why, n := range sh.Dropped {
			if st.Dropped == nil {
				st.Dropped = map[string]int{}
			}
			st.Dropped[why] += n
		}
	}
	for i := range s.groups {
		rows, err := s.read(&s.groups[i])
		if err != nil {
			return st, err
		}
		s.columns(&s.groups[i], st.Columns)
		for j := range rows {
			st.add(&rows[j], &s.meta)
			levels.add(&rows[j], &s.meta, st.TopK)
		}
	}
	st.Levels = levels.done()
	st.LabelMass, st.TailMass = st.mass.sum, st.tail.sum
	if st.Tokens > 0 {
		st.PerToken = float64(st.Bytes) / float64(st.Tokens)
	}
	return st, nil
}

// columns adds the compressed sizes of a group that has just been read.
func (s *Set) columns(g *group, to map[string]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, err := s.handle(g.shard)
	if err != nil {
		return // the read has just succeeded; sizes are optional
	}
	for _, c := range o.s.groups[g.index].Columns {
		to[c.MetaData.PathInSchema[0]] += c.MetaData.TotalCompressedSize
	}
}

func (st *Stats) add(r *Record, m *Meta) {
	st.Tokens += int64(len(r.Tokens))
	st.Labels += int64(len(r.TreeTokens))
	if m.FeatureSize() > 0 {
		st.Features += int64(len(r.Tokens))
	}
	for _, x := range r.LossMask {
		if x {
			st.LossTokens++
		}
	}
	for _, x := range r.Tokens {
		st.TokenSum += int64(x)
	}
	for _, x := range r.TreeTokens {
		st.TreeSum += int64(x)
	}
	st.mass.add(r.LabelProbs)
	st.mass.add(r.LabelFull)
	st.tail.add(r.Tail)
}
