package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"talf/data/internal/compact"
)

// A valueKind says how the values of a column are stored.
type valueKind struct {
	bits     int // of one value
	encoding format.Encoding
	perToken int // values of each token
}

// kindOf returns the kind of a column of schemaOf.
func kindOf(name string, m *Meta) valueKind {
	n := m.Nodes()
	switch name {
	case colTokens:
		return valueKind{32, format.Plain, 1}
	case colMask:
		return valueKind{1, format.Plain, 1}
	case colLabelID:
		return valueKind{32, format.Plain, n * m.K}
	case colLabelProb:
		return valueKind{32, format.ByteStreamSplit, n * m.K}
	case colLabelTail:
		return valueKind{32, format.ByteStreamSplit, n}
	case colLabelFull:
		return valueKind{32, format.ByteStreamSplit, n * m.Vocab}
	case colFeature:
		return valueKind{16 * m.FeatureSize(), format.Plain, 1}
	}
	return valueKind{32, format.Plain, n} // a value of each node
}

// size returns the bytes of n values.
func (k valueKind) size(n int) int { return (n*k.bits + 7) / 8 }

// A decoder reads the column chunks of a row group, one after another. It keeps its
// buffers from one to the next.
type decoder struct {
	raw, values []byte
	ends        []int // of the rows' lists in the column read last, in values
}

var decoders = sync.Pool{New: func() any { return new(decoder) }}

// unpacker decompresses pages, into a buffer of the size that their values have.
var unpacker = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true))
})

// column reads a column of a row group and calls add with the values of each page, which
// are n as their kind stores them.
//
// A page is a header and, as the writer makes it, the lengths of lists, the presence of
// values, and the compressed values. Its sizes must follow from the number of its values,
// which together are those of the row group, so that nothing is allocated by what a page
// claims. Pages without a checksum are refused: the writer makes one for each.
func (d *decoder) column(s *shardFile, g *format.RowGroup, col int, add func(b []byte, n int)) error {
	m, kind := &g.Columns[col].MetaData, s.kinds[col]
	// checkGroup has compared both with the file.
	total, n := int(m.NumValues), int(m.TotalCompressedSize)
	d.raw = slices.Grow(d.raw[:0], n)[:n]
	if _, err := s.r.ReadAt(d.raw, m.DataPageOffset); err != nil && err != io.EOF {
		return err
	} else if err != nil {
		return fmt.Errorf("the file was cut short: %w", io.ErrUnexpectedEOF)
	}
	d.ends = d.ends[:0]
	at := 0
	for raw := d.raw; len(raw) > 0; {
		var h format.PageHeader
		n, err := compact.Walk(raw, nil)
		if err == nil {
			err = thrift.Unmarshal(&thrift.CompactProtocol{}, raw[:n], &h)
		}
		if err != nil {
			return fmt.Errorf("value %d: page header: %w", at, err)
		}
		raw = raw[n:]
		size := int(h.CompressedPageSize)
		if size < 0 || size > len(raw) {
			return fmt.Errorf("value %d: a page of %d bytes, want at most %d", at, size, len(raw))
		}
		if err := d.page(&h, raw[:size], kind, at, total); err != nil {
			return fmt.Errorf("value %d: %w", at, err)
		}
		n = int(h.DataPageHeaderV2.V.NumValues)
		add(d.values, n)
		raw, at = raw[size:], at+n
	}
	if at != total {
		return fmt.Errorf("%d values, want %d", at, total)
	}
	if total > 0 {
		d.ends = append(d.ends, total)
	}
	return nil
}

// page decodes a page to d.values. at values precede it, of total.
func (d *decoder) page(h *format.PageHeader, b []byte, kind valueKind, at, total int) error {
	v := &h.DataPageHeaderV2.V
	if h.Type != format.DataPageV2 || !h.DataPageHeaderV2.Valid {
		return fmt.Errorf("a page of type %v, want %v", h.Type, format.DataPageV2)
	}
	if sum := crc32.ChecksumIEEE(b); sum != uint32(h.CRC) {
		return fmt.Errorf("the checksum of the page is %08x, want %08x: it is damaged", sum, uint32(h.CRC))
	}
	if v.Encoding != kind.encoding {
		return fmt.Errorf("encoding %v, want %v", v.Encoding, kind.encoding)
	}
	n, rep, def := int(v.NumValues), int(v.RepetitionLevelsByteLength), int(v.DefinitionLevelsByteLength)
	if n < 1 || n > total-at {
		return fmt.Errorf("a page of %d values, want 1..%d", n, total-at)
	}
	if rep < 0 || def < 0 || rep > len(b) || def > len(b)-rep {
		return fmt.Errorf("levels of %d and %d bytes in a page of %d", rep, def, len(b))
	}
	want := kind.size(n)
	if got := int(h.UncompressedPageSize) - rep - def; got != want {
		return fmt.Errorf("%d bytes for %d values, want %d", got, n, want)
	}
	err := eachLevel(b[:rep], n, func(level byte, first, count int) error {
		if level == 0 { // a row begins
			for i := range count {
				if at+first+i > 0 {
					d.ends = append(d.ends, at+first+i)
				}
			}
		} else if at+first == 0 {
			return errors.New("the first list has no beginning")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("repetition levels: %w", err)
	}
	err = eachLevel(b[rep:rep+def], n, func(level byte, first, _ int) error {
		if level != 1 {
			return fmt.Errorf("value %d is null or its list empty, want values", first)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("definition levels: %w", err)
	}
	b = b[rep+def:]
	d.values = slices.Grow(d.values[:0], want)
	if c := v.IsCompressed; c.Valid && !c.V {
		d.values = append(d.values, b[:min(len(b), want)]...)
	} else {
		z, err := unpacker()
		if err != nil {
			return err
		}
		if d.values, err = z.DecodeAll(b, d.values[:0:want]); err != nil {
			return fmt.Errorf("%s: %w", format.Zstd, err)
		}
	}
	if len(d.values) != want {
		return fmt.Errorf("%d bytes of values, want %d", len(d.values), want)
	}
	return nil
}

// eachLevel reads n levels of 0 or 1 in Parquet's hybrid of runs and packed bits, and calls
// f for every run of equal ones.
func eachLevel(b []byte, n int, f func(level byte, first, count int) error) error {
	short := errors.New("they end too early")
	for at := 0; at < n; {
		head, k := binary.Uvarint(b)
		if k <= 0 || len(b) == k {
			return short
		}
		b = b[k:]
		if head&1 == 0 {
			level, run := b[0], head>>1
			if level > 1 || run < 1 || run > uint64(n-at) {
				return fmt.Errorf("a run of %d levels %d, want levels 0 and 1, at most %d of them", run, level, n-at)
			}
			if err := f(level, at, int(run)); err != nil {
				return err
			}
			b, at = b[1:], at+int(run)
			continue
		}
		packed := head >> 1
		if packed < 1 || packed > uint64(len(b)) || packed > uint64(n-at+7)/8 {
			return fmt.Errorf("%d bytes of packed levels, want at most %d", packed, min(len(b), (n-at+7)/8))
		}
		for i := range min(8*int(packed), n-at) {
			if err := f(b[i/8]>>(i%8)&1, at+i, 1); err != nil {
				return err
			}
		}
		b, at = b[packed:], min(n, at+8*int(packed))
	}
	if len(b) > 0 {
		return fmt.Errorf("%d bytes after them", len(b))
	}
	return nil
}

func appendInts(dst []int32, b []byte, n int) []int32 {
	for i := range n {
		dst = append(dst, int32(binary.LittleEndian.Uint32(b[4*i:])))
	}
	return dst
}

// appendFloats joins the bytes of floats, which are stored in four streams.
func appendFloats(dst []float32, b []byte, n int) []float32 {
	b0, b1, b2, b3 := b[:n], b[n:2*n], b[2*n:3*n], b[3*n:4*n]
	for i := range b0 {
		dst = append(dst, math.Float32frombits(uint32(b0[i])|uint32(b1[i])<<8|uint32(b2[i])<<16|uint32(b3[i])<<24))
	}
	return dst
}

func appendBools(dst []bool, b []byte, n int) []bool {
	for i := range n {
		dst = append(dst, b[i/8]>>(i%8)&1 == 1)
	}
	return dst
}
