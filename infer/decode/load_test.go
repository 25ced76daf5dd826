package decode_test

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/infer/decode"
	blocks "talf/infer/source"
	"talf/internal/e2e/talftest"
	"talf/internal/golden"
	"talf/model/arch"
	"talf/model/head"
	"talf/model/identity"
	"talf/model/medusa"
	"talf/model/safetensors"
)

// Heads of every kind with a weight that is not finite are loaded, and the weight is told of: Medusa heads,
// and the module in the target's own files.
func TestBrokenHeadsAreToldOf(t *testing.T) {
	var told []string
	warn := func(why string) { told = append(told, why) }
	expect := func(path, tensor string) {
		t.Helper()
		if len(told) != 1 || !strings.HasPrefix(told[0], "head "+path+": ") || !strings.Contains(told[0], tensor) || !strings.Contains(told[0], "useless") {
			t.Errorf("of %s is told %q, want that its tensor %s is broken", path, told, tensor)
		}
		told = nil
	}
	m := talftest.OpenModel(t, talftest.TinyModel(t, talftest.TinyConfig(), 1))
	s := medusa.Spec{Heads: 1, Hidden: m.Spec().Hidden, Vocab: m.Spec().Vocab}
	x := make([]float32, s.Vocab*s.Hidden)
	dir := t.TempDir()
	for _, broken := range []bool{false, true} {
		if broken {
			x[7] = float32(math.NaN())
		}
		if err := safetensors.WriteFile(filepath.Join(dir, "medusa_lm_head.safetensors"), nil, safetensors.F32(s.LMHead(0), x, s.Vocab, s.Hidden)); err != nil {
			t.Fatal(err)
		}
		_, h, err := decode.HeadSource(dir, m, false, warn, 0)
		if err != nil {
			t.Fatal(err)
		}
		if !broken && len(told) > 0 {
			t.Errorf("of sound heads is told %q", told)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	expect(dir, s.LMHead(0))

	from := golden.File(t, "hf-more/glm4-moe")
	dir = t.TempDir()
	conf, err := os.ReadFile(filepath.Join(from, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	talftest.Write(t, filepath.Join(dir, "config.json"), string(conf))
	const bad = "model.layers.4.enorm.weight"
	var all []safetensors.Tensor
	for _, path := range []string{filepath.Join(from, "model.safetensors"), filepath.Join(golden.File(t, "mtp"), "layer.safetensors")} {
		set, err := safetensors.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		for _, name := range set.Names() {
			x, _ := set.Tensor(name)
			if name == bad {
				x.Data = slices.Clone(x.Data)
				x.Data[0], x.Data[1] = 0xc0, 0x7f // a NaN in bfloat16
			}
			all = append(all, x)
		}
	}
	if err := safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), nil, all...); err != nil {
		t.Fatal(err)
	}
	h, err := decode.LoadHead(decode.MTPHead, talftest.OpenModel(t, dir), false, warn)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	expect(decode.MTPHead, bad)
}

// A block drafter is a source, and refused where a head is to run along a text.
func TestABlockDrafterOnlyDrafts(t *testing.T) {
	m := talftest.OpenModel(t, talftest.TinyModel(t, talftest.TinyConfig(), 1))
	spec := m.Spec().BlockFor(arch.Block{Size: 4, Taps: []int{1}, Mask: 3, Shift: true, Markov: arch.VanillaMarkov, Rank: 2}, 1, 0)
	dir := filepath.Join(t.TempDir(), "head")
	if err := head.Write(t.Context(), dir, spec, identity.Tie{}, head.Random(spec, 1)...); err != nil {
		t.Fatal(err)
	}
	src, h, err := decode.HeadSource(dir, m, false, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, ok := src.(*blocks.Block); !ok {
		t.Errorf("the source is a %T", src)
	}
	if _, err := decode.LoadHead(dir, m, false, nil); err == nil || !strings.Contains(err.Error(), "is a block drafter, which only drafts") {
		t.Errorf("along a text: %v", err)
	}
}
