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
	from, dir := golden.File(t, "hf-more/glm4-moe"), t.TempDir()
	conf, err := os.ReadFile(filepath.Join(from, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	talftest.Write(t, filepath.Join(dir, "config.json"), string(conf))
	var all []safetensors.Tensor
	for _, path := range []string{filepath.Join(from, "model.safetensors"), filepath.Join(golden.File(t, "mtp"), "layer.safetensors")} {
		set, err := safetensors.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer set.Close()
		for _, name := range set.Names() {
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
	if err != nil || x.Shape[0] != 4 || x.Shape[1] != 256 {
		t.Errorf("head logits of shape %v, %v: want those of 4 tokens", x.Shape, err)
	}
	other := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	if said := talftest.OK(t, "", "inspect", other); strings.Contains(said, "mtp") {
		t.Errorf("inspect says\n%s", said)
	}
	talftest.Run(t, "", "generate", "--model", other, "--head", "mtp", "--method", "salf", "--prompt", "x").
		Refuses(t, ExitFailure, "no multi-token prediction module behind the")
}
