package ggml_test

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"talf/compute"
	"talf/internal/golden"
	"talf/model/ggml"
	"talf/model/safetensors"
)

// blockTypes are the types of the goldens.
var blockTypes = map[string]uint32{
	"F16": 1, "BF16": 30, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "IQ4_NL": 20, "MXFP4": 39,
	"Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14,
}

// goldens calls f with the blocks of every type, raw and decoded by ggml, and a name for errors.
func goldens(t *testing.T, f func(t *testing.T, of *ggml.Type, raw []byte, want []float32)) {
	set, err := safetensors.Open(golden.File(t, "gguf/blocks.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	for name, id := range blockTypes {
		of, err := ggml.ByID(id)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{name, name + ".wild"} {
			raw, ok := set.Tensor(part + ".raw")
			if !ok {
				if part == name {
					t.Errorf("no golden of %s", name)
				}
				continue
			}
			values, err := set.Get(part + ".f32")
			if err != nil {
				t.Fatal(err)
			}
			want, err := values.Float32s()
			if err != nil {
				t.Fatal(err)
			}
			t.Run(part, func(t *testing.T) { f(t, of, raw.Data, want) })
		}
	}
}

func TestBlocksDecodeAsGGMLDoes(t *testing.T) {
	goldens(t, func(t *testing.T, of *ggml.Type, raw []byte, want []float32) {
		got := make([]float32, len(raw)/of.Size*of.Elems)
		if len(got) != len(want) || len(got) == 0 {
			t.Fatalf("%d elements, want %d", len(got), len(want))
		}
		of.Float32s(got, raw)
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) && (got[i] == got[i] || want[i] == want[i]) {
				t.Fatalf("block %d, element %d is %v, want %v", i/of.Elems, i%of.Elems, got[i], want[i])
			}
		}
	})
}

func TestQ8HasTheSameValuesOrRefuses(t *testing.T) {
	exact := map[string]bool{"Q4_0": true, "Q5_0": true, "Q8_0": true, "IQ4_NL": true, "MXFP4": true}
	goldens(t, func(t *testing.T, of *ggml.Type, raw []byte, want []float32) {
		if of.Exact() != exact[of.Name] {
			t.Fatalf("Exact is %v", of.Exact())
		}
		half, err := ggml.ByID(1)
		if err != nil {
			t.Fatal(err)
		}
		taken := 0
		for at := 0; at < len(raw); at += of.Size {
			q, d := make([]byte, of.Elems), make([]byte, max(2, of.Elems/16))
			if !of.Q8(q, d, raw[at:][:of.Size]) {
				// A power of two that float16 does not have.
				if e := int(raw[at]) - 128; of.Exact() && (of.Name != "MXFP4" || e >= -24 && e <= 15) {
					t.Errorf("block %d is refused", at/of.Size)
				}
				continue
			}
			taken++
			var scale [1]float32
			half.Float32s(scale[:], d)
			for i, w := range want[at/of.Size*of.Elems:][:of.Elems] {
				if got := scale[0] * float32(int8(q[i])); math.Float32bits(got) != math.Float32bits(w) && (got == got || w == w) {
					t.Fatalf("block %d, element %d is %v·%d, want %v", at/of.Size, i, scale[0], int8(q[i]), w)
				}
			}
		}
		if blocks := len(raw) / of.Size; of.Exact() != (taken > 0) && !(of.Name == "MXFP4" && blocks < 3) { // the wild ones have two, of exponents far apart
			t.Errorf("%d of %d blocks as q8", taken, blocks)
		}
	})
}

// The integers and scales of blocks that q4 keeps are what the values are made of.
func TestIntegersAndScalesHaveTheSameValues(t *testing.T) {
	kinds := map[string]compute.Kept{"Q4_0": compute.Centred, "Q4_K": compute.WithMinima, "Q6_K": compute.SixBit}
	goldens(t, func(t *testing.T, of *ggml.Type, raw []byte, want []float32) {
		if of.Kept() != kinds[of.Name] {
			t.Fatalf("Kept is %v", of.Kept())
		}
		if of.Kept() == compute.NotKept {
			return
		}
		float := func(b []byte) float32 {
			half, err := ggml.ByID(1)
			if err != nil {
				t.Fatal(err)
			}
			var x [1]float32
			half.Float32s(x[:], b[:2])
			return x[0]
		}
		q, s := make([]byte, len(want)), make([]byte, len(want)/8)
		of.Integers(q, s, raw)
		for i, w := range want {
			got, most := float32(0), byte(15)
			switch of.Kept() {
			case compute.Centred:
				got = float(s[i/32*2:]) * (float32(q[i]) - 8)
			case compute.SixBit:
				s := s[i/256*18:]
				got, most = float(s)*float32(int8(s[2+i%256/16]))*(float32(q[i])-32), 63
			default:
				s := s[i/256*20:]
				got = float(s)*float32(s[4+i%256/32])*float32(q[i]) - float(s[2:])*float32(s[12+i%256/32])
			}
			if q[i] > most || got != w && (got == got || w == w) {
				t.Fatalf("element %d is %v of %d, want %v", i, got, q[i], w)
			}
		}
	})
}

func TestElementsThatNobodyCanComputeWithAreFound(t *testing.T) {
	inf := float32(math.Inf(1))
	goldens(t, func(t *testing.T, of *ggml.Type, raw []byte, want []float32) {
		for _, limit := range []float32{inf, 1000, 1, 1e-3} {
			first, value := -1, float32(0)
			for i, x := range want {
				if !(float32(math.Abs(float64(x))) < limit) {
					first, value = i, x
					break
				}
			}
			got, x := of.Find(raw, limit)
			if got != first || math.Float32bits(x) != math.Float32bits(value) && x == x {
				t.Errorf("limit %v: element %d, %v, want %d, %v", limit, got, x, first, value)
			}
		}
	})
}

func TestTypesThatAreNotReadAreNamed(t *testing.T) {
	for id, want := range map[uint32]string{9: "Q8_1", 17: "IQ2_XS", 4: "Q4_2", 31: "Q4_0_4_4", 26: "I32", 43: "43", 1 << 31: "2147483648"} {
		if _, err := ggml.ByID(id); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("type %d: %v, want an error with %s", id, err, want)
		}
	}
	if ggml.Blocks("Q4_K") == nil || ggml.Blocks("F16") != nil || ggml.Blocks("I8") != nil {
		t.Error("Blocks: want Q4_K alone")
	}
}

// Every pattern of bits in a block decodes: no index leaves its block, whatever the bytes are.
func TestAnyBytesDecode(t *testing.T) {
	for _, id := range blockTypes {
		of, err := ggml.ByID(id)
		if err != nil {
			t.Fatal(err)
		}
		x := make([]float32, of.Elems)
		for seed := range uint64(200) {
			b := make([]byte, of.Size+8)
			for i := 0; i < of.Size; i += 8 {
				binary.LittleEndian.PutUint64(b[i:], (seed*1_000_003+uint64(i))*0x9e3779b97f4a7c15)
			}
			of.Float32s(x, b[:of.Size])
		}
	}
}
