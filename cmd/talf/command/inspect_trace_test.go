package command

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/internal/e2e/talftest"
)

// Every verifier decodes what its drafter draws, with the same text for the same seed.
func TestVerifiersThroughTheCommandLine(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	ckpt := talftest.TinyHead(t, dir, 1)
	args := []string{"generate", "--model", dir, "--head", ckpt, "--prompt", "Once upon a time", "--max-tokens", "24", "--ignore-eos", "--temperature", "0.9", "--seed", "3"}
	plain := talftest.OK(t, "", append(args, "--method", "ar")...)
	for _, c := range []struct {
		method, verify string
		same           bool // as plain decoding
	}{
		{"static:binary-3,draw=distinct", "target", true},
		{"static:binary-3,draw=distinct", "rrsw", false},
		{"static:binary-3,draw=distinct", "traversal", false},
		{"static:draw=repeated", "rrs", false},
		{"linear:draw=distinct", "block", false},
		{"linear:draw=repeated", "traversal", false},
	} {
		run := append(args, "--method", c.method, "--verify", c.verify)
		got := talftest.OK(t, "", run...)
		if again := talftest.OK(t, "", append(run, "--threads", "1")...); again != got {
			t.Errorf("%s, %s: two texts of one seed:\n%q\n%q", c.method, c.verify, got, again)
		}
		if c.same && got != plain {
			t.Errorf("%s, %s: %q, plain decoding %q", c.method, c.verify, got, plain)
		}
		if len(got) < 12 {
			t.Errorf("%s, %s: %q", c.method, c.verify, got)
		}
	}
}

// A pair that is not lossless is refused before anything is loaded.
func TestUnfitVerifiersAreWrongUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--verify", "best"}, "unknown verifier"},
		{[]string{"--verify", "traversal"}, "at temperature 0"},
		{[]string{"--verify", "greedy", "--temperature", "1"}, "at temperature 1"},
		{[]string{"--verify", "traversal", "--temperature", "1"}, "the default method, auto: traversal is not lossless with children chosen without randomness: use target"},
		{[]string{"--verify", "traversal", "--temperature", "1", "--method", "static:draw=repeated", "--head", "x"}, "method static:draw=repeated: traversal is not lossless with children drawn with replacement: use target or rrs"},
		{[]string{"--verify", "block", "--temperature", "1", "--method", "static:draw=distinct", "--head", "x"}, "block is for chains"},
		{[]string{"--trace", "t", "--prompts", "p", "--out", "o"}, "--trace"},
	} {
		talftest.Run(t, "", append([]string{"generate", "--model", "none"}, c.args...)...).Refuses(t, ExitUsage, c.want)
	}
	// A shape's file is not the command line's fault.
	talftest.Run(t, "", "generate", "--model", "none", "--head", "x", "--prompt", "x", "--method", "static:file=none.json").Refuses(t, ExitFailure, "none.json")
}

// inspect draws what generate records.
func TestTracesAreRecordedAndDrawn(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	ckpt := talftest.TinyHead(t, dir, 1)
	tmp := t.TempDir()
	file, svg := filepath.Join(tmp, "trace.jsonl"), filepath.Join(tmp, "trace.svg")
	args := []string{"generate", "--model", dir, "--head", ckpt, "--prompt", "Once upon a time", "--max-tokens", "16", "--ignore-eos"}
	for _, more := range [][]string{
		{"--method", "salf:paper"},
		{"--method", "static:draw=distinct", "--verify", "traversal", "--temperature", "1", "--seed", "0"},
	} {
		run := append(args[:len(args):len(args)], more...)
		want := talftest.OK(t, "", run...)
		if got := talftest.OK(t, "", append(run, "--trace", file)...); got != want {
			t.Errorf("%v: traced %q, otherwise %q", more, got, want)
		}
		out := talftest.OK(t, "", "inspect", "trace", file)
		verifier := "greedy"
		if slices.Contains(more, "traversal") {
			verifier = "traversal"
		}
		for _, part := range []string{"round 1 at ", "● ", "○ ", "→ ", "q 0.", "p 0.", "16 tokens in ", "verified by " + verifier} {
			if !strings.Contains(out, part) {
				t.Errorf("%v: no %q in\n%s", more, part, out)
			}
		}
		if out := talftest.OK(t, "", "inspect", "trace", file, "--from", "2", "--n", "1"); !strings.HasPrefix(out, "round 2 at") || strings.Contains(out, "round 3 at") || !strings.Contains(out, "1 shown") {
			t.Errorf("the second round alone:\n%s", out)
		}
		out = talftest.OK(t, "", "inspect", "trace", file, "--svg", svg)
		b, err := os.ReadFile(svg)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), "<svg") || !strings.Contains(string(b), "node own") || strings.Contains(out, "●") {
			t.Errorf("%v: printed\n%s\ndrew\n%.300s", more, out, b)
		}
	}
	talftest.Run(t, "", "inspect", "trace", svg).Refuses(t, ExitFailure, "trace.svg", "no trace header")
	talftest.Run(t, "", "inspect", "trace", filepath.Join(tmp, "none")).Refuses(t, ExitFailure, "none")
	talftest.Run(t, "", "inspect", "trace", file, "--from", "0").Refuses(t, ExitUsage, "--from")
	past := filepath.Join(tmp, "past.svg")
	talftest.Run(t, "", "inspect", "trace", file, "--from", "1000", "--svg", past).Refuses(t, ExitFailure, "trace.jsonl", "rounds, --from is 1000")
	if _, err := os.Stat(past); err == nil {
		t.Error("a picture of no rounds was drawn")
	}
	talftest.Run(t, "", "inspect", "trace").Refuses(t, ExitUsage, "FILE")
	// Before a model is loaded, which may take minutes.
	talftest.Run(t, "", "generate", "--model", "none", "--prompt", "x", "--trace", filepath.Join(tmp, "no", "dir")).Refuses(t, ExitFailure, filepath.Join("no", "dir"))
}
