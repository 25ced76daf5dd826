package quantize

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/compute"
	"talf/compute/cpu"
	"talf/compute/cpu/kern"
	"talf/internal/durable"
	"talf/internal/golden"
	"talf/model"
	"talf/model/ggml"
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
	origin, err := model.OriginOf(set, nil)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := safetensors.Write(&b, map[string]string{"format": "pt", model.MetaSource: origin}, out...); err != nil {
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
				if _, err := convert(t.Context(), set, to, as, chunk, plan{}); err != nil {
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
	if _, err := Model(t.Context(), dir, out, compute.Q8, ""); err == nil || !strings.Contains(err.Error(), unreadable) {
		t.Errorf("%v, want an error that names %s", err, unreadable)
	}
	empty()
	if err := os.Remove(unreadable); err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := Model(ended, dir, out, compute.Q8, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
	empty()
	r, err := Model(t.Context(), dir, out, compute.Q8, "")
	if err != nil {
		t.Fatal(err)
	}
	if r.Matrices != 2+2*7 || r.Kept != 1+2*2 || r.To >= r.From || r.Out != out || r.DType != "q8" {
		t.Errorf("%+v", r)
	}
	for from, want := range map[string]string{dir: "not empty", out: "q8 already"} {
		if _, err := Model(t.Context(), from, out, compute.Q8, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in the error", err, want)
		}
	}
	if _, err := Model(t.Context(), dir, t.TempDir(), compute.F32, ""); err == nil {
		t.Error("quantised to F32")
	}
}

// The experts of a published gpt-oss are in blocks, but not in those of q8. Both types have their values.
func TestExpertsInMXFP4AreConverted(t *testing.T) {
	dir := golden.File(t, "hf-more/gpt-oss-mxfp4")
	from, err := safetensors.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	for _, as := range []compute.DType{compute.BF16, compute.Q8} {
		out := filepath.Join(t.TempDir(), "out")
		if _, err := Model(t.Context(), dir, out, as, ""); err != nil {
			t.Fatal(err)
		}
		to, err := safetensors.OpenDir(out)
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		experts := 0
		for _, name := range from.Names() {
			x, _ := from.Tensor(name)
			if x.DType != "MXFP4" {
				continue
			}
			experts++
			want, err := x.Float32s()
			if err != nil {
				t.Fatal(err)
			}
			got, ok := to.Tensor(name)
			var values []float32
			if as == compute.BF16 {
				values, err = got.Float32s()
			} else {
				scale, _ := to.Tensor(name + model.ScaleSuffix)
				scales, scalesErr := scale.Float32s()
				err = scalesErr
				for i, b := range got.Data {
					values = append(values, float32(int8(b))*scales[i/kern.Q8Block]) // whole blocks a row
				}
			}
			if err != nil || !ok || !slices.Equal(values, want) {
				t.Errorf("%v: %s (%v) has not the values of its blocks: %v", as, name, ok, err)
			}
		}
		if experts == 0 {
			t.Error("no tensor of MXFP4")
		}
		if again, err := Model(t.Context(), out, filepath.Join(t.TempDir(), "again"), as, ""); as == compute.Q8 && (err == nil || !strings.Contains(err.Error(), "q8 already")) {
			t.Errorf("quantised again: %+v, %v", again, err)
		}
	}
}

// A mixture whose file has smaller weights has the bits of the original loaded as these: its routers, and, with q8,
// what latent attention expands, are not rounded in either. That goes for a module behind its layers as well.
func TestWhatAMixtureDoesNotRoundStays(t *testing.T) {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for _, name := range []string{"mixtral", "qwen2_moe", "glm4_moe", "gpt_oss", "deepseek_v3", "qwen3_next"} {
		dir := modeltest.Random(t, modeltest.Of(name), 5)
		for _, dt := range []compute.DType{compute.Q8, compute.BF16} {
			out := filepath.Join(t.TempDir(), "smaller")
			if _, err := Model(t.Context(), dir, out, dt, ""); err != nil {
				t.Fatal(err)
			}
			logits := func(dir string) []float32 {
				opt := model.Default()
				opt.DType = dt
				m, err := model.Load(dir, dev, opt)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				defer m.Close()
				o, err := m.NewSeq().Append(t.Context(), []int32{5, 1, 80, 33, 7, 7, 60}, nil, model.WantAll)
				if err != nil {
					t.Fatal(err)
				}
				x := make([]float32, 7*m.Spec().Vocab)
				o.ReadLogits(x, 0)
				return x
			}
			if !slices.Equal(logits(dir), logits(out)) {
				t.Errorf("%s: the file in %v has other logits than the original loaded as that", name, dt)
			}
		}
	}
	spec := modeltest.Of("deepseek_v3").Spec()
	kept := plans(spec, compute.Q8).stored
	for _, name := range []string{"model.layers.1.self_attn.kv_b_proj.weight", "model.layers.1.mlp.gate.weight", "model.layers.2.self_attn.kv_b_proj.weight", "model.layers.2.mlp.gate.weight"} {
		if !kept[name] {
			t.Errorf("%s is rounded: kept are %v", name, kept)
		}
	}
	of := func(kept map[string]bool) (n int) {
		for _, is := range kept {
			if is {
				n++
			}
		}
		return n
	}
	if bf16 := plans(spec, compute.BF16).stored; of(kept) != 5 || of(bf16) != 2 || !bf16["model.layers.1.mlp.gate.weight"] {
		t.Errorf("kept are %v, and %v as bfloat16", kept, bf16)
	}
}

// rounded returns the tensors with one kind stored as integers, and as floats of their values.
func rounded(t *testing.T, all []safetensors.Tensor, suffix string) (ints, floats []safetensors.Tensor) {
	t.Helper()
	for _, x := range all {
		if !strings.HasSuffix(x.Name, suffix) {
			ints, floats = append(ints, x), append(floats, x)
			continue
		}
		values, err := x.Float32s()
		if err != nil {
			t.Fatal(err)
		}
		values = slices.Clone(values)
		rows, cols := x.Shape[0], x.Shape[1]
		blocks := kern.Q8Blocks(cols)
		q, d := make([]byte, rows*cols), make([]byte, 2*rows*blocks)
		for r := range rows {
			row, of, scale := values[r*cols:][:cols], q[r*cols:][:cols], d[2*r*blocks:][:2*blocks]
			kern.QuantQ8(of, scale, row)
			kern.DequantQ8(row, of, scale, 0)
		}
		ints = append(ints, safetensors.Tensor{Name: x.Name, DType: "I8", Shape: x.Shape, Data: q},
			safetensors.Tensor{Name: x.Name + model.ScaleSuffix, DType: "F16", Shape: []int{rows, blocks}, Data: d})
		floats = append(floats, safetensors.F32(x.Name, values, x.Shape...))
	}
	return ints, floats
}

// A head is trained with the values that a model's integers stand for.
func TestTheEmbeddingOfAQuantizedModelIsRead(t *testing.T) {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	spec := modeltest.Of("llama").Spec()
	load := func(all []safetensors.Tensor) *model.Model {
		m, err := model.New(spec, safetensors.Of("weights", all...), dev, model.Default())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Close() })
		return m
	}
	ints, floats := rounded(t, modeltest.Tensors(spec, false, 5), "embed_tokens.weight")
	quantized, plain := load(ints), load(floats)
	got, err := quantized.HostEmbed()
	if err != nil {
		t.Fatal(err)
	}
	want, err := plain.HostEmbed()
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("values differ from what the integers stand for (%v)", err)
	}
	table, err := quantized.PackEmbed()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := dev.Alloc(compute.F32, 3, spec.Hidden)
	if err != nil {
		t.Fatal(err)
	}
	q, ids, read := dev.Queue(), []int32{7, 0, 80}, make([]float32, 3*spec.Hidden)
	q.Embed(rows, 0, table, ids)
	q.Read(read, rows, 0)
	if err := q.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, id := range ids {
		if !slices.Equal(read[i*spec.Hidden:][:spec.Hidden], want[int(id)*spec.Hidden:][:spec.Hidden]) {
			t.Errorf("the packed row of token %d has other values", id)
		}
	}
}

// Files that have routers as integers load with the values that these stand for. What latent attention expands
// was never stored so, and is refused by its name.
func TestRoutersOfIntegersLoad(t *testing.T) {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	opt := model.Default()
	opt.DType = compute.Q8
	spec := modeltest.Of("mixtral").Spec()
	all := modeltest.Tensors(spec, false, 5)
	logits := func(all []safetensors.Tensor) []float32 {
		m, err := model.New(spec, safetensors.Of("weights", all...), dev, opt)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		o, err := m.NewSeq().Append(t.Context(), []int32{5, 1, 80, 33, 7, 7, 60}, nil, model.WantAll)
		if err != nil {
			t.Fatal(err)
		}
		x := make([]float32, 7*spec.Vocab)
		o.ReadLogits(x, 0)
		return x
	}
	ints, floats := rounded(t, all, "block_sparse_moe.gate.weight")
	got := logits(ints)
	if !slices.Equal(got, logits(floats)) {
		t.Error("a router of integers has other logits than one of their values")
	}
	if slices.Equal(got, logits(all)) {
		t.Error("rounding the router changes nothing")
	}
	spec = modeltest.Of("deepseek_v3").Spec()
	ints, _ = rounded(t, modeltest.Tensors(spec, false, 5), "kv_b_proj.weight")
	if _, err := model.New(spec, safetensors.Of("weights", ints...), dev, opt); err == nil || !strings.Contains(err.Error(), `kv_b_proj.weight" is I8, want F32, F16, BF16 or blocks`) {
		t.Errorf("an up-projection of integers: %v", err)
	}
}

// A model quantised to 4 bits loads with the bits that its blocks have in a set in memory, matrices whose
// rows are not whole blocks are q8, and so are the embedding and the LM head.
func TestFourBitModels(t *testing.T) {
	c := modeltest.Default()
	c.Hidden, c.FFN = 256, 96 // Q4_K, and Q4_0 in the down projection
	dir, out := modeltest.Random(t, c, 1), filepath.Join(t.TempDir(), "q4")
	r, err := Model(t.Context(), dir, out, compute.Q4, "")
	if err != nil {
		t.Fatal(err)
	}
	if r.DType != "q4" || r.Matrices != 2+2*7 {
		t.Errorf("%+v, want 16 matrices as q4", r)
	}
	from, err := safetensors.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := safetensors.OpenDir(out)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	want := map[string]string{
		"model.embed_tokens.weight": "I8", "lm_head.weight": "I8", "model.norm.weight": "F32",
		"model.layers.1.self_attn.q_proj.weight": "Q4_K", "model.layers.0.mlp.down_proj.weight": "Q4_0",
	}
	for name, dtype := range want {
		is, _ := to.Describe(name)
		was, _ := from.Describe(name)
		if is.DType != dtype || !slices.Equal(is.Shape, was.Shape) {
			t.Errorf("%s is %s of shape %v, want %s of %v", name, is.DType, is.Shape, dtype, was.Shape)
		}
	}
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	opt := model.Default()
	opt.DType = compute.Q4
	m, err := model.Load(out, dev, opt)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Function().Weights != "q4" {
		t.Errorf("weights are %s, want q4", m.Function().Weights)
	}
	if _, err := Model(t.Context(), out, filepath.Join(t.TempDir(), "again"), compute.Q8, ""); err == nil || !strings.Contains(err.Error(), "q4 already") {
		t.Errorf("%v, want an error that says q4 already", err)
	}
}

// Matrices that no type of weights rounds, such as the up-projections of latent attention, are in blocks in GGUF files. They have the
// values of these as float32.
func TestBlocksThatAreNotRoundedBecomeFloats(t *testing.T) {
	from, err := safetensors.OpenDir(golden.File(t, "gguf/llama3-Q4_K_M.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	how := plan{stored: map[string]bool{}}
	types := map[string]int{}
	for _, name := range from.Names() {
		if x, _ := from.Describe(name); ggml.Blocks(x.DType) != nil && types[x.DType] == 0 {
			how.stored[name], types[x.DType] = true, 1
		}
	}
	if types["Q6_K"] == 0 || types["Q4_K"] == 0 {
		t.Fatalf("types are %v", types)
	}
	for _, as := range []compute.DType{compute.Q8, compute.Q4, compute.BF16} {
		out := filepath.Join(t.TempDir(), "out")
		to, err := durable.NewDir(out)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := convert(t.Context(), from, to, as, chunk, how); err != nil {
			t.Fatalf("as %v: %v", as, err)
		}
		if err := to.Commit(); err != nil {
			t.Fatal(err)
		}
		set, err := safetensors.OpenDir(out)
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		for name := range how.stored {
			was, _ := from.Tensor(name)
			is, _ := set.Tensor(name)
			want, err1 := was.Float32s()
			got, err2 := is.Float32s()
			if is.DType != "F32" || err1 != nil || err2 != nil || !slices.Equal(got, want) {
				t.Errorf("%s, %s with %v: is %s, or has other values: %v %v", name, was.DType, as, is.DType, err1, err2)
			}
		}
	}
}

// The blocks of a GGUF file that q4 keeps are the same, byte for byte.
func TestFourBitBlocksOfAFileAreKept(t *testing.T) {
	path, out := golden.File(t, "gguf/llama3-Q4_K_M.gguf"), filepath.Join(t.TempDir(), "q4")
	if _, err := Model(t.Context(), path, out, compute.Q4, ""); err != nil {
		t.Fatal(err)
	}
	from, err := safetensors.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := safetensors.OpenDir(out)
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	kept := map[string]int{}
	for _, name := range from.Names() {
		was, _ := from.Tensor(name)
		is, _ := to.Tensor(name)
		if b := ggml.Blocks(was.DType); b == nil || b.Kept() == compute.NotKept {
			continue
		}
		if kept[was.DType]++; was.DType != is.DType || !bytes.Equal(was.Data, is.Data) {
			t.Errorf("%s: was %s and has other bytes now", name, was.DType)
		}
	}
	if kept["Q4_K"] == 0 || kept["Q6_K"] == 0 {
		t.Errorf("kept are %v, want some of Q4_K and of Q6_K", kept)
	}
	// Nothing else in it is of integers, and it is not to be rounded once more.
	for _, as := range []compute.DType{compute.Q4, compute.Q8, compute.BF16} {
		if _, err := Model(t.Context(), out, filepath.Join(t.TempDir(), "again"), as, ""); err == nil || !strings.Contains(err.Error(), "q4 already") {
			t.Errorf("again, as %v: %v, want an error that says q4 already", as, err)
		}
	}
}
