package ggml_test

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
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

// The integers and scales of blocks that weights in memory keep are what the values are made of.
func TestIntegersAndScalesHaveTheSameValues(t *testing.T) {
	levels := [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	fp4 := [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
	float := func(b []byte) float32 {
		half, err := ggml.ByID(1)
		if err != nil {
			t.Fatal(err)
		}
		var x [1]float32
		half.Float32s(x[:], b[:2])
		return x[0]
	}
	// The bytes of a block's scales, the largest integer, and the value of integer q that is element i of a block.
	type kind struct {
		scales int
		most   byte
		value  func(s []byte, i int, q byte) float32
	}
	halves := func(s []byte, _ int, q byte) float32 { return float(s)*float32(q) + float(s[2:]) }
	minima := func(s []byte, i int, q byte) float32 {
		return float(s)*float32(s[4+i/32])*float32(q) - float(s[2:])*float32(s[12+i/32])
	}
	kinds := map[string]kind{
		"Q4_0":   {2, 15, func(s []byte, _ int, q byte) float32 { return float(s) * (float32(q) - 8) }},
		"Q4_1":   {4, 15, halves},
		"Q4_K":   {20, 15, minima},
		"Q5_0":   {2, 31, func(s []byte, _ int, q byte) float32 { return float(s) * (float32(q) - 16) }},
		"Q5_1":   {4, 31, halves},
		"Q5_K":   {20, 31, minima},
		"Q6_K":   {18, 63, func(s []byte, i int, q byte) float32 { return float(s) * float32(int8(s[2+i/16])) * (float32(q) - 32) }},
		"IQ4_NL": {2, 15, func(s []byte, _ int, q byte) float32 { return float(s) * levels[q] }},
		"IQ4_XS": {10, 15, func(s []byte, i int, q byte) float32 { return float(s) * float32(int8(s[2+i/32])) * levels[q] }},
		"MXFP4": {2, 15, func(s []byte, _ int, q byte) float32 {
			return math.Float32frombits(uint32(binary.LittleEndian.Uint16(s))<<16) * fp4[q]
		}},
	}
	check := func(t *testing.T, of *ggml.Type, raw []byte, want []float32) {
		k, ok := kinds[of.Name]
		if (of.Kept() != compute.NotKept) != ok || ok && of.Kept().String() != of.Name {
			t.Fatalf("Kept is %v", of.Kept())
		}
		if !ok {
			return
		}
		q, s := make([]byte, len(want)), make([]byte, len(want)/of.Elems*k.scales)
		of.Integers(q, s, raw)
		for i, w := range want {
			got := k.value(s[i/of.Elems*k.scales:], i%of.Elems, q[i])
			if q[i] > k.most || math.Float32bits(got) != math.Float32bits(w) && (got == got || w == w) && !(got == 0 && w == 0) {
				t.Fatalf("element %d is %v of %d, want %v", i, got, q[i], w)
			}
		}
	}
	goldens(t, check)
	// There are no goldens of IQ4_XS: its decoder is held to TestIQ4XS.
	of, err := ggml.ByID(23)
	if err != nil {
		t.Fatal(err)
	}
	raw := anyBytes(7, 20*of.Size)
	want := make([]float32, 20*of.Elems)
	of.Float32s(want, raw)
	check(t, of, raw, want)
	if n := len(ggml.Kept()); n != len(kinds) {
		t.Errorf("%d types are kept, want %d", n, len(kinds))
	}
}

// anyBytes returns n bytes that a seed decides.
func anyBytes(seed uint64, n int) []byte {
	var b []byte
	for i := uint64(0); len(b) < n; i++ {
		x := (seed + i) * 0x9e3779b97f4a7c15
		b = binary.LittleEndian.AppendUint64(b, x^x>>29*0xbf58476d1ce4e5b9)
	}
	return b[:n]
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

// The digest is of what gguf-py 0.19 of llama.cpp 0c1e570 decodes from the same bytes.
func TestIQ4XS(t *testing.T) {
	of, err := ggml.ByID(23)
	if err != nil {
		t.Fatal(err)
	}
	raw := anyBytes(11, 20*of.Size)
	for i := 1; i < len(raw); i += of.Size {
		raw[i] &= 0xbf // scales are finite
	}
	x := make([]float32, 20*of.Elems)
	of.Float32s(x, raw)
	h := sha256.New()
	if err := binary.Write(h, binary.LittleEndian, x); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%x", h.Sum(nil)); got != "ce754bd19eee64bd2de22b75a656860e768ab31ca86970301ddef21f91fcede0" {
		t.Errorf("%v …: digest %s", x[:8], got)
	}
}
