package write_test

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/internal/durable"
	"talf/model/gguf/gguftest"
	"talf/model/gguf/write"
	"talf/model/safetensors"
)

const plain = `{"added_tokens":[{"id":3,"content":"<s>","special":true},{"id":4,"content":"▁x","special":false},{"id":5,"content":"<|y|>","special":false}],
	"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},
	"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}]},
	"model":{"type":"BPE","vocab":{"a":0," b":1,"a b":2},"merges":[["a"," b"]]}}`

func tokenizerDir(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := durable.WriteFile(filepath.Join(dir, name), []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A tokenizer.json becomes the keys that llama.cpp's converter makes of it.
func TestTokenizersAreConverted(t *testing.T) {
	dir := tokenizerDir(t, map[string]string{
		"tokenizer.json":        plain,
		"tokenizer_config.json": `{"bos_token":{"content":"<s>"},"add_eos_token":false,"chat_template":"{{ x }}"}`,
		"config.json":           `{"eos_token_id":[5],"pad_token_id":4}`,
	})
	keys, err := write.Tokenizer(dir, 8)
	if err != nil {
		t.Fatal(err)
	}
	text := func(all ...string) string {
		var b []byte
		for _, s := range all {
			b = append(b, byte(len(s)), 0, 0, 0, 0, 0, 0, 0)
			b = append(b, s...)
		}
		return string(b)
	}
	array := func(kind, n byte, elems string) string {
		return string([]byte{kind, 0, 0, 0, n, 0, 0, 0, 0, 0, 0, 0}) + elems
	}
	number := func(all ...byte) string {
		s := ""
		for _, n := range all {
			s += string([]byte{n, 0, 0, 0})
		}
		return s
	}
	want := map[string]string{
		"model":            text("gpt2"),
		"pre":              text("gpt-2"),
		"tokens":           array(8, 8, text("a", " b", "a b", "<s>", " x", "<|y|>", "[PAD6]", "[PAD7]")),
		"token_type":       array(5, 8, number(1, 1, 1, 3, 4, 3, 5, 5)),
		"merges":           array(8, 1, text("a Ġb")),
		"bos_token_id":     number(3),
		"padding_token_id": number(4),
		"add_bos_token":    "\x01",
		"add_eos_token":    "\x00",
	}
	for _, k := range keys {
		if k.Name == "tokenizer.chat_template" {
			if string(k.Value) != text("{{ x }}") {
				t.Errorf("chat template %q", k.Value)
			}
			continue
		}
		name := strings.TrimPrefix(k.Name, "tokenizer.ggml.")
		if want[name] != string(k.Value) {
			t.Errorf("%s is %q, want %q", k.Name, k.Value, want[name])
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("no key %s", name)
	}
}

func TestTokenizersWithoutANameAreRefused(t *testing.T) {
	for what, c := range map[string]struct{ old, new, want string }{
		"another split":   {`"ByteLevel","add_prefix_space":false`, `"Sequence","pretokenizers":[{"type":"Split","behavior":"Isolated","pattern":{"Regex":"x"}},{"type":"ByteLevel","use_regex":false}]`, `cuts texts by ["x"]`},
		"no bytes":        {`"ByteLevel","add_prefix_space":false`, `"Split","behavior":"Isolated","pattern":{"Regex":"x"}`, "cuts texts by"},
		"another step":    {`"ByteLevel","add_prefix_space":false`, `"Metaspace"`, `the step "Metaspace"`},
		"a prefix":        {`"add_prefix_space":false`, `"add_prefix_space":true`, `the step "ByteLevel"`},
		"lower case":      {`"pre_tokenizer"`, `"normalizer":{"type":"Lowercase"},"pre_tokenizer"`, `normalizer is "Lowercase"`},
		"another model":   {`"type":"BPE"`, `"type":"Unigram"`, `model.type is "Unigram"`},
		"byte fallback":   {`"type":"BPE"`, `"type":"BPE","byte_fallback":true`, `the step "ByteLevel"`},
		"a merge of one":  {`["a"," b"]`, `["a"]`, "model.merges[0]"},
		"too many tokens": {`"a b":2`, `"a b":9`, `token "a b" has the id 9, but the model has 8`},
		"not JSON":        {`{"added`, `"added`, "tokenizer.json"},
	} {
		dir := tokenizerDir(t, map[string]string{"tokenizer.json": strings.Replace(plain, c.old, c.new, 1)})
		if _, err := write.Tokenizer(dir, 8); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "GGUF file of the target") {
			t.Errorf("%s: %v, want an error with %q", what, err, c.want)
		}
	}
	if _, err := write.Tokenizer(t.TempDir(), 8); err == nil || !strings.Contains(err.Error(), "there is no such file") {
		t.Errorf("no tokenizer: %v", err)
	}
}

// Tensors of any length begin where the table says.
func TestTensorsAreAligned(t *testing.T) {
	f := write.File{Tensors: []safetensors.Tensor{
		safetensors.F32("a", []float32{1, 2, 3}, 3), safetensors.BF16("b", []float32{4}, 1), safetensors.F32("c", []float32{5, 6}, 1, 2),
	}}
	var b bytes.Buffer
	if err := f.Write(&b); err != nil {
		t.Fatal(err)
	}
	for i, x := range gguftest.Read(b.Bytes()).Tensors {
		want := f.Tensors[i]
		dims := []uint64{uint64(want.Shape[len(want.Shape)-1])}
		if len(want.Shape) > 1 {
			dims = append(dims, uint64(want.Shape[0]))
		}
		if x.Name != want.Name || !slices.Equal(x.Dims, dims) || !bytes.HasPrefix(x.Data, want.Data) || len(x.Data) != 32 {
			t.Errorf("tensor %d is %+v, want %+v", i, x, want)
		}
	}
	if b.Len()%32 != 0 {
		t.Errorf("%d bytes, want a multiple of 32", b.Len())
	}
}
