package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/cmd/talf/command"
	"talf/internal/cli"
	"talf/internal/e2e/talftest"
)

func TestMain(m *testing.M) {
	talftest.Main(m, func([]string, io.Reader, io.Writer, io.Writer) int { return command.Main() })
}

// A run that ends in order leaves no report, names those of earlier runs, and keeps its exit code.
func TestTheProgramKeepsReportsOfCrashesAlone(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(cli.CrashDirVariable, dir)
	if err := os.WriteFile(filepath.Join(dir, "talf-1.running"), []byte("version: v\n\nfatal error: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := talftest.Run(t, "", "frobnicate")
	if r.Code != cli.ExitUsage || !strings.Contains(r.Err, "an earlier run crashed: its report is "+filepath.Join(dir, "talf-1.crash.txt")) {
		t.Errorf("exit %d, stderr:\n%s", r.Code, r.Err)
	}
	if out := talftest.OK(t, "", "version"); !strings.HasPrefix(out, "talf ") {
		t.Errorf("version: %q", out)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != "talf-1.crash.txt" {
		t.Errorf("left behind: %v, %v, want the old report alone", left, err)
	}
}
