package data_test

import (
	"os"
	"path/filepath"
	"testing"

	"talf/data"
)

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"format":"talf-data","meta":{"schema":2,"hidden":1,"vocab":9,"k":4,"depth":3,"labels":"full","features":"none"},"shards":[]}`))
	f.Add([]byte(`{"format":"talf-data","meta":{"schema":9}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := data.ParseManifest(raw)
		if err == nil && m.Meta.Validate() != nil {
			t.Fatal("a manifest with an impossible meta is accepted")
		}
	})
}

// A shard with any damaged bytes, even if its hash matches, must give an error or rows
// that follow the schema's rules, never a panic.
func FuzzShard(f *testing.F) {
	dir := f.TempDir()
	build(f, dir, meta(data.TopK, data.BF16), 3, 3, data.WriterOptions{RowGroup: 2000})
	raw, err := os.ReadFile(filepath.Join(dir, "shard-00000.parquet"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(0, byte(1), 0)
	f.Add(len(raw)-9, byte(255), 0)
	f.Add(len(raw)/2, byte(16), 40)
	f.Fuzz(func(t *testing.T, at int, flip byte, cut int) {
		b := append([]byte(nil), raw...)
		b[uint(at)%uint(len(b))] ^= flip
		b = b[:uint(len(b))-uint(cut)%uint(len(b))]
		p := filepath.Join(t.TempDir(), "shard.parquet")
		if err := os.WriteFile(p, b, 0o666); err != nil {
			t.Fatal(err)
		}
		s, err := data.Open(p)
		if err != nil {
			return
		}
		defer s.Close()
		s.Stats()
	})
}
