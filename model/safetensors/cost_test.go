package safetensors

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/internal/limits"
	"talf/internal/limits/costtest"
)

// headerOf returns a header of n empty tensors.
func headerOf(n int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"__metadata__":{"format":"pt"}`)
	for i := range n {
		fmt.Fprintf(&b, `,"model.layers.%d.mlp.experts.down_proj.weight":{"dtype":"F32","shape":[0,128],"data_offsets":[0,0]}`, i)
	}
	b.WriteByte('}')
	return b.Bytes()
}

func TestLargeHeadersAreCheap(t *testing.T) {
	if costtest.RaceDetector {
		t.Skip("the bounds on processor time are those of a build without the race detector")
	}
	for _, c := range []struct {
		name, want string
		header     []byte
	}{
		{"as many tensors as are allowed", "", headerOf(limits.Tensors)},
		{"more tensors", "262144 tensors, want at most 131072", headerOf(2 * limits.Tensors)},
		{"dimensions", "2000001 dimensions, want at most 64", []byte(`{"a":{"dtype":"F32","shape":[1` + strings.Repeat(",1", 2_000_000) + `],"data_offsets":[0,4]}}`)},
		{"offsets", "2000001 numbers, want 2", []byte(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0` + strings.Repeat(",4", 2_000_000) + `]}}`)},
		{"metadata", "more than 1048576 keys", []byte(`{"__metadata__":{` + manyKeys(1<<20+1) + `}}`)},
		{"depth", "max depth", []byte(`{"a":{"extra":` + strings.Repeat("[", 1<<20) + strings.Repeat("]", 1<<20) + `}}`)},
		{"a long name", "", []byte(`{"` + strings.Repeat("a", 10_000_000) + `":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}`)},
		{"a long dtype", "unknown dtype", []byte(`{"a":{"dtype":"` + strings.Repeat("a", 10_000_000) + `","shape":[0],"data_offsets":[0,0]}}`)},
		{"white space", "", append([]byte(`{`), append(bytes.Repeat([]byte(" "), 10_000_000), '}')...)},
	} {
		raw := file(string(c.header), 0)
		c.header = nil
		costtest.Check(t, c.name, costtest.Default, func(context.Context) {
			_, err := Parse("f", raw)
			if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || len(err.Error()) > 1000) {
				t.Errorf("%s: %.200v, want an error with %q", c.name, err, c.want)
			}
		})
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"%d":""`, i)
	}
	return b.String()
}

// One file under many names in an index is read once.
func TestIndexesNameEachFileOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x.safetensors"), file(string(headerOf(20_000)), 0), 0o600); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for i := range 20_000 {
		names[fmt.Sprintf("model.layers.%d.mlp.experts.down_proj.weight", i)] = strings.Repeat("./", i%2000) + "x.safetensors"
	}
	index, err := json.Marshal(map[string]any{"weight_map": names})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), index, 0o600); err != nil {
		t.Fatal(err)
	}
	costtest.Check(t, "index", costtest.Default, func(context.Context) {
		s, err := OpenDir(dir)
		if err != nil {
			t.Error(err)
			return
		}
		if n := len(s.Names()); n != len(names) {
			t.Errorf("%d tensors, want %d", n, len(names))
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	// The index itself is bounded.
	if err := os.Truncate(filepath.Join(dir, "model.safetensors.index.json"), limits.IndexBytes+1); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDir(dir); !errors.Is(err, limits.ErrTooLarge) {
		t.Errorf("%v, want ErrTooLarge", err)
	}
}

func corpus(t testing.TB) [][]byte {
	t.Helper()
	return costtest.Files(t, "testdata/cost/*.safetensors", func(name string, b []byte) error {
		_, err := Parse(name, b)
		return err
	})
}

// fitted sets the length in front of a header that was changed, so that the header is read.
func fitted(raw []byte) []byte {
	end := bytes.LastIndexByte(raw, '}') + 1
	if end < 9 {
		return raw
	}
	return append(file(string(raw[8:end]), 0), raw[end:]...)
}

func TestMutatedFilesAreCheap(t *testing.T) {
	if costtest.RaceDetector {
		t.Skip("the bounds on processor time are those of a build without the race detector")
	}
	n := 10_000
	if testing.Short() {
		n = 500
	}
	i := 0
	for raw := range costtest.Mutations(3, corpus(t), n) {
		costtest.Check(t, fmt.Sprint("mutation ", i), costtest.Default, func(context.Context) {
			_, _ = Parse("f", raw) // only the cost matters
			_, _ = Parse("f", fitted(raw))
		})
		i++
	}
}

func FuzzSafetensorsCost(f *testing.F) {
	for _, raw := range corpus(f) {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		costtest.Check(t, "file", costtest.Default, func(context.Context) {
			_, _ = Parse("f", raw) // only the cost matters
			_, _ = Parse("f", fitted(raw))
		})
	})
}
