package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// file returns a file with the given header and n bytes of data.
func file(header string, n int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	for i := range n {
		b = append(b, byte(i))
	}
	return b
}

func TestDamagedHeadersAreRefused(t *testing.T) {
	one := `"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}`
	for _, c := range []struct {
		name, header, want string
		bytes              int
	}{
		{"not JSON", `nonsense`, "JSON object", 0},
		{"an array", `[]`, "JSON object", 0},
		{"unfinished", `{` + one, "header", 8},
		{"after the object", `{` + one + `} x`, "text after the JSON value", 8},
		{"twice", `{` + one + `,` + one + `}`, `field "a": it occurs twice`, 8},
		{"twice, with an escape", `{` + one + `,` + strings.Replace(one, `"a"`, `"\u0061"`, 1) + `}`, `field "a": it occurs twice`, 8},
		{"twice inside", `{"a":{"dtype":"F32","shape":[2],"shape":[1],"data_offsets":[0,8]}}`, `field "a.shape": it occurs twice`, 8},
		{"metadata twice", `{"__metadata__":{"k":"1"},"__metadata__":{"k":"2"},` + one + `}`, `it occurs twice`, 8},
		{"another case", `{"a":{"DType":"F32","shape":[2],"data_offsets":[0,8]}}`, "dtype", 8},
		{"half a surrogate pair", `{"\ud800":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, "surrogate", 8},
		{"unknown dtype", `{"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}}`, `"F31"`, 8},
		{"no offsets", `{"a":{"dtype":"F32","shape":[2]}}`, "data_offsets", 8},
		{"shape is a string", `{"a":{"dtype":"F32","shape":"2","data_offsets":[0,8]}}`, `"a"`, 8},
		{"negative size", `{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}`, "shape", 8},
		{"overflowing sizes", `{"a":{"dtype":"F32","shape":[2147483647,2147483647,2147483647],"data_offsets":[0,8]}}`, "shape", 8},
		{"negative offset", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]}}`, "begin", 8},
		{"reversed", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}`, "begin", 8},
		{"wrong length", `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,7]}}`, "want 8", 8},
		{"truncated data", `{` + one + `}`, "truncated", 7},
		{"extra data", `{` + one + `}`, "9 bytes of data, want 8", 9},
		{"overlap", `{` + one + `,"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`, "inside the tensor before", 8},
		{"gap", `{` + one + `,"b":{"dtype":"U8","shape":[1],"data_offsets":[9,10]}}`, "gap", 10},
		{"metadata of numbers", `{"__metadata__":{"a":1}}`, "__metadata__", 0},
	} {
		_, err := Parse("some.safetensors", file(c.header, c.bytes))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "some.safetensors: ") {
			t.Errorf("%s: error %v, want it to name the file and %q", c.name, err, c.want)
		}
	}
	for _, raw := range [][]byte{nil, make([]byte, 7), {255, 255, 255, 255, 255, 255, 255, 255}, {9, 0, 0, 0, 0, 0, 0, 0, '{', '}'}} {
		if _, err := Parse("f", raw); err == nil {
			t.Errorf("% x: no error", raw)
		}
	}
}

func TestValuesOfEveryType(t *testing.T) {
	f := Tensor{Name: "f", DType: "F16", Shape: []int{7}, Data: []byte{
		0x00, 0x3c, 0x00, 0xc0, 0x01, 0x00, 0xff, 0x03, 0xff, 0x7b, 0x00, 0xfc, 0x00, 0x80,
	}}
	got, err := f.Float32s()
	want := []float32{1, -2, 0x1p-24, 1023 * 0x1p-24, 65504, float32(math.Inf(-1)), float32(math.Copysign(0, -1))}
	if err != nil || !cmp.Equal(got, want) || !math.Signbit(float64(got[6])) {
		t.Errorf("F16: %v, %v, want %v", got, err, want)
	}
	nan := Tensor{Name: "f", DType: "F16", Shape: []int{1}, Data: []byte{0x01, 0x7c}}
	if got, _ := nan.Float32s(); got[0] == got[0] {
		t.Errorf("F16 NaN: %v", got)
	}
	// Rounding to bfloat16: ties to even, NaN kept.
	in := []float32{1, math.Float32frombits(0x3f808000), math.Float32frombits(0x3f818000), math.Float32frombits(0x3f808001), math.Float32frombits(0x7f800001)}
	b := BF16("b", in, 5)
	if got := fmt.Sprintf("%x", b.Data); got != "803f803f823f813fc07f" {
		t.Errorf("BF16 bytes %s", got)
	}
	i64 := Tensor{Name: "i", DType: "I64", Shape: []int{1}, Data: binary.LittleEndian.AppendUint64(nil, 1<<40)}
	if _, err := i64.Int32s(); err == nil {
		t.Error("2^40 as 32 bits: no error")
	}
	if _, err := i64.Float32s(); err == nil {
		t.Error("I64 as floats: no error")
	}
	if _, err := f.Int32s(); err == nil {
		t.Error("F16 as integers: no error")
	}
}

func TestWrittenFilesReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var in []Tensor
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z"\\é.]{1,8}`), 0, 6, rapid.ID[string]).Draw(t, "names")
		for _, n := range names {
			x := rapid.SliceOfN(rapid.Float32(), 0, 9).Draw(t, "x")
			if rapid.Bool().Draw(t, "bf16") {
				in = append(in, BF16(n, x, 1, len(x)))
			} else {
				in = append(in, F32(n, x, len(x)))
			}
		}
		meta := map[string]string{"format": "pt", "a": rapid.String().Draw(t, "meta")}
		var a, b bytes.Buffer
		if err := Write(&a, meta, in...); err != nil {
			t.Fatal(err)
		}
		for i, j := 0, len(in)-1; i < j; i, j = i+1, j-1 {
			in[i], in[j] = in[j], in[i]
		}
		if err := Write(&b, meta, in...); err != nil || !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Fatalf("the file depends on the order of the arguments (%v)", err)
		}
		s, err := Parse("f", a.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if (a.Len()-8)%8 != 0 && len(in) == 0 {
			t.Fatalf("header not padded")
		}
		if len(s.Names()) != len(in) {
			t.Fatalf("%d tensors, want %d", len(s.Names()), len(in))
		}
		for _, x := range in {
			got, err := s.Get(x.Name)
			if err != nil || got.DType != x.DType || !cmp.Equal(got.Shape, x.Shape) || !bytes.Equal(got.Data, x.Data) {
				t.Fatalf("%+v reads back as %+v (%v)", x, got, err)
			}
		}
		if s.Metadata()["format"] != "pt" {
			t.Fatalf("metadata %v", s.Metadata())
		}
	})
	if err := Write(new(bytes.Buffer), nil, F32("a", nil, 0), F32("a", nil, 0)); err == nil {
		t.Error("a name was written twice")
	}
}

func TestShards(t *testing.T) {
	dir := t.TempDir()
	index := filepath.Join(dir, "model.safetensors.index.json")
	write := func(m map[string]string) {
		t.Helper()
		raw, err := json.Marshal(map[string]any{"metadata": map[string]int{"total_size": 1}, "weight_map": m})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(index, raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i, x := range []Tensor{F32("a", []float32{1}, 1), F32("b", []float32{2}, 1)} {
		if err := WriteFile(filepath.Join(dir, fmt.Sprintf("s%d", i)), nil, x); err != nil {
			t.Fatal(err)
		}
	}
	write(map[string]string{"a": "s0", "b": "s1"})
	s, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"a", "b"}, s.Names()); d != "" {
		t.Error(d)
	}
	b, err := s.Get("b")
	if err != nil {
		t.Fatal(err)
	}
	if v, err := b.Float32s(); err != nil || v[0] != 2 {
		t.Errorf("b is %v, %v", v, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for want, m := range map[string]map[string]string{
		"s2":                       {"a": "s2"},
		`no tensor "c"`:            {"c": "s0"},
		"in the index's directory": {"a": "../s0"},
		"weight_map":               {},
	} {
		write(m)
		if _, err := OpenDir(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("index %v: error %v, want %q", m, err, want)
		}
	}
	if err := os.WriteFile(index, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDir(dir); err == nil || !strings.Contains(err.Error(), "index.json") {
		t.Errorf("broken index: %v", err)
	}
	if _, err := Open(dir); err == nil {
		t.Error("a directory was opened as a file")
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(empty); err == nil || !strings.Contains(err.Error(), "0 bytes") {
		t.Errorf("empty file: %v", err)
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "pytorch_model.bin"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDir(other); err == nil || !strings.Contains(err.Error(), "convert") {
		t.Errorf("only pytorch_model.bin: %v", err)
	}
}

// FuzzParse checks that Parse never panics and that no two tensors share a byte.
func FuzzParse(f *testing.F) {
	f.Add(file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}}`, 10))
	f.Add(file(`{"__metadata__":{"format":"pt"},"a":{"dtype":"I64","shape":[0,5],"data_offsets":[0,0]}}   `, 0))
	f.Add(file(`{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, 0))
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0, '{', '}'})
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := Parse("f", raw)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f: ") {
				t.Fatalf("error without the file's name: %v", err)
			}
			return
		}
		var sum int
		var all []Tensor
		for _, n := range s.Names() {
			x, _ := s.Tensor(n)
			sum += len(x.Data)
			all = append(all, x)
			if _, err := x.Float32s(); err == nil != strings.Contains("F32 F16 BF16 F64", x.DType) {
				t.Fatalf("%s as float32: %v", x.DType, err)
			}
		}
		if n := int(binary.LittleEndian.Uint64(raw)); sum != len(raw)-8-n {
			t.Fatalf("tensors of %d bytes in all, want %d", sum, len(raw)-8-n)
		}
		var b bytes.Buffer
		if err := Write(&b, s.Metadata(), all...); err != nil {
			t.Fatalf("cannot be written again: %v", err)
		}
		if _, err := Parse("g", b.Bytes()); err != nil {
			t.Fatalf("written again: %v", err)
		}
	})
}

func TestReleasedTensorsStayReadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.safetensors")
	x := make([]float32, 1<<16)
	for i := range x {
		x[i] = float32(i)
	}
	if err := WriteFile(path, nil, F32("a", x, len(x)), F32("b", x[:3], 3)); err != nil {
		t.Fatal(err)
	}
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, name := range []string{"a", "b", "none"} {
		s.Release(name, 0, 12)
		s.Release(name, 5, 5)
	}
	for range 2 {
		a, err := s.Get("a")
		if err != nil {
			t.Fatal(err)
		}
		got, err := a.Float32s()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, x) {
			t.Fatal("values changed")
		}
		s.Release("a", 3, len(a.Data)-1)
	}
	// A set in memory has nothing to release.
	m := Of("memory", F32("a", x, len(x)))
	m.Release("a", 0, 4*len(x))
	if a, _ := m.Tensor("a"); a.Data[4] == 0 && a.Data[6] == 0 {
		t.Fatal("tensor in memory lost its bytes")
	}
}
