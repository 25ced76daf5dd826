package checkpoints

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"talf/compute/cpu"
	"talf/internal/golden"
	"talf/model"
	"talf/model/arch"
	"talf/model/head"
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

// A head whose rows are shifted gets the copies that DSpark's loader wants, and no other format takes it.
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
	back := openDraft(t, out)
	if !back.Spec.Block.OwnLMHead || !back.hasCopies() || len(back.Tensors) != len(d.Tensors)+2 {
		t.Errorf("%d tensors of %d, %+v", len(back.Tensors), len(d.Tensors), back.Spec.Block)
	}
	for _, f := range Formats() {
		if c.Format = f.Name; f.Name == "block" {
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
