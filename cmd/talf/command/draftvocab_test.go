package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/internal/demo"
	"talf/internal/e2e/talftest"
	"talf/train/mix"
)

// From text to text: a draft vocabulary is inspected, trained on, used, passed to another head,
// exported and imported.
func TestADraftVocabularyEndToEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("runs whole pipelines")
	}
	dir := t.TempDir()
	m := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	labels := filepath.Join(dir, "labels")
	talftest.OK(t, "", "preprocess", "--model", m, "--data", talftest.TextFile(t, 12), "--out", labels, "--max-len", "40", "--threads", "1")

	var seen struct {
		DraftVocab mix.Coverage `json:"draft_vocab"`
	}
	if err := json.Unmarshal([]byte(talftest.OK(t, "", "inspect", "data", labels, "--stats", "--draft-vocab", "24", "--json")), &seen); err != nil {
		t.Fatal(err)
	}
	v := seen.DraftVocab
	if v.Size != 24 || v.Train.Tokens == 0 || v.Held.Tokens == 0 || v.Train.Share() <= 0.2 || v.Train.Share() >= 1 || len(v.Train.Levels) != 3 || v.Train.Levels[0] <= 0 || v.Train.Levels[0] >= 1 {
		t.Errorf("coverage %+v", v)
	}
	if text := talftest.OK(t, "", "inspect", "data", labels, "--stats", "--draft-vocab", "24"); !strings.Contains(text, "24 tokens are ") || !strings.Contains(text, "labels of level 2:") {
		t.Errorf("inspect says %q", text)
	}

	head := filepath.Join(dir, "head")
	args := []string{"train", "--model", m, "--data", labels, "--steps", "3", "--rows", "128", "--threads", "1"}
	said := talftest.OK(t, "", append(args, "--draft-vocab", "24", "--out", head)...)
	if !strings.Contains(said, "% of the labels in the draft vocabulary") {
		t.Errorf("train says %q", said)
	}
	if text := talftest.OK(t, "", "inspect", head); !strings.Contains(text, "24 of these tokens") {
		t.Errorf("inspect says %q", text)
	}
	plain := talftest.OK(t, "", "generate", "--model", m, "--method", "ar", "--max-tokens", "24", "--prompt", "Once upon")
	if got := talftest.OK(t, "", "generate", "--model", m, "--head", head, "--method", "beam", "--max-tokens", "24", "--prompt", "Once upon"); got != plain {
		t.Errorf("text %q, plain %q", got, plain)
	}
	// Another head may have the same vocabulary; the run cannot be continued with another one.
	second := filepath.Join(dir, "second")
	talftest.OK(t, "", append(args, "--draft-vocab", head, "--out", second)...)
	a, b := weightsOf(t, head), weightsOf(t, second)
	if a != b {
		t.Error("the vocabulary of a head gives other weights than its number")
	}
	talftest.Run(t, "", append(args, "--draft-vocab", "23", "--out", head, "--resume")...).Refuses(t, ExitFailure, "draft_vocab")

	out, back := filepath.Join(dir, "sglang"), filepath.Join(dir, "back")
	if text := talftest.OK(t, "", "export", "--head", head, "--format", "sglang", "--model", m, "--out", out); !strings.Contains(text, "--speculative-token-map") || !strings.Contains(text, "token_map.pt") {
		t.Errorf("export says %q", text)
	}
	if text := talftest.OK(t, "", "inspect", out); !strings.Contains(text, "24 of these tokens") {
		t.Errorf("inspect says %q", text)
	}
	talftest.OK(t, "", "import", "--head", out, "--model", m, "--out", back)
	score := func(head string) string {
		f := filepath.Join(t.TempDir(), "s.safetensors")
		talftest.OK(t, `{"ids":[1,5,9,33,2,7,40,11]}`, "score", "--model", m, "--head", head, "--out", f)
		x, err := openTensors(t, f).Get("0.head_logits")
		if err != nil {
			t.Fatal(err)
		}
		if x.Shape[1] != demo.VocabSize {
			t.Errorf("logits of %v, want the target's %d tokens", x.Shape, demo.VocabSize)
		}
		return string(x.Data)
	}
	if score(head) != score(back) {
		t.Error("other logits than before the export")
	}

	talftest.Run(t, "", append(args, "--draft-vocab", "0", "--out", filepath.Join(dir, "x"))...).Refuses(t, ExitFailure, "want 1 to")
	talftest.Run(t, "", append(args, "--draft-vocab", "nowhere", "--out", filepath.Join(dir, "x"))...).Refuses(t, ExitFailure, "no such file")
	talftest.Run(t, "", "train", "--kind", "lm", "--model", m, "--data", labels, "--out", filepath.Join(dir, "x"), "--draft-vocab", "9").Refuses(t, ExitUsage, "for heads")
	talftest.Run(t, "", "inspect", "data", labels, "--draft-vocab", "9").Refuses(t, ExitUsage, "--stats")
	// A vocabulary of another tokenizer.
	step := filepath.Join(head, "step-00000003")
	talftest.EditJSON(t, filepath.Join(step, "manifest.json"), "tokenizer", strings.Repeat("ab", 32))
	talftest.Run(t, "", append(args, "--draft-vocab", head, "--out", filepath.Join(dir, "x"))...).Refuses(t, ExitFailure, "its ids mean other tokens")
}

func weightsOf(t testing.TB, head string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(head, "step-00000003", "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
