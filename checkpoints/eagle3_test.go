package checkpoints

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/checkpoints/internal/torchfile"
	"talf/compute/cpu"
	"talf/internal/golden"
	"talf/model"
	"talf/model/head"
	"talf/model/identity"
	"talf/model/modeltest"
	"talf/model/safetensors"
)

// eagle3Targets are the targets of the reference heads of data/eagle3.
var eagle3Targets = map[string]string{"plain": "llama", "norms": "qwen3", "targetlm": "llama", "narrow": "llama"}

func eagle3Target(t testing.TB, name string) (string, *model.Model) {
	t.Helper()
	dir := golden.File(t, "eagle3/targets/"+eagle3Targets[name])
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(dir, dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(); dev.Close() })
	return dir, m
}

// drafted returns what a head makes of a fixed text: the logits of every position and of two drafted
// tokens after it.
func drafted(t testing.TB, h *head.Head, m *model.Model) []float32 {
	t.Helper()
	ids := []int32{1, 5, 9, 13, 2, 60}
	s, hs := m.NewSeq(), h.NewSeq()
	defer s.Close()
	defer hs.Close()
	o, err := s.Append(t.Context(), ids, nil, model.WantNone)
	if err != nil {
		t.Fatal(err)
	}
	var in []model.Feature
	for i := range len(ids) - 1 {
		in = append(in, o.Feature(0, i))
	}
	var out []float32
	read := func(o *model.Output) {
		_, n := o.Rows()
		x := make([]float32, n*h.Spec().Vocab)
		o.ReadLogits(x, 0)
		out = append(out, x...)
	}
	p, err := hs.Append(t.Context(), ids[1:], in, model.WantAll)
	if err != nil {
		t.Fatal(err)
	}
	read(p)
	p, err = hs.Append(t.Context(), []int32{7}, []model.Feature{p.Feature(0, len(in)-1)}, model.WantAll)
	if err != nil {
		t.Fatal(err)
	}
	read(p)
	return out
}

func loadDrafted(t *testing.T, dir string, m *model.Model) []float32 {
	t.Helper()
	h, err := LoadHead(dir, m, head.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	return drafted(t, h, m)
}

// The reference heads lie in two layouts. Both load as they are, draft the same bits, and stay the
// same through an import and through every format that can hold them.
func TestEagle3HeadsAreTheSameInEveryLayout(t *testing.T) {
	// What readers would not do with a head, by format; a part of the first such problem.
	bad := map[string]map[string]string{
		"plain":    {},
		"norms":    {"eagle": "it ignores norm_before_fc and norm_before_residual", "sglang": "it ignores norm_before_residual"},
		"targetlm": {"eagle": "it ignores fc_norm and norm_output", "sglang": "it ignores fc_norm", "gguf": "fc_norm is true"},
		"narrow":   {"speculators": "no hidden size other than the target's"},
	}
	for name, problems := range bad {
		t.Run(name, func(t *testing.T) {
			dir := golden.File(t, "eagle3/"+name)
			targetDir, m := eagle3Target(t, name)
			want := loadDrafted(t, filepath.Join(dir, "eagle"), m)
			if got := loadDrafted(t, filepath.Join(dir, "speculators"), m); !slices.Equal(got, want) {
				t.Error("the layout of speculators drafts something else")
			}
			d := openDraft(t, filepath.Join(dir, "eagle"))
			other := openDraft(t, filepath.Join(dir, "speculators"))
			if diff := cmp.Diff(d.Spec, other.Spec); diff != "" || d.Layout != LayoutEAGLE || other.Layout != LayoutSpeculators {
				t.Errorf("(-eagle +speculators)\n%s", diff)
			}
			tgt, err := OpenTarget(targetDir)
			if err != nil {
				t.Fatal(err)
			}
			defer tgt.Close()
			writeTokenizer(t, targetDir, m.Spec().Vocab)
			own := filepath.Join(t.TempDir(), "own")
			if _, err := other.Import(t.Context(), own, tgt, false); err != nil {
				t.Fatal(err)
			}
			if got := loadDrafted(t, own, m); !slices.Equal(got, want) {
				t.Error("an imported head drafts something else")
			}
			for _, f := range Formats() {
				if f.block != nil {
					continue
				}
				c := DefaultExport()
				c.Format = f.Name
				if err := c.For(t.Context(), d, tgt); err != nil {
					t.Fatal(err)
				}
				out := filepath.Join(t.TempDir(), f.Name)
				_, err := d.Export(t.Context(), out, c)
				if part := problems[f.Name]; part != "" {
					if err == nil || !strings.Contains(err.Error(), part) {
						t.Errorf("%s: %v, want %q", f.Name, err, part)
					}
					c.Force = true
					if _, err = d.Export(t.Context(), out, c); f.file != nil && err != nil {
						continue // what has no place in a file has none by force
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				if f.file != nil {
					out = filepath.Join(out, "eagle3-F32.gguf")
				}
				if got := loadDrafted(t, out, m); !slices.Equal(got, want) {
					t.Errorf("%s: another draft", f.Name)
				}
				back := openDraft(t, out)
				if f.file != nil { // it always names the taps, and the rest is the tokenizer's
					if taps, err := d.Spec.TapsOf(m.Spec()); err != nil || !slices.Equal(back.Spec.Eagle3.Taps, taps) {
						t.Errorf("%s: taps %v, want %v", f.Name, back.Spec.Eagle3.Taps, taps)
					}
					back.Spec.Eagle3.Taps, back.Spec.BOS, back.Spec.EOS = d.Spec.Eagle3.Taps, d.Spec.BOS, d.Spec.EOS
				}
				if diff := cmp.Diff(d.Spec, back.Spec); diff != "" {
					t.Errorf("%s (-original +exported)\n%s", f.Name, diff)
				}
				tensors := back.Tensors
				if _, own := d.Tensor("embed_tokens.weight"); f.Name == "eagle" && !own {
					// It has the embedding of a target without an index, which EAGLE would not find.
					tensors = slices.DeleteFunc(slices.Clone(tensors), func(x safetensors.Tensor) bool { return x.Name == "embed_tokens.weight" })
				}
				if diff := cmp.Diff(d.Tensors, tensors); diff != "" || !slices.Equal(d.Vocab, back.Vocab) {
					t.Errorf("%s: other tensors", f.Name)
				}
			}
		})
	}
}

// SpecForge's ids are one less than boundaries; what is written are boundaries, and a verifier that
// readers find from wherever they run.
func TestWrittenTapsAreBoundariesAndPathsAbsolute(t *testing.T) {
	dir := golden.File(t, "eagle3/norms/eagle")
	d := openDraft(t, dir)
	targetDir := golden.File(t, "eagle3/targets/qwen3")
	base := t.TempDir()
	if err := os.CopyFS(filepath.Join(base, "target"), os.DirFS(targetDir)); err != nil {
		t.Fatal(err)
	}
	t.Chdir(base)
	tgt, err := OpenTarget("target")
	if err != nil {
		t.Fatal(err)
	}
	defer tgt.Close()
	for _, name := range []string{"", "target", "org/model"} {
		for _, f := range Formats() {
			if f.file != nil || f.block != nil {
				continue
			}
			c := DefaultExport()
			c.Format, c.Force, c.TargetName = f.Name, true, name
			if err := c.For(t.Context(), d, tgt); err != nil {
				t.Fatal(err)
			}
			out, r := export(t, d, c)
			conf := config(t, out)
			at := conf
			if f.Name != "speculators" {
				at = conf["eagle_config"].(map[string]any)
			}
			if got := at["eagle_aux_hidden_state_layer_ids"]; !cmp.Equal(got, []any{2.0, 4.0, 6.0}) {
				t.Errorf("%s: taps %v", f.Name, got)
			}
			if conf["norm_before_residual"] != true || conf["norm_output"] != false {
				t.Errorf("%s: %v", f.Name, conf)
			}
			unindexed := slices.ContainsFunc(r.Problems, func(p Problem) bool { return strings.Contains(p.What, "index.json") })
			if unindexed != (f.Name == "eagle") {
				t.Errorf("%s: %v", f.Name, r.Problems)
			}
			// EAGLE's own code finds the embedding of such a target in the head only.
			_, hidden := conf["target_hidden_size"]
			back := openDraft(t, out)
			_, embed := back.Tensor("embed_tokens.weight")
			if want := f.Name == "eagle"; embed != want || (f.Name != "speculators" && hidden != want) {
				t.Errorf("%s: embedding %t, target_hidden_size %t", f.Name, embed, hidden)
			}
			if back.Spec.TargetHidden() != d.Spec.TargetHidden() {
				t.Errorf("%s: a head for hidden size %d, before %d", f.Name, back.Spec.TargetHidden(), d.Spec.TargetHidden())
			}
			if f.Name != "speculators" {
				continue
			}
			verifier := conf["speculators_config"].(map[string]any)["verifier"].(map[string]any)
			want := "org/model"
			if name != want {
				want = filepath.Join(base, "target")
			}
			if got := verifier["name_or_path"]; got != want || !cmp.Equal(verifier["architectures"], []any{"Qwen3ForCausalLM"}) {
				t.Errorf("verifier %v, want %s", verifier, want)
			}
		}
	}
	// Nor does a path that is named without the target being read depend on where that was.
	for name, want := range map[string]any{"target": filepath.Join(base, "target"), "org/model": "org/model", "": nil} {
		c := DefaultExport()
		c.Format, c.Force, c.TargetName = "speculators", true, name
		out, _ := export(t, d, c)
		if got := config(t, out)["speculators_config"].(map[string]any)["verifier"].(map[string]any)["name_or_path"]; got != want {
			t.Errorf("verifier %q is written as %v, want %v", name, got, want)
		}
	}
}

// A model card says what the head is for and how it is served, whatever its target is called.
func TestExportsHaveAModelCard(t *testing.T) {
	d := openDraft(t, golden.File(t, "eagle3/norms/eagle"))
	for name, want := range map[string]string{
		"org/model":        "base_model: \"org/model\"\n",
		"it's\n# a | name": `'it'\''s # a \| name'`,
		"":                 "EAGLE-3 draft head for its target\n",
	} {
		c := DefaultExport()
		c.Format, c.TargetName, c.DraftTokens = "vllm", name, 4
		out, r := export(t, d, c)
		raw, err := os.ReadFile(filepath.Join(out, cardFile))
		if err != nil {
			t.Fatal(err)
		}
		card := string(raw)
		for _, part := range []string{
			want, "- eagle3\n", "hidden size 24, 96 tokens", "layers 2, 4, 6 |", "`norm_before_fc`, `norm_before_residual`",
			`"method": "eagle3", "model": "DIR", "num_speculative_tokens": 4`, "needs vLLM of mid 2026",
		} {
			if !strings.Contains(card, part) {
				t.Errorf("target %q: %q is not in\n%s", name, part, card)
			}
		}
		if strings.Contains(card, "\n# a") || !slices.Contains(r.Files, cardFile) {
			t.Errorf("target %q, files %v:\n%s", name, r.Files, card)
		}
	}
	// One of talf's own says how it was trained.
	_, m := target(t, modeltest.Default())
	own := openDraft(t, writeHead(t, m, nil))
	spec, err := head.Config(own.Spec)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewStore(filepath.Join(t.TempDir(), "run"), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Save(&Checkpoint{Manifest: Manifest{
		Kind: KindHead, Step: 7, Hidden: own.Spec.Hidden, Vocab: own.Spec.Vocab, Loss: "talf:depth=2", Data: "0123",
	}, Config: spec, Weights: own.Tensors}); err != nil {
		t.Fatal(err)
	}
	trained, err := FindDraft(t.Context(), s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	defer trained.Close()
	c := DefaultExport()
	c.Format = "sglang"
	out, _ := export(t, trained, c)
	raw, err := os.ReadFile(filepath.Join(out, cardFile))
	if err != nil || !strings.Contains(string(raw), "talf, 7 steps, loss `talf:depth=2`") || !strings.Contains(string(raw), "--speculative-algorithm EAGLE ") {
		t.Errorf("%v\n%s", err, raw)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// EAGLE's own files do not say in their configuration that they are EAGLE-3 heads, are pickles, and
// have no embedding.
func TestEaglesOwnEagle3FilesLoad(t *testing.T) {
	_, m := eagle3Target(t, "plain")
	from := golden.File(t, "eagle3/plain/eagle")
	set, err := safetensors.OpenDir(from)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	var ts []safetensors.Tensor
	for _, name := range set.Names() {
		x, _ := set.Tensor(name)
		ts = append(ts, x)
	}
	dir := t.TempDir()
	conf := config(t, from)
	conf["architectures"] = []string{"LlamaForCausalLM"}
	putConfig(t, dir, conf)
	w, err := os.Create(filepath.Join(dir, torchFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := torchfile.Write(w, ts...); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := loadDrafted(t, dir, m); !slices.Equal(got, loadDrafted(t, from, m)) {
		t.Error("another draft")
	}
	// Names with a prefix, as some trainers write them.
	prefixed := make([]safetensors.Tensor, len(ts))
	for i, x := range ts {
		if prefixed[i] = x; x.Name != "d2t" && x.Name != "t2d" && x.Name != "lm_head.weight" {
			prefixed[i].Name = "model." + x.Name
		}
	}
	other := t.TempDir()
	putConfig(t, other, conf)
	if err := safetensors.WriteFile(filepath.Join(other, WeightsFile), nil, prefixed...); err != nil {
		t.Fatal(err)
	}
	if got := loadDrafted(t, other, m); !slices.Equal(got, loadDrafted(t, from, m)) {
		t.Error("another draft of prefixed names")
	}
}

// An EAGLE-3 head without lm_head.weight uses the target's; with a draft vocabulary its rows, which
// an export writes for readers that take all or none.
func TestTheTargetsLMHeadIsWrittenWhereReadersNeedIt(t *testing.T) {
	dir, m := eagle3Target(t, "plain")
	from := golden.File(t, "eagle3/plain/eagle")
	d := openDraft(t, from)
	d.drop("lm_head.weight")
	d.Spec.Eagle3.TargetLMHead = true
	own := filepath.Join(t.TempDir(), "own")
	if err := d.SaveHead(t.Context(), own, identity.Tie{}); err != nil {
		t.Fatal(err)
	}
	want := loadDrafted(t, own, m)
	without := openDraft(t, own)
	for _, f := range []string{"sglang", "vllm"} {
		c := DefaultExport()
		c.Format = f
		if _, err := without.Export(t.Context(), filepath.Join(t.TempDir(), "x"), c); err == nil || !strings.Contains(err.Error(), "lm_head.weight is missing") {
			t.Errorf("%s: %v", f, err)
		}
		tgt, err := OpenTarget(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.For(t.Context(), without, tgt); err != nil {
			t.Fatal(err)
		}
		out, _ := export(t, without, c)
		if got := loadDrafted(t, out, m); !slices.Equal(got, want) {
			t.Errorf("%s: another draft", f)
		}
		if x, ok := openDraft(t, out).Tensor("lm_head.weight"); !ok || x.Shape[0] != 48 {
			t.Errorf("%s: lm_head.weight %v, %v", f, x.Shape, ok)
		}
		if err := tgt.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Tensors that flags ask for must be there, and no others.
func TestOptionalTensorsOfEagle3AreChecked(t *testing.T) {
	type tensors = map[string]safetensors.Tensor
	norm := func(all tensors, name string, n int) {
		all[name] = safetensors.F32(name, make([]float32, n), n)
	}
	for name, c := range map[string]struct {
		change func(conf map[string]any, all tensors)
		want   string
	}{
		"fc_norm without its tensors": {func(conf map[string]any, _ tensors) { conf["fc_norm"] = true }, `no tensor "fc_norm.0.weight"`},
		"one norm is missing": {func(conf map[string]any, all tensors) {
			conf["fc_norm"] = true
			norm(all, "fc_norm.0.weight", 40)
			norm(all, "fc_norm.2.weight", 40)
		}, `no tensor "fc_norm.1.weight"`},
		"norm_before_fc of one tap's size": {func(conf map[string]any, all tensors) {
			conf["norm_before_fc"] = true
			norm(all, "input_norm.weight", 40)
		}, `"input_norm.weight" has shape [40], want [120]`},
		"a norm that no flag asks for": {func(_ map[string]any, all tensors) { norm(all, "input_norm.weight", 120) }, `"input_norm.weight" is not part of an EAGLE-3 head`},
		"a norm of queries alone":      {func(_ map[string]any, all tensors) { norm(all, "midlayer.self_attn.q_norm.weight", 10) }, `no tensor "midlayer.self_attn.k_norm.weight"`},
		"a layer too many":             {func(_ map[string]any, all tensors) { norm(all, "layers.1.input_layernorm.weight", 40) }, `"layers.1.input_layernorm.weight" is not part`},
		"another class of layers":      {func(_ map[string]any, all tensors) { norm(all, "additional_layers.0.hidden_norm.weight", 40) }, "is not part"},
		"its own size, no embedding":   {func(conf map[string]any, all tensors) { conf["target_hidden_size"] = 48 }, `no tensor "embed_tokens.weight"`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := OpenDraft(eagle3Dir(t, c.change)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q in it", err, c.want)
			}
		})
	}
	d := openDraft(t, eagle3Dir(t, nil))
	if got := slices.Sorted(maps.Keys(flags(&d.Spec.Eagle3))); len(got) != 4 {
		t.Errorf("flags %v", got)
	}
}
