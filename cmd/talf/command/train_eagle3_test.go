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

// An EAGLE-3 head from text to answers: its states are stored, it learns by training-time test and
// along the target's trees, another run starts from it, and every answer is the model's own.
func TestAnEAGLE3HeadFromTextToAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip("runs whole pipelines")
	}
	w := talftest.NewWorld(t)
	dir := t.TempDir()
	labels, out, more := filepath.Join(dir, "labels"), filepath.Join(dir, "head"), filepath.Join(dir, "more")
	talftest.OK(t, "", append(w.Preprocess(labels), "--features", "taps:0+1+2")...)
	if text := talftest.OK(t, "", "inspect", "data", labels, "--stats"); !strings.Contains(text, "taps before the layers [0 1 2]") {
		t.Errorf("inspect data:\n%s", text)
	}
	common := []string{"train", "--model", w.Model, "--rows", "128", "--warmup", "1", "--eval-every", "1", "--eval-seqs", "4", "--save-every", "1", "--keep", "1", "--held-out", "0.2"}
	// The set names the layers.
	talftest.OK(t, "", append(common, "--data", labels, "--features", "stored", "--draft-vocab", "200", "--stage", "eagle3:steps=3:3", "--stage", "talf:outside=mask:2", "--out", out)...)
	// A head to start from brings its network and draft vocabulary; this set has no states for it.
	talftest.OK(t, "", append(common, "--data", w.Labels, "--init", out, "--loss", "talf", "--steps", "2", "--out", more)...)
	var runs []history.Run
	if err := json.Unmarshal([]byte(talftest.OK(t, "", "inspect", "metrics", out, more, "--json")), &runs); err != nil {
		t.Fatal(err)
	}
	if len(runs) != 2 || len(runs[0].Rows) != 5 || runs[1].Rows[1].Eval == nil || runs[1].Rows[1].Eval.Levels[0].Covered == 0 {
		t.Errorf("metrics: %+v", runs)
	}
	page := filepath.Join(dir, "runs.html")
	talftest.OK(t, "", "report", "first="+out, "second="+more, "--out", page)
	if html, err := os.ReadFile(page); err != nil || !strings.Contains(string(html), "first") || !strings.Contains(string(html), "eagle3:steps=3") {
		t.Errorf("report of %d bytes, %v: want the runs and their losses", len(html), err)
	}
	prompt := []string{"generate", "--model", w.Model, "--prompt", "Once upon", "--max-tokens", "12"}
	want := talftest.OK(t, "", append(prompt, "--method", "ar")...)
	for _, head := range []string{filepath.Join(out, "best"), more} {
		for _, method := range []string{"beam", "salf", "optimal"} {
			if got := talftest.OK(t, "", append(prompt, "--head", head, "--method", method)...); got != want {
				t.Errorf("%s with %s answers %q, the model %q", method, head, got, want)
			}
		}
	}
	talftest.Run(t, "", append(common, "--data", w.Labels, "--loss", "eagle3", "--out", filepath.Join(dir, "none"))...).Refuses(t, ExitFailure, "at least 7 for EAGLE-3's default taps")
	talftest.Run(t, "", append(common, "--data", w.Labels, "--network", "eagle4", "--out", filepath.Join(dir, "none"))...).Refuses(t, ExitUsage, `unknown network "eagle4"`)
	talftest.Run(t, "", "train", "--kind", "lm", "--model", w.Model, "--data", w.Text, "--out", filepath.Join(dir, "none"), "--network", "eagle3").Refuses(t, ExitUsage, "are for heads")
}
