package write_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"talf/internal/durable"
	"talf/model/arch"
	"talf/model/draftvocab"
	"talf/model/gguf"
	"talf/model/gguf/write"
	"talf/model/head"
	"talf/model/identity"
	"talf/model/safetensors"
)

const target = "../../../internal/demo/target"

// headDir, if set, is where TestHeadIsTheConverters writes its head for lab/experiments/eagle3_gguf.py.
var headDir = flag.String("head", "", "directory to which the head of the test is written")

// sample returns a head for the embedded model that has what a file can say: taps, norms, a draft
// vocabulary, an embedding, and Llama 3's scaling. Its elements are the same in bfloat16.
func sample(t *testing.T, bf16 bool) *write.Head {
	t.Helper()
	spec, err := arch.Load(target)
	if err != nil {
		t.Fatal(err)
	}
	s := spec.Eagle3For([]int{0, 4, 9}, 100)
	s.Eagle3.NormBeforeFC, s.Eagle3.NormBeforeResidual = true, true
	s.Rope.Type, s.Rope.Factor, s.Rope.LowFreq, s.Rope.HighFreq, s.Rope.Original = "llama3", 8, 1, 4, 256
	h := &write.Head{Spec: s, Taps: s.Eagle3.Taps, Name: "sample"}
	for i := range 100 {
		h.Vocab = append(h.Vocab, int32(i*10+i%7))
	}
	for _, t := range s.Tensors() {
		n := 1
		for _, d := range t.Shape() {
			n *= d
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32((i*37+11*len(t.Name))%251-125) / 128
		}
		if bf16 {
			h.Tensors = append(h.Tensors, safetensors.BF16(t.Name, x, t.Shape()...))
		} else {
			h.Tensors = append(h.Tensors, safetensors.F32(t.Name, x, t.Shape()...))
		}
	}
	if h.Tokenizer, err = write.Tokenizer(target, s.Vocab); err != nil {
		t.Fatal(err)
	}
	return h
}

func file(t *testing.T, h *write.Head) []byte {
	t.Helper()
	f, err := h.File()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := f.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A golden is what llama.cpp's converter made of the head, as lab/experiments/eagle3_gguf.py saw it.
type golden struct {
	Keys    map[string]string `json:"keys"`    // type and hash of the value
	Tensors map[string]string `json:"tensors"` // type, dimensions and hash of the data
	Factors []float32         `json:"rope_freqs"`
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// described reads f's header anew, without the package under test.
func described(f *write.File) golden {
	g := golden{Keys: map[string]string{}, Tensors: map[string]string{}}
	for _, k := range f.Keys {
		g.Keys[k.Name] = string(rune('a'+k.Type)) + " " + hash(k.Value)
	}
	for _, t := range f.Tensors {
		if t.Name == "rope_freqs.weight" {
			g.Factors, _ = t.Float32s()
			continue
		}
		var dims []string
		for _, d := range slices.Backward(t.Shape) {
			dims = append(dims, hex.EncodeToString(binary.BigEndian.AppendUint32(nil, uint32(d))))
		}
		g.Tensors[t.Name] = t.DType + " " + strings.Join(dims, "x") + " " + hash(t.Data)
	}
	return g
}

// TestHeadIsTheConverters compares keys and tensors, byte by byte, with those that llama.cpp's
// converter writes of the same head.
func TestHeadIsTheConverters(t *testing.T) {
	for _, dtype := range []string{"f32", "bf16"} {
		t.Run(dtype, func(t *testing.T) {
			h := sample(t, dtype == "bf16")
			if *headDir != "" {
				ts := append(slices.Clone(h.Tensors), draftvocab.Tensors(h.Vocab, h.Spec.Vocab)...)
				if err := head.Write(t.Context(), *headDir+"-"+dtype, h.Spec, identity.Tie{}, ts...); err != nil {
					t.Fatal(err)
				}
			}
			f, err := h.File()
			if err != nil {
				t.Fatal(err)
			}
			raw, err := os.ReadFile("testdata/eagle3-" + dtype + ".json")
			if err != nil {
				t.Fatal(err)
			}
			var want golden
			if err := json.Unmarshal(raw, &want); err != nil {
				t.Fatal(err)
			}
			got := described(f)
			// What tells people about the file is not the same.
			for _, name := range []string{"general.name", "general.size_label", "general.tags"} {
				delete(got.Keys, name)
				delete(want.Keys, name)
			}
			compare(t, "key", got.Keys, want.Keys)
			compare(t, "tensor", got.Tensors, want.Tensors)
			if len(got.Factors) != len(want.Factors) || len(want.Factors) == 0 {
				t.Fatalf("%d factors of frequencies, want %d", len(got.Factors), len(want.Factors))
			}
			for i, x := range want.Factors {
				// The converter reckons in float32.
				if math.Abs(float64(got.Factors[i]/x-1)) > 1e-5 {
					t.Errorf("factor %d of frequencies is %v, want %v", i, got.Factors[i], x)
				}
			}
		})
	}
}

func compare(t *testing.T, what string, got, want map[string]string) {
	t.Helper()
	if len(want) == 0 {
		t.Fatalf("no %s to compare with", what)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			t.Errorf("%s %s is %q, want %q", what, name, got[name], want[name])
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("%s %s is not the converter's", what, name)
	}
}

// TestHeadIsReadBack reads a file as the directory that it stands for.
func TestHeadIsReadBack(t *testing.T) {
	h := sample(t, true)
	h.More = []gguf.Raw{write.Text("talf.target_sha256", "abc")}
	path := t.TempDir() + "/eagle3-BF16.gguf"
	if err := durable.WriteFile(path, file(t, h)); err != nil {
		t.Fatal(err)
	}
	if !gguf.IsHead(path) {
		t.Error("is not a head")
	}
	raw, err := gguf.ReadFile(path, "config.json", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	got, err := arch.ParseEagle3(path, raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := h.Spec
	if !slices.Equal(got.Eagle3.Taps, s.Eagle3.Taps) || !got.Eagle3.NormBeforeFC || !got.Eagle3.NormBeforeResidual ||
		got.Vocab != s.Vocab || got.DraftVocab != s.DraftVocab || got.Hidden != s.Hidden || got.KVHeads != s.KVHeads || got.NormEps != s.NormEps {
		t.Errorf("the configuration is read as %+v, want %+v", got, s)
	}
	for i, want := range s.Rope.Frequencies(s.HeadDim) {
		if x := got.Rope.Frequencies(s.HeadDim)[i]; math.Abs(float64(x/want-1)) > 1e-5 {
			t.Errorf("frequency %d is %v, want %v", i, x, want)
		}
	}
	set, err := safetensors.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	ids, err := draftvocab.Read(set, s.DraftVocab, s.Vocab)
	if err != nil || !slices.Equal(ids, h.Vocab) {
		t.Errorf("the draft vocabulary is %v (%v), want %v", ids, err, h.Vocab)
	}
	if n := len(set.Names()); n != len(h.Tensors)+1 {
		t.Errorf("%d tensors, want %d", n, len(h.Tensors)+1)
	}
	if set.Metadata()["talf.target_sha256"] != "abc" {
		t.Errorf("the metadata is %v", set.Metadata())
	}
	for _, want := range h.Tensors {
		x, ok := set.Tensor(want.Name)
		a, _ := x.Float32s()
		b, _ := want.Float32s()
		if !ok || !slices.Equal(x.Shape, want.Shape) || !slices.Equal(a, b) {
			t.Errorf("tensor %s of shape %v is not that of shape %v that was written", want.Name, x.Shape, want.Shape)
		}
	}
}

// What a file says of a head is checked before anything is made of it, and errors name the key.
func TestKeysOfHeadsAreChecked(t *testing.T) {
	number := func(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }
	taps := func(ids ...uint32) []byte {
		b := binary.LittleEndian.AppendUint64(number(5), uint64(len(ids)))
		for _, id := range ids {
			b = append(b, number(id)...)
		}
		return b
	}
	for what, c := range map[string]struct {
		key  string
		raw  gguf.Raw // without a type: the key is missing
		want string
	}{
		"two taps":             {"eagle3.target_layers", gguf.Raw{Type: 9, Value: taps(2, 5)}, ", want an array of 3 numbers"},
		"a tap below 0":        {"eagle3.target_layers", gguf.Raw{Type: 9, Value: taps(2, 5, 1<<31)}, "want an array of 3 numbers"},
		"taps from 1":          {"eagle3.target_layers", gguf.Raw{Type: 9, Value: taps(1, 4, 8)}, "does not begin with 1"},
		"taps as one":          {"eagle3.target_layers", gguf.Raw{Type: 4, Value: number(3)}, "want an array of 3 numbers"},
		"no taps":              {"eagle3.target_layers", gguf.Raw{}, "not set, want an array of 3"},
		"no hidden size":       {"eagle3.target_hidden_size", gguf.Raw{}, `"eagle3.target_hidden_size" is not set, want an integer`},
		"two layers":           {"eagle3.block_count", gguf.Raw{Type: 4, Value: number(2)}, `"eagle3.block_count" is 2, want 1`},
		"a vocabulary of text": {"eagle3.vocab_size", write.Text("", "many"), "want an integer from 0"},
		"fewer tokens":         {"eagle3.vocab_size", gguf.Raw{Type: 4, Value: number(5)}, "tokens\" is an array of 1024 texts, want at most 5 tokens"},
		"a flag of text":       {"eagle3.norm_before_fc", write.Text("", "yes"), "want a bool"},
	} {
		h := sample(t, false)
		// Without an embedding, the number of tokens is the key's.
		h.Tensors = slices.DeleteFunc(h.Tensors, func(x safetensors.Tensor) bool { return x.Name == "embed_tokens.weight" })
		f, err := h.File()
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(f.Keys, func(k gguf.Raw) bool { return k.Name == c.key })
		f.Keys[i].Type, f.Keys[i].Value = c.raw.Type, c.raw.Value
		if c.raw.Value == nil {
			f.Keys = slices.Delete(f.Keys, i, i+1)
		}
		path := t.TempDir() + "/head.gguf"
		if err := durable.Write(path, f.Write); err != nil {
			t.Fatal(err)
		}
		if _, err := gguf.ReadFile(path, "config.json", 1<<20); err == nil || !strings.Contains(err.Error(), c.want) || what != "fewer tokens" && !strings.Contains(err.Error(), c.key) {
			t.Errorf("%s: %v, want an error with %q", what, err, c.want)
		}
	}
}

func TestHeadsWithoutAPlaceAreRefused(t *testing.T) {
	for what, c := range map[string]struct {
		change func(h *write.Head)
		want   string
	}{
		"four taps":       {func(h *write.Head) { h.Spec.Eagle3.Taps = []int{0, 2, 4, 9} }, "eagle_aux_hidden_state_layer_ids"},
		"taps unsaid":     {func(h *write.Head) { h.Taps = nil }, "hidden states []"},
		"two layers":      {func(h *write.Head) { h.Spec.Layers = 2 }, "num_hidden_layers is 2"},
		"EAGLE-1":         {func(h *write.Head) { h.Spec.Eagle3 = arch.Eagle3{} }, "EAGLE-1 or EAGLE-2"},
		"norms of states": {func(h *write.Head) { h.Spec.Eagle3.FCNorm = true }, "fc_norm"},
		"norm of outputs": {func(h *write.Head) { h.Spec.Eagle3.NormOutput = true }, "norm_output"},
		"norms of keys":   {func(h *write.Head) { h.Spec.Eagle3.QKNorm = true }, "norms of queries"},
		"biases":          {func(h *write.Head) { h.Spec.QKVBias = true }, "biases"},
		"YaRN":            {func(h *write.Head) { h.Spec.Rope.Type = "yarn" }, "YaRN"},
		"no tokenizer":    {func(h *write.Head) { h.Tokenizer = nil }, "0 tokens, but the head's vocab_size is 1024"},
		"unknown tensor":  {func(h *write.Head) { h.Tensors[0].Name = "extra.weight" }, `no place for tensor "extra.weight"`},
		"a bias":          {func(h *write.Head) { h.Tensors[0].Name = "fc.bias" }, `no place for tensor "fc.bias"`},
	} {
		h := sample(t, false)
		c.change(h)
		if _, err := h.File(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error with %q", what, err, c.want)
		}
	}
}

func TestTargetsThatGiveNoStatesAreNamed(t *testing.T) {
	s := sample(t, false).Spec
	for _, c := range []struct {
		arch   string
		layers int
		want   string
	}{
		{"llama", 10, ""},
		{"qwen2", 10, "of type qwen2, and it takes hidden states of these types only: gpt_oss, llama"},
		{"qwen3", 9, "ids has 9, the state after the last layer"},
		{"gpt_oss", 9, ""},
	} {
		why := write.Unserved(s, &arch.Spec{Arch: c.arch, Layers: c.layers})
		if (c.want == "") != (why == nil) || c.want != "" && !strings.Contains(why[0], c.want) {
			t.Errorf("%s of %d layers: %q, want %q", c.arch, c.layers, why, c.want)
		}
	}
	if why := write.Unserved(s, nil); why != nil {
		t.Errorf("no target: %q", why)
	}
}

func TestFilesThatCannotBeAreRefused(t *testing.T) {
	one := safetensors.F32("a", []float32{1}, 1)
	for what, c := range map[string]struct {
		f    write.File
		want string
	}{
		"key twice":    {write.File{Keys: []gguf.Raw{write.Text("a", ""), write.Text("a", "")}}, `key "a"`},
		"tensor twice": {write.File{Tensors: []safetensors.Tensor{one, one}}, `tensor "a" is there twice`},
		"long name":    {write.File{Tensors: []safetensors.Tensor{safetensors.F32(strings.Repeat("a", 64), []float32{1}, 1)}}, "1 to 63 bytes"},
		"blocks":       {write.File{Tensors: []safetensors.Tensor{{Name: "a", DType: "Q4_0", Shape: []int{32}, Data: make([]byte, 18)}}}, "Q4_0, want F32"},
		"short":        {write.File{Tensors: []safetensors.Tensor{{Name: "a", DType: "F32", Shape: []int{2}, Data: make([]byte, 4)}}}, "4 bytes, want"},
	} {
		var b bytes.Buffer
		if err := c.f.Write(&b); err == nil || !strings.Contains(err.Error(), c.want) || b.Len() > 0 {
			t.Errorf("%s: %v after %d bytes, want an error with %q and no bytes", what, err, b.Len(), c.want)
		}
	}
}
