package safetensors

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every value that is not finite is found, wherever it is, and the first of several is named; no
// finite value is taken for one.
func TestValuesThatAreNotFiniteAreFound(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	bad := map[string][]uint32{
		"F32":  {0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffffffff},
		"BF16": {0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xffff},
		"F16":  {0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xffff},
	}
	largest := map[string]uint32{"F32": 0x7f7fffff, "BF16": 0x7f7f, "F16": 0x7bff}
	for dtype, values := range bad {
		size := sizes[dtype]
		put := func(b []byte, i int, v uint32) {
			if size == 4 {
				binary.LittleEndian.PutUint32(b[4*i:], v)
			} else {
				binary.LittleEndian.PutUint16(b[2*i:], uint16(v))
			}
		}
		for _, n := range []int{1, 7, 15, 16, 17, 33, scanPiece/2 + 5, 3*scanPiece/4 + 1} {
			b := make([]byte, n*size)
			for i := range n {
				v := r.Uint32N(largest[dtype] + 1)
				if r.IntN(3) == 0 {
					v = largest[dtype]
				}
				if r.IntN(2) == 0 {
					v |= 1 << (8*size - 1)
				}
				put(b, i, v)
			}
			s := Of("mem", Tensor{Name: "x", DType: dtype, Shape: []int{n}, Data: b})
			inf := float32(math.Inf(1))
			if err := s.Finite("x", inf); err != nil {
				t.Fatalf("%s, %d finite values: %v", dtype, n, err)
			}
			places := []int{0, n - 1, n / 2, r.IntN(n), r.IntN(n)}
			for _, at := range places {
				for _, v := range values {
					old := slices.Clone(b[at*size:][:size])
					put(b, at, v)
					later := min(n-1, at+1+r.IntN(n))
					oldLater := slices.Clone(b[later*size:][:size])
					put(b, later, values[0])
					var e *ValueError
					if err := s.Finite("x", inf); !errors.As(err, &e) || !slices.Equal(e.Index, []int{at}) || !math.IsNaN(e.Value-e.Value) {
						t.Fatalf("%s, %d values, %#x at %d: %v", dtype, n, v, at, err)
					}
					copy(b[later*size:], oldLater)
					copy(b[at*size:], old)
				}
			}
		}
	}
}

// A limit allows what is below it in magnitude and nothing else.
func TestValuesBeyondALimitAreFound(t *testing.T) {
	for _, limit := range []float32{1, 65504, 8321040, math.Float32frombits(0x7f7f8000)} {
		below := math.Float32frombits(math.Float32bits(limit) - 1)
		s := Of("mem", F32("x", []float32{0, -below, below}, 3), F32("y", []float32{0, 1e-3, -limit}, 3))
		if err := s.Finite("x", limit); err != nil {
			t.Errorf("limit %v: %v", limit, err)
		}
		if err := s.Finite("y", limit); err == nil || !strings.Contains(err.Error(), "element [2]") || !strings.Contains(err.Error(), "at most") {
			t.Errorf("limit %v: error %v, want one of element [2]", limit, err)
		}
	}
	s := Of("mem", BF16("x", []float32{2, 0.5}, 2), Tensor{Name: "y", DType: "F16", Shape: []int{2}, Data: []byte{0, 0x3c, 0, 0x40}})
	for name, first := range map[string]string{"x": "element [0] is 2", "y": "element [1] is 2"} {
		if err := s.Finite(name, 2); err == nil || !strings.Contains(err.Error(), first) {
			t.Errorf("%s: error %v, want %s", name, err, first)
		}
		if err := s.Finite(name, 2.5); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The error names the shard that holds the tensor, and the element by its place in the matrix.
func TestAValueErrorNamesItsFile(t *testing.T) {
	dir := t.TempDir()
	x := make([]float32, 12)
	x[7] = float32(math.Inf(-1))
	if err := WriteFile(filepath.Join(dir, "a.safetensors"), nil, F32("w", x, 3, 4)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors.index.json"), []byte(`{"weight_map":{"w":"a.safetensors"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := filepath.Join(dir, "a.safetensors") + `: tensor "w": element [1 3] is -Inf, want a finite number`
	if err := s.Finite("w", float32(math.Inf(1))); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func BenchmarkFinite(b *testing.B) {
	for _, dtype := range []string{"F32", "BF16"} {
		b.Run(dtype, func(b *testing.B) {
			n := 64 << 20
			s := Of("mem", Tensor{Name: "x", DType: dtype, Shape: []int{n / sizes[dtype]}, Data: make([]byte, n)})
			b.SetBytes(int64(n))
			for b.Loop() {
				if err := s.Finite("x", float32(math.Inf(1))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
