package sets

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"talf/internal/demo"
)

func TestEveryTemplateOfTheSetsExpands(t *testing.T) {
	w := demo.NewWriter(1)
	for _, text := range slices.Concat(problems, requests, functions, facts) {
		bindSet(w)
		w.Check(text)
	}
}

// Figures are of these prompts: whoever changes them measures again (make measurements) and
// updates the hash here.
func TestPromptsAreTheOnesMeasured(t *testing.T) {
	h := sha256.New()
	for _, s := range Sets() {
		for _, p := range s.Testing(SetSeed, SetPrompts) {
			h.Write([]byte(p + "\x00"))
		}
		for _, p := range s.Training(SetSeed, 50) {
			h.Write([]byte(p + "\x00"))
		}
	}
	const want = "503986c1a477ebf0ddd51555e5c6a93a684a0413cbe10bd245b5e0b803026f7c"
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		t.Errorf("the prompts' hash is %s, expected %s", got, want)
	}
}

func TestSetsKeepTrainingAndTestingApart(t *testing.T) {
	for _, s := range Sets() {
		training := map[string]bool{}
		for _, p := range s.Training(3, 400) {
			if training[p] {
				t.Errorf("%s: a prompt twice: %q", s.Name, p)
			}
			training[p] = true
		}
		for _, p := range s.Testing(4, SetPrompts) {
			if training[p] {
				t.Errorf("%s: a prompt of the test was trained on: %q", s.Name, p)
			}
			if s.Name != "stories" && (!strings.HasPrefix(p, "Question: ") || !strings.HasSuffix(p, "\nAnswer:")) {
				t.Errorf("%s: want a question with room for its answer: %q", s.Name, p)
			}
			if s.Name != "code" && strings.ContainsAny(p, "[]{}|") {
				t.Errorf("%s: a template was not expanded: %q", s.Name, p)
			}
		}
	}
}
