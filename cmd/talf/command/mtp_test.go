package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/internal/e2e/talftest"
	"talf/internal/golden"
	"talf/model/safetensors"
)

// A model whose files hold a multi-token prediction module says so, and the module is a head by the name
// of mtp. Other models have none.
func TestAModelsOwnModuleIsAHead(t *testing.T) {
	ownModule(t, "hf-more/glm4-moe", "mtp", 256)
	ownModule(t, "hf-more/deepseek-v3", "mtp-deepseek", 262)
	other := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	if said := talftest.OK(t, "", "inspect", other); strings.Contains(said, "mtp") {
		t.Errorf("inspect says\n%s", said)
	}
	talftest.Run(t, "", "generate", "--model", other, "--head", "mtp", "--method", "salf", "--prompt", "x").
		Refuses(t, ExitFailure, "no multi-token prediction module behind the")
}

// ownModule inspects and scores a golden model with a golden module.
func ownModule(t *testing.T, target, module string, vocab int) {
	t.Helper()
	from, dir := golden.File(t, target), t.TempDir()
	conf, err := os.ReadFile(filepath.Join(from, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	talftest.Write(t, filepath.Join(dir, "config.json"), string(conf))
	var all []safetensors.Tensor
	for i, path := range []string{filepath.Join(from, "model.safetensors"), filepath.Join(golden.File(t, module), "layer.safetensors")} {
		set, err := safetensors.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		for _, name := range set.Names() {
			if i == 0 && strings.HasPrefix(name, "model.layers.4.") {
				continue // a part of another module
			}
			x, _ := set.Tensor(name)
			all = append(all, x)
		}
	}
	if err := safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), nil, all...); err != nil {
		t.Fatal(err)
	}
	if said := talftest.OK(t, "", "inspect", dir); !strings.Contains(said, "--head mtp") {
		t.Errorf("inspect says\n%s", said)
	}
	out := filepath.Join(t.TempDir(), "s.safetensors")
	talftest.OK(t, `{"ids":[1,5,9,33,2]}`, "score", "--model", dir, "--head", "mtp", "--out", out)
	x, err := openTensors(t, out).Get("0.head_logits")
	if err != nil || x.Shape[0] != 4 || x.Shape[1] != vocab {
		t.Errorf("head logits of shape %v, %v: want those of 4 tokens", x.Shape, err)
	}
}
