package medusa_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/checkpoints/medusa"
	"talf/compute/cpu"
	"talf/internal/golden"
	"talf/model"
	heads "talf/model/medusa"
	"talf/model/safetensors"
)

func target(t *testing.T) *model.Model {
	t.Helper()
	dev, err := cpu.New(cpu.Config{Class: cpu.Default().Class, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	m, err := model.Load(golden.File(t, "eagle3/targets/llama"), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// The authors' heads, of weights in float16: in the file that their trainer saves, every head says what
// their network says, alone and beside others, to the rounding of float32.
func TestHeadsAgreeWithTheAuthors(t *testing.T) {
	dir := golden.File(t, "medusa")
	m := target(t)
	h, err := medusa.Load(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	f, err := safetensors.Open(filepath.Join(dir, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	get := func(name string) ([]float32, []int) {
		x, err := f.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		v, err := x.Float32s()
		if err != nil {
			t.Fatal(err)
		}
		return v, x.Shape
	}
	hidden, shape := get("hidden")
	want, all := get("logits")
	spec := h.Spec()
	if n := shape[0]; spec.Heads != 4 || spec.Layers != 2 || all[0] != spec.Heads || all[1] != n || all[2] != spec.Vocab {
		t.Fatalf("%+v for %v states and %v logits", spec, shape, all)
	}
	store, err := m.NewStore(shape[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Load(0, hidden); err != nil {
		t.Fatal(err)
	}
	got := make([]float32, spec.Vocab)
	alone := map[[2]int][]float32{}
	worst := 0.0
	for head := range spec.Heads {
		for r := range shape[0] {
			if err := h.Forward(t.Context(), []heads.Row{{Head: head, State: store.At(r)}}); err != nil {
				t.Fatal(err)
			}
			h.Logits(got, 0)
			alone[[2]int{head, r}] = slices.Clone(got)
			for i, x := range got {
				d := float64(x - want[(head*shape[0]+r)*spec.Vocab+i])
				worst = max(worst, d, -d)
			}
		}
	}
	t.Logf("largest difference %.1e", worst)
	if worst > 2e-5 {
		t.Errorf("logits differ from the authors' by %.1e, want at most 2e-5", worst)
	}
	// Whatever else is in a pass, a row has the same bits.
	rng := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		var rows []heads.Row
		var of [][2]int
		for head := range spec.Heads {
			for range rng.IntN(6) {
				r := rng.IntN(shape[0])
				rows, of = append(rows, heads.Row{Head: head, State: store.At(r)}), append(of, [2]int{head, r})
			}
		}
		if err := h.Forward(t.Context(), rows); err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			if h.Logits(got, i); !slices.Equal(got, alone[of[i]]) {
				t.Fatalf("row %d of %d has other bits than alone", i, len(rows))
			}
		}
	}
}

// small are the tensors of 3 heads of one block, by the authors' names.
func small() map[string]safetensors.Tensor {
	const hidden, vocab = 32, 120
	rng := rand.New(rand.NewPCG(3, 4))
	all := map[string]safetensors.Tensor{}
	add := func(name string, shape ...int) {
		n := 1
		for _, s := range shape {
			n *= s
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64()) / 8
		}
		all[name] = safetensors.F32(name, x, shape...)
	}
	for h := range 3 {
		add(fmt.Sprintf("%d.0.linear.weight", h), hidden, hidden)
		add(fmt.Sprintf("%d.0.linear.bias", h), hidden)
		add(fmt.Sprintf("%d.1.weight", h), vocab, hidden)
	}
	return all
}

func write(t *testing.T, config map[string]any, file string, tensors map[string]safetensors.Tensor, rename func(string) string) string {
	t.Helper()
	dir := t.TempDir()
	if config != nil {
		b, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "config.json"), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	var ts []safetensors.Tensor
	for name, x := range tensors {
		if x.Name = name; rename != nil {
			x.Name = rename(name)
		}
		ts = append(ts, x)
	}
	if err := safetensors.WriteFile(filepath.Join(dir, file), nil, ts...); err != nil {
		t.Fatal(err)
	}
	return dir
}

func vllm(name string) string {
	p := strings.Split(name, ".")
	if len(p) == 1 {
		return name
	}
	if len(p) == 3 {
		return "medusa_heads.lm_heads." + p[0] + ".weight"
	}
	return "medusa_heads.blocks." + p[0] + ".layers." + p[1] + "." + p[3]
}

// Every layout holds the same heads.
func TestLayoutsHoldTheSameHeads(t *testing.T) {
	m := target(t)
	store, err := m.NewStore(1)
	if err != nil {
		t.Fatal(err)
	}
	x := make([]float32, m.Spec().Hidden)
	for i := range x {
		x[i] = float32(i%7) - 3
	}
	if err := store.Load(0, x); err != nil {
		t.Fatal(err)
	}
	whole := small()
	whole["model.norm.weight"] = safetensors.F32("model.norm.weight", make([]float32, 32), 32)
	own := func(name string) string {
		if strings.HasPrefix(name, "model.") {
			return name
		}
		return "medusa_head." + name
	}
	var want []byte
	for name, dir := range map[string]string{
		"tensors alone": write(t, nil, "medusa_lm_head.safetensors", small(), nil),
		"authors":       write(t, map[string]any{"medusa_num_heads": 3, "medusa_num_layers": 1}, "medusa_lm_head.safetensors", small(), nil),
		"whole model":   write(t, map[string]any{"medusa_num_heads": 3, "model_type": "llama", "num_hidden_layers": 7}, "model.safetensors", whole, own),
		"vLLM":          write(t, map[string]any{"model_type": "medusa", "num_heads": 3, "num_hidden_layers": 1, "vocab_size": 120}, "model.safetensors", small(), vllm),
	} {
		if !medusa.Is(dir) {
			t.Errorf("%s: not taken for Medusa heads", name)
		}
		f, err := medusa.Open(dir)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if n, _ := f.Size(); f.Spec != (heads.Spec{Heads: 3, Layers: 1, Hidden: 32, Vocab: 120}) || n != 3*(32*32+32+120*32) || len(f.Notes) != 0 {
			t.Errorf("%s: %+v of %d weights, notes %q", name, f.Spec, n, f.Notes)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		h, err := medusa.Load(dir, m)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []byte
		for head := range 3 {
			if err := h.Forward(t.Context(), []heads.Row{{Head: head, State: store.At(0)}}); err != nil {
				t.Fatal(err)
			}
			row := make([]float32, 120)
			h.Logits(row, 0)
			got = fmt.Append(got, row)
		}
		if want == nil {
			want = got
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: other logits than in another layout", name)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

// vLLM's conversions may share one LM head, and have no biases.
func TestHeadsMayShareAnLMHead(t *testing.T) {
	ts := small()
	for h := range 3 {
		delete(ts, fmt.Sprintf("%d.0.linear.bias", h))
	}
	delete(ts, "1.1.weight")
	delete(ts, "2.1.weight")
	f, err := medusa.Open(write(t, map[string]any{"model_type": "medusa", "num_heads": 3, "num_hidden_layers": 1, "vocab_size": 120, "original_lm_head": true}, "model.safetensors", ts, vllm))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Spec.Heads != 3 || len(f.Notes) != 1 {
		t.Errorf("%+v, notes %q", f.Spec, f.Notes)
	}
}

// The weights say how many heads there are; what the configuration says else is told.
func TestPublishedConfigurationsMayBeWrong(t *testing.T) {
	f, err := medusa.Open(write(t, map[string]any{"medusa_num_heads": 2, "medusa_num_layers": 4, "base_model_name_or_path": "lmsys/vicuna"}, "medusa_lm_head.safetensors", small(), nil))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Spec.Heads != 3 || f.Spec.Layers != 1 || f.Target != "lmsys/vicuna" ||
		fmt.Sprint(f.Notes) != "[medusa_num_heads is 2, but the weights have 3 medusa_num_layers is 4, but the weights have 1]" {
		t.Errorf("%+v", f)
	}
}

func TestWhatIsNoMedusaHeadIsRefusedByName(t *testing.T) {
	file := "medusa_lm_head.safetensors"
	with := func(change func(map[string]safetensors.Tensor)) map[string]safetensors.Tensor {
		ts := small()
		change(ts)
		return ts
	}
	f32 := func(shape ...int) safetensors.Tensor {
		n := 1
		for _, s := range shape {
			n *= s
		}
		return safetensors.F32("x", make([]float32, n), shape...)
	}
	for want, dir := range map[string]string{
		`"1.0.linear.weight" has shape []`:               write(t, nil, file, with(func(ts map[string]safetensors.Tensor) { delete(ts, "1.0.linear.weight") }), nil),
		`"2.1.weight" has shape [119 32], want [120 32]`: write(t, nil, file, with(func(ts map[string]safetensors.Tensor) { ts["2.1.weight"] = f32(119, 32) }), nil),
		`"norm.weight" is not part`:                      write(t, nil, file, with(func(ts map[string]safetensors.Tensor) { ts["norm.weight"] = f32(32) }), nil),
		`"0.0.linear.scale" is not part`:                 write(t, nil, file, with(func(ts map[string]safetensors.Tensor) { ts["0.0.linear.scale"] = f32(32) }), nil),
		`"0.1.linear.weight" has shape []`:               write(t, nil, file, with(func(ts map[string]safetensors.Tensor) { ts["0.2.weight"] = f32(120, 32) }), nil),
		`"70.1.weight" is not part`:                      write(t, nil, file, with(func(ts map[string]safetensors.Tensor) { ts["70.1.weight"] = f32(120, 32) }), nil),
		`no LM head of a first Medusa head`:              write(t, nil, file, map[string]safetensors.Tensor{"1.1.weight": f32(120, 32)}, nil),
		`neither medusa_lm_head.safetensors`:             t.TempDir(),
		`config.json`:                                    write(t, map[string]any{"medusa_num_heads": "three"}, file, small(), nil),
		`predict 60 of the 120 tokens`: write(t, map[string]any{"model_type": "medusa", "num_heads": 3, "num_hidden_layers": 1, "vocab_size": 120}, "model.safetensors",
			with(func(ts map[string]safetensors.Tensor) { ts["token_map"] = f32(60) }), vllm),
	} {
		f, err := medusa.Open(dir)
		if err == nil {
			f.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	m := target(t)
	for want, spec := range map[string][2]int{"hidden size of 16, but the target's is 32": {16, 120}, "119 tokens, but the target's vocabulary is 120": {32, 119}} {
		dir := write(t, nil, file, map[string]safetensors.Tensor{
			"0.0.weight": f32(spec[1], spec[0]),
		}, nil)
		if _, err := medusa.Load(dir, m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
