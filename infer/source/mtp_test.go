package source_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/compute/cpu"
	"talf/infer"
	"talf/infer/draft"
	"talf/infer/draft/drafttest"
	"talf/infer/source"
	"talf/infer/verify"
	"talf/internal/golden"
	"talf/model"
	"talf/model/head"
	"talf/model/safetensors"
	"talf/tree"
)

// A module is a golden model, and the golden of a multi-token prediction module behind its layers.
type module struct{ target, golden string }

var glm = module{"glm4-moe", "mtp"}

// modules are of both kinds of attention.
var modules = []module{glm, {"deepseek-v3", "mtp-deepseek"}}

// with returns the golden model with its module. repeat adds the
// module's own embedding and LM head, with the target's values as published files have them; change, if
// not nil, alters the tensors.
func (from module) with(t *testing.T, repeat bool, change func([]safetensors.Tensor) []safetensors.Tensor) *model.Model {
	t.Helper()
	home := golden.File(t, "hf-more/"+from.target)
	dir := t.TempDir()
	conf, err := os.ReadFile(filepath.Join(home, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), conf, 0o666); err != nil {
		t.Fatal(err)
	}
	var all []safetensors.Tensor
	for i, path := range []string{filepath.Join(home, "model.safetensors"), filepath.Join(golden.File(t, from.golden), "layer.safetensors")} {
		set, err := safetensors.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		for _, name := range set.Names() {
			if i == 0 && strings.HasPrefix(name, "model.layers.4.") {
				continue // a part of another module, which transformers ignores
			}
			x, _ := set.Tensor(name)
			all = append(all, x)
			if again := map[string]string{"model.embed_tokens.weight": "embed_tokens", "lm_head.weight": "shared_head.head"}[name]; repeat && again != "" {
				x.Name = "model.layers.4." + again + ".weight"
				all = append(all, x)
			}
		}
	}
	if change != nil {
		all = change(all)
	}
	if err := safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), nil, all...); err != nil {
		t.Fatal(err)
	}
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	m, err := model.Load(dir, dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// The module's logits at every true position and below drafted tokens are those of transformers' layer in
// float64, whether or not the files repeat the embedding and the LM head.
func TestMTPAgreesWithTransformers(t *testing.T) {
	for _, from := range modules {
		t.Run(from.target, func(t *testing.T) { mtpAgrees(t, from) })
	}
}

func mtpAgrees(t *testing.T, from module) {
	f := openFile(t, filepath.Join(golden.File(t, from.golden), "golden.safetensors"))
	ids, paths := f.tokens("ids"), f.tokens("paths")
	logits, drafted := f.f32("logits"), f.f32("drafted")
	for _, repeat := range []bool{false, true} {
		target := from.with(t, repeat, nil)
		h, err := head.MTP(target, head.Default())
		if err != nil {
			t.Fatal(err)
		}
		vocab := target.Spec().Vocab
		worst := 0.0
		compare := func(got, want []float32) {
			t.Helper()
			if len(got) != vocab {
				t.Fatalf("%d logits, want %d", len(got), vocab)
			}
			for i, x := range got {
				worst = max(worst, math.Abs(float64(x-want[i])))
			}
		}
		seq := target.NewSeq()
		o, err := seq.Append(t.Context(), ids, nil, model.WantNone)
		if err != nil {
			t.Fatal(err)
		}
		store, err := target.NewStore(len(ids))
		if err != nil {
			t.Fatal(err)
		}
		var states []model.Feature
		for i := range ids {
			states = append(states, o.Feature(0, i))
		}
		if err := store.Put(0, states...); err != nil {
			t.Fatal(err)
		}
		for i := range states {
			states[i] = store.At(i)
		}
		own := h.NewSeq()
		o, err = own.Append(t.Context(), ids[1:], states[:len(ids)-1], model.WantAll)
		if err != nil {
			t.Fatal(err)
		}
		row := make([]float32, vocab)
		for i := range len(ids) - 1 {
			o.ReadLogits(row, o.LogitsRow(0, i))
			compare(row, logits[i*vocab:][:vocab])
		}
		own.Close()
		seq.Close()

		// The same as a source: one tree of all drafted paths.
		src := source.NewHead(h, 0)
		if err := src.Open(1, ids, 0); err != nil {
			t.Fatal(err)
		}
		chain, path := tree.New(ids[0], len(ids)), []int{0}
		for i := 1; i < len(ids)-1; i++ {
			path = append(path, chain.Add(i-1, ids[i]))
		}
		if err := src.Commit(1, infer.Proposal{Tree: chain}, infer.Verdict{Path: path, Next: ids[len(ids)-1]}, given{store: store}); err != nil {
			t.Fatal(err)
		}
		work := tree.New(ids[len(ids)-1], 32)
		ask := func(from int) []infer.Row {
			rows, err := src.Rows(t.Context(), []infer.Ask{{ID: 1, Tree: work, From: from, Width: 4, Full: true}})
			if err != nil {
				t.Fatal(err)
			}
			return rows
		}
		compare(ask(0)[0].Logits, logits[(len(ids)-2)*vocab:])
		const depth = 3
		at := make([]int, len(paths)/depth) // nodes at the ends of the paths
		for d := range depth {
			from := work.Len()
			for p := range at {
				token := paths[p*depth+d]
				n := work.Child(at[p], token)
				if n < 0 {
					n = work.Add(at[p], token)
				}
				at[p] = n
			}
			rows := ask(from)
			for p := range at {
				compare(rows[at[p]-from].Logits, drafted[(p*depth+d)*vocab:][:vocab])
			}
		}
		t.Logf("repeated embedding and LM head %v: largest difference %.1e", repeat, worst)
		if worst > 2e-4 {
			t.Errorf("logits differ by %.1e from transformers', want at most 2e-4", worst)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Chains and trees drafted by the module, with every method that asks a draft model, do not change the text.
func TestMTPTextIsPlain(t *testing.T) {
	for _, from := range modules {
		t.Run(from.target, func(t *testing.T) { mtpTextIsPlain(t, from.with(t, true, nil)) })
	}
}

func mtpTextIsPlain(t *testing.T, target *model.Model) {
	h, err := head.MTP(target, head.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	e := &infer.Engine{Target: infer.NewTarget(target, 4), Config: infer.Config{PrefillChunk: 5, MaxNodes: 24}}
	src := source.NewHead(h, 4)
	drafted := 0
	for _, prompt := range [][]int32{{7}, {9, 3, 77, 12, 9, 3}, {9, 3, 77, 12, 50, 51, 200}} {
		req := infer.Request{Prompt: prompt, MaxTokens: 24, NoEOS: true, Verifier: new(verify.Greedy), Processor: drafttest.Plain{}}
		plain, err := e.Generate(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, method := range []string{
			"linear:K=3", "beam:N=12,k=3,depth=3", "salf:N=14,B=3,th=0", "static:binary-3", "optimal:N=9,B=3", "dynatree", "fixed", "sequoia", "auto",
		} {
			d, _, err := draft.New(method)
			if err != nil {
				t.Fatal(err)
			}
			req.Source, req.Drafter, req.Verifier = src, d, new(verify.Greedy)
			got, err := e.Generate(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got.Tokens(), plain.Tokens()) {
				t.Errorf("%s: %v, plain %v", method, got.Tokens(), plain.Tokens())
			}
			drafted += got.Stats().Drafted
		}
	}
	if drafted < 100 {
		t.Errorf("%d drafted tokens, want many", drafted)
	}
}

// A module may have an LM head and an embedding of its own values. One that lacks a tensor is refused by
// its name, and so is a model without a module.
func TestMTPModulesAreChecked(t *testing.T) {
	drop := func(name string) func([]safetensors.Tensor) []safetensors.Tensor {
		return func(all []safetensors.Tensor) []safetensors.Tensor {
			return slices.DeleteFunc(all, func(x safetensors.Tensor) bool { return strings.HasSuffix(x.Name, name) })
		}
	}
	for name, want := range map[string]string{
		"layers.4.hnorm.weight":                      `no tensor "model.layers.4.hnorm.weight"`,
		"layers.4.mlp.experts.3.up_proj.weight":      `no tensor "model.layers.4.mlp.experts.3.up_proj.weight"`,
		"layers.4.shared_head.norm.weight":           `no tensor "model.layers.4.shared_head.norm.weight"`,
		"layers.4.mlp.gate.e_score_correction_bias":  `no tensor "model.layers.4.mlp.gate.e_score_correction_bias"`,
		"layers.4.self_attn.q_norm.weight":           `no tensor "model.layers.4.self_attn.q_norm.weight"`,
		"layers.4.mlp.shared_experts.up_proj.weight": `no tensor "model.layers.4.mlp.shared_experts.up_proj.weight"`,
		"layers.4.post_attention_layernorm.weight":   `no tensor "model.layers.4.post_attention_layernorm.weight"`,
	} {
		if _, err := head.MTP(glm.with(t, false, drop(name)), head.Default()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	none := func(all []safetensors.Tensor) []safetensors.Tensor {
		return slices.DeleteFunc(all, func(x safetensors.Tensor) bool { return strings.HasPrefix(x.Name, "model.layers.4.") })
	}
	if _, err := head.MTP(glm.with(t, false, none), head.Default()); err == nil || !strings.Contains(err.Error(), "no multi-token prediction module behind the 4 layers") {
		t.Errorf("without a module: %v", err)
	}
	same := glm.with(t, true, nil)
	other := glm.with(t, true, func(all []safetensors.Tensor) []safetensors.Tensor {
		for i, x := range all {
			if strings.HasSuffix(x.Name, "shared_head.head.weight") {
				v, err := x.Float32s()
				if err != nil {
					t.Fatal(err)
				}
				for j := range v {
					v[j] = -v[j]
				}
				all[i] = safetensors.F32(x.Name, v, x.Shape...)
			}
		}
		return all
	})
	first := func(m *model.Model) []float32 {
		h, err := head.MTP(m, head.Default())
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		store, err := m.NewStore(1)
		if err != nil {
			t.Fatal(err)
		}
		x := make([]float32, m.Spec().Hidden)
		for i := range x {
			x[i] = float32(i%5) - 2
		}
		if err := store.Load(0, x); err != nil {
			t.Fatal(err)
		}
		o, err := h.NewSeq().Append(t.Context(), []int32{5}, []model.Feature{store.At(0)}, model.WantAll)
		if err != nil {
			t.Fatal(err)
		}
		row := make([]float32, m.Spec().Vocab)
		o.ReadLogits(row, 0)
		return row
	}
	a, b := first(same), first(other)
	for i := range a {
		if a[i] != -b[i] {
			t.Fatalf("logit %d is %v with the target's LM head and %v with one of opposite weights", i, a[i], b[i])
		}
	}
}
