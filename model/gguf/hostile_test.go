package gguf_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"talf/compute"
	"talf/compute/cpu"
	"talf/compute/cpu/kern"
	"talf/internal/golden"
	"talf/internal/limits/costtest"
	"talf/model"
	"talf/model/arch"
	"talf/model/gguf/gguftest"
	"talf/model/safetensors"
	"talf/text/chat"
	"talf/text/tokenizer"
)

// cpuDevice returns the portable device.
func cpuDevice(t testing.TB) compute.Device {
	d, err := cpu.New(cpu.Config{Class: kern.Portable, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// loadAll reads a model as commands do: configuration, weights, tokenizer, chat template, one pass.
func loadAll(t testing.TB, path string) error {
	tok, err := tokenizer.Load(path)
	if err != nil {
		return err
	}
	if _, _, err := chat.Open(path, "", time.Time{}, false); err != nil {
		return err
	}
	m, err := model.Load(path, cpuDevice(t), model.Default())
	if err != nil {
		return err
	}
	defer m.Close()
	if tok.VocabSize() > m.Spec().Vocab {
		return errors.New("more tokens than rows")
	}
	ids, err := tok.Encode("the cat", true)
	if err != nil {
		return err
	}
	s := m.NewSeq()
	defer s.Close()
	_, err = s.Append(context.Background(), ids, nil, model.WantLast)
	return err
}

// u64 is a pointer to an offset.
func u64(n uint64) *uint64 { return &n }

// A mutation changes a valid file. want is part of the error, "" if the file has to load.
type mutation struct {
	name   string
	change func(f *gguftest.File)
	want   string
}

// set sets a key, drop removes one.
func set(key string, value any) func(*gguftest.File) {
	return func(f *gguftest.File) { f.Set(key, value) }
}

func drop(key string) func(*gguftest.File) { return func(f *gguftest.File) { f.Drop(key) } }

// on changes a tensor.
func on(name string, change func(t *gguftest.Tensor)) func(*gguftest.File) {
	return func(f *gguftest.File) { change(f.Tensor(name)) }
}

// array is a value that says of itself what a slice cannot.
func array(kind uint32, n uint64, more ...byte) gguftest.Raw {
	b := binary.LittleEndian.AppendUint32(nil, kind)
	return gguftest.Raw{Type: 9, Bytes: append(binary.LittleEndian.AppendUint64(b, n), more...)}
}

const (
	q0    = "blk.0.attn_q.weight"
	embed = "token_embd.weight"
	down  = "blk.1.ffn_down.weight"
)

var mutations = []mutation{
	{"unchanged", func(*gguftest.File) {}, ""},
	// Header.
	{"another magic", func(f *gguftest.File) { f.Magic = "GGML" }, "GGML"},
	{"version 0", func(f *gguftest.File) { f.Version = 0 }, "version 0"},
	{"version 1", func(f *gguftest.File) { f.Version = 1 }, "version 1"},
	{"version 2", func(f *gguftest.File) { f.Version = 2 }, ""},
	{"version 4", func(f *gguftest.File) { f.Version = 4 }, "version 4"},
	{"big-endian", func(f *gguftest.File) { f.Version = 0x03000000 }, "big-endian"},
	{"2⁶³ tensors", func(f *gguftest.File) { f.MoreTensors = math.MinInt }, "tensors"},
	{"2³² keys", func(f *gguftest.File) { f.MoreKeys = 1 << 32 }, "keys"},
	{"−1 keys", func(f *gguftest.File) { f.MoreKeys = -len(f.Keys) - 1 }, "keys"},
	{"a key too many", func(f *gguftest.File) { f.MoreKeys = 1 }, "value of key|name of key|tensor"},
	{"a key too few", func(f *gguftest.File) { f.MoreKeys = -1 }, "tensor"},
	{"a tensor too many", func(f *gguftest.File) { f.MoreTensors = 1 }, "tensor"},
	{"a tensor too few", func(f *gguftest.File) { f.MoreTensors = -1 }, "tensor"},
	// Keys.
	{"an empty key", set("", uint32(1)), "0 bytes"},
	{"a key that is not UTF-8", set("a\xff", uint32(1)), "UTF-8"},
	{"a key twice", func(f *gguftest.File) { f.Keys = append(f.Keys, f.Keys[3]) }, "twice"},
	{"value type 13", set("x", gguftest.Raw{Type: 13}), `"x"`},
	{"value type 2³¹", set("x", gguftest.Raw{Type: 1 << 31}), `"x"`},
	{"array of arrays", set("x", array(9, 1, make([]byte, 12)...)), `"x"`},
	{"array of type 255", set("x", array(255, 1)), `"x"`},
	{"array of 2⁶⁴−1", set("x", array(4, math.MaxUint64)), `"x"`},
	{"array of 2⁶¹", set("x", array(10, 1<<61)), `"x"`},
	{"array of 2⁶³ texts", set("x", array(8, 1<<63)), `"x"`},
	{"a bool of 2", set("x", gguftest.Raw{Type: 7, Bytes: []byte{2}}), `"x"`},
	{"a million empty texts", set("x", slices.Repeat([]string{""}, 1_000_000)), ""},
	{"a key of another architecture", set("bert.block_count", uint32(3)), ""},
	{"unknown keys of every type", func(f *gguftest.File) {
		for i, v := range []any{uint8(1), int8(1), uint16(1), int16(1), uint32(1), int32(1), float32(1), true, "x", uint64(1), int64(1), 1.0, []float32{1}, []string{"a"}, []bool{true}} {
			f.Set("unknown."+string(rune('a'+i)), v)
		}
	}, ""},
	// Alignment.
	{"alignment 0", set("general.alignment", uint32(0)), "general.alignment"},
	{"alignment 3", set("general.alignment", uint32(3)), "general.alignment"},
	{"alignment 2³¹", set("general.alignment", uint32(1<<31)), "general.alignment"},
	{"alignment of type u64", set("general.alignment", uint64(32)), "general.alignment"},
	{"alignment of type string", set("general.alignment", "32"), "general.alignment"},
	{"alignment 64, placed right", func(f *gguftest.File) { f.Set("general.alignment", uint32(64)); f.Align = 64 }, ""},
	{"alignment 1", func(f *gguftest.File) { f.Set("general.alignment", uint32(1)); f.Align = 1 }, ""},
	{"alignment 4096, placed for 32", set("general.alignment", uint32(4096)), "alignment"},
	// Tensor table.
	{"a name of 64 bytes", on(down, func(t *gguftest.Tensor) { t.Name = strings.Repeat("x", 64) }), "name"},
	{"an empty name", on(down, func(t *gguftest.Tensor) { t.Name = "" }), "name"},
	{"a name with NUL", on(down, func(t *gguftest.Tensor) { t.Name = "a\x00b" }), "name"},
	{"a name twice", on(down, func(t *gguftest.Tensor) { t.Name = q0 }), "twice"},
	{"no dimensions", on(down, func(t *gguftest.Tensor) { t.Dims = nil }), "0 dimensions"},
	{"five dimensions", on(down, func(t *gguftest.Tensor) { t.Dims = []uint64{96, 64, 1, 1, 1} }), "5 dimensions"},
	{"dimensions of 1 behind", on(down, func(t *gguftest.Tensor) { t.Dims = []uint64{96, 64, 1, 1} }), ""},
	{"a dimension of 0", on(down, func(t *gguftest.Tensor) { t.Dims = []uint64{96, 0} }), "dimension of 0"},
	{"a dimension of 2⁶³", on(down, func(t *gguftest.Tensor) { t.Dims = []uint64{96, 1 << 63} }), down},
	{"a product that wraps", on(down, func(t *gguftest.Tensor) { t.Dims = []uint64{1 << 31, 1 << 31, 4} }), down},
	{"a row that is no whole block", on(down, func(t *gguftest.Tensor) { t.Dims = []uint64{80, 64} }), "multiple of 32"},
	{"type 4", on(down, func(t *gguftest.Tensor) { t.Type = 4 }), "Q4_2"},
	{"type 9", on(down, func(t *gguftest.Tensor) { t.Type = 9 }), "Q8_1"},
	{"type IQ2_XS", on(down, func(t *gguftest.Tensor) { t.Type = 17 }), "IQ2_XS"},
	{"type 43", on(down, func(t *gguftest.Tensor) { t.Type = 43 }), "type 43"},
	{"type 2³¹", on(down, func(t *gguftest.Tensor) { t.Type = 1 << 31 }), "type 2147483648"},
	{"an offset that is not aligned", on(down, func(t *gguftest.Tensor) { t.Offset = u64(8) }), "alignment"},
	{"an offset beyond the file", on(down, func(t *gguftest.Tensor) { t.Offset = u64(1 << 40) }), down},
	{"an offset that wraps", on(down, func(t *gguftest.Tensor) { t.Offset = u64(math.MaxUint64 - 31) }), down},
	{"an offset inside another", on(down, func(t *gguftest.Tensor) { t.Offset = u64(32) }), "inside"},
	{"the offset of another", on(down, func(t *gguftest.Tensor) { t.Offset = u64(0) }), "inside"},
	{"tensors in another order", func(f *gguftest.File) { slices.Reverse(f.Tensors) }, ""},
	{"no tensors", func(f *gguftest.File) { f.Tensors = nil }, embed},
	{"no keys", func(f *gguftest.File) { f.Keys = nil }, "tokenizer.ggml.model"},
	// Model.
	{"no architecture", drop("general.architecture"), "general.architecture"},
	{"architecture llama4", set("general.architecture", "llama4"), "llama4"},
	{"architecture of 1 MB", set("general.architecture", strings.Repeat("x", 1<<20)), "general.architecture"},
	{"architecture u32", set("general.architecture", uint32(1)), "general.architecture"},
	{"no block_count", drop("llama.block_count"), "llama.block_count"},
	{"no embedding_length", drop("llama.embedding_length"), "llama.embedding_length"},
	{"no feed_forward_length", drop("llama.feed_forward_length"), "llama.feed_forward_length"},
	{"no head_count", drop("llama.attention.head_count"), "llama.attention.head_count"},
	{"no epsilon", drop("llama.attention.layer_norm_rms_epsilon"), "layer_norm_rms_epsilon"},
	{"no context_length", drop("llama.context_length"), "llama.context_length"},
	{"block_count 0", set("llama.block_count", uint32(0)), "num_hidden_layers"},
	{"block_count 3 of 2", set("llama.block_count", uint32(3)), "layers.2"},
	{"block_count 1 of 2", set("llama.block_count", uint32(1)), "layers.1"},
	{"block_count 2³²−1", set("llama.block_count", uint32(math.MaxUint32)), "llama.block_count"},
	{"head_count 0", set("llama.attention.head_count", uint32(0)), "head"},
	{"head_count no divisor", set("llama.attention.head_count", uint32(3)), "head"},
	{"head_count of equal numbers", set("llama.attention.head_count", []uint32{4, 4}), ""},
	{"head_count of different ones", set("llama.attention.head_count", []uint32{4, 2}), "llama.attention.head_count"},
	{"head_count of too many", set("llama.attention.head_count", []uint32{4, 4, 4}), "llama.attention.head_count"},
	{"head_count_kv 0", set("llama.attention.head_count_kv", uint32(0)), "num_key_value_heads"},
	{"head_count_kv 8", set("llama.attention.head_count_kv", uint32(8)), "num_key_value_heads"},
	{"keys and values of different sizes", set("llama.attention.value_length", uint32(8)), "value_length"},
	{"odd heads", set("llama.attention.key_length", uint32(15)), "value_length|head_dim|dimension_count"},
	{"half a rotation", set("llama.rope.dimension_count", uint32(8)), "dimension_count"},
	{"epsilon 0", set("llama.attention.layer_norm_rms_epsilon", float32(0)), "layer_norm_rms_epsilon"},
	{"epsilon NaN", set("llama.attention.layer_norm_rms_epsilon", float32(math.NaN())), "layer_norm_rms_epsilon"},
	{"freq_base 0", set("llama.rope.freq_base", float32(0)), "rope_theta"},
	{"freq_base inf", set("llama.rope.freq_base", float32(math.Inf(1))), "freq_base"},
	{"scaling unknown", set("llama.rope.scaling.type", "su"), "llama.rope.scaling.type"},
	{"yarn without factor", set("llama.rope.scaling.type", "yarn"), "llama.rope.scaling.factor"},
	{"linear of 0", func(f *gguftest.File) {
		set("llama.rope.scaling.type", "linear")(f)
		set("llama.rope.scaling.factor", float32(0))(f)
	}, "factor"},
	{"context_length 0", set("llama.context_length", uint32(0)), "max_position_embeddings"},
	{"context_length 2⁶³", set("llama.context_length", uint64(1<<63)), "llama.context_length"},
	{"integers of other widths", func(f *gguftest.File) {
		f.Set("llama.block_count", uint64(2))
		f.Set("llama.context_length", int32(256))
		f.Set("llama.embedding_length", int64(64))
		f.Set("llama.attention.head_count", uint8(4))
	}, ""},
	{"an integer as f32", set("llama.block_count", float32(2)), "llama.block_count"},
	{"an integer as text", set("llama.block_count", "2"), "llama.block_count"},
	{"q of the transposed shape", on(q0, func(t *gguftest.Tensor) { t.Dims = []uint64{32, 128} }), q0},
	{"norms as F16", on("output_norm.weight", func(t *gguftest.Tensor) { t.Type, t.Data = 1, bytes.Repeat([]byte{0, 0x3c}, 64) }), ""},
	{"rope_freqs of wrong length", func(f *gguftest.File) {
		f.Tensors = append(f.Tensors, gguftest.F32("rope_freqs.weight", []float32{1, 2}, 2))
	}, "rope_freqs"},
	{"rope_freqs with 0", func(f *gguftest.File) {
		f.Tensors = append(f.Tensors, gguftest.F32("rope_freqs.weight", make([]float32, 8), 8))
	}, "rope_freqs"},
	{"rope_freqs of no known scaling", func(f *gguftest.File) {
		f.Tensors = append(f.Tensors, gguftest.F32("rope_freqs.weight", []float32{1, 8, 1, 8, 1, 2, 3, 4}, 8))
	}, "rope_freqs"},
	{"fewer rows than tokens", on(embed, func(t *gguftest.Tensor) { t.Dims, t.Data = []uint64{64, 200}, t.Data[:200*68] }), "tokenizer.ggml.tokens"},
	{"experts", func(f *gguftest.File) { f.Set("llama.expert_count", uint32(8)) }, "llama.expert_count"},
	{"an adapter", set("general.type", "adapter"), "adapter"},
	{"part of a model without its siblings", func(f *gguftest.File) { f.Set("split.count", uint16(2)); f.Set("split.no", uint16(0)) }, "part 1 of 2"},
	// Blocks.
	{"an infinite scale", on(q0, func(t *gguftest.Tensor) { copy(t.Data, []byte{0, 0x7c}) }), "q_proj"},
	{"a NaN scale in an embedding", on(embed, func(t *gguftest.Tensor) { copy(t.Data, []byte{0, 0x7e}) }), "embed_tokens"},
	{"all bytes 0", on(down, func(t *gguftest.Tensor) { clear(t.Data) }), ""},
	{"q = −128 everywhere", on(down, func(t *gguftest.Tensor) {
		for i := range t.Data {
			if i%34 > 1 {
				t.Data[i] = 0x80
			}
		}
	}), ""},
	{"Q6_K of scales −128", on(embed, func(t *gguftest.Tensor) {
		t.Type, t.Dims = 14, []uint64{256, 288} // of another hidden size, which the shape tells
		t.Data = bytes.Repeat([]byte{0x80}, 288*210)
	}), "shape"},
	// Tokenizer.
	{"no tokens", drop("tokenizer.ggml.tokens"), "tokenizer.ggml.tokens"},
	{"tokens u32", set("tokenizer.ggml.tokens", uint32(1)), "tokenizer.ggml.tokens"},
	{"empty tokens", set("tokenizer.ggml.tokens", []string{}), "tokenizer.ggml.tokens"},
	{"a token twice", func(f *gguftest.File) { f.Get("tokenizer.ggml.tokens").([]string)[9] = "!" }, ""},
	{"a token that is not UTF-8", func(f *gguftest.File) { f.Get("tokenizer.ggml.tokens").([]string)[265] = "\xff\xfe" }, ""},
	{"a token of 1 MB", func(f *gguftest.File) { f.Get("tokenizer.ggml.tokens").([]string)[265] = strings.Repeat("x", 1<<20) }, "bytes"},
	{"no token types", drop("tokenizer.ggml.token_type"), ""},
	{"too few token types", set("tokenizer.ggml.token_type", []int32{1, 1}), "token_type"},
	{"token type 0", func(f *gguftest.File) { f.Get("tokenizer.ggml.token_type").([]int32)[5] = 0 }, "token 5 has type 0"},
	{"token type −1", func(f *gguftest.File) { f.Get("tokenizer.ggml.token_type").([]int32)[5] = -1 }, "token 5 has type -1"},
	{"no merges", drop("tokenizer.ggml.merges"), "tokenizer.ggml.merges"},
	{"a merge without a space", set("tokenizer.ggml.merges", []string{"ab"}), "merge 0"},
	{"a merge of no token", set("tokenizer.ggml.merges", []string{"h zz"}), `"tokenizer.ggml.merges": merge 0 is "h zz", want tokens, of which "zz"`},
	{"a merge to no token", set("tokenizer.ggml.merges", []string{"x y"}), `"tokenizer.ggml.merges": merge 0 is "x y", want tokens, of which "xy"`},
	{"merges in reverse order", func(f *gguftest.File) { slices.Reverse(f.Get("tokenizer.ggml.merges").([]string)) }, ""},
	{"no model", drop("tokenizer.ggml.model"), "tokenizer.ggml.model"},
	{"model bert", set("tokenizer.ggml.model", "bert"), "bert"},
	{"no pre", drop("tokenizer.ggml.pre"), ""},
	{"unknown pre", set("tokenizer.ggml.pre", "lizard"), `"tokenizer.ggml.pre": how "lizard" splits texts`},
	{"bos beyond the tokens", set("tokenizer.ggml.bos_token_id", uint32(400)), ""},
	{"bos −1", set("tokenizer.ggml.bos_token_id", uint32(math.MaxUint32)), ""},
	{"bos equal to eos", set("tokenizer.ggml.bos_token_id", uint32(263)), ""},
	{"add_bos_token without a token", func(f *gguftest.File) {
		f.Drop("tokenizer.ggml.bos_token_id")
		f.Set("tokenizer.ggml.add_bos_token", true)
	}, "add_bos_token"},
	{"control tokens of regex signs", func(f *gguftest.File) {
		t := f.Get("tokenizer.ggml.tokens").([]string)
		t[262], t[263], t[264], t[265] = "<|", "<|.*[", "<|.*", "~~"
	}, ""},
	{"a chat template that does not parse", set("tokenizer.chat_template", "{% if"), "template"},
	{"a chat template u32", set("tokenizer.chat_template", uint32(1)), "tokenizer.chat_template"},
	{"a space prefix", set("tokenizer.ggml.add_space_prefix", true), ""},
	{"pieces", (*gguftest.File).ScorePieces, ""},
	{"pieces: no scores", func(f *gguftest.File) { f.ScorePieces(); f.Drop("tokenizer.ggml.scores") }, "tokenizer.ggml.scores"},
	{"pieces: too few scores", func(f *gguftest.File) { f.ScorePieces(); f.Set("tokenizer.ggml.scores", []float32{1}) }, "tokenizer.ggml.scores"},
	{"pieces: scores of i32", func(f *gguftest.File) { f.ScorePieces(); f.Set("tokenizer.ggml.scores", make([]int32, 269)) }, "tokenizer.ggml.scores"},
	{"pieces: NaN", func(f *gguftest.File) {
		f.ScorePieces()
		f.Get("tokenizer.ggml.scores").([]float32)[260] = float32(math.NaN())
	}, `"tokenizer.ggml.scores": that of token 260`},
	{"pieces: all scores equal", func(f *gguftest.File) { f.ScorePieces(); clear(f.Get("tokenizer.ggml.scores").([]float32)) }, "order of merges is lost"},
	{"pieces: a byte is missing", func(f *gguftest.File) { f.ScorePieces(); f.Get("tokenizer.ggml.tokens").([]string)[13] = "<0x0a>" }, `"tokenizer.ggml.tokens": no token <0x0A> of type 6`},
	{"pieces: pre is ignored", func(f *gguftest.File) { f.ScorePieces(); f.Set("tokenizer.ggml.pre", "lizard") }, ""},
	{"pieces: no space prefix", func(f *gguftest.File) { f.ScorePieces(); f.Set("tokenizer.ggml.add_space_prefix", false) }, ""},
}

func TestBrokenAndHostileFiles(t *testing.T) {
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			f := gguftest.Tiny(1)
			m.change(f)
			path := f.Write(t, "model.gguf")
			check(t, path, loadAll(t, path), m.want)
		})
	}
}

// check compares an error with what a test wants: a "|" separates alternatives.
func check(t *testing.T, path string, err error, want string) {
	t.Helper()
	switch {
	case want == "":
		if err != nil {
			t.Error(err)
		}
	case err == nil:
		t.Errorf("loads, want an error with %q", want)
	case !strings.Contains(err.Error(), path) || !slices.ContainsFunc(strings.Split(want, "|"), func(w string) bool { return strings.Contains(err.Error(), w) }):
		t.Errorf("%v: want the file and %q", err, want)
	case len(err.Error()) > 1500:
		t.Errorf("an error of %d bytes", len(err.Error()))
	}
}

// open reads everything of a file but the values of its weights.
func open(path string) error {
	if _, err := arch.Load(path); err != nil {
		return err
	}
	set, err := safetensors.OpenDir(path)
	if err != nil {
		return err
	}
	defer set.Close()
	for _, name := range set.Names() {
		set.Tensor(name)
	}
	if _, err := tokenizer.Load(path); err != nil {
		return err
	}
	_, _, err = chat.Open(path, "", time.Time{}, false)
	return err
}

// write writes a file of the test anew.
func write(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTruncatedFilesAreRefused(t *testing.T) {
	whole := gguftest.Tiny(1).Bytes()
	path := filepath.Join(t.TempDir(), "x.gguf")
	cuts := []int{len(whole) - 1, len(whole) - 100, len(whole) / 2}
	for i := range 80 {
		cuts = append(cuts, i)
	}
	// The borders of keys and tensors are where a name begins: 8 bytes behind its length.
	for _, name := range []string{"general.architecture", "llama.block_count", "tokenizer.ggml.tokens", "tokenizer.ggml.merges", embed, q0, down} {
		at := bytes.Index(whole, []byte(name))
		cuts = append(cuts, at-9, at-8, at-7, at-1, at, at+1, at+len(name), at+len(name)+3, at+len(name)+5, at+len(name)+13)
	}
	for _, n := range cuts {
		write(t, path, whole[:n])
		if err := open(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("the first %d bytes: %v, want an error that names the file", n, err)
		}
	}
	write(t, path, append(slices.Clone(whole), whole...))
	if err := open(path); err != nil {
		t.Errorf("with another file behind it: %v", err)
	}
}

func TestOtherFilesAreNamed(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct{ bytes, want string }{
		"empty":       {"", "0 bytes"},
		"lfs":         {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "Git LFS"},
		"gzip":        {"\x1f\x8b\x08\x00\x00\x00", "gzip"},
		"safetensors": {"\x02\x00\x00\x00\x00\x00\x00\x00{}", "not a GGUF file"},
	} {
		path := filepath.Join(dir, name+".gguf")
		write(t, path, []byte(c.bytes))
		if err := open(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	// A file that is one but is not called so, in a directory with blanks and quotes.
	path := filepath.Join(dir, `a 'b" c`)
	write(t, path, gguftest.Tiny(1).Bytes())
	if err := open(path); err != nil {
		t.Errorf("without the ending .gguf: %v", err)
	}
}

// parts writes a model in n files and returns their paths.
func parts(t *testing.T, n int, change func(i int, f *gguftest.File)) []string {
	t.Helper()
	dir := t.TempDir()
	whole := gguftest.Tiny(1)
	var paths []string
	for i := range n {
		f := &gguftest.File{Magic: whole.Magic, Version: 3, Align: 32}
		if i == 0 {
			f.Keys = whole.Keys
		}
		per := (len(whole.Tensors) + n - 1) / n
		f.Tensors = whole.Tensors[min(i*per, len(whole.Tensors)):min((i+1)*per, len(whole.Tensors))]
		f.Set("split.no", uint16(i))
		f.Set("split.count", uint16(n))
		f.Set("split.tensors.count", int32(len(whole.Tensors)))
		if change != nil {
			change(i, f)
		}
		paths = append(paths, filepath.Join(dir, "tiny-0000"+string(rune('1'+i))+"-of-0000"+string(rune('0'+n))+".gguf"))
		write(t, paths[i], f.Bytes())
	}
	return paths
}

func TestModelsInSeveralFiles(t *testing.T) {
	whole, err := safetensors.OpenDir(gguftest.Tiny(1).Write(t, "whole.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	paths := parts(t, 3, nil)
	set, err := safetensors.OpenDir(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	if !slices.Equal(set.Names(), whole.Names()) {
		t.Fatalf("tensors %v, want %v", set.Names(), whole.Names())
	}
	for _, name := range whole.Names() {
		a, _ := set.Tensor(name)
		b, _ := whole.Tensor(name)
		if !bytes.Equal(a.Data, b.Data) {
			t.Errorf("%s differs", name)
		}
	}
	if last := set.File("model.layers.1.mlp.down_proj.weight"); last != paths[2] {
		t.Errorf("the last tensor is in %s, want %s", last, paths[2])
	}
	if err := loadAll(t, paths[0]); err != nil {
		t.Error(err)
	}
	check(t, paths[1], open(paths[1]), "want the first: "+paths[0])
	for name, c := range map[string]struct {
		change func(i int, f *gguftest.File)
		want   string
	}{
		"a part twice":       {func(i int, f *gguftest.File) { f.Set("split.no", uint16(0)) }, "split.no is 0"},
		"another count":      {func(i int, f *gguftest.File) { f.Set("split.count", uint16(3-i)) }, "split.count"},
		"a count of tensors": {func(i int, f *gguftest.File) { f.Set("split.tensors.count", int32(99)) }, "99"},
		"a tensor twice": {func(i int, f *gguftest.File) {
			f.Drop("split.tensors.count")
			f.Tensors = append(slices.Clone(f.Tensors), gguftest.F32("more", []float32{1}, 1))
		}, "is also in"},
	} {
		t.Run(name, func(t *testing.T) { // the error names some part
			paths := parts(t, 2, c.change)
			if err := open(paths[0]); err == nil || !strings.Contains(err.Error(), filepath.Dir(paths[0])) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	if err := os.Remove(paths[1]); err != nil {
		t.Fatal(err)
	}
	check(t, paths[1], open(paths[0]), "no such file|cannot find")
}

// What a file says about sizes costs nothing before it is compared with the file.
func TestLargeHeadersAreCheap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.gguf")
	for name, change := range map[string]func(f *gguftest.File){
		"a million texts":   set("x", slices.Repeat([]string{""}, 1_000_000)),
		"many keys":         func(f *gguftest.File) { manyKeys(f, 60_000) },
		"many tensors":      func(f *gguftest.File) { manyTensors(f, 50_000) },
		"a large array":     set("x", array(8, 1<<40)),
		"a large dimension": on(down, func(t *gguftest.Tensor) { t.Dims = []uint64{math.MaxInt32 - 31, math.MaxInt32} }),
		"many control tokens": func(f *gguftest.File) {
			tokens, types := f.Get("tokenizer.ggml.tokens").([]string), f.Get("tokenizer.ggml.token_type").([]int32)
			for i := range 50_000 {
				tokens, types = append(tokens, "<|"+strings.Repeat("x", i%7)+string(rune(0x4e00+i))+"|>"), append(types, 3)
			}
			f.Set("tokenizer.ggml.tokens", tokens)
			f.Set("tokenizer.ggml.token_type", types)
		},
	} {
		f := gguftest.Tiny(1)
		change(f)
		b := f.Bytes()
		write(t, path, b)
		bound := costtest.Default
		costtest.Check(t, name, bound, func(context.Context) { _ = open(path) })
	}
}

func manyKeys(f *gguftest.File, n int) {
	for i := range n {
		f.Keys = append(f.Keys, gguftest.Key{Name: "k" + string(rune(0x4e00+i)), Value: uint32(i)})
	}
}

func manyTensors(f *gguftest.File, n int) {
	for i := range n {
		f.Tensors = append(f.Tensors, gguftest.F32("t"+string(rune(0x4e00+i)), []float32{1}, 1))
	}
}

// FuzzOpen opens any bytes as a model: no panic, and each error names the file.
func FuzzOpen(f *testing.F) {
	f.Add(gguftest.Tiny(1).Bytes())
	pieces := gguftest.Tiny(2)
	pieces.ScorePieces()
	f.Add(pieces.Bytes())
	for _, m := range mutations[:60] {
		x := gguftest.Tiny(1)
		if x.Tensors = x.Tensors[:4]; m.name == "a million empty texts" || strings.Contains(m.want, "down") || m.want == down {
			continue
		}
		func() {
			defer func() { _ = recover() }() // of a tensor that was cut off
			m.change(x)
			f.Add(x.Bytes())
		}()
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "x.gguf")
		write(t, path, b)
		if err := open(path); err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("%v does not name %s", err, path)
		}
	})
}

// A published file reads the same after it was read and changed nowhere: what hostile files are
// made from stands for real ones.
func TestPublishedFilesHaveTheSameKinds(t *testing.T) {
	for _, name := range []string{"spm-Q8_0", "llama3-Q4_K_M", "qwen2-Q4_0"} {
		b, err := os.ReadFile(golden.File(t, "gguf/"+name+".gguf"))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "x.gguf")
		for i := 0; i < len(b); i += max(1, len(b)/40) {
			write(t, path, b[:i])
			if err := open(path); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%s, the first %d of %d bytes: %v", name, i, len(b), err)
			}
		}
	}
}

// Q6_K that is cut, of rows that are no whole blocks, or with scales that are no numbers is refused, whether its integers are kept
// or not.
func TestHostileQ6K(t *testing.T) {
	good, err := os.ReadFile(golden.File(t, "gguf/llama3-Q4_K_M.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	load := func(path string, as compute.DType) error {
		opt := model.Default()
		opt.DType = as
		m, err := model.Load(path, cpuDevice(t), opt)
		if err == nil {
			m.Close()
		}
		return err
	}
	const q6k = 14
	for _, c := range []struct {
		name   string
		change func(x *gguftest.Tensor)
		want   string
	}{
		{"as it is", func(*gguftest.Tensor) {}, ""},
		{"a NaN scale", func(x *gguftest.Tensor) { copy(x.Data[208:], []byte{0, 0x7e}) }, "want a finite number"},
		{"an infinite scale of the last block", func(x *gguftest.Tensor) {
			copy(x.Data[x.Dims[0]/256*210*x.Dims[1]-2:], []byte{0, 0xfc})
		}, "want a finite number"},
		{"an infinite scale of zeros", func(x *gguftest.Tensor) {
			clear(x.Data[192:208])
			copy(x.Data[208:], []byte{0, 0x7c})
		}, "want a finite number"},
		{"no whole blocks", func(x *gguftest.Tensor) { x.Dims[0]-- }, "want a multiple of 256 for Q6_K"},
		{"a row more than there is", func(x *gguftest.Tensor) { x.Dims[1]++ }, "inside"},
		{"no rows", func(x *gguftest.Tensor) { x.Dims[1] = 0 }, "a dimension of 0"},
		{"a product that is too large", func(x *gguftest.Tensor) { x.Dims[0], x.Dims[1] = 1<<40, 1<<40 }, "1099511627776"},
	} {
		f := gguftest.Read(slices.Clone(good))
		i := slices.IndexFunc(f.Tensors, func(x gguftest.Tensor) bool { return x.Type == q6k })
		if i < 0 {
			t.Fatal("no tensor in Q6_K")
		}
		x := &f.Tensors[i]
		x.Data = slices.Clone(x.Data)
		c.change(x)
		path := f.Write(t, "x.gguf")
		for _, as := range []compute.DType{compute.Q4, compute.Q8} {
			err := load(path, as)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, as %v: error %v, want %q", c.name, as, err, c.want)
			}
		}
	}
}
