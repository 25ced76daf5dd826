package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/internal/e2e/talftest"
	"talf/train/history"
)

// Block heads from text on: the states are stored, the losses on held-out text fall along the text and over
// the target's trees, another run starts from the head, answers drafted with it are the model's own, and it is
// exported in its family's layout.
func TestABlockHeadFromTextToAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip("runs whole pipelines")
	}
	w := talftest.World{Model: "../../../internal/demo/target", Text: talftest.TextFile(t, 12)}
	dir := t.TempDir()
	labels, out, more := filepath.Join(dir, "labels"), filepath.Join(dir, "head"), filepath.Join(dir, "more")
	talftest.OK(t, "", append(w.Preprocess(labels), "--features", "taps:3+7")...)
	common := []string{"train", "--model", w.Model, "--rows", "256", "--lr", "3e-3", "--warmup", "2", "--eval-every", "6", "--eval-seqs", "4", "--save-every", "6", "--keep", "1", "--held-out", "0.2"}
	network := "block:size=4,shift=on,markov=vanilla,rank=16,confidence=on"
	talftest.OK(t, "", append(common, "--data", labels, "--features", "stored", "--network", network, "--stage", "dspark:12", "--stage", "talf:reach=target:6", "--out", out)...)
	talftest.OK(t, "", append(common, "--data", labels, "--features", "recompute", "--init", out, "--loss", "dspark:w_sure=0", "--steps", "2", "--out", more)...)
	var runs []history.Run
	if err := json.Unmarshal([]byte(talftest.OK(t, "", "inspect", "metrics", out, "--json")), &runs); err != nil {
		t.Fatal(err)
	}
	var held []float64
	for _, row := range runs[0].Rows {
		if row.Eval != nil {
			held = append(held, row.Eval.Loss)
			t.Logf("step %d: held-out loss %.4f, τ̂ %.3f", row.Step, row.Eval.Loss, row.Eval.Tau)
		}
	}
	if n := len(held); n != 3 || !(held[1] < held[0] && held[2] < held[1]) {
		t.Errorf("losses on held-out text %v, want falling ones", held)
	}
	prompt := []string{"generate", "--model", w.Model, "--prompt", "Once upon", "--max-tokens", "12"}
	want := talftest.OK(t, "", append(prompt, "--method", "ar")...)
	for _, method := range []string{"salf", "linear"} {
		if got := talftest.OK(t, "", append(prompt, "--head", more, "--method", method)...); got != want {
			t.Errorf("with %s the answer is %q, the model's %q", method, got, want)
		}
	}
	exported := filepath.Join(dir, "dspark")
	talftest.OK(t, "", "export", "--head", more, "--model", w.Model, "--format", "block", "--out", exported)
	raw, err := os.ReadFile(filepath.Join(exported, "config.json"))
	if err != nil || !strings.Contains(string(raw), "Qwen3DSparkModel") {
		t.Errorf("%s, %v", raw, err)
	}
	if text := talftest.OK(t, "", "inspect", exported); !strings.Contains(text, "4 rows, which predict 4 tokens, Markov head vanilla of rank 16, confidence") {
		t.Errorf("inspect:\n%s", text)
	}
	talftest.Run(t, "", "export", "--head", out, "--format", "eagle", "--out", filepath.Join(dir, "none")).Refuses(t, ExitFailure, "it reads no block heads")
	talftest.Run(t, "", append(common, "--data", labels, "--network", "eagle", "--loss", "dflash", "--out", filepath.Join(dir, "none"))...).Refuses(t, ExitFailure, "it is for block heads")
}
