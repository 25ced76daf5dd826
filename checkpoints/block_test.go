package checkpoints

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/compute/cpu"
	"talf/internal/golden"
	"talf/model"
	"talf/model/arch"
	"talf/model/draftvocab"
	"talf/model/head"
	"talf/model/identity"
	"talf/model/modeltest"
	"talf/model/safetensors"
)

// Heads that the authors' code saved are exported with the same tensors, and with the same keys of their
// families.
func TestBlockHeadsOfTheAuthorsAreExportedAsTheyCame(t *testing.T) {
	keys := []string{
		"architectures", "model_type", "block_size", "mask_token_id", "target_layer_ids", "dflash_config", "markov_rank", "markov_head_type",
		"enable_confidence_head", "confidence_head_with_markov", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
		"num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps", "rope_theta", "num_target_layers",
		"layer_types", "sliding_window", "use_sliding_window",
	}
	for name, layers := range map[string]int{"dflash/a": 5, "dflash/swa": 5, "dspark/a": 5, "dspark/b": 4, "jetspec/a": 5, "jetspec/b": 4} {
		t.Run(name, func(t *testing.T) {
			dir := golden.Shared(t, "data/block/"+name+"/head")
			d := openDraft(t, dir)
			if d.Layout != LayoutBlock || !d.Spec.Block.On {
				t.Fatalf("read as layout %s", d.Layout)
			}
			c := DefaultExport()
			c.Format, c.Target = "block", &arch.Spec{Layers: layers}
			out, _ := export(t, d, c)
			was, now := config(t, dir), config(t, out)
			for _, key := range keys {
				if d := cmp.Diff(was[key], now[key]); d != "" {
					t.Errorf("%s: %s", key, d)
				}
			}
			if a, b := weights(t, dir), weights(t, out); len(a) != len(b) {
				t.Errorf("%d tensors, want %d", len(b), len(a))
			} else {
				for n, x := range a {
					if !bytes.Equal(x.Data, b[n].Data) {
						t.Errorf("%s differs", n)
					}
				}
			}
		})
	}
}

// weights returns the tensors of a file by name.
func weights(t testing.TB, dir string) map[string]safetensors.Tensor {
	t.Helper()
	set, err := safetensors.Open(filepath.Join(dir, WeightsFile))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	out := make(map[string]safetensors.Tensor)
	for _, n := range set.Names() {
		out[n], _ = set.Tensor(n)
	}
	return out
}

// A head whose rows are shifted gets the copies that DSpark's loader wants, and formats of EAGLE's heads do not take it.
func TestShiftedBlockHeadsAreExportedWithTheirTargetsMatrices(t *testing.T) {
	of, m := target(t, modeltest.Default())
	b := arch.Block{Size: 4, Taps: []int{1}, Shift: true, Markov: arch.VanillaMarkov, Rank: 3}
	d := openDraft(t, writeHead(t, m, func(s *arch.Spec) { *s = *m.Spec().BlockFor(b, 2, 0) }))
	c := DefaultExport()
	c.Format = "block"
	if _, err := d.Export(t.Context(), filepath.Join(t.TempDir(), "none"), c); err == nil || !strings.Contains(err.Error(), "lm_head.weight are missing") {
		t.Errorf("without a target: %v", err)
	}
	x, err := OpenTarget(of)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if err := c.For(t.Context(), d, x); err != nil {
		t.Fatal(err)
	}
	out, _ := export(t, d, c)
	// Qwen3DSparkModel.__init__ of DeepSpec asserts that these are there.
	for _, key := range []string{"target_layer_ids", "mask_token_id", "num_anchors", "enable_confidence_head", "markov_rank", "markov_head_type"} {
		if _, ok := config(t, out)[key]; !ok {
			t.Errorf("no %s, without which DSpark's class does not load it", key)
		}
	}
	back := openDraft(t, out)
	if !back.Spec.Block.OwnLMHead || !back.hasCopies() || len(back.Tensors) != len(d.Tensors)+2 {
		t.Errorf("%d tensors of %d, %+v", len(back.Tensors), len(d.Tensors), back.Spec.Block)
	}
	for _, f := range Formats() {
		if c.Format = f.Name; f.block != nil || f.file != nil {
			continue
		}
		c.Force = true
		if _, err := d.Export(t.Context(), filepath.Join(t.TempDir(), f.Name), c); err == nil || !strings.Contains(err.Error(), "it reads no block heads") {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
	eagle := openDraft(t, writeHead(t, m, nil))
	c.Format = "block"
	if _, err := eagle.Export(t.Context(), filepath.Join(t.TempDir(), "eagle"), c); err == nil || !strings.Contains(err.Error(), "a head of EAGLE's kind") {
		t.Errorf("a head of EAGLE's kind: %v", err)
	}
}

// What servers would refuse or misread of a block head is said by name, and the rest is written.
func TestServersGetTheBlockHeadsThatTheyRead(t *testing.T) {
	for _, x := range []struct{ head, format, want string }{ // want: of the problems, "" if it is written
		{"dflash/a", "vllm", ""},
		{"dflash/a", "sglang", ""},
		{"dflash/a", "gguf", ""},
		{"dflash/swa", "vllm", ""},
		{"dflash/swa", "sglang", ""},
		{"dflash/swa", "gguf", "sliding_window"},
		{"dspark/a", "vllm", ""},
		{"dspark/a", "sglang", ""},
		{"dspark/a", "gguf", ""},
		{"dspark/b", "vllm", `markov_head_type is "gated", and its Markov head is vanilla`},
		{"dspark/b", "sglang", ""},
		{"dspark/b", "gguf", `markov_head_type is "gated", want vanilla`},
		{"jetspec/a", "vllm", ""},
		{"jetspec/a", "sglang", "in layer 0 of this head it is not so"},
		{"jetspec/a", "gguf", "rows see only those before them"},
		{"dflash2/a", "vllm", ""},
		{"dflash2/a", "sglang", "it has no DFlash 2"},
		{"dflash2/a", "gguf", "DFlash 2 is not written"},
	} {
		t.Run(x.head+" as "+x.format, func(t *testing.T) {
			d := openDraft(t, golden.Shared(t, "data/block/"+x.head+"/head"))
			of := "qwen3"
			if d.Spec.Vocab == 260 {
				of = "llama"
			}
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(golden.Shared(t, "data/block/targets/"+of))); err != nil {
				t.Fatal(err)
			}
			writeTokenizer(t, dir, d.Spec.Vocab)
			tgt, err := OpenTarget(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer tgt.Close()
			c := DefaultExport()
			c.Format = x.format
			if err := c.For(t.Context(), d, tgt); err != nil {
				t.Fatal(err)
			}
			out := filepath.Join(t.TempDir(), "out")
			r, err := d.Export(t.Context(), out, c)
			if x.want != "" {
				if err == nil || !strings.Contains(err.Error(), x.want) {
					t.Errorf("%v, want %q", err, x.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			card, err := os.ReadFile(filepath.Join(out, cardFile))
			method := "dflash"
			if d.Spec.Block.Shift {
				method = "dspark"
			}
			serve := map[string]string{
				"vllm": `{"method": "` + method + `", "model": "DIR", "num_speculative_tokens": `, "sglang": "--speculative-algorithm " + strings.ToUpper(method) + " ",
				"gguf": "dflash-F32.gguf --spec-type draft-" + method + " --spec-draft-n-max ",
			}[x.format]
			if err != nil || !strings.Contains(string(card), serve) {
				t.Errorf("%v: %q is not in\n%s", err, serve, card)
			}
			if x.format == "gguf" {
				if want := []string{cardFile, "dflash-F32.gguf"}; !slices.Equal(r.Files, want) {
					t.Errorf("wrote %v, want %v", r.Files, want)
				}
				return
			}
			back := openDraft(t, out)
			if diff := cmp.Diff(d.Spec.Block, back.Spec.Block); diff != "" || len(back.Tensors) != len(d.Tensors) {
				t.Errorf("%d tensors, want %d\n%s", len(back.Tensors), len(d.Tensors), diff)
			}
		})
	}
}

// With a draft vocabulary, vLLM reads rows of the target's LM head and offsets of ids; SGLang and the families' code read
// none.
func TestABlockHeadWithADraftVocabularyTakesRowsOfTheLMHeadAlong(t *testing.T) {
	of, m := target(t, modeltest.Default())
	b := arch.Block{Size: 4, Taps: []int{1}, Shift: true, Markov: arch.VanillaMarkov, Rank: 3}
	ids := []int32{1, 4, 6, 9}
	dir := filepath.Join(t.TempDir(), "head")
	spec := m.Spec().BlockFor(b, 1, len(ids))
	ts := modeltest.Tensors(spec, false, 7)
	ts = slices.DeleteFunc(ts, func(t safetensors.Tensor) bool { return t.Name == "embed_tokens.weight" })
	if err := head.Write(t.Context(), dir, spec, identity.Tie{}, append(ts, draftvocab.Tensors(ids, spec.Vocab)...)...); err != nil {
		t.Fatal(err)
	}
	d := openDraft(t, dir)
	c := DefaultExport()
	c.Format = "vllm"
	if _, err := d.Export(t.Context(), filepath.Join(t.TempDir(), "none"), c); err == nil || !strings.Contains(err.Error(), "lm_head.weight is missing, and with a draft vocabulary") {
		t.Errorf("without a target: %v", err)
	}
	x, err := OpenTarget(of)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if err := c.For(t.Context(), d, x); err != nil {
		t.Fatal(err)
	}
	out, _ := export(t, d, c)
	w := weights(t, out)
	rows, all := w["lm_head.weight"], c.LMHead
	wide := len(all.Data) / spec.Vocab
	for i, id := range ids {
		if !bytes.Equal(rows.Data[i*wide:][:wide], all.Data[int(id)*wide:][:wide]) {
			t.Errorf("row %d is not that of token %d", i, id)
		}
	}
	back := openDraft(t, out)
	if !slices.Equal(back.Vocab, ids) || !back.Spec.Block.OwnLMHead || config(t, out)["draft_vocab_size"] != 4.0 {
		t.Errorf("vocabulary %v, an LM head: %v", back.Vocab, back.Spec.Block.OwnLMHead)
	}
	for _, format := range []string{"block", "sglang"} {
		c.Format = format
		if _, err := d.Export(t.Context(), filepath.Join(t.TempDir(), format), c); err == nil || !strings.Contains(err.Error(), "and this head 4 of them") {
			t.Errorf("%s: %v", format, err)
		}
	}
}

// A linear block is talf's own: its configuration says all of it, and other systems' formats refuse it by name.
func TestALinearBlockIsWrittenForTalfAlone(t *testing.T) {
	_, m := target(t, modeltest.Default())
	b := arch.Block{Size: 3, Taps: []int{m.Spec().Layers}, Shift: true, Linear: true, Markov: arch.VanillaMarkov, Rank: 3}
	d := openDraft(t, writeHead(t, m, func(s *arch.Spec) { *s = *m.Spec().BlockFor(b, 0, 0) }))
	b.On = true
	if diff := cmp.Diff(b, d.Spec.Block); diff != "" || d.Spec.Layers != 0 {
		t.Errorf("%d layers: %s", d.Spec.Layers, diff)
	}
	for _, f := range Formats() {
		c := DefaultExport()
		c.Format = f.Name
		_, err := d.Export(t.Context(), filepath.Join(t.TempDir(), f.Name), c)
		if f.Name == "talf" {
			if err != nil {
				t.Error(err)
			}
		} else if err == nil || !strings.Contains(err.Error(), "linear_rows is true") && !strings.Contains(err.Error(), "it reads no block heads") {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
}

// A published folder loads as it is, after the checks of an import.
func TestBlockHeadsOfTheAuthorsLoadWithoutAnImport(t *testing.T) {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	of, err := model.Load(golden.Shared(t, "data/block/targets/qwen3"), dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer of.Close()
	for _, name := range []string{"dspark/a", "dflash2/a"} {
		h, err := LoadHead(golden.Shared(t, "data/block/"+name+"/head"), of, head.Default())
		if err != nil {
			t.Fatal(err)
		}
		if !h.Spec().Block.On {
			t.Errorf("%s is no block head", name)
		}
		h.Close()
	}
	dir := t.TempDir()
	for _, name := range []string{ConfigFile, WeightsFile} {
		raw, err := os.ReadFile(filepath.Join(golden.Shared(t, "data/block/dspark/a/head"), name))
		if err != nil {
			t.Fatal(err)
		}
		raw = bytes.Replace(raw, []byte(`"enable_confidence_head": true`), []byte(`"enable_confidence_head": false`), 1)
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := LoadHead(dir, of, head.Default()); err == nil || !strings.Contains(err.Error(), `tensor "confidence_head.proj.bias" is not part of a block head`) {
		t.Errorf("a tensor too many: %v", err)
	}
}

// A block head that is broken, or another model's, is refused by the file, the field and what is wanted there.
func TestBlockHeadsThatCannotBeLoadedSayWhy(t *testing.T) {
	dev, err := cpu.New(cpu.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	target := func(name string) *model.Model {
		m, err := model.Load(golden.Shared(t, "data/block/targets/"+name), dev, model.Default())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	qwen, llama := target("qwen3"), target("llama")
	for name, c := range map[string]struct {
		of       *model.Model
		file     string
		old, new string // in the file
		cut      int    // bytes of its end
		want     string
	}{
		"truncated":               {qwen, WeightsFile, "", "", 100, "/model.safetensors: tensor "},
		"truncated in its header": {qwen, WeightsFile, "", "", -100, "/model.safetensors: header of "},
		"empty":                   {qwen, WeightsFile, "", "", -1, "/model.safetensors: 0 bytes, want"},
		"a tensor missing":        {qwen, WeightsFile, `"fc.weight"`, `"fd.weight"`, 0, `/model.safetensors: no tensor "fc.weight", want one of shape [64 192]`},
		"another shape":           {qwen, WeightsFile, "[64,192]", "[192,64]", 0, `/model.safetensors: tensor "fc.weight" has shape [192 64], want [64 192] from the configuration`},
		"no mask token":           {qwen, ConfigFile, `"mask_token_id"`, `"mask_tokens_id"`, 0, "/config.json: mask_token_id is missing, want a token"},
		"no rows":                 {qwen, ConfigFile, `"block_size": 8`, `"block_size": 0`, 0, "/config.json: block_size is 0, want an integer from 1"},
		"another vocabulary":      {qwen, ConfigFile, `"vocab_size": 256`, `"vocab_size": 300`, 0, "/config.json: vocab_size is 300, but the target's is 256"},
		"another model's":         {llama, "", "", "", 0, "/config.json: vocab_size is 256, but the target's is 260"},
		"layers of a deeper one": {
			qwen, ConfigFile, `"num_target_layers": 5`, `"num_target_layers": 4`, 0,
			"/config.json: the head reads the output of the target's layer 3, want layers before its last, 3",
		},
		"broken JSON": {qwen, ConfigFile, "", "", 30, "/config.json: want a JSON object: "},
	} {
		dir := t.TempDir()
		for _, f := range []string{ConfigFile, WeightsFile} {
			raw, err := os.ReadFile(filepath.Join(golden.Shared(t, "data/block/dflash/a/head"), f))
			if err != nil {
				t.Fatal(err)
			}
			if f == c.file {
				was := raw
				if c.old != "" {
					raw = bytes.Replace(raw, []byte(c.old), []byte(c.new), 1)
				}
				if raw = raw[:len(raw)-max(c.cut, 0)]; c.cut < 0 {
					raw = raw[:-c.cut-1]
				}
				if bytes.Equal(was, raw) {
					t.Fatalf("%s: %s has no %q", name, f, c.old)
				}
			}
			if err := os.WriteFile(filepath.Join(dir, f), raw, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		h, err := LoadHead(dir, c.of, head.Default())
		if err == nil {
			h.Close()
		}
		if err == nil || !strings.Contains(err.Error(), dir+c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
