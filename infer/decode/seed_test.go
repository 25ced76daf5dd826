package decode_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/infer/decode"
	"talf/internal/e2e/talftest"
	"talf/text/chat"
)

// The first turns of old files have these seeds, so that their answers can be repeated.
func TestSeedsOfPromptsStay(t *testing.T) {
	for i, want := range []uint64{7, 0x1e3779b97f4a7c12, 0x3c6ef372fe94f82d} {
		got := decode.Seed(7, i)
		if got != want || decode.TurnSeed(got, 0) != want {
			t.Errorf("prompt %d: seed %#x, its first turn's %#x, want %#x", i, got, decode.TurnSeed(got, 0), want)
		}
		if back := decode.Seed(got, i); back != 7 {
			t.Errorf("prompt %d: the run's seed is %d, want 7", i, back)
		}
	}
}

func TestEveryTurnOfEveryPromptHasItsOwnSeed(t *testing.T) {
	seen := map[uint64]string{}
	for seed := range uint64(4) {
		for prompt := range 200 {
			for turn := range 20 {
				s := decode.TurnSeed(decode.Seed(seed, prompt), turn)
				name := fmt.Sprintf("seed %d, prompt %d, turn %d", seed, prompt, turn)
				if other, twice := seen[s]; twice {
					t.Fatalf("%s and %s both have %#x", other, name, s)
				}
				seen[s] = name
			}
		}
	}
}

// A template that writes the last message alone brings every turn to the same positions. With
// one seed for all of them, equal questions would get equal answers.
func TestTurnsAreDrawnIndependently(t *testing.T) {
	d := tiny(t, sampled())
	template, err := chat.Parse("last", "{{ messages[-1].content }}")
	if err != nil {
		t.Fatal(err)
	}
	talk, err := chat.ParseTranscript([]byte(`{"messages":[{"role":"user","content":"Once"},{"role":"assistant","content":"x"},{"role":"user","content":"Once"},{"role":"assistant","content":"x"},{"role":"user","content":"Once"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	tasks := []decode.Task{{Place: "line 1", Key: "Once", Begin: func() *chat.Dialogue { return chat.NewDialogue(template, talk) }}}
	path := filepath.Join(t.TempDir(), "out.jsonl")
	to, err := decode.OpenAnswers(path, tasks, settings("s"))
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	if _, err := d.AnswerAll(t.Context(), tasks, to, decode.Batch{Seed: 7, Progress: func(int, int) {}}); err != nil {
		t.Fatal(err)
	}
	got := talftest.ReadAnswers(t, path)
	if len(got) != 1 || len(got[0].Turns) != 3 {
		t.Fatalf("answers %+v, want one of three turns", got)
	}
	texts := map[string]bool{}
	for i, r := range got[0].Turns {
		texts[r.Text] = true
		if want := decode.TurnSeed(7, i); r.Seed != want {
			t.Errorf("turn %d has seed %d, want %d", i, r.Seed, want)
		}
		// The recorded seed gives the same answer alone.
		s, err := d.Answer(t.Context(), chat.Prompt{Text: "Once"}, r.Seed, nil)
		if err != nil {
			t.Fatal(err)
		}
		if s.Text() != r.Text {
			t.Errorf("turn %d: %q, with its seed alone %q", i, r.Text, s.Text())
		}
	}
	if len(texts) != 3 {
		t.Errorf("three turns have %d different answers: %v", len(texts), texts)
	}
}

func TestDrawnSeedsDifferAndSurviveFloat64(t *testing.T) {
	seen := map[uint64]bool{}
	for range 100 {
		s := decode.DrawSeed()
		if uint64(float64(s)) != s || s >= 1<<53 {
			t.Fatalf("seed %d is not exact in a float64", s)
		}
		seen[s] = true
	}
	if len(seen) != 100 { // by chance once in 10¹² runs
		t.Errorf("%d different seeds of 100", len(seen))
	}
}

// A run that continues a file takes over the seed that its answers were drawn with.
func TestAFileOfAnswersKnowsItsSeed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	check := func(what string, want uint64, wantOK bool) {
		t.Helper()
		if s, ok, err := decode.RunSeed(path); err != nil || ok != wantOK || s != want {
			t.Errorf("%s: %d, %v, %v, want %d, %v", what, s, ok, err, want, wantOK)
		}
	}
	check("no file", 0, false)
	tasks := []decode.Task{{Key: "a"}, {Key: "b"}}
	to, err := decode.OpenAnswers(path, tasks, settings("s"))
	if err != nil {
		t.Fatal(err)
	}
	check("an empty file", 0, false)
	if err := to.Add(decode.Answer{Index: 1, Prompt: "b", Seed: decode.Seed(12345, 1)}); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	check("the second answer alone", 12345, true)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.TrimSuffix(string(whole), "\n"))
	check("a torn line", 0, false)
	write(t, path, "a note\n")
	check("another file", 0, false)
}
