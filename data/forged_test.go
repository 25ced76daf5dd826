package data_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"talf/data"
	"talf/internal/limits/costtest"
)

// A forgery is a shard taken apart, so that its metadata can be changed and the whole
// still be a Parquet file.
type forgery struct {
	meta  format.FileMetaData
	pages [][]forgedPage // of each column chunk, in the order of the file
}

type forgedPage struct {
	header format.PageHeader
	body   []byte
}

var compact thrift.CompactProtocol

func takeApart(t testing.TB, raw []byte) *forgery {
	t.Helper()
	n := int(binary.LittleEndian.Uint32(raw[len(raw)-8:]))
	f := &forgery{}
	if err := thrift.Unmarshal(&compact, raw[len(raw)-8-n:len(raw)-8], &f.meta); err != nil {
		t.Fatal(err)
	}
	for i := range f.meta.RowGroups {
		for j := range f.meta.RowGroups[i].Columns {
			c := &f.meta.RowGroups[i].Columns[j].MetaData
			var pages []forgedPage
			for chunk := raw[c.DataPageOffset:][:c.TotalCompressedSize]; len(chunk) > 0; {
				var p forgedPage
				r := compact.NewReaderFromBytes(bytes.Clone(chunk))
				if err := thrift.NewDecoder(r).Decode(&p.header); err != nil {
					t.Fatal(err)
				}
				chunk = chunk[r.BytesRead():]
				p.body, chunk = chunk[:p.header.CompressedPageSize], chunk[p.header.CompressedPageSize:]
				pages = append(pages, p)
			}
			f.pages = append(f.pages, pages)
		}
	}
	return f
}

// bytes puts the shard together, with offsets and sizes that fit its pages. last changes
// the metadata after that.
func (f *forgery) bytes(t testing.TB, last func(m *format.FileMetaData)) []byte {
	t.Helper()
	marshal := func(v any) []byte {
		b, err := thrift.Marshal(&compact, v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	out := []byte("PAR1")
	k := 0
	for i := range f.meta.RowGroups {
		for j := range f.meta.RowGroups[i].Columns {
			c := &f.meta.RowGroups[i].Columns[j].MetaData
			c.DataPageOffset = int64(len(out))
			for _, p := range f.pages[k%len(f.pages)] { // a test may have added columns
				out = append(append(out, marshal(&p.header)...), p.body...)
			}
			c.TotalCompressedSize = int64(len(out)) - c.DataPageOffset
			k++
		}
	}
	if last != nil {
		last(&f.meta)
	}
	return withFooter(out, marshal(&f.meta))
}

func withFooter(pages, footer []byte) []byte {
	out := append(slices.Clone(pages), footer...)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(footer)))
	return append(out, "PAR1"...)
}

// shardBytes returns a shard of a few rows in two row groups.
func shardBytes(t testing.TB, m data.Meta) []byte {
	t.Helper()
	dir := t.TempDir()
	build(t, dir, m, 3, 3, data.WriterOptions{RowGroup: 2000})
	raw, err := os.ReadFile(filepath.Join(dir, "shard-00000.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// readShard reads all of a shard.
func readShard(t testing.TB, dir string, raw []byte) error {
	t.Helper()
	p := filepath.Join(dir, "shard.parquet")
	if err := os.WriteFile(p, raw, 0o666); err != nil {
		t.Fatal(err)
	}
	s, err := data.Open(p)
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = s.Stats()
	return err
}

func TestAShardThatIsPutTogetherAgainIsRead(t *testing.T) {
	for _, m := range []data.Meta{meta(data.TopK, data.BF16), meta(data.Full, data.None)} {
		if err := readShard(t, t.TempDir(), takeApart(t, shardBytes(t, m)).bytes(t, nil)); err != nil {
			t.Error(err)
		}
	}
}

// compressed returns n zero bytes as a page has them.
func compressed(t testing.TB, n int) []byte {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return z.EncodeAll(make([]byte, n), nil)
}

// nested returns a Thrift structure whose field of an unknown number holds n structures,
// each in the one before.
func nested(n int) []byte {
	out := bytes.Repeat([]byte{0x1c}, n) // field 1 is a structure
	return append(out, make([]byte, n+1)...)
}

// column returns the place of a column in the schema.
func column(t testing.TB, f *forgery, name string) int {
	t.Helper()
	i := slices.IndexFunc(f.meta.RowGroups[0].Columns, func(c format.ColumnChunk) bool { return c.MetaData.PathInSchema[0] == name })
	if i < 0 {
		t.Fatalf("no column %s", name)
	}
	return i
}

// What a shard says of its sizes is refused, before memory is allocated for it, unless
// the bytes can hold it.
func TestForgedSizesAreRefused(t *testing.T) {
	raw := shardBytes(t, meta(data.TopK, data.BF16))
	tokens := column(t, takeApart(t, raw), "tokens")
	// rows sets the number of rows everywhere, so that all counts agree.
	rows := func(n int64) func(m *format.FileMetaData) {
		return func(m *format.FileMetaData) {
			old := m.RowGroups[0].NumRows
			m.RowGroups[0].NumRows = n
			m.NumRows += n - old
			for i := range m.KeyValueMetadata {
				if kv := &m.KeyValueMetadata[i]; kv.Key == "talf.shard" {
					kv.Value = strings.Replace(kv.Value, `{"rows":3`, `{"rows":`+strconv.FormatInt(m.NumRows, 10), 1)
				}
			}
		}
	}
	values := func(f func(c *format.ColumnMetaData)) func(m *format.FileMetaData) {
		return func(m *format.FileMetaData) { f(&m.RowGroups[0].Columns[tokens].MetaData) }
	}
	// page changes the first page of the tokens. It is signed again.
	page := func(f func(h *format.PageHeader, v *format.DataPageHeaderV2, body []byte) []byte) []byte {
		x := takeApart(t, raw)
		p := &x.pages[tokens][0]
		p.body = f(&p.header, &p.header.DataPageHeaderV2.V, slices.Clone(p.body))
		p.header.CompressedPageSize, p.header.CRC = int32(len(p.body)), int32(crc32.ChecksumIEEE(p.body))
		return x.bytes(t, nil)
	}
	footer := func(b []byte) []byte { return withFooter([]byte("PAR1"), b) }
	forged := func(f func(m *format.FileMetaData)) []byte { return takeApart(t, raw).bytes(t, f) }
	for _, c := range []struct {
		name string
		raw  []byte
		want string
	}{
		{"2^40 rows", forged(rows(1 << 40)), "1099511627776 rows with"},
		{"10^8 rows", forged(rows(1e8)), "100000000 rows with"},
		{"negative rows", forged(rows(-1)), "num_rows=-1"},
		{"10^8 rows and as many tokens", forged(func(m *format.FileMetaData) {
			rows(1e8)(m)
			m.RowGroups[0].Columns[tokens].MetaData.NumValues = 1e8
		}), "rows with"},
		{"2^60 tokens", forged(values(func(c *format.ColumnMetaData) { c.NumValues = 1 << 60 })), "tokens, want at most"},
		{"another number of labels", forged(func(m *format.FileMetaData) { m.RowGroups[0].Columns[0].MetaData.NumValues++ }), "values for"},
		{"a column beyond the file", forged(values(func(c *format.ColumnMetaData) { c.DataPageOffset = 1 << 40 })), "want them between bytes"},
		{"a column before the file", forged(values(func(c *format.ColumnMetaData) { c.DataPageOffset = -9 })), "want them between bytes"},
		{"a column of negative size", forged(values(func(c *format.ColumnMetaData) { c.TotalCompressedSize = -9 })), "want them between bytes"},
		{"a column of 2^62 bytes", forged(values(func(c *format.ColumnMetaData) { c.TotalCompressedSize = math.MaxInt64 })), "want them between bytes"},
		{"a column that is read twice", forged(values(func(c *format.ColumnMetaData) { c.DataPageOffset-- })), "want them between bytes"},
		{"a column with a dictionary", forged(values(func(c *format.ColumnMetaData) { c.DictionaryPageOffset = 4 })), "a dictionary, want plain"},
		{"a group that claims to be small", forged(func(m *format.FileMetaData) { m.RowGroups[1].TotalByteSize = 0 }), "total_byte_size: 0"},
		{"a footer of 4 GiB", append(slices.Clone(raw[:len(raw)-8]), "\xff\xff\xff\xffPAR1"...), "a footer of 4294967295 bytes, want at most"},
		{"a footer that is too short", append(slices.Clone(raw[:len(raw)-8]), "\x00\x00\x00\x00PAR1"...), "too early"},
		{"an encrypted footer", append(slices.Clone(raw[:len(raw)-4]), "PARE"...), `ends with "PARE"`},
		{"a list of 2^31 row groups", footer([]byte{0x49, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07}), "elements in"},
		{"a text of 2 GiB", footer([]byte{0x68, 0xff, 0xff, 0xff, 0xff, 0x07}), "too early"},
		{"a list of a million empty row groups", footer(append([]byte{0x49, 0xfc, 0xc0, 0x84, 0x3d}, make([]byte, 1000001)...)), "beyond the limit"},
		{"a million levels", footer(nested(1e6)), "nested deeper"},
		{"bytes after the metadata", footer(make([]byte, 99)), "1 bytes of metadata in a footer of 99"},
		{"a page of 1 GB", page(func(h *format.PageHeader, _ *format.DataPageHeaderV2, _ []byte) []byte {
			h.UncompressedPageSize = 1 << 30
			return compressed(t, 1<<30)
		}), "bytes for"},
		{"a page that unpacks to more", page(func(_ *format.PageHeader, v *format.DataPageHeaderV2, b []byte) []byte {
			return append(b[:v.RepetitionLevelsByteLength+v.DefinitionLevelsByteLength], compressed(t, 32<<20)...)
		}), "ZSTD"},
		{"a page that unpacks to less", page(func(_ *format.PageHeader, v *format.DataPageHeaderV2, b []byte) []byte {
			return append(b[:v.RepetitionLevelsByteLength+v.DefinitionLevelsByteLength], compressed(t, 3)...)
		}), "3 bytes of values, want"},
		{"a page with more values than its column", page(func(_ *format.PageHeader, v *format.DataPageHeaderV2, b []byte) []byte {
			v.NumValues = math.MaxInt32
			return b
		}), "a page of 2147483647 values"},
		{"a page without values", page(func(_ *format.PageHeader, v *format.DataPageHeaderV2, b []byte) []byte {
			v.NumValues = 0
			return b
		}), "a page of 0 values"},
		{"levels longer than the page", page(func(_ *format.PageHeader, v *format.DataPageHeaderV2, b []byte) []byte {
			v.RepetitionLevelsByteLength = math.MaxInt32
			return b
		}), "levels of 2147483647"},
		{"a run of 2^32 levels", page(func(h *format.PageHeader, v *format.DataPageHeaderV2, b []byte) []byte {
			run := []byte{0xfe, 0xff, 0xff, 0xff, 0x1f, 0}
			h.UncompressedPageSize += int32(len(run)) - v.RepetitionLevelsByteLength
			b = append(run, b[v.RepetitionLevelsByteLength:]...)
			v.RepetitionLevelsByteLength = int32(len(run))
			return b
		}), "a run of"},
		{"a column of more bytes than its values need", page(func(_ *format.PageHeader, v *format.DataPageHeaderV2, b []byte) []byte {
			return append(b[:v.RepetitionLevelsByteLength+v.DefinitionLevelsByteLength], compressed(t, 1<<30)...)
		}), "values, want at most"},
		{"a dictionary's indices", page(func(_ *format.PageHeader, v *format.DataPageHeaderV2, b []byte) []byte {
			v.Encoding = format.RLEDictionary
			return b
		}), "encoding RLE_DICTIONARY, want PLAIN"},
		{"a dictionary", page(func(h *format.PageHeader, _ *format.DataPageHeaderV2, b []byte) []byte {
			h.Type = format.DictionaryPage
			return b
		}), "a page of type DICTIONARY_PAGE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var err error
			costtest.Check(t, c.name, costtest.Default, func(context.Context) { err = readShard(t, t.TempDir(), c.raw) })
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want %q on one line", err, c.want)
			}
		})
	}
}

// parquet-go takes a checksum of 0 for none.
func TestAPageWithoutAChecksumIsRefused(t *testing.T) {
	f := takeApart(t, shardBytes(t, meta(data.TopK, data.BF16)))
	f.pages[0][0].header.CRC = 0
	if err := readShard(t, t.TempDir(), f.bytes(t, nil)); err == nil || !strings.Contains(err.Error(), "checksum of the page") {
		t.Errorf("%v, want the checksum refused", err)
	}
}

// mutated changes a shard at the level of its metadata: numbers become extreme, lists
// longer. Half of the variants are also damaged as bytes.
func mutated(t testing.TB, raw []byte, rng *rand.Rand) []byte {
	t.Helper()
	f := takeApart(t, raw)
	target := func() reflect.Value {
		if rng.IntN(2) == 0 {
			return reflect.ValueOf(&f.meta).Elem()
		}
		p := f.pages[rng.IntN(len(f.pages))]
		return reflect.ValueOf(&p[rng.IntN(len(p))].header).Elem()
	}
	early := rng.IntN(2) == 0
	if early { // offsets and sizes are made to fit afterwards
		for range 1 + rng.IntN(3) {
			distort(target(), rng)
		}
	}
	for i := range f.pages { // what was changed is signed again
		for j := range f.pages[i] {
			if p := &f.pages[i][j]; rng.IntN(8) > 0 {
				p.header.CRC = int32(crc32.ChecksumIEEE(p.body))
			}
		}
	}
	out := f.bytes(t, func(m *format.FileMetaData) {
		if !early {
			distort(reflect.ValueOf(m).Elem(), rng)
		}
	})
	if rng.IntN(2) == 0 {
		for one := range costtest.Mutations(rng.Uint64(), [][]byte{out}, 1) {
			return one
		}
	}
	return out
}

// distort changes one field somewhere below v.
func distort(v reflect.Value, rng *rand.Rand) {
	for depth := 0; depth < 12; depth++ {
		switch v.Kind() {
		case reflect.Struct:
			if v.NumField() == 0 {
				return
			}
			v = v.Field(rng.IntN(v.NumField()))
			continue
		case reflect.Slice:
			if v.Len() > 0 && rng.IntN(4) > 0 {
				v = v.Index(rng.IntN(v.Len()))
				continue
			}
			if v.CanSet() {
				switch n := v.Len(); {
				case n > 0 && rng.IntN(2) == 0:
					v.Set(v.Slice(0, rng.IntN(n)))
				case n > 0:
					times := 1 << rng.IntN(8)
					for range times {
						v.Set(reflect.Append(v, v.Index(rng.IntN(n))))
					}
				}
			}
			return
		case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			if v.CanSet() {
				size := v.Type().Bits()
				v.SetInt([]int64{0, 1, -1, 1<<(size-1) - 1, -1 << (size - 1), v.Int() + 1, v.Int() - 1, rng.Int64N(1 << min(size-1, 30)), v.Int() * 1000}[rng.IntN(9)] << (64 - size) >> (64 - size))
			}
			return
		case reflect.String:
			if v.CanSet() && v.Len() > 0 {
				for one := range costtest.Mutations(rng.Uint64(), [][]byte{[]byte(v.String())}, 1) {
					v.SetString(string(one))
				}
			}
			return
		case reflect.Bool:
			if v.CanSet() {
				v.SetBool(!v.Bool())
			}
			return
		default:
			return
		}
	}
}

func TestMutatedShardsAreCheap(t *testing.T) {
	shards := [][]byte{shardBytes(t, meta(data.TopK, data.BF16)), shardBytes(t, meta(data.Full, data.None))}
	n := 10_000
	if testing.Short() {
		n = 500
	}
	rng := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	refused := 0
	for i := range n {
		raw := mutated(t, shards[i%len(shards)], rng)
		costtest.Check(t, "shard "+strconv.Itoa(i), costtest.Default, func(context.Context) {
			if readShard(t, dir, raw) != nil {
				refused++
			}
		})
		if t.Failed() {
			t.FailNow()
		}
	}
	if refused < n/2 {
		t.Errorf("%d of %d mutated shards are refused, want most of them", refused, n)
	}
}

// FuzzShardCost is TestMutatedShardsAreCheap with shards that the fuzzer chooses: a seed
// for the metadata, and bytes in place of some.
func FuzzShardCost(f *testing.F) {
	shard := shardBytes(f, meta(data.TopK, data.BF16))
	f.Add(uint64(0), uint32(0), []byte(nil))
	f.Fuzz(func(t *testing.T, seed uint64, at uint32, with []byte) {
		raw := mutated(t, shard, rand.New(rand.NewPCG(seed, 3)))
		copy(raw[uint64(at)%uint64(len(raw)):], with)
		costtest.Check(t, "shard", costtest.Default, func(context.Context) { _ = readShard(t, t.TempDir(), raw) })
	})
}
