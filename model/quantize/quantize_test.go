package quantize

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cpu/kern"
	"talf/internal/durable"
	"talf/model"
	"talf/model/modeltest"
	"talf/model/safetensors"
)

// whole converts a set at once, in memory.
func whole(t *testing.T, set *safetensors.Set, as compute.DType) []byte {
	t.Helper()
	var out []safetensors.Tensor
	for _, name := range set.Names() {
		x, _ := set.Tensor(name)
		if len(x.Shape) != 2 || x.DType == "BF16" && as == compute.BF16 {
			out = append(out, x)
			continue
		}
		f, err := x.Float32s()
		if err != nil {
			t.Fatal(err)
		}
		if as == compute.BF16 {
			out = append(out, safetensors.BF16(name, f, x.Shape...))
			continue
		}
		rows, cols := x.Shape[0], x.Shape[1]
		blocks := kern.Q8Blocks(cols)
		ints, scales := make([]byte, rows*cols), make([]byte, 2*rows*blocks)
		for r := range rows {
			kern.QuantQ8(ints[r*cols:][:cols], scales[2*r*blocks:], f[r*cols:][:cols])
		}
		out = append(out, safetensors.Tensor{Name: name, DType: "I8", Shape: x.Shape, Data: ints},
			safetensors.Tensor{Name: name + "_scale", DType: "F16", Shape: []int{rows, blocks}, Data: scales})
	}
	var b bytes.Buffer
	if err := safetensors.Write(&b, map[string]string{"format": "pt", model.MetaSource: model.OriginOf(set)}, out...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestAStreamedModelEqualsTheOneConvertedAtOnce(t *testing.T) {
	for _, bf16 := range []bool{false, true} {
		c := modeltest.Default()
		c.BF16, c.AttnBias = bf16, true
		dir := modeltest.Random(t, c, 1)
		set, err := safetensors.OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		for _, as := range []compute.DType{compute.Q8, compute.BF16} {
			want := whole(t, set, as)
			for _, chunk := range []int{1, 100, chunk} {
				out := t.TempDir()
				to, err := durable.NewDir(out)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := convert(t.Context(), set, to, as, chunk); err != nil {
					t.Fatal(err)
				}
				if err := to.Commit(); err != nil {
					t.Fatal(err)
				}
				if got, err := os.ReadFile(filepath.Join(out, "model.safetensors")); err != nil || !bytes.Equal(got, want) {
					t.Errorf("bf16 %v as %v, %d elements at a time: the bytes differ from those of the model converted at once, %v", bf16, as, chunk, err)
				}
			}
		}
	}
}

// After any failure, even one after the weights are written, a new attempt finds
// nothing in its way.
func TestAFailureDoesNotObstructTheNextAttempt(t *testing.T) {
	dir, out := modeltest.Random(t, modeltest.Default(), 1), filepath.Join(t.TempDir(), "out")
	empty := func() {
		t.Helper()
		if es, err := os.ReadDir(filepath.Dir(out)); err != nil || len(es) > 0 {
			t.Errorf("left behind: %v, %v", es, err)
		}
	}
	unreadable := filepath.Join(dir, "tokenizer.json")
	if err := os.Mkdir(unreadable, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Model(t.Context(), dir, out, compute.Q8); err == nil || !strings.Contains(err.Error(), unreadable) {
		t.Errorf("%v, want an error that names %s", err, unreadable)
	}
	empty()
	if err := os.Remove(unreadable); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := Model(ended, dir, out, compute.Q8); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
	empty()
	r, err := Model(t.Context(), dir, out, compute.Q8)
	if err != nil {
		t.Fatal(err)
	}
	if r.Matrices != 2+2*7 || r.Kept != 1+2*2 || r.To >= r.From || r.Out != out || r.DType != "q8" {
		t.Errorf("%+v", r)
	}
	for from, want := range map[string]string{dir: "not empty", out: "q8 already"} {
		if _, err := Model(t.Context(), from, out, compute.Q8); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in the error", err, want)
		}
	}
	if _, err := Model(t.Context(), dir, t.TempDir(), compute.F32); err == nil {
		t.Error("quantised to F32")
	}
}
