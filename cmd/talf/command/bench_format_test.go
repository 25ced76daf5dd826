package command

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"talf/infer/bench"
	"talf/infer/bench/rig"
	"talf/internal/e2e/talftest"
)

// With a format every method runs free and held to it, each compared with plain decoding of its
// kind; and a log tells them, and formats, apart.
func TestBenchHoldsAnswersToAFormat(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	tmp := t.TempDir()
	log := filepath.Join(tmp, "bench.log")
	run := func(format ...string) (r rig.Report) {
		t.Helper()
		args := []string{
			"bench", "--model", dir, "--prompts", talftest.PromptFile(t, 3), "--method", "pld", "--method", "recycle:table=keep,N=6",
			"--max-tokens", "12", "--prompt-tokens", "5", "--temperature", "0,1", "--log", log, "--json",
		}
		if err := json.Unmarshal([]byte(talftest.OK(t, "", append(args, format...)...)), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	size := func() int64 {
		info, err := os.Stat(log)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	first := run("--regex", "(first|second) answer, [a-c]{4}")
	var names []string
	for _, row := range first.Rows {
		if row.Temperature == 0 {
			names = append(names, row.Method)
		}
		if row.Equal != row.Outputs || row.Outputs != 2 {
			t.Errorf("%s at %v: %d of %d outputs equal plain decoding's, want 2", row.Method, row.Temperature, row.Equal, row.Outputs)
		}
		if strings.Contains(row.Method, "pld, in the format") {
			forced := row.Paths.Drafted[slices.Index(row.Paths.Origins, "grammar")]
			if want := !strings.HasSuffix(row.Method, ", unforced"); (forced > 0) != want {
				t.Errorf("%s at %v: %d nodes because nothing else can come, want some: %v", row.Method, row.Temperature, forced, want)
			}
		}
	}
	const learnt = "recycle:table=keep,N=6"
	want := []string{"ar", "ar, in the format"}
	for _, m := range []string{"pld", learnt, learnt + ", cold"} {
		base, cold := m, ""
		if b, ok := strings.CutSuffix(m, ", cold"); ok {
			base, cold = b, ", cold"
		}
		want = append(want, m, base+", in the format"+cold, base+", in the format, unforced"+cold)
	}
	if slices.Sort(names); !slices.Equal(names, slices.Sorted(slices.Values(want))) {
		t.Errorf("rows %q, want %q", names, want)
	}
	before := size()
	if run("--regex", "(first|second) answer, [a-c]{4}"); size() != before {
		t.Error("the log grew where nothing changed")
	}
	if run("--regex", "(first|second) answer, [a-c]{5}"); size() == before {
		t.Error("another format was not measured")
	}
	f, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	got, _, err := bench.ReadLog(f)
	if err != nil {
		t.Fatal(err)
	}
	r, err := bench.Recount(got[:len(first.Rows)*2]) // of the first run, two prompts
	if err != nil || len(r.Rows) != len(first.Rows) {
		t.Errorf("%d rows of the log, want %d: %v", len(r.Rows), len(first.Rows), err)
	}
	// What is wrong with a method is said once.
	wrong := talftest.Run(t, "", "bench", "--model", dir, "--prompts", talftest.PromptFile(t, 2), "--method", "rest:none.idx", "--regex", "a")
	if wrong.Code == ExitOK || strings.Count(wrong.Err, "bench: rest:none.idx") != 1 {
		t.Errorf("exit %d:\n%s", wrong.Code, wrong.Err)
	}
	// Before anything is loaded.
	talftest.Run(t, "", "bench", "--model", "none", "--prompts", "none", "--regex", "(").Refuses(t, ExitUsage, "regular expression")
	talftest.Run(t, "", "bench", "--model", "none", "--prompts", "none", "--regex", "a", "--json-object").Refuses(t, ExitFailure, "--regex")
}
