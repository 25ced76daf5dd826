package data

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
)

// Columns of a shard. All are required lists without nulls.
const (
	colTokens     = "tokens"
	colMask       = "loss_mask"
	colTreeToken  = "tree_token"
	colTreeParent = "tree_parent"
	colTreeLevel  = "tree_level"
	colLabelID    = "label_id"
	colLabelProb  = "label_prob"
	colLabelTail  = "label_tail"
	colLabelFull  = "label_full"
	colFeature    = "feature"
)

// Keys of a shard's metadata.
const (
	keySchema = "talf.schema"
	keyMeta   = "talf.meta"
	keyShard  = "talf.shard"
)

// MaxRowGroup is the maximum size in bytes of the values in a row group, and so of a
// row.
const MaxRowGroup = 64 << 20

// maxGroupRows is the largest number of rows in a row group. Rows of a token or two take
// more memory than their values.
const maxGroupRows = 1 << 19

// shardInfo describes a shard within the shard itself, so that a manifest can be
// rebuilt.
type shardInfo struct {
	Rows    int            `json:"rows"`
	Tokens  int64          `json:"tokens"`
	Loss    int64          `json:"loss_tokens"`
	Units   int            `json:"units"`
	Dropped map[string]int `json:"dropped,omitempty"`
	Inputs  []Input        `json:"inputs,omitempty"`
	Text    string         `json:"text,omitempty"`
}

// An Input says what became of one input file, in one shard or in all shards.
type Input struct {
	Input         int            `json:"input"` // its index among the files, so that equal texts give equal sets regardless of file names
	Rows          int            `json:"rows"`
	Conversations int            `json:"conversations"` // including dropped ones
	Turns         int            `json:"turns"`         // messages in the rows
	Cut           int            `json:"cut_turns"`     // messages omitted after the last answer that fits
	Tokens        int64          `json:"tokens"`
	Loss          int64          `json:"loss_tokens"`
	Dropped       map[string]int `json:"dropped,omitempty"`
}

// AddInputs adds counts to sums and returns sums. Both are in the order of the files.
func AddInputs(sums, counts []Input) []Input {
	for _, c := range counts {
		i, found := slices.BinarySearchFunc(sums, c.Input, func(s Input, n int) int { return s.Input - n })
		if !found {
			sums = slices.Insert(sums, i, Input{Input: c.Input})
		}
		s := &sums[i]
		s.Rows += c.Rows
		s.Conversations += c.Conversations
		s.Turns += c.Turns
		s.Cut += c.Cut
		s.Tokens += c.Tokens
		s.Loss += c.Loss
		for why, n := range c.Dropped {
			if s.Dropped == nil {
				s.Dropped = map[string]int{}
			}
			s.Dropped[why] += n
		}
	}
	return sums
}

// checkInputs reports the first impossible count.
func checkInputs(inputs []Input) error {
	for i, c := range inputs {
		if c.Input < 0 || i > 0 && c.Input <= inputs[i-1].Input {
			return fmt.Errorf("inputs[%d].input: %d, want the files in their order", i, c.Input)
		}
		if c.Rows < 0 || c.Conversations < 0 || c.Turns < 0 || c.Cut < 0 || c.Loss < 0 || c.Tokens < c.Loss {
			return fmt.Errorf("inputs[%d]: counts that no shard has: %d rows, %d conversations, %d turns, %d cut, %d tokens, %d loss tokens", i, c.Rows, c.Conversations, c.Turns, c.Cut, c.Tokens, c.Loss)
		}
	}
	return nil
}

func schemaOf(m *Meta) *parquet.Schema {
	leaf := func(t parquet.Type) parquet.Node {
		return parquet.List(parquet.Encoded(parquet.Leaf(t), &parquet.Plain))
	}
	// The four bytes of floats compress better as separate streams, because the
	// exponents repeat.
	float := parquet.List(parquet.Encoded(parquet.Leaf(parquet.FloatType), &parquet.ByteStreamSplit))
	// No dictionaries: the library numbers their entries differently with and without
	// its assembly, and equal rows must give equal bytes everywhere.
	g := parquet.Group{
		colTokens:     leaf(parquet.Int32Type),
		colMask:       leaf(parquet.BooleanType),
		colTreeToken:  leaf(parquet.Int32Type),
		colTreeParent: leaf(parquet.Int32Type),
		colTreeLevel:  leaf(parquet.Int32Type),
	}
	if m.Labels == TopK {
		g[colLabelID] = leaf(parquet.Int32Type)
		g[colLabelProb] = float
		g[colLabelTail] = float
	} else {
		g[colLabelFull] = float
	}
	if n := m.FeatureSize(); n > 0 {
		g[colFeature] = leaf(parquet.FixedLenByteArrayType(2 * n))
	}
	return parquet.NewSchema("talf", g)
}

// A shardWriter encodes one shard.
type shardWriter struct {
	meta  *Meta
	w     *parquet.GenericWriter[any]
	cols  map[string]*parquet.ColumnWriter
	index map[string]int
	vals  []parquet.Value
	lvl   []int32
	group int // bytes in the open row group
	rows  int // rows in it
	limit int
	info  shardInfo
}

func newShardWriter(out io.Writer, m *Meta, rowGroup int) (*shardWriter, error) {
	meta, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	s := &shardWriter{meta: m, limit: rowGroup, cols: map[string]*parquet.ColumnWriter{}, index: map[string]int{}}
	schema := schemaOf(m)
	s.w = parquet.NewGenericWriter[any](out, schema,
		parquet.Compression(&zstd.Codec{Level: zstd.SpeedDefault}),
		parquet.CreatedBy("talf", fmt.Sprint(m.Schema), "parquet-go"), // the library's own string depends on the build
		parquet.KeyValueMetadata(keySchema, fmt.Sprint(m.Schema)),
		parquet.KeyValueMetadata(keyMeta, string(meta)),
	)
	for i, path := range schema.Columns() {
		s.cols[path[0]] = s.w.ColumnWriters()[i]
		s.index[path[0]] = i
	}
	return s, nil
}

// put writes the n values of one row's list.
func (s *shardWriter) put(name string, n int, at func(i int) parquet.Value) error {
	s.vals = slices.Grow(s.vals[:0], n)[:n]
	col := s.index[name]
	for i := range s.vals {
		s.vals[i] = at(i).Level(min(i, 1), 1, col)
	}
	if _, err := s.cols[name].WriteRowValues(s.vals); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (s *shardWriter) append(r *Record) error {
	size := len(r.Tokens) * s.meta.tokenBytes()
	if size > MaxRowGroup {
		return fmt.Errorf("a sequence of %d tokens takes %d bytes, want at most %d: shorten sequences or store fewer labels", len(r.Tokens), size, MaxRowGroup)
	}
	if s.group > 0 && s.group+size > s.limit || s.rows == maxGroupRows {
		if err := s.w.Flush(); err != nil {
			return err
		}
		s.group, s.rows = 0, 0
	}
	s.group += size
	s.rows++
	s.lvl = r.levels(s.lvl[:0], s.meta.Nodes())
	ints := func(x []int32) (int, func(int) parquet.Value) {
		return len(x), func(i int) parquet.Value { return parquet.Int32Value(x[i]) }
	}
	floats := func(x []float32) (int, func(int) parquet.Value) {
		return len(x), func(i int) parquet.Value { return parquet.FloatValue(x[i]) }
	}
	var err error // the first
	do := func(name string, n int, at func(int) parquet.Value) {
		if err == nil {
			err = s.put(name, n, at)
		}
	}
	doInts := func(name string, x []int32) { n, at := ints(x); do(name, n, at) }
	doFloats := func(name string, x []float32) { n, at := floats(x); do(name, n, at) }
	doInts(colTokens, r.Tokens)
	do(colMask, len(r.LossMask), func(i int) parquet.Value { return parquet.BooleanValue(r.LossMask[i]) })
	doInts(colTreeToken, r.TreeTokens)
	doInts(colTreeParent, r.TreeParents)
	doInts(colTreeLevel, s.lvl)
	if s.meta.Labels == TopK {
		doInts(colLabelID, r.LabelIDs)
		doFloats(colLabelProb, r.LabelProbs)
		doFloats(colLabelTail, r.Tail)
	} else {
		doFloats(colLabelFull, r.LabelFull)
	}
	if w := 2 * s.meta.FeatureSize(); w > 0 {
		do(colFeature, len(r.Tokens), func(i int) parquet.Value {
			return parquet.FixedLenByteArrayValue(r.Features[i*w : (i+1)*w])
		})
	}
	s.info.Rows++
	s.info.Tokens += int64(len(r.Tokens))
	for _, m := range r.LossMask {
		if m {
			s.info.Loss++
		}
	}
	return err
}

func (s *shardWriter) close() error {
	info, err := json.Marshal(&s.info)
	if err != nil {
		return err
	}
	s.w.SetKeyValueMetadata(keyShard, string(info))
	return s.w.Close()
}
