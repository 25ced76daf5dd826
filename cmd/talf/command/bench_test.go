package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/infer/bench/rig"
	"talf/internal/e2e/talftest"
)

func TestBenchComparesHeadsAndMethods(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	h := talftest.TinyHead(t, dir, 2)
	prompts := talftest.PromptFile(t, 3)
	file := filepath.Join(t.TempDir(), "bench.json")
	one := filepath.Base(h) // a head without a name
	out := talftest.OK(t, "", "bench", "--model", dir, "--head", h, "--head", "two="+h, "--prompts", prompts,
		"--method", "salf:paper,N=8", "--method", "beam:N=6,k=2,depth=2", "--max-tokens", "6", "--prompt-tokens", "5",
		"--temperature", "0,1", "--ranks", "2", "--out", file)
	for _, want := range []string{"end to end", "salf:paper,N=8 " + one, "beam:N=6,k=2,depth=2 two", one + ", given its own n-th ranked token:  n=1 accuracy"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r rig.Report
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 2*5 || len(r.ByRank) != 2*2 || r.Prompts != 2 {
		t.Errorf("%d rows, %d lines by rank, %d prompts", len(r.Rows), len(r.ByRank), r.Prompts)
	}
	for _, row := range r.Rows {
		if row.Equal != row.Outputs || row.Tau.Mean < 1 {
			t.Errorf("%s: τ %v, %d of %d outputs equal plain decoding's", row.Method, row.Tau, row.Equal, row.Outputs)
		}
	}
}

func TestBenchGoesOnFromItsLogAndDraws(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	h := talftest.TinyHead(t, dir, 2)
	tmp := t.TempDir()
	log, plot, file := filepath.Join(tmp, "bench.log"), filepath.Join(tmp, "bench.svg"), filepath.Join(tmp, "bench.json")
	args := []string{
		"bench", "--model", dir, "--head", "tiny=" + h, "--prompts", "a=" + talftest.PromptFile(t, 3), "--prompts", "b=" + talftest.PromptFile(t, 2),
		"--method", "salf:paper,N=8", "--method", "beam:N=6,k=2,depth=2@target", "--budget", "0,4", "--max-tokens", "6", "--prompt-tokens", "5",
		"--temperature", "0,1", "--log", log, "--plot", plot, "--out", file, "--parts",
	}
	read := func() (r rig.Report) {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	out := talftest.OK(t, "", args...)
	for _, want := range []string{"All sets", "a: 2 prompts", "b: 1 prompts", "salf:paper,N=8 tiny, 4 nodes", "beam:N=6,k=2,depth=2 @target tiny", "By parts"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	first := read()
	// A tree method at both temperatures, and one with a verifier for sampling only at 1.
	if want := 3 * (2*(1+2) + 2); len(first.Rows) != want {
		t.Errorf("%d rows, want %d", len(first.Rows), want)
	}
	if b, err := os.ReadFile(plot); err != nil || !strings.Contains(string(b), "<svg") {
		t.Errorf("no picture: %v", err)
	}
	info, err := os.Stat(log)
	if err != nil {
		t.Fatal(err)
	}
	talftest.OK(t, "", args...)
	second := read()
	if after, err := os.Stat(log); err != nil || after.Size() != info.Size() {
		t.Errorf("the log grew: %v", err)
	}
	for i := range first.Rows {
		if a, b := first.Rows[i], second.Rows[i]; a.Speed != b.Speed || a.Tau != b.Tau || a.Parts == nil || *a.Parts != *b.Parts {
			t.Errorf("%s: measured again", a.Method)
		}
	}
	talftest.Run(t, "", append(args, "--warmup", "0")...).Refuses(t, ExitFailure, log, "other options", "another --log")
	talftest.Run(t, "", append(args, "--parts=false")...).Refuses(t, ExitFailure, log, "other options", "another --log")

	// A head that was trained again in its place is another head.
	if err := os.CopyFS(filepath.Join(tmp, "new"), os.DirFS(talftest.TinyHead(t, dir, 4))); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(tmp, "new", "model.safetensors"), filepath.Join(h, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	talftest.Run(t, "", args...).Refuses(t, ExitFailure, log, "other options", "another --log")
}

func TestBenchRefusesWhatItCannotRun(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	prompts := talftest.PromptFile(t, 2)
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "--prompts"},
		{[]string{"--prompts", prompts}, "asks a draft model"},
		{[]string{"--prompts", prompts, "--method", "ar", "--warmup", "2"}, "more prompts"},
		{[]string{"--prompts", prompts, "--head", "x="}, "NAME=CKPT"},
		{[]string{"--prompts", prompts, "--head", "a/x", "--head", "b/x"}, "two are called"},
		{[]string{"--prompts", prompts, "--ranks", "-1"}, "--ranks"},
		{[]string{"--prompts", prompts, "--method", "salve"}, "unknown method"},
	} {
		talftest.Run(t, "", append([]string{"bench", "--model", dir}, c.args...)...).Refuses(t, ExitUsage, c.want)
	}
	talftest.Run(t, "", "bench", "--model", dir, "--prompts", prompts, "--method", "ar", "--out", dir).Refuses(t, ExitFailure, dir, "is a directory")
}

// Texts longer than the model's positions are measured up to these: the ranks come last, and an
// error there would cost a whole run its report.
func TestRanksOfTextsLongerThanTheModel(t *testing.T) {
	c := talftest.TinyConfig()
	dir := talftest.TinyModel(t, c, 1)
	h := talftest.TinyHead(t, dir, 2)
	prompts := talftest.Write(t, filepath.Join(t.TempDir(), "long.txt"), strings.Repeat("one two three ", 300)+"\n")
	var r rig.Report
	out := talftest.OK(t, "", "bench", "--model", dir, "--head", h, "--prompts", prompts, "--method", "salf:paper,N=4", "--warmup", "0",
		"--prompt-tokens", "5", "--max-tokens", "4", "--ranks", "1", "--over", "texts", "--json")
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.ByRank) != 1 || r.ByRank[0].Items != c.MaxPos-2 {
		t.Errorf("%+v, want a line of %d items", r.ByRank, c.MaxPos-2)
	}
}

// A log identifies the files of a method by their contents.
func TestBenchMeasuresAgainWhatAFileHoldsNow(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	tmp := t.TempDir()
	log, shape := filepath.Join(tmp, "bench.log"), filepath.Join(tmp, "shape.json")
	head, prompts := talftest.TinyHead(t, dir, 2), talftest.PromptFile(t, 2)
	size := func(text, method string) int64 {
		talftest.Write(t, shape, text)
		talftest.OK(t, "", "bench", "--model", dir, "--head", head, "--prompts", prompts, "--method", method,
			"--max-tokens", "4", "--prompt-tokens", "5", "--log", log)
		info, err := os.Stat(log)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	for _, method := range []string{"static:file=" + shape} {
		first := size("[[0],[1]]", method)
		if again := size("[[0],[1]]", method); again != first {
			t.Errorf("%s: the log grew from %d to %d bytes where nothing changed", method, first, again)
		}
		if other := size("[[0],[0,0]]", method); other == first {
			t.Errorf("%s: another shape in the file was not measured", method)
		}
	}
}
