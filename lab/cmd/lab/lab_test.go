package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/cmd/talf/command"
	"talf/infer/bench/rig"
	"talf/internal/durable"
	"talf/internal/e2e/talftest"
	"talf/lab/replay"
)

func TestMain(m *testing.M) { talftest.Main(m, program.Run) }

func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	for _, c := range program.Tree().Commands() {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			continue
		}
		if c.Short == "" || !strings.Contains(c.Example, "lab "+c.Name()) {
			t.Errorf("%s: help has no example", c.Name())
		}
	}
}

func TestTablesOfPublicationsAreRun(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	h := talftest.TinyHead(t, dir, 2)
	small := talftest.TinyModel(t, talftest.TinyConfig(), 3)
	out := talftest.OK(t, "", "bench", "--paper", "list")
	for _, want := range []string{"salf:t1", "goose:e4", "dynatree:fig9", "traversal:t4"} {
		if !strings.Contains(out, want) {
			t.Errorf("the list lacks %q:\n%s", want, out)
		}
	}
	prompts := talftest.PromptFile(t, 2)
	out = talftest.OK(t, "", "bench", "--model", dir, "--head", "talf="+h, "--draft", "small="+small, "--prompts", "x="+prompts,
		"--paper", "salf:t2", "--paper", "traversal:t2", "--max-tokens", "4", "--prompt-tokens", "4", "--markdown")
	for _, want := range []string{
		"salf:t2, tree construction by head; temperature 0", "| SALF (talf) |", "temperature 1; ±", "| Chain Tok.V | Chain Tra.V | Δ |", "| Avg. Token/s |",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "beam talf") {
		t.Errorf("the table of methods is printed with the papers':\n%s", out)
	}
	talftest.Run(t, "", "bench", "--model", dir, "--prompts", prompts, "--paper", "goose:t9").Refuses(t, command.ExitUsage, "goose:t9", "goose:t1")
	talftest.Run(t, "", "bench", "--model", dir, "--prompts", prompts, "--head", "x="+h, "--draft", "x="+small).Refuses(t, command.ExitUsage, "called \"x\" too")
}

func TestAReplayIsWhatWasRecorded(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	h := talftest.TinyHead(t, dir, 2)
	tmp := t.TempDir()
	rec, live, file := filepath.Join(tmp, "a.rec"), filepath.Join(tmp, "live.json"), filepath.Join(tmp, "replayed.json")
	args := func(more ...string) []string {
		return append([]string{
			"--model", dir, "--head", "tiny=" + h, "--draft", "small=" + talftest.TinyModel(t, talftest.TinyConfig(), 3),
			"--prompts", "a=" + talftest.PromptFile(t, 3), "--prompt-tokens", "5", "--max-tokens", "10",
		}, more...)
	}
	out := talftest.OK(t, "", append([]string{"record"}, args("--out", rec, "--temperature", "0,1")...)...)
	if !strings.Contains(out, "6 answers") || !strings.Contains(out, "small") || !strings.Contains(out, " 1: ") {
		t.Errorf("the output lacks the answers, a draft model or its costs:\n%s", out)
	}
	methods := []string{"--method", "salf:paper,N=8", "--method", "beam:N=6,k=2,depth=2", "--temperature", "0,1"}
	talftest.OK(t, "", append([]string{"bench"}, args(append(methods, "--out", live)...)...)...)
	out = talftest.OK(t, "", append(append([]string{"replay", rec}, methods...), "--out", file)...)
	if !strings.Contains(out, "missed") || !strings.Contains(out, "replayed") {
		t.Errorf("the output does not say that it is a replay:\n%s", out)
	}
	read := func(path string) (r rig.Report) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	a, b := read(live), read(file)
	if len(a.Rows) != len(b.Rows) || len(a.Rows) != 2*5 {
		t.Fatalf("%d rows decoded, %d replayed", len(a.Rows), len(b.Rows))
	}
	for i := range a.Rows {
		if x, y := a.Rows[i], b.Rows[i]; x.Method != y.Method || x.Tokens != y.Tokens || x.Passes != y.Passes || x.Drafted != y.Drafted {
			t.Errorf("%s: %d tokens, %d passes, %d drafted; replayed %d, %d, %d", x.Method, x.Tokens, x.Passes, x.Drafted, y.Tokens, y.Passes, y.Drafted)
		}
	}
	out = talftest.OK(t, "", "replay", rec, "--paper", "salf:t4", "--temperature", "0")
	if !strings.Contains(out, "thresholds of SALF") {
		t.Errorf("no table of thresholds:\n%s", out)
	}
	passes := talftest.Write(t, filepath.Join(tmp, "passes.json"), `{"passes":[{"model":"f32","rows":1,"context":64,"median_ms":1000},{"model":"f32","rows":8,"context":64,"median_ms":2000}]}`)
	out = talftest.OK(t, "", "replay", rec, "--method", "ar", "--temperature", "0", "--cost", passes)
	if !strings.Contains(out, "1.0 ± 0.0") {
		t.Errorf("plain decoding does not take a second a token:\n%s", out)
	}
	talftest.Run(t, "", "replay", passes).Refuses(t, command.ExitFailure, passes, "not a recording")
	talftest.Run(t, "", "replay", rec, "--cost", live).Refuses(t, command.ExitFailure, live, "no passes")
	talftest.Run(t, "", "replay", rec, "--cost", tmp+"/none").Refuses(t, command.ExitFailure, "no such file")
	talftest.Run(t, "", "replay", rec, "--max-tokens", "11").Refuses(t, command.ExitFailure, "answers of 11 tokens")
	talftest.Run(t, "", "replay", rec, "--paper", "traversal:t2", "--temperature", "0").Refuses(t, command.ExitFailure, "can be replayed")
	talftest.Run(t, "", append([]string{"record"}, args()...)...).Refuses(t, command.ExitUsage, "--out")
	talftest.Run(t, "", append([]string{"record"}, args("--out", rec, "--nodes", "0")...)...).Refuses(t, command.ExitUsage, "0 nodes")
}

// A table that cannot be filled from what is given is refused before anything is decoded.
func TestTablesWithoutMethodsAreRefused(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	talftest.Run(t, "", "bench", "--model", dir, "--prompts", talftest.PromptFile(t, 3), "--paper", "salf:t2").Refuses(t, command.ExitUsage, "salf:t2", "--head CKPT")
}

// A recording appears whole and is written by one; what is none is named in a short line.
func TestRecordingsAreWrittenByOne(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	out := filepath.Join(t.TempDir(), "a.rec")
	file, err := durable.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"record", "--model", dir, "--prompts", talftest.PromptFile(t, 2), "--max-tokens", "2", "--out", out}
	talftest.Run(t, "", args...).Refuses(t, command.ExitFailure, out, "another run is writing")
	if err := file.Discard(); err != nil {
		t.Fatal(err)
	}
	talftest.OK(t, "", args...)
	long := talftest.Write(t, filepath.Join(t.TempDir(), "long.jsonl"), strings.Repeat("word ", 100_000)+"\n")
	r := talftest.Run(t, "", "replay", long)
	if r.Refuses(t, command.ExitFailure, long); len(r.Err) > 1000 {
		t.Errorf("%d bytes of errors", len(r.Err))
	}
}

// Recordings of releases are read, and say what they are of.
func TestRecordingsOfReleasesAreRead(t *testing.T) {
	for _, schema := range []string{"1", "2"} {
		file := filepath.Join("testdata", schema+".rec")
		talftest.OK(t, "", "replay", file, "--method", "salf:N=4")
		rec, err := replay.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		says := strings.Contains(string(rec.Settings), rec.Model) && strings.Count(string(rec.Settings), `"id":"talf-fn-1:`) == 2
		if says != (schema == "2") {
			t.Errorf("%s: the recording is of %s: %s", file, rec.Model, rec.Settings)
		}
	}
}

// Commands of lab that the documentation and the help tell a reader to type are accepted as written:
// only files may be missing.
func TestEveryPrintedCommandIsAccepted(t *testing.T) {
	var texts []string
	for _, pattern := range []string{"../../../docs/*.md", "../../../docs/measurements/*.md", "../../README.md", "../../gsm10m/README.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(b))
		}
	}
	for _, c := range program.Tree().Commands() {
		texts = append(texts, c.Example)
	}
	t.Chdir(t.TempDir())
	n := 0
	for _, text := range texts {
		for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
			line, found := strings.CutPrefix(strings.TrimSpace(line), "lab ")
			if !found {
				continue
			}
			args := talftest.Words(line)
			switch args[0] {
			case "unpack", "target", "decode", "kernels": // they write what others test, or take long
				args = append(args, "--help")
			}
			n++
			var errb bytes.Buffer
			code := program.Run(args, strings.NewReader(""), io.Discard, &errb)
			if code == command.ExitUsage || strings.Contains(errb.String(), "bug") {
				t.Errorf("lab %s: exit %d\n%s", line, code, errb.String())
			}
		}
	}
	if n < 15 {
		t.Errorf("found %d commands, want all that are printed", n)
	}
}
