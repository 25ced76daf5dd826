package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBenchComparesHeadsAndMethods(t *testing.T) {
	dir := tinyModel(t, tinyConfig(), 1)
	h := tinyHead(t, dir, 2)
	prompts := promptFile(t, 3)
	file := filepath.Join(t.TempDir(), "bench.json")
	one := filepath.Base(h) // a head without a name
	out := ok(t, "", "bench", "--model", dir, "--head", h, "--head", "two="+h, "--prompts", prompts,
		"--method", "salf:N=8", "--method", "beam:N=6,k=2,depth=2", "--max-tokens", "6", "--prompt-tokens", "5",
		"--temperature", "0,1", "--ranks", "2", "--out", file)
	for _, want := range []string{"speed-up", "salf:N=8 " + one, "beam:N=6,k=2,depth=2 two", one + ", given its own n-th ranked token:  n=1 accuracy"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var r benchReport
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

func TestBenchRefusesWhatItCannotRun(t *testing.T) {
	dir := tinyModel(t, tinyConfig(), 1)
	prompts := promptFile(t, 2)
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "--prompts"},
		{[]string{"--prompts", prompts}, "needs a draft head"},
		{[]string{"--prompts", prompts, "--method", "ar", "--warmup", "2"}, "more prompts"},
		{[]string{"--prompts", prompts, "--head", "x="}, "NAME=CKPT"},
		{[]string{"--prompts", prompts, "--head", "a/x", "--head", "b/x"}, "two are called"},
		{[]string{"--prompts", prompts, "--ranks", "-1"}, "--ranks"},
		{[]string{"--prompts", prompts, "--method", "salve"}, "unknown method"},
	} {
		talf(t, "", append([]string{"bench", "--model", dir}, c.args...)...).refuses(t, exitUsage, c.want)
	}
	talf(t, "", "bench", "--model", dir, "--prompts", prompts, "--method", "ar", "--out", dir).refuses(t, exitFailure, dir, "is a directory")
}
