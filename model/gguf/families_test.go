package gguf_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/internal/golden"
	"talf/model"
	"talf/model/arch"
	"talf/model/ggml"
	"talf/model/gguf/gguftest"
	"talf/model/safetensors"
)

// A converted is what llama.cpp's converter made of a model.
type converted struct {
	Keys    [][3]any `json:"keys"`
	Tensors [][4]any `json:"tensors"`
}

// Of each family a file with the converter's very bytes has the logits of the directory that it was converted
// from, bit for bit. What no file says of a model is taken out of the directory's configuration: see edits.
func TestFilesOfEveryFamilyHaveTheLogitsOfTheirDirectories(t *testing.T) {
	all, dev := families(t), device(t)
	edits := map[string]map[string]any{
		// What llama.cpp takes for granted: the size of a head.
		"gemma2": {"query_pre_attn_scalar": 24},
		"gemma3": {"query_pre_attn_scalar": 20},
		// The window is left out, and 999999.4420358813 is a float32.
		"starcoder2": {"sliding_window": nil, "rope_theta": 999999.4375},
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			dir := golden.File(t, "hf-more/"+name)
			path := file(t, dir, all[name]).Write(t, name+".gguf")
			tokens := []int32{5, 1, 80, 33, 7, 7, 60, 100, 2, 90, 17, 44, 3, 12, 13, 14, 15, 16, 200, 201}
			sameLogits(t, dev, path, edited(t, dir, edits[name]), compute.F32, tokens)
			if name == "phi3-longrope" { // its original length, up to which it rotates otherwise
				sameLogits(t, dev, path, edited(t, dir, edits[name]), compute.F32, tokens[:6])
			}
		})
	}
}

// The converter leaves the window of StarCoder 2 out: a file with the key has one.
func TestTheWindowOfStarCoder2IsThatOfItsKey(t *testing.T) {
	f := file(t, golden.File(t, "hf-more/starcoder2"), families(t)["starcoder2"])
	f.Set("starcoder2.context_length", uint32(16384))
	for _, want := range []int{0, 4096} {
		if want > 0 {
			f.Set("starcoder2.attention.sliding_window", uint32(want))
		}
		s, err := arch.Load(f.Write(t, "starcoder2.gguf"))
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Window(0); got != want {
			t.Errorf("a window of %d, want %d", got, want)
		}
	}
}

func families(t *testing.T) (all map[string]converted) {
	raw, err := os.ReadFile("testdata/families.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

func device(t *testing.T) *cpu.Device {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// sameLogits compares the logits of two models with weights of a type in memory, bit for bit.
func sameLogits(t *testing.T, dev *cpu.Device, got, want string, as compute.DType, tokens []int32) {
	t.Helper()
	logits := func(dir string) []float32 {
		opt := model.Default()
		opt.DType = as
		m, err := model.Load(dir, dev, opt)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		o, err := m.NewSeqOf(len(tokens)).Append(t.Context(), tokens, nil, model.WantAll)
		if err != nil {
			t.Fatal(err)
		}
		x := make([]float32, len(tokens)*m.Spec().Vocab)
		o.ReadLogits(x, 0)
		return x
	}
	y, x := logits(got), logits(want)
	if len(x) != len(y) {
		t.Fatalf("%d logits, want %d", len(y), len(x))
	}
	for i := range x {
		if math.Float32bits(x[i]) != math.Float32bits(y[i]) {
			t.Fatalf("%v: logit %d is %v, want %v", as, i, y[i], x[i])
		}
	}
}

// edited returns a copy of a model's directory in which fields of the configuration are changed.
func edited(t *testing.T, dir string, fields map[string]any) string {
	if fields == nil {
		return dir
	}
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(to, "config.json")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var c map[string]any
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	maps.Copy(c, fields)
	if raw, err = json.Marshal(c); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// file returns the file that the converter made of a model: each of its tensors is found among those of the
// directory by its hash.
func file(t *testing.T, dir string, c converted) *gguftest.File {
	f := gguftest.Tiny(1)
	keep := func(name string) bool { return strings.HasPrefix(name, "tokenizer.") }
	f.Keys = slices.DeleteFunc(f.Keys, func(k gguftest.Key) bool { return !keep(k.Name) })
	f.Tensors = nil
	count := map[string]int{} // the numbers that reordering needs
	for _, k := range c.Keys {
		name, kind := k[0].(string), k[1].(string)
		x, isNumber := k[2].(float64)
		if i := strings.LastIndex(name, "attention."); i >= 0 && isNumber {
			count[name[i:]] = int(x)
		}
		switch kind {
		case "UINT32":
			f.Set(name, uint32(x))
		case "INT32":
			f.Set(name, int32(x))
		case "FLOAT32":
			f.Set(name, float32(x))
		case "BOOL", "STRING":
			f.Set(name, k[2])
		case "ARRAY":
			var all []bool
			for _, x := range k[2].([]any) {
				all = append(all, x.(bool))
			}
			f.Set(name, all)
		default:
			t.Fatalf("key %s is of type %s", name, kind)
		}
	}
	tensors := pool(t, dir, count["attention.head_count"], count["attention.head_count_kv"])
	rows := 0
	for _, x := range c.Tensors {
		name, hash := x[0].(string), x[3].(string)
		to := gguftest.Tensor{Name: name}
		for _, d := range x[2].([]any) {
			to.Dims = append(to.Dims, uint64(d.(float64)))
		}
		switch kind := x[1].(string); kind {
		case "F32":
		default:
			to.Type = uint32(ggml.Blocks(kind).ID)
		}
		data, ok := tensors[hash]
		if !ok {
			t.Fatalf("no tensor of the directory has the bytes of %s", name)
		}
		to.Data = data
		f.Tensors = append(f.Tensors, to)
		if name == "token_embd.weight" {
			rows = int(to.Dims[1])
		}
	}
	tokens := f.Get("tokenizer.ggml.tokens").([]string)
	if len(tokens) > rows {
		tokens, types := tokens[:rows], f.Get("tokenizer.ggml.token_type").([]int32)[:rows]
		f.Set("tokenizer.ggml.tokens", tokens)
		f.Set("tokenizer.ggml.token_type", types)
		f.Set("tokenizer.ggml.bos_token_id", uint32(1))
		f.Set("tokenizer.ggml.eos_token_id", uint32(2))
		f.Set("tokenizer.ggml.merges", []string{})
	}
	return f
}

var expert = regexp.MustCompile(`\.experts\.(\d+)\.`)

// pool returns what the converter may make of the tensors of a directory, by hash: their values as they are,
// with 1 added, with rows of heads in its order, and those of all experts in one.
func pool(t *testing.T, dir string, heads, kvHeads int) map[string][]byte {
	set, err := safetensors.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	all := map[string][]byte{}
	put := func(b []byte) {
		h := sha256.Sum256(b)
		all[hex.EncodeToString(h[:])[:24]] = bytes.Clone(b)
	}
	floats := func(x []float32) []byte {
		b, err := binary.Append(nil, binary.LittleEndian, x)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	raw, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var shape sizes
	if err := json.Unmarshal(raw, &shape); err != nil {
		t.Fatal(err)
	}
	stacks := map[string][][]byte{}
	for _, name := range set.Names() {
		x, err := set.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		data := x.Data
		if ggml.Blocks(x.DType) == nil {
			values, err := x.Float32s()
			if err != nil {
				t.Fatal(err)
			}
			data = floats(values)
			for _, n := range []int{heads, kvHeads} {
				if len(x.Shape) == 2 && x.Shape[0]%(2*n) == 0 {
					put(floats(gguftest.Interleave(values, n, x.Shape[0]/n)))
				}
			}
			if len(x.Shape) == 1 {
				more := slices.Clone(values)
				for i := range more {
					more[i]++
				}
				put(floats(more))
			}
		}
		put(data)
		for _, b := range reshaped(t, name, &x, shape) {
			put(b)
		}
		if m := expert.FindStringSubmatch(name); m != nil {
			k := expert.ReplaceAllString(name, ".experts.")
			var e int
			if err := json.Unmarshal([]byte(m[1]), &e); err != nil {
				t.Fatal(err)
			}
			for len(stacks[k]) <= e {
				stacks[k] = append(stacks[k], nil)
			}
			stacks[k][e] = bytes.Clone(data)
		}
	}
	for _, s := range stacks {
		put(slices.Concat(s...))
	}
	// Longrope's divisors are in the configuration.
	var c struct {
		Scaling struct {
			Short []float32 `json:"short_factor"`
			Long  []float32 `json:"long_factor"`
		} `json:"rope_scaling"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatal(err)
	}
	put(floats(c.Scaling.Short))
	put(floats(c.Scaling.Long))
	return all
}

// sizes are those that say how a directory's tensors are put together.
type sizes struct {
	Heads      int `json:"num_attention_heads"`
	Nope       int `json:"qk_nope_head_dim"`
	Value      int `json:"v_head_dim"`
	KeyHeads   int `json:"linear_num_key_heads"`
	ValueHeads int `json:"linear_num_value_heads"`
	KeyDim     int `json:"linear_key_head_dim"`
	ValueDim   int `json:"linear_value_head_dim"`
}

// reshaped returns what the converter makes of tensors of latent attention and of recurrent layers.
func reshaped(t *testing.T, name string, x *safetensors.Tensor, s sizes) (all [][]byte) {
	var rows [][]float32
	values, err := x.Float32s()
	if err != nil {
		return nil // blocks
	}
	for i := range x.Shape[0] {
		n := len(values) / x.Shape[0]
		rows = append(rows, values[i*n:][:n])
	}
	add := func(x []float32) {
		b, err := binary.Append(nil, binary.LittleEndian, x)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	switch {
	case strings.HasSuffix(name, "kv_b_proj.weight"):
		var keys, vals []float32
		for h := range s.Heads {
			head := rows[h*(s.Nope+s.Value):]
			for j := range head[0] {
				for i := range s.Nope {
					keys = append(keys, head[i][j])
				}
			}
			vals = append(vals, slices.Concat(head[s.Nope:s.Nope+s.Value]...)...)
		}
		add(keys)
		add(vals)
	case strings.HasSuffix(name, "in_proj_qkvz.weight"):
		group := s.ValueHeads / s.KeyHeads * s.ValueDim
		var parts [4][]float32
		for h, from := 0, 0; h < s.KeyHeads; h++ {
			for i, n := range []int{s.KeyDim, s.KeyDim, group, group} {
				parts[i] = append(parts[i], slices.Concat(rows[from:from+n]...)...)
				from += n
			}
		}
		add(slices.Concat(parts[:3]...))
		add(parts[3])
	case strings.HasSuffix(name, "A_log"):
		minus := slices.Clone(values)
		for i, x := range minus {
			minus[i] = float32(-math.Exp(float64(x)))
		}
		add(minus)
	}
	return all
}

// What a file says of experts is compared with its tensors.
func TestExpertsThatAFileLacksAreAnError(t *testing.T) {
	all, dev := families(t), device(t)
	for what, x := range map[string]struct {
		family string
		change func(f *gguftest.File)
		want   string
	}{
		"one more":      {"mixtral", func(f *gguftest.File) { f.Set("llama.expert_count", uint32(7)) }, "block_sparse_moe.gate"},
		"of one layer":  {"mixtral", func(f *gguftest.File) { f.Tensor("blk.0.ffn_up_exps.weight").Name = "x" }, "llama.expert_count"},
		"without stack": {"qwen3-moe", func(f *gguftest.File) { f.Tensor("blk.1.ffn_up_exps.weight").Dims = []uint64{64 * 24 * 7} }, "ffn_up_exps"},
		"no number":     {"qwen3-moe", func(f *gguftest.File) { f.Drop("qwen3moe.expert_used_count") }, "qwen3moe.expert_used_count"},
		"scaled":        {"qwen3-moe", func(f *gguftest.File) { f.Set("qwen3moe.expert_weights_scale", float32(2)) }, "qwen3moe.expert_weights_scale"},
		"no shared one": {"qwen2-moe", func(f *gguftest.File) {
			f.Tensor("blk.0.ffn_up_shexp.weight").Name = "y"
			f.Drop("qwen2moe.expert_shared_feed_forward_length")
		}, "qwen2moe.expert_shared_feed_forward_length"},
		"long factors": {"phi3-longrope", func(f *gguftest.File) { f.Tensor("rope_factors_long.weight").Name = "z" }, "rope_factors_long.weight"},
		"factor 0":     {"phi3-longrope", func(f *gguftest.File) { clear(f.Tensor("rope_factors_short.weight").Data[:4]) }, "rope_factors_short.weight"},
	} {
		t.Run(what, func(t *testing.T) {
			f := file(t, golden.File(t, "hf-more/"+x.family), all[x.family])
			x.change(f)
			path := f.Write(t, "model.gguf")
			m, err := model.Load(path, dev, model.Default())
			if err == nil {
				m.Close()
				t.Fatal("it loads")
			}
			if !strings.Contains(err.Error(), x.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%v: want the file and %q", err, x.want)
			}
		})
	}
}
