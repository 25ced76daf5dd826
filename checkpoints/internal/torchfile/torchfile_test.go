package torchfile

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/model/safetensors"
)

func TestReadsWhatPyTorchSaved(t *testing.T) {
	ts, err := Read("testdata/state.bin")
	if err != nil {
		t.Fatal(err)
	}
	i64 := func(x ...int64) (b []byte) {
		for _, v := range x {
			b = binary.LittleEndian.AppendUint64(b, uint64(v))
		}
		return b
	}
	f16 := safetensors.Tensor{Name: "half", DType: "F16", Shape: []int{4}, Data: []byte{0, 0, 0, 0x3c, 0, 0x40, 0, 0x42}}
	want := []safetensors.Tensor{
		safetensors.F32("weight", []float32{0, 1, 2, 3, 4, 5}, 2, 3),
		safetensors.F32("bias", []float32{-1, 0.5}, 2),
		f16,
		safetensors.BF16("bf16", []float32{1.5, -2}, 1, 2),
		safetensors.F32("transposed", []float32{0, 3, 1, 4, 2, 5}, 3, 2),
		safetensors.F32("rows", []float32{3, 4, 5, 6, 7, 8}, 2, 3),
		safetensors.F32("parameter", []float32{7}, 1),
		safetensors.F32("tied", []float32{0, 1, 2, 3, 4, 5}, 2, 3),
		{Name: "d2t", DType: "I64", Shape: []int{3}, Data: i64(0, 5, 9)},
		{Name: "t2d", DType: "BOOL", Shape: []int{2}, Data: []byte{1, 0}},
		{Name: "scalar", DType: "F32", Shape: []int{}, Data: safetensors.F32("", []float32{3}, 1).Data},
	}
	if d := cmp.Diff(want, ts); d != "" {
		t.Errorf("want −, got +:\n%s", d)
	}
	if ts, err := Read("testdata/protocol4.bin"); err != nil || len(ts) != 1 || ts[0].Name != "w" {
		t.Errorf("protocol 4: %v, %v", ts, err)
	}
}

// The command in hostile.bin is harmless, and would not be run in any case.
func TestFilesOtherThanDictionariesOfTensorsAreRefusedByName(t *testing.T) {
	for file, want := range map[string]string{
		"hostile.bin": `"system" of module "posix"`,
		"legacy.bin":  "since PyTorch 1.6",
		"nested.bin":  "want a dictionary of tensors",
		"make.py":     "since PyTorch 1.6",
		"none.bin":    "no such file",
	} {
		if _, err := Read(filepath.Join("testdata", file)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v, want %q in it", file, err, want)
		}
	}
}

func TestATruncatedFileIsRefusedWhereverItEnds(t *testing.T) {
	whole, err := os.ReadFile("testdata/state.bin")
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if _, err := parse("x", bytes.NewReader(whole[:n]), int64(n)); err == nil {
			t.Fatalf("%d of %d bytes were accepted as a whole file", n, len(whole))
		}
	}
}

func sample() []safetensors.Tensor {
	return []safetensors.Tensor{
		safetensors.F32("fc.weight", []float32{1, 2, 3, float32(math.Inf(1)), -0.5, 6}, 3, 2),
		safetensors.BF16("layers.0.mlp", []float32{1, 2}, 2),
		{Name: "t2d", DType: "BOOL", Shape: []int{3}, Data: []byte{1, 0, 1}},
		{Name: "empty", DType: "F32", Shape: []int{0, 4}, Data: []byte{}},
		{Name: "scalar", DType: "F64", Shape: []int{}, Data: make([]byte, 8)},
	}
}

func TestWrittenFilesAreReadableAndAligned(t *testing.T) {
	var a, b bytes.Buffer
	if err := Write(&a, sample()...); err != nil {
		t.Fatal(err)
	}
	if err := Write(&b, sample()...); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("equal tensors give other bytes")
	}
	got, err := parse("x", bytes.NewReader(a.Bytes()), int64(a.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sample(), got); d != "" {
		t.Errorf("want −, got +:\n%s", d)
	}
	z, err := zip.NewReader(bytes.NewReader(a.Bytes()), int64(a.Len()))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range z.File {
		if at, err := f.DataOffset(); err != nil || at%64 != 0 {
			t.Errorf("%s begins at byte %d, %v; want a multiple of 64", f.Name, at, err)
		}
	}
	if err := Write(&a, safetensors.Tensor{Name: "x", DType: "F8_E4M3", Shape: []int{1}, Data: []byte{0}}); err == nil {
		t.Error("a type that torch has no storage for was written")
	}
}

// file returns an archive with a pickle.
func file(t testing.TB, pickle string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, data := range map[string]string{"a/data.pkl": pickle, "a/data/0": strings.Repeat("\x00", 64)} {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// tensorOf returns the pickle of one tensor over a storage of 16 floats.
func tensorOf(offset byte, shape, stride string) string {
	return "\x80\x02}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x10tQK" +
		string([]byte{offset}) + shape + stride + "\x89}tRs."
}

func TestHostilePicklesAreRefused(t *testing.T) {
	ok := tensorOf(0, "K\x04K\x04\x86", "K\x04K\x01\x86")
	if ts, err := parse("x", bytes.NewReader(file(t, ok)), int64(len(file(t, ok)))); err != nil || len(ts) != 1 {
		t.Fatalf("the valid pickle: %v, %v", ts, err)
	}
	for name, c := range map[string]struct{ pickle, want string }{
		"a command":                       {"cos\nsystem\n(X\x02\x00\x00\x00lstR.", `"system" of module "os"`},
		"a command from the stack":        {"\x8c\x02os\x8c\x06system\x93X\x02\x00\x00\x00ls\x85R.", `"system" of module "os"`},
		"an object from the stack":        {"\x8c\x0b__builtin__\x8c\x06object\x93.", `"object" of module "__builtin__"`},
		"an object by its reconstructor":  {"\x80\x04\x8c\x08copy_reg\x94\x8c\x0e_reconstructor\x94\x93\x8c\x0b__builtin__\x8c\x06object\x93N\x86R.", `"_reconstructor" of module "copy_reg"`},
		"a command from the memo":         {"\x8c\x06system\x94\x8c\x02os\x94NNh\x01h\x00\x93.", `"system" of module "os"`},
		"a memo that is written twice":    {"\x8c\x0bcollections\x94\x8c\x0bOrderedDict\x94\x8c\x02osq\x00h\x00h\x01\x93.", `"OrderedDict" of module "os"`},
		"a module that is not known":      {"\x8c\x0bcollectionsK\x01\x8c\x0bOrderedDict\x93.", "STACK_GLOBAL without"},
		"a name that is not known":        {"\x8c\x0bcollections(K\x01t\x93.", "STACK_GLOBAL without"},
		"an object":                       {"c__builtin__\nobject\n)R.", "refused"},
		"an opcode that no tensor needs":  {"(i\n\n.", "opcode 0x69"},
		"the last opcode":                 {"\xff.", "opcode 0xff"},
		"a string of 4 GiB":               {"X\xff\xff\xff\xff", "truncated?"},
		"a frame of 8 EiB":                {"\x95\xff\xff\xff\xff\xff\xff\xff\x7f", "truncated?"},
		"a number without bytes":          {"\x8a\x00.", "integer of 0 bytes"},
		"a number of 200 bytes":           {"\x8a\xc8" + strings.Repeat("\x7f", 200) + ".", "integer of 200 bytes"},
		"no end":                          {"N", "without an end"},
		"nothing":                         {"", "without an end"},
		"only an end":                     {".", "stack is empty"},
		"an invalid key":                  {"ccollections\nOrderedDict\n)R(X\x01\x00\x00\x00au.", "not a pickle"},
		"a list in place of a dictionary": {"].", "want a dictionary"},
		"a list as a key":                 {"}]Ns.", "not a string"},
		"a name twice":                    {strings.TrimSuffix(ok, ".") + strings.TrimSuffix(ok[3:], ".") + ".", "twice"},
		"beyond its storage":              {tensorOf(1, "K\x04K\x04\x86", "K\x04K\x01\x86"), "leaves its storage"},
		"strides beyond its storage":      {tensorOf(0, "K\x04K\x04\x86", "K\x0fK\x01\x86"), "leaves its storage"},
		"more than its storage":           {tensorOf(0, "K\xffK\xff\x86", "K\x00K\x00\x86"), "storage of 16 elements"},
		"a negative offset":               {strings.Replace(ok, "QK\x00", "QJ\xff\xff\xff\xff", 1), "leaves its storage"},
		"a negative size":                 {strings.Replace(ok, "K\x04K\x04\x86", "J\xff\xff\xff\xffK\x04\x86", 1), "without storage"},
		"an unknown storage":              {strings.Replace(ok, "FloatStorage", "FloatStorages", 1), "FloatStorages"},
		"a storage that is missing":       {strings.Replace(ok, "X\x01\x00\x00\x000", "X\x01\x00\x00\x001", 1), `no entry "a/data/1"`},
		"another storage size":            {strings.Replace(ok, "K\x10tQ", "K\x11tQ", 1), "want 68"},
		"a key out of the archive":        {strings.Replace(ok, "X\x01\x00\x00\x000", "X\x05\x00\x00\x00../..", 1), "no entry"},
	} {
		b := file(t, c.pickle)
		if _, err := parse("x", bytes.NewReader(b), int64(len(b))); err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 400 {
			t.Errorf("%s: %v, want %q in it", name, err, c.want)
		}
	}
	b := file(t, strings.Repeat("(", maxPickle+1))
	if _, err := parse("x", bytes.NewReader(b), int64(len(b))); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("a pickle beyond the limit: %v", err)
	}
}

func TestManyViewsOfOneStorageAreNotMultiplied(t *testing.T) {
	one := tensorOf(0, "K\x04K\x04\x86", "K\x04K\x01\x86")
	var p strings.Builder
	p.WriteString("\x80\x02}(")
	for i := range 3000 {
		x := strings.TrimSuffix(strings.TrimPrefix(one, "\x80\x02}"), "s.")
		p.WriteString(strings.Replace(x, "X\x01\x00\x00\x00w", "X\x04\x00\x00\x00"+string([]byte{'a' + byte(i/676%26), 'a' + byte(i/26%26), 'a' + byte(i%26), 'w'}), 1))
	}
	p.WriteString("u.")
	// The pickle grows with the number of views, so only views of a large storage are
	// dangerous. To test the limit, shrink the size that the file claims.
	b := file(t, p.String())
	a, err := open(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.tensors(1000); err == nil || !strings.Contains(err.Error(), "tensors of more than") {
		t.Errorf("3000 views of a storage in a file of 1000 bytes: %v", err)
	}
}

// Entries of a zip archive may refer to the same bytes. A thousand storages with the
// same bytes must not take a thousand times the file's size in memory.
func TestStoragesThatShareTheirBytesAreRefused(t *testing.T) {
	one := safetensors.F32("0", make([]float32, 1000), 1000)
	var all, stored []safetensors.Tensor
	for i := range 9 {
		x := one
		x.Name = string(rune('0' + i))
		all = append(all, x)
		if i > 0 {
			x.Data = nil
		}
		stored = append(stored, x)
	}
	p, err := pickled(all)
	if err != nil {
		t.Fatal(err)
	}
	// Only the first element of every tensor: together they are no larger than the
	// file.
	p = bytes.ReplaceAll(p, []byte("(J\xe8\x03\x00\x00t(J"), []byte("(J\x01\x00\x00\x00t(J"))
	var b bytes.Buffer
	if err := archiveOf(&b, p, stored...); err != nil {
		t.Fatal(err)
	}
	raw := b.Bytes()
	// Storages 1 to 8 get the size and the offset of storage 0. In the directory at the
	// end, a name follows 46 bytes, with sizes at 20 and 24 and the offset at 42.
	entry := func(i int) []byte {
		at := bytes.LastIndex(raw, []byte("archive/data/"+string(rune('0'+i))))
		return raw[at-46 : at]
	}
	for i := 1; i < 9; i++ {
		copy(entry(i)[20:28], entry(0)[20:28])
		copy(entry(i)[42:46], entry(0)[42:46])
	}
	_, err = parse("x", bytes.NewReader(raw), int64(len(raw)))
	if err == nil || !strings.Contains(err.Error(), `has 4000 bytes, want at most`) {
		t.Errorf("9 storages of 4000 bytes in a file of %d: %v", len(raw), err)
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"state.bin", "hostile.bin", "nested.bin", "protocol4.bin"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add(file(f, tensorOf(0, "K\x04K\x04\x86", "K\x04K\x01\x86")))
	f.Fuzz(func(t *testing.T, b []byte) {
		ts, err := parse("x", bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		n := 0
		for _, x := range ts {
			n += len(x.Data)
		}
		if n > 2*len(b) {
			t.Errorf("%d bytes of tensors in a file of %d", n, len(b))
		}
		safetensors.Of("x", ts...) // panics where data does not fit the shape
	})
}

// The machine after the scan gets everything that the scan accepts. It must not panic
// or take memory out of proportion to the pickle.
func FuzzUnpickle(f *testing.F) {
	p, err := pickled(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p)
	f.Add([]byte(tensorOf(0, "K\x04K\x04\x86", "K\x04K\x01\x86")))
	f.Add([]byte("\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00}\x94N."))
	f.Fuzz(func(t *testing.T, b []byte) {
		ts, err := unpickle(slices.Clone(b))
		if err != nil {
			return
		}
		for _, x := range ts {
			if n := x.len(); n > x.from.n {
				t.Errorf("%d elements of a storage of %d", n, x.from.n)
			}
		}
	})
}
