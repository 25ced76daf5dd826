// Package gguftest writes GGUF files for tests, broken ones too: what a File says is written as it
// is.
package gguftest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"talf/internal/durable"
)

// A File is what a GGUF file says.
type File struct {
	Magic   string
	Version uint32
	Keys    []Key
	Tensors []Tensor
	Align   int // of the data
	// More is added to the counts of tensors and keys.
	MoreTensors, MoreKeys int
}

// A Key is a key and its value: a bool, a number of a fixed size, a string, a slice of these, or Raw.
type Key struct {
	Name  string
	Value any
}

// Raw is a value given by the number of its type and its bytes.
type Raw struct {
	Type  uint32
	Bytes []byte
}

// A Tensor is a tensor: its dimensions begin with the length of a row.
type Tensor struct {
	Name string
	Dims []uint64
	Type uint32
	Data []byte
	// Offset, unless nil, is what the table says in place of where Data is.
	Offset *uint64
}

// Set sets a key's value, and adds the key if there is none.
func (f *File) Set(name string, value any) {
	for i := range f.Keys {
		if f.Keys[i].Name == name {
			f.Keys[i].Value = value
			return
		}
	}
	f.Keys = append(f.Keys, Key{name, value})
}

// Get returns a key's value. It panics if there is none.
func (f *File) Get(name string) any {
	for _, k := range f.Keys {
		if k.Name == name {
			return k.Value
		}
	}
	panic("gguftest: no key " + name)
}

// Drop removes a key.
func (f *File) Drop(name string) {
	f.Keys = slices.DeleteFunc(f.Keys, func(k Key) bool { return k.Name == name })
}

// Tensor returns a tensor, to be changed. It panics if there is none.
func (f *File) Tensor(name string) *Tensor {
	for i := range f.Tensors {
		if f.Tensors[i].Name == name {
			return &f.Tensors[i]
		}
	}
	panic("gguftest: no tensor " + name)
}

func text(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

var kinds = map[reflect.Kind]uint32{
	reflect.Uint8: 0, reflect.Int8: 1, reflect.Uint16: 2, reflect.Int16: 3, reflect.Uint32: 4, reflect.Int32: 5,
	reflect.Float32: 6, reflect.Bool: 7, reflect.String: 8, reflect.Uint64: 10, reflect.Int64: 11, reflect.Float64: 12,
}

func one(b []byte, v reflect.Value) []byte {
	if v.Kind() == reflect.String {
		return text(b, v.String())
	}
	b, err := binary.Append(b, binary.LittleEndian, v.Interface())
	if err != nil {
		panic(fmt.Sprintf("gguftest: %v", err))
	}
	return b
}

func (k Key) append(b []byte) []byte {
	b = text(b, k.Name)
	if raw, ok := k.Value.(Raw); ok {
		return append(binary.LittleEndian.AppendUint32(b, raw.Type), raw.Bytes...)
	}
	v := reflect.ValueOf(k.Value)
	if v.Kind() != reflect.Slice {
		return one(binary.LittleEndian.AppendUint32(b, kinds[v.Kind()]), v)
	}
	b = binary.LittleEndian.AppendUint32(b, 9)
	b = binary.LittleEndian.AppendUint32(b, kinds[v.Type().Elem().Kind()])
	b = binary.LittleEndian.AppendUint64(b, uint64(v.Len()))
	for i := range v.Len() {
		b = one(b, v.Index(i))
	}
	return b
}

// Bytes returns the file.
func (f *File) Bytes() []byte {
	b := []byte(f.Magic)
	b = binary.LittleEndian.AppendUint32(b, f.Version)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(f.Tensors)+f.MoreTensors))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(f.Keys)+f.MoreKeys))
	for _, k := range f.Keys {
		b = k.append(b)
	}
	var data []byte
	for _, t := range f.Tensors {
		b = text(b, t.Name)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(t.Dims)))
		for _, d := range t.Dims {
			b = binary.LittleEndian.AppendUint64(b, d)
		}
		b = binary.LittleEndian.AppendUint32(b, t.Type)
		at := uint64(len(data))
		if t.Offset != nil {
			at = *t.Offset
		}
		b = binary.LittleEndian.AppendUint64(b, at)
		data = f.pad(append(data, t.Data...))
	}
	return append(f.pad(b), data...)
}

func (f *File) pad(b []byte) []byte {
	if n := len(b) % f.Align; n > 0 {
		b = append(b, make([]byte, f.Align-n)...)
	}
	return b
}

// Write writes the file under name in a directory of the test, and returns its path.
func (f *File) Write(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := durable.WriteFile(path, f.Bytes()); err != nil {
		t.Fatal(err)
	}
	return path
}

// F32 returns a tensor of numbers.
func F32(name string, x []float32, dims ...uint64) Tensor {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.LittleEndian, x); err != nil {
		panic(err)
	}
	return Tensor{Name: name, Dims: dims, Data: b.Bytes()}
}

// Q8 returns a tensor of blocks of 32 as llama-quantize makes them: d is float16(amax/127), q is
// x·(1/(amax/127)), rounded half away from zero.
func Q8(name string, x []float32, dims ...uint64) Tensor {
	t := Tensor{Name: name, Dims: dims, Type: 8}
	for b := range slices.Chunk(x, 32) {
		most := float32(0)
		for _, v := range b {
			most = max(most, float32(math.Abs(float64(v))))
		}
		d := most / 127
		inverse := float32(0)
		if d != 0 {
			inverse = 1 / d
		}
		t.Data = binary.LittleEndian.AppendUint16(t.Data, half(d))
		for _, v := range b {
			t.Data = append(t.Data, byte(int8(math.Round(float64(v*inverse)))))
		}
	}
	return t
}

// half rounds x, which is not negative, to the nearest float16, ties to even.
func half(x float32) uint16 {
	switch {
	case x >= 65520:
		return 0x7c00
	case x < 0x1p-14:
		return uint16(math.RoundToEven(float64(x) * 0x1p24))
	}
	b := math.Float32bits(x)
	b += 0xfff + b>>13&1
	return uint16(b>>13 - 112<<10)
}

// Hidden is the hidden size of Tiny's model.
const Hidden = 64

// Tiny returns a random model of two layers, four heads (two for keys) of 16 and 288 tokens, with the
// byte-level tokenizer of the split "llama-bpe". Its matrices are Q8_0.
func Tiny(seed uint64) *File {
	r := rand.New(rand.NewPCG(seed, 1))
	f := &File{Magic: "GGUF", Version: 3, Align: 32}
	tokens, types, merges := Alphabet()
	for _, s := range []string{"<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|x|>"} {
		tokens, types = append(tokens, s), append(types, 3)
	}
	f.Keys = []Key{
		{"general.architecture", "llama"},
		{"general.type", "model"},
		{"general.name", "Tiny"},
		{"llama.block_count", uint32(2)},
		{"llama.context_length", uint32(256)},
		{"llama.embedding_length", uint32(Hidden)},
		{"llama.feed_forward_length", uint32(96)},
		{"llama.attention.head_count", uint32(4)},
		{"llama.attention.head_count_kv", uint32(2)},
		{"llama.rope.freq_base", float32(10000)},
		{"llama.attention.layer_norm_rms_epsilon", float32(1e-5)},
		{"llama.rope.dimension_count", uint32(16)},
		{"tokenizer.ggml.model", "gpt2"},
		{"tokenizer.ggml.pre", "llama-bpe"},
		{"tokenizer.ggml.tokens", tokens},
		{"tokenizer.ggml.token_type", types},
		{"tokenizer.ggml.merges", merges},
		{"tokenizer.ggml.bos_token_id", uint32(len(tokens) - 4)},
		{"tokenizer.ggml.eos_token_id", uint32(len(tokens) - 3)},
	}
	random := func(n int, scale float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64() * scale)
		}
		return x
	}
	ones := slices.Repeat([]float32{1}, Hidden)
	matrix := func(name string, in, out uint64) {
		f.Tensors = append(f.Tensors, Q8(name, random(int(in*out), 0.2), in, out))
	}
	matrix("token_embd.weight", Hidden, 288)
	f.Tensors = append(f.Tensors, F32("output_norm.weight", ones, Hidden))
	for l := range 2 {
		b := fmt.Sprintf("blk.%d.", l)
		f.Tensors = append(f.Tensors, F32(b+"attn_norm.weight", ones, Hidden), F32(b+"ffn_norm.weight", ones, Hidden))
		matrix(b+"attn_q.weight", Hidden, 64)
		matrix(b+"attn_k.weight", Hidden, 32)
		matrix(b+"attn_v.weight", Hidden, 32)
		matrix(b+"attn_output.weight", 64, Hidden)
		matrix(b+"ffn_gate.weight", Hidden, 96)
		matrix(b+"ffn_up.weight", Hidden, 96)
		matrix(b+"ffn_down.weight", 96, Hidden)
	}
	return f
}

// Alphabet returns the 256 characters that stand for bytes, and a few merges of them.
func Alphabet() (tokens []string, types []int32, merges []string) {
	next := rune(256)
	for b := range rune(256) {
		c := b
		if b < '!' || b > '~' && b < '¡' || b > '¬' && b < '®' {
			c, next = next, next+1
		}
		tokens = append(tokens, string(c))
	}
	for _, m := range []string{"Ġ t", "h e", "Ġt he", "i n", "Ġ a", "e r"} {
		merges = append(merges, m)
		var a, b string
		if _, err := fmt.Sscan(m, &a, &b); err != nil {
			panic(err)
		}
		tokens = append(tokens, a+b)
	}
	return tokens, slices.Repeat([]int32{1}, len(tokens)), merges
}

// ScorePieces makes f's tokenizer a SentencePiece one.
func (f *File) ScorePieces() {
	tokens, types, scores := []string{"<unk>", "<s>", "</s>"}, []int32{2, 3, 3}, []float32{0, 0, 0}
	for b := range 256 {
		tokens, types, scores = append(tokens, fmt.Sprintf("<0x%02X>", b)), append(types, 6), append(scores, 0)
	}
	for i, s := range []string{"▁t", "he", "▁the", "▁", "t", "h", "e", "a", "▁a"} {
		tokens, types, scores = append(tokens, s), append(types, 1), append(scores, float32(-i))
	}
	tokens, types, scores = append(tokens, "<tool>"), append(types, 4), append(scores, 0)
	f.Set("tokenizer.ggml.model", "llama")
	f.Set("tokenizer.ggml.tokens", tokens)
	f.Set("tokenizer.ggml.token_type", types)
	f.Set("tokenizer.ggml.scores", scores)
	f.Set("tokenizer.ggml.bos_token_id", uint32(1))
	f.Set("tokenizer.ggml.eos_token_id", uint32(2))
	f.Drop("tokenizer.ggml.merges")
	f.Drop("tokenizer.ggml.pre")
}

// Read reads a valid file whose data is aligned to 32 bytes, with its values as Raw.
func Read(b []byte) *File {
	f := &File{Magic: string(b[:4]), Version: binary.LittleEndian.Uint32(b[4:]), Align: 32}
	at := 8
	u32 := func() uint32 { at += 4; return binary.LittleEndian.Uint32(b[at-4:]) }
	u64 := func() uint64 { at += 8; return binary.LittleEndian.Uint64(b[at-8:]) }
	text := func() string { n := int(u64()); at += n; return string(b[at-n : at]) }
	value := func(kind uint32) {
		if kind == 8 {
			text()
			return
		}
		for k, id := range kinds {
			if id == kind {
				at += size[k]
			}
		}
	}
	tensors, keys := u64(), u64()
	for range keys {
		k := Key{Name: text()}
		kind := u32()
		from := at
		if kind == 9 {
			elem := u32()
			for range u64() {
				value(elem)
			}
		} else {
			value(kind)
		}
		k.Value = Raw{kind, b[from:at]}
		f.Keys = append(f.Keys, k)
	}
	var offsets []uint64
	for range tensors {
		t := Tensor{Name: text()}
		for range u32() {
			t.Dims = append(t.Dims, u64())
		}
		t.Type = u32()
		offsets = append(offsets, u64())
		f.Tensors = append(f.Tensors, t)
	}
	data := b[(at+31)/32*32:]
	for i := range f.Tensors {
		end := uint64(len(data))
		for _, o := range offsets {
			if o > offsets[i] {
				end = min(end, o)
			}
		}
		f.Tensors[i].Data = data[offsets[i]:end] // with its padding
	}
	return f
}

var size = map[reflect.Kind]int{
	reflect.Uint8: 1, reflect.Int8: 1, reflect.Uint16: 2, reflect.Int16: 2, reflect.Uint32: 4, reflect.Int32: 4,
	reflect.Float32: 4, reflect.Bool: 1, reflect.Uint64: 8, reflect.Int64: 8, reflect.Float64: 8,
}

// Interleave puts rows of queries or keys, [heads·head][in], in the order of llama.cpp's files: the
// two halves of each head alternate.
func Interleave(x []float32, heads, head int) []float32 {
	in := len(x) / (heads * head)
	out := make([]float32, 0, len(x))
	for h := range heads {
		for i := range head {
			row := h*head + i%2*(head/2) + i/2
			out = append(out, x[row*in:][:in]...)
		}
	}
	return out
}
