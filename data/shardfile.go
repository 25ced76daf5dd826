package data

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"talf/data/internal/compact"
	"talf/internal/limits"
)

// A shardFile is a shard open for reading.
//
// A shard may be untrusted. parquet-go reads its footer, after compact.Walk has gone
// through it; the pages are read here (chunk.go). Before memory is allocated for a row
// group, the counts of the footer are compared with each other, with the bytes that they
// claim, and with MaxRowGroup. Only what the writer writes is accepted.
type shardFile struct {
	r      io.ReaderAt
	meta   Meta
	info   shardInfo
	groups []format.RowGroup
	cols   map[string]int
	kinds  []valueKind // of each column
}

// parseMeta reads the metadata of a shard; lookup returns the value of a key.
func parseMeta(lookup func(key string) (string, bool)) (m Meta, info shardInfo, err error) {
	v, ok := lookup(keySchema)
	if !ok {
		return m, info, fmt.Errorf("%s: missing, want a shard written by talf preprocess", keySchema)
	}
	if n, err := strconv.Atoi(v); err != nil || n != SchemaVersion {
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
	if v != fmt.Sprint(m.Schema) {
		return m, info, fmt.Errorf("%s: version %s, want %d as in %s", keySchema, v, m.Schema, keyMeta)
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

// The ends of a Parquet file: four bytes, and four after the footer's length.
const (
	parquetMagic = "PAR1"
	parquetTail  = 4 + len(parquetMagic)
)

// footerBudget bounds the memory that a decoded footer takes: that of about ten thousand
// row groups.
var footerBudget = limits.Budget{Steps: math.MaxInt64, Bytes: 128 * limits.MiB}

// openFooter reads the footer of a shard. Of the file that it returns, only the metadata
// can be read.
func openFooter(r io.ReaderAt, size int64) (*parquet.File, error) {
	const least = int64(len(parquetMagic) + parquetTail)
	if size < least {
		return nil, fmt.Errorf("want at least %d bytes", least)
	}
	var ends [len(parquetMagic) + parquetTail]byte
	if _, err := r.ReadAt(ends[:len(parquetMagic)], 0); err != nil {
		return nil, err
	}
	tail := ends[len(parquetMagic):]
	if _, err := r.ReadAt(tail, size-int64(parquetTail)); err != nil && err != io.EOF {
		return nil, err
	}
	if a, b := ends[:len(parquetMagic)], tail[4:]; string(a) != parquetMagic || string(b) != parquetMagic {
		return nil, fmt.Errorf("it begins with %q and ends with %q, want %q", a, b, parquetMagic)
	}
	n := int64(binary.LittleEndian.Uint32(tail))
	if n > size-least || n > limits.FooterBytes {
		return nil, fmt.Errorf("a footer of %d bytes, want at most %d", n, min(size-least, limits.FooterBytes))
	}
	// What was checked is what is decoded, even if the file changes: a copy in memory,
	// which to parquet-go is a file without pages.
	file := make([]byte, least+n)
	copy(file, parquetMagic)
	footer := file[len(parquetMagic):][:n]
	if _, err := r.ReadAt(footer, size-int64(parquetTail)-n); err != nil {
		return nil, err
	}
	copy(file[int64(len(file))-int64(parquetTail):], tail)
	end, err := compact.Walk(footer, limits.NewMeter(context.Background(), footerBudget))
	if err != nil {
		return nil, err
	}
	if end != len(footer) {
		return nil, fmt.Errorf("%d bytes of metadata in a footer of %d", end, len(footer))
	}
	return parquet.OpenFile(bytes.NewReader(file), int64(len(file)), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
}

func openShard(r io.ReaderAt, size int64) (s *shardFile, err error) {
	defer guard(&err)
	f, err := openFooter(r, size)
	if err != nil {
		return nil, fmt.Errorf("%d bytes that are no whole Parquet file: %w", size, err)
	}
	s = &shardFile{r: r, groups: f.Metadata().RowGroups, cols: map[string]int{}}
	if s.meta, s.info, err = parseMeta(f.Lookup); err != nil {
		return nil, err
	}
	want := schemaOf(&s.meta)
	if f.Schema().String() != want.String() {
		return nil, fmt.Errorf("columns: %s, want %s", columns(f.Schema()), columns(want))
	}
	for i, path := range want.Columns() {
		s.cols[path[0]] = i
		s.kinds = append(s.kinds, kindOf(path[0], &s.meta))
	}
	rows, at := int64(0), int64(len(parquetMagic))
	for i := range s.groups {
		if at, err = s.checkGroup(&s.groups[i], at, size); err != nil {
			return nil, fmt.Errorf("row group %d: %w", i, err)
		}
		rows += s.groups[i].NumRows
	}
	if rows != int64(s.info.Rows) {
		return nil, fmt.Errorf("rows: %d in the row groups, want %d as in %s", rows, s.info.Rows, keyShard)
	}
	return s, nil
}

// checkGroup compares the counts of a row group with each other and with the bytes that
// hold them, which begin at or after at. It returns where they end.
func (s *shardFile) checkGroup(g *format.RowGroup, at, size int64) (end int64, err error) {
	if len(g.Columns) != len(s.kinds) {
		return 0, fmt.Errorf("%d columns, want %d", len(g.Columns), len(s.kinds))
	}
	tokens := g.Columns[s.cols[colTokens]].MetaData.NumValues
	// Every row has a token.
	if g.NumRows < 0 || g.NumRows > tokens || g.NumRows > maxGroupRows {
		return 0, fmt.Errorf("%d rows with %d tokens, want as many tokens or more, and at most %d rows", g.NumRows, tokens, maxGroupRows)
	}
	if most := int64(MaxRowGroup / s.meta.tokenBytes()); tokens > most {
		return 0, fmt.Errorf("%d tokens, want at most %d, whose values take %d bytes", tokens, most, MaxRowGroup)
	}
	total := int64(0)
	for i := range g.Columns {
		c := &g.Columns[i].MetaData
		name, kind := c.PathInSchema, s.kinds[i]
		if c.Codec != format.Zstd {
			return 0, fmt.Errorf("codec %v, want %v", c.Codec, format.Zstd)
		}
		if c.NumValues != tokens*int64(kind.perToken) {
			return 0, fmt.Errorf("column %q: %d values for %d tokens, want %d", name, c.NumValues, tokens, tokens*int64(kind.perToken))
		}
		if c.DictionaryPageOffset != 0 {
			return 0, fmt.Errorf("column %q: a dictionary, want plain values", name)
		}
		// The writer leaves no gaps, but what counts is that no byte is read twice.
		if c.DataPageOffset < at || c.TotalCompressedSize < 0 || c.TotalCompressedSize > size-int64(parquetTail)-c.DataPageOffset {
			return 0, fmt.Errorf("column %q: %d bytes at byte %d, want them between bytes %d and %d", name, c.TotalCompressedSize, c.DataPageOffset, at, size-int64(parquetTail))
		}
		at = c.DataPageOffset + c.TotalCompressedSize
		values := int64(kind.size(int(c.NumValues)))
		if most := 2*values + c.NumValues + 4096; c.TotalCompressedSize > most { // with the pages' headers and levels
			return 0, fmt.Errorf("column %q: %d bytes for %d values, want at most %d", name, c.TotalCompressedSize, c.NumValues, most)
		}
		total += values
	}
	// Readers hold as many row groups as fit a window by this size.
	if g.TotalByteSize < total {
		return 0, fmt.Errorf("total_byte_size: %d, but the values alone take %d", g.TotalByteSize, total)
	}
	return at, nil
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

// read decodes row group i and checks every record.
func (s *shardFile) read(i int) (out []Record, err error) {
	defer guard(&err)
	g := &s.groups[i]
	out = make([]Record, g.NumRows)
	d := decoders.Get().(*decoder)
	defer decoders.Put(d)
	ints := func(name string, set func(r *Record, v []int32)) {
		if err == nil {
			err = readColumn(s, d, g, name, out, set, appendInts)
		}
	}
	floats := func(name string, set func(r *Record, v []float32)) {
		if err == nil {
			err = readColumn(s, d, g, name, out, set, appendFloats)
		}
	}
	err = s.readText(d, g, out)
	ints(colTreeToken, func(r *Record, v []int32) { r.TreeTokens = v })
	ints(colTreeParent, func(r *Record, v []int32) { r.TreeParents = v })
	if s.meta.Labels == TopK {
		ints(colLabelID, func(r *Record, v []int32) { r.LabelIDs = v })
		floats(colLabelProb, func(r *Record, v []float32) { r.LabelProbs = v })
		floats(colLabelTail, func(r *Record, v []float32) { r.Tail = v })
	} else {
		floats(colLabelFull, func(r *Record, v []float32) { r.LabelFull = v })
	}
	if s.meta.FeatureSize() > 0 && err == nil {
		err = s.readFeatures(d, g, out)
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
	g := &s.groups[i]
	out = make([]Record, g.NumRows)
	d := decoders.Get().(*decoder)
	defer decoders.Put(d)
	if err := s.readText(d, g, out); err != nil {
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

// readText reads the columns of the text.
func (s *shardFile) readText(d *decoder, g *format.RowGroup, out []Record) error {
	if err := readColumn(s, d, g, colTokens, out, func(r *Record, v []int32) { r.Tokens = v }, appendInts); err != nil {
		return err
	}
	return readColumn(s, d, g, colMask, out, func(r *Record, v []bool) { r.LossMask = v }, appendBools)
}

// readColumn decodes a column of a row group and gives each record its values.
func readColumn[T any](s *shardFile, d *decoder, g *format.RowGroup, name string, out []Record, set func(*Record, []T), add func(dst []T, b []byte, n int) []T) error {
	col := s.cols[name]
	all := make([]T, 0, g.Columns[col].MetaData.NumValues)
	err := d.column(s, g, col, func(b []byte, n int) { all = add(all, b, n) })
	if err == nil && int64(len(d.ends)) != g.NumRows {
		err = fmt.Errorf("%d lists, want %d rows", len(d.ends), g.NumRows)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	from := 0
	for j, end := range d.ends {
		set(&out[j], all[from:end:end])
		from = end
	}
	return nil
}

// readFeatures decodes the hidden states of a row group: their bytes per token.
func (s *shardFile) readFeatures(d *decoder, g *format.RowGroup, out []Record) error {
	w := 2 * s.meta.FeatureSize()
	col := s.cols[colFeature]
	all := make([]byte, 0, int(g.Columns[col].MetaData.NumValues)*w)
	err := d.column(s, g, col, func(b []byte, _ int) { all = append(all, b...) })
	if err == nil && int64(len(d.ends)) != g.NumRows {
		err = fmt.Errorf("%d lists, want %d rows", len(d.ends), g.NumRows)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", colFeature, err)
	}
	from := 0
	for j, end := range d.ends {
		out[j].Features = all[from*w : end*w : end*w]
		from = end
	}
	return nil
}
