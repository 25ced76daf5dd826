//go:build unix

package preprocess_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"talf/compute/cpu"
	"talf/model"
	"talf/model/modeltest"
	"talf/preprocess"
)

// A pipe, such as <(command), is refused before anything waits for it.
func TestAPipeIsRefused(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "in.jsonl")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Skipf("no pipes here: %v", err)
	}
	m := target(t, modeltest.Random(t, modeltest.Default(), 5), cpu.Default(), model.Default())
	_, err := preprocess.Run(context.Background(), config(t, pipe), preprocess.Inputs{Target: m, Tokenizer: numbers{1}})
	if err == nil || !strings.Contains(err.Error(), pipe+" is a pipe") {
		t.Errorf("%v, want it to name the pipe", err)
	}
}
