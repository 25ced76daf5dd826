package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"
	"github.com/parquet-go/parquet-go/format"
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

// shardInfo describes a shard within the shard itself, so that a manifest can be
// rebuilt.
type shardInfo struct {
	Rows    int            `json:"rows"`
	Tokens  int64          `json:"tokens"`
	Loss    int64          `json:"loss_tokens"`
	Units   int            `json:"units"`
	Dropped map[string]int `json:"dropped,omitempty"`
	Inputs  []Input        `json:"inputs,omitempty"`
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
	if m.Features == BF16 {
		g[colFeature] = leaf(parquet.FixedLenByteArrayType(2 * m.Hidden))
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
		parquet.CreatedBy("talf", fmt.Sprint(SchemaVersion), "parquet-go"), // the library's own string depends on the build
		parquet.KeyValueMetadata(keySchema, fmt.Sprint(SchemaVersion)),
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
	size := r.bytes(s.meta.Nodes())
	if size > MaxRowGroup {
		return fmt.Errorf("a sequence of %d tokens takes %d bytes, want at most %d: shorten sequences or store fewer labels", len(r.Tokens), size, MaxRowGroup)
	}
	if s.group > 0 && s.group+size > s.limit {
		if err := s.w.Flush(); err != nil {
			return err
		}
		s.group = 0
	}
	s.group += size
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
	if s.meta.Features == BF16 {
		w := 2 * s.meta.Hidden
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

// A shardFile is a shard open for reading.
type shardFile struct {
	name string
	f    *parquet.File
	meta Meta
	info shardInfo
	cols map[string]int
}

// parseMeta reads the metadata of a shard; lookup returns the value of a key.
func parseMeta(lookup func(key string) (string, bool)) (m Meta, info shardInfo, err error) {
	v, ok := lookup(keySchema)
	if !ok {
		return m, info, fmt.Errorf("%s: missing, want a shard written by talf preprocess", keySchema)
	}
	if v != fmt.Sprint(SchemaVersion) {
		return m, info, fmt.Errorf("%s: version %q, want %d: preprocess the text again with this release", keySchema, v, SchemaVersion)
	}
	for _, x := range []struct {
		key string
		to  any
	}{{keyMeta, &m}, {keyShard, &info}} {
		v, ok := lookup(x.key)
		if !ok {
			return m, info, fmt.Errorf("%s: missing", x.key)
		}
		if err := parseStrict([]byte(v), x.to); err != nil {
			return m, info, fmt.Errorf("%s: %w", x.key, err)
		}
	}
	if err := m.Validate(); err != nil {
		return m, info, fmt.Errorf("%s: %w", keyMeta, err)
	}
	if info.Rows < 0 || info.Tokens < 0 || info.Loss < 0 || info.Units < 0 {
		return m, info, fmt.Errorf("%s: a negative count", keyShard)
	}
	if err := checkInputs(info.Inputs); err != nil {
		return m, info, fmt.Errorf("%s: %w", keyShard, err)
	}
	return m, info, nil
}

// guard turns a panic of the Parquet library, which corrupt data can cause, into an
// error.
func guard(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("corrupt: %v", p)
	}
}

func openShard(name string, r io.ReaderAt, size int64) (s *shardFile, err error) {
	defer guard(&err)
	f, err := parquet.OpenFile(r, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, fmt.Errorf("%d bytes that are no whole Parquet file: %w", size, err)
	}
	s = &shardFile{name: name, f: f, cols: map[string]int{}}
	if s.meta, s.info, err = parseMeta(f.Lookup); err != nil {
		return nil, err
	}
	want := schemaOf(&s.meta)
	if f.Schema().String() != want.String() {
		return nil, fmt.Errorf("columns: %s, want %s", columns(f.Schema()), columns(want))
	}
	for i, path := range want.Columns() {
		s.cols[path[0]] = i
	}
	rows := int64(0)
	for i, g := range f.RowGroups() {
		rows += g.NumRows()
		// The library's decoders for other codecs can take unbounded memory on corrupt
		// data.
		for _, c := range f.Metadata().RowGroups[i].Columns {
			if c.MetaData.Codec != format.Zstd {
				return nil, fmt.Errorf("row group %d: codec %v, want %v", i, c.MetaData.Codec, format.Zstd)
			}
		}
	}
	if rows != int64(s.info.Rows) {
		return nil, fmt.Errorf("rows: %d in the row groups, want %d as in %s", rows, s.info.Rows, keyShard)
	}
	return s, nil
}

// columns lists a schema's columns and their types on one line.
func columns(s *parquet.Schema) string {
	var b strings.Builder
	for i, path := range s.Columns() {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strings.Join(path, "."))
		if leaf, ok := s.Lookup(path...); ok {
			b.WriteString(" " + leaf.Node.Type().String())
		}
	}
	return b.String()
}

// list appends the values of one column of a row group to dst, and the end of each
// row's list to ends.
func list[T any](g parquet.RowGroup, col int, dst []T, ends []int, plain func(parquet.Page, []T) []T, one func(parquet.Value) T) ([]T, []int, error) {
	pages := g.ColumnChunks()[col].Pages()
	defer pages.Close()
	var buf [512]parquet.Value
	for {
		page, err := pages.ReadPage()
		if err == io.EOF {
			break
		}
		if err != nil {
			return dst, ends, err
		}
		base := len(dst)
		rep, def := page.RepetitionLevels(), page.DefinitionLevels()
		if i := slices.IndexFunc(def, func(d byte) bool { return d != 1 }); i >= 0 {
			parquet.Release(page)
			return dst, ends, fmt.Errorf("value %d: null or an empty list, want values", base+i)
		}
		for i, l := range rep {
			if l == 0 && base+i > 0 {
				ends = append(ends, base+i)
			}
		}
		if page.Dictionary() == nil {
			dst = plain(page, dst)
		} else {
			values := page.Values()
			for {
				n, err := values.ReadValues(buf[:])
				for _, v := range buf[:n] {
					dst = append(dst, one(v))
				}
				if err == io.EOF {
					break
				}
				if err != nil {
					parquet.Release(page)
					return dst, ends, err
				}
			}
		}
		parquet.Release(page)
		if len(dst)-base != len(rep) {
			return dst, ends, fmt.Errorf("%d values in a page of %d", len(dst)-base, len(rep))
		}
	}
	if len(dst) > 0 {
		ends = append(ends, len(dst))
	}
	if int64(len(ends)) != g.NumRows() {
		return dst, ends, fmt.Errorf("%d lists, want %d rows", len(ends), g.NumRows())
	}
	return dst, ends, nil
}

// read decodes row group i and checks every record.
func (s *shardFile) read(i int) (out []Record, err error) {
	defer guard(&err)
	g := s.f.RowGroups()[i]
	out = make([]Record, g.NumRows())
	ints := func(name string, set func(r *Record, v []int32)) {
		readColumn(s, g, name, &err, out, set, plainInts, parquet.Value.Int32)
	}
	floats := func(name string, set func(r *Record, v []float32)) {
		readColumn(s, g, name, &err, out, set, func(p parquet.Page, dst []float32) []float32 {
			d := p.Data()
			return append(dst, d.Float()...)
		}, parquet.Value.Float)
	}
	s.readText(g, &err, out)
	ints(colTreeToken, func(r *Record, v []int32) { r.TreeTokens = v })
	ints(colTreeParent, func(r *Record, v []int32) { r.TreeParents = v })
	if s.meta.Labels == TopK {
		ints(colLabelID, func(r *Record, v []int32) { r.LabelIDs = v })
		floats(colLabelProb, func(r *Record, v []float32) { r.LabelProbs = v })
		floats(colLabelTail, func(r *Record, v []float32) { r.Tail = v })
	} else {
		floats(colLabelFull, func(r *Record, v []float32) { r.LabelFull = v })
	}
	if s.meta.Features == BF16 && err == nil {
		s.readFeatures(g, out, &err)
	}
	if err != nil {
		return nil, err
	}
	for j := range out {
		if err := out[j].Check(&s.meta); err != nil {
			return nil, fmt.Errorf("row group %d, row %d: %w", i, j, err)
		}
	}
	return out, nil
}

// text decodes only the tokens and loss masks of row group i.
func (s *shardFile) text(i int) (out []Record, err error) {
	defer guard(&err)
	g := s.f.RowGroups()[i]
	out = make([]Record, g.NumRows())
	if s.readText(g, &err, out); err != nil {
		return nil, err
	}
	for j := range out {
		r := &out[j]
		if len(r.LossMask) != len(r.Tokens) {
			return nil, fmt.Errorf("row group %d, row %d: %d values in the loss mask, want %d, one per token", i, j, len(r.LossMask), len(r.Tokens))
		}
		for _, x := range r.Tokens {
			if x < 0 || int(x) >= s.meta.Vocab {
				return nil, fmt.Errorf("row group %d, row %d: token %d, want 0 to %d", i, j, x, s.meta.Vocab-1)
			}
		}
	}
	return out, nil
}

func plainInts(p parquet.Page, dst []int32) []int32 {
	d := p.Data()
	return append(dst, d.Int32()...)
}

// readText reads the columns of the text.
func (s *shardFile) readText(g parquet.RowGroup, err *error, out []Record) {
	readColumn(s, g, colTokens, err, out, func(r *Record, v []int32) { r.Tokens = v }, plainInts, parquet.Value.Int32)
	readColumn(s, g, colMask, err, out, func(r *Record, v []bool) { r.LossMask = v }, func(p parquet.Page, dst []bool) []bool {
		d := p.Data()
		bits := d.Boolean()
		for i := range p.NumValues() {
			dst = append(dst, bits[i/8]>>(i%8)&1 == 1)
		}
		return dst
	}, parquet.Value.Boolean)
}

func readColumn[T any](s *shardFile, g parquet.RowGroup, name string, err *error, out []Record, set func(*Record, []T), plain func(parquet.Page, []T) []T, one func(parquet.Value) T) {
	if *err != nil {
		return
	}
	n := int(g.ColumnChunks()[s.cols[name]].NumValues())
	if n < 0 || n > MaxRowGroup { // every value takes at least one byte of the row group
		*err = fmt.Errorf("%s: %d values in a row group", name, n)
		return
	}
	all, ends, e := list(g, s.cols[name], make([]T, 0, n), nil, plain, one)
	if e != nil {
		*err = fmt.Errorf("%s: %w", name, e)
		return
	}
	from := 0
	for j, end := range ends {
		set(&out[j], all[from:end:end])
		from = end
	}
}

// readFeatures copies the fixed-length values of a row group: 2·H bytes per token, so
// the token lists give the rows' ends.
func (s *shardFile) readFeatures(g parquet.RowGroup, out []Record, err *error) {
	w := 2 * s.meta.Hidden
	total := 0
	for j := range out {
		total += len(out[j].Tokens)
	}
	if total*w > MaxRowGroup {
		*err = fmt.Errorf("%s: %d bytes in a row group, want at most %d", colFeature, total*w, MaxRowGroup)
		return
	}
	all := make([]byte, 0, total*w)
	pages := g.ColumnChunks()[s.cols[colFeature]].Pages()
	defer pages.Close()
	for {
		page, e := pages.ReadPage()
		if e == io.EOF {
			break
		}
		if e == nil && page.Dictionary() != nil {
			e = errors.New("dictionary encoding, want plain")
		}
		if e != nil {
			*err = fmt.Errorf("%s: %w", colFeature, e)
			return
		}
		d := page.Data()
		b, size := d.FixedLenByteArray()
		if size != w {
			*err = fmt.Errorf("%s: values of %d bytes, want %d", colFeature, size, w)
			return
		}
		all = append(all, b...)
		parquet.Release(page)
	}
	if len(all) != total*w {
		*err = fmt.Errorf("%s: %d bytes for %d tokens, want %d", colFeature, len(all), total, total*w)
		return
	}
	from := 0
	for j := range out {
		end := from + len(out[j].Tokens)*w
		out[j].Features = all[from:end:end]
		from = end
	}
}
