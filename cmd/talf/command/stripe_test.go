package command

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"talf/data"
	"talf/internal/e2e/talftest"
)

func TestTheEnvironmentNumbersRuns(t *testing.T) {
	for name, c := range map[string]struct {
		args, env string
		want      data.Stripe
		from      string
		err       string
	}{
		"alone":                    {"", "", data.Whole(), "", ""},
		"flags":                    {"--shard-index 2 --shard-count 4", "JOB_COMPLETION_INDEX=1", data.Stripe{Index: 2, Count: 4}, "flags", ""},
		"one":                      {"--shard-count 1", "SLURM_ARRAY_TASK_ID=3 SLURM_ARRAY_TASK_COUNT=8", data.Whole(), "flags", ""},
		"an index alone":           {"--shard-index 2", "", data.Whole(), "", "--shard-count"},
		"a count alone":            {"--shard-count 2", "", data.Whole(), "", "--shard-index"},
		"out of range":             {"--shard-index 4 --shard-count 4", "", data.Whole(), "", "index 4 of 4"},
		"Slurm":                    {"", "SLURM_ARRAY_TASK_ID=3 SLURM_ARRAY_TASK_COUNT=8 SLURM_ARRAY_TASK_MIN=0", data.Stripe{Index: 3, Count: 8}, "Slurm", ""},
		"Slurm from 1":             {"", "SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_COUNT=8 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_STEP=1", data.Stripe{Index: 0, Count: 8}, "Slurm", ""},
		"Slurm in steps":           {"", "SLURM_ARRAY_TASK_ID=14 SLURM_ARRAY_TASK_COUNT=4 SLURM_ARRAY_TASK_MIN=2 SLURM_ARRAY_TASK_STEP=4", data.Stripe{Index: 3, Count: 4}, "Slurm", ""},
		"Slurm with gaps":          {"", "SLURM_ARRAY_TASK_ID=9 SLURM_ARRAY_TASK_COUNT=2 SLURM_ARRAY_TASK_MIN=0", data.Whole(), "", "9 of 2"},
		"Slurm says nothing whole": {"", "SLURM_ARRAY_TASK_ID=x SLURM_ARRAY_TASK_COUNT=2", data.Whole(), "", "SLURM_ARRAY_TASK_ID"},
		"Kubernetes":               {"--shard-count 4", "JOB_COMPLETION_INDEX=3", data.Stripe{Index: 3, Count: 4}, "Kubernetes", ""},
		"Kubernetes without count": {"", "JOB_COMPLETION_INDEX=3", data.Whole(), "", "--shard-count"},
		"Open MPI":                 {"", "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", data.Stripe{Index: 1, Count: 2}, "Open MPI", ""},
		"one rank in an array":     {"", "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_COUNT=2", data.Stripe{Index: 1, Count: 2}, "Slurm", ""},
		"ranks in an array":        {"", "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_COUNT=2", data.Whole(), "", "both"},
		"counts that differ":       {"--shard-count 3", "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2", data.Whole(), "", "Open MPI runs 2"},
	} {
		t.Run(name, func(t *testing.T) {
			env := map[string]string{}
			for _, e := range strings.Fields(c.env) {
				k, v, _ := strings.Cut(e, "=")
				env[k] = v
			}
			var s stripeFlags
			f := pflag.NewFlagSet("x", pflag.ContinueOnError)
			s.add(f)
			if err := f.Parse(strings.Fields(c.args)); err != nil {
				t.Fatal(err)
			}
			got, from, err := s.get(func(k string) (string, bool) { v, ok := env[k]; return v, ok })
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("%v, %v; want %q", got, err, c.err)
				}
				return
			}
			if err != nil || got != c.want || from != c.from {
				t.Errorf("%v from %q, %v; want %v from %q", got, from, err, c.want, c.from)
			}
		})
	}
}

// Two processes that write to the same directory at the same time, and two that write to two
// directories, produce the set of a single one.
func TestTwoProcessesMakeTheSetOfOne(t *testing.T) {
	if testing.Short() {
		t.Skip("runs whole pipelines")
	}
	model := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	text := talftest.TextFile(t, 9)
	args := func(out string, more ...string) []string {
		return append([]string{"preprocess", "--model", model, "--data", text, "--out", out, "--shard", "2", "--max-len", "24", "--threads", "1"}, more...)
	}
	files := func(dir string) map[string]string {
		out := map[string]string{}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			b, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			out[e.Name()] = string(b)
		}
		return out
	}
	base := t.TempDir()
	one := filepath.Join(base, "one")
	talftest.OK(t, "", args(one)...)

	both := filepath.Join(base, "both")
	first := talftest.Command(t, args(both)...)
	first.Env = append(first.Env, "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	second := talftest.Finish(t, talftest.Command(t, args(both, "--shard-index", "0", "--shard-count", "2")...))
	if err := first.Wait(); err != nil || second.Code != ExitOK {
		t.Fatalf("%v, %s", err, second.Err)
	}
	if d := cmp.Diff(files(one), files(both)); d != "" {
		t.Error("two processes made another set")
	}

	apart := filepath.Join(base, "0")
	if said := talftest.OK(t, "", args(apart, "--shard-index", "0", "--shard-count", "2")...); !strings.Contains(said, "index 0 of 2") {
		t.Errorf("index 0 says %q", said)
	}
	talftest.Run(t, "", "inspect", apart).Refuses(t, ExitFailure, "2 indices make this set, of which 1")
	talftest.Run(t, "", "preprocess", "merge", apart).Refuses(t, ExitFailure, "of which 1")
	talftest.OK(t, "", args(filepath.Join(base, "1"), "--shard-index", "1", "--shard-count", "2")...)
	for name, text := range files(filepath.Join(base, "1")) {
		talftest.Write(t, filepath.Join(apart, name), text)
	}
	talftest.OK(t, "", "preprocess", "merge", apart)
	if d := cmp.Diff(files(one), files(apart)); d != "" {
		t.Error("two directories merged are another set")
	}
	talftest.Run(t, "", "preprocess", "merge", filepath.Join(base, "none")).Refuses(t, ExitFailure, "none")
	talftest.Run(t, "", "preprocess", "merge", text).Refuses(t, ExitFailure, "is a file")
}
