package checkpoints_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/checkpoints"
	"talf/model/safetensors"
)

// The best checkpoint outlives newer ones, is found by name, and gives way to a better
// one.
func TestTheBestIsKeptAndFound(t *testing.T) {
	dir := t.TempDir()
	s, err := checkpoints.NewStore(dir, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	save := func(step int) {
		t.Helper()
		c := &checkpoints.Checkpoint{Config: []byte("{}"), Weights: []safetensors.Tensor{safetensors.F32("x", []float32{1}, 1)}}
		c.Kind, c.Step, c.Hidden, c.Vocab = checkpoints.KindHead, step, 1, 1
		if _, err := s.Save(c); err != nil {
			t.Fatal(err)
		}
	}
	kept := func(want ...string) {
		t.Helper()
		all, err := s.Steps()
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, d := range all {
			names = append(names, strings.TrimLeft(strings.TrimPrefix(filepath.Base(d), "step-"), "0"))
		}
		if strings.Join(names, " ") != strings.Join(want, " ") {
			t.Errorf("kept %v, want %v", names, want)
		}
	}
	name := filepath.Join(dir, "best")
	if _, err := checkpoints.Find(name); err == nil {
		t.Error("found a best checkpoint before one was set")
	}
	if err := s.SetBest(1); err == nil || !strings.Contains(err.Error(), "step-00000001") {
		t.Errorf("the best of nothing: %v", err)
	}
	save(1)
	if err := s.SetBest(1); err != nil {
		t.Fatal(err)
	}
	for step := 2; step <= 5; step++ {
		save(step)
	}
	kept("1", "4", "5")
	if got, err := checkpoints.Find(name); err != nil || got != s.Path(1) {
		t.Errorf("%s, %v", got, err)
	}
	if err := s.SetBest(5); err != nil { // one of the newest: the old best is removed
		t.Fatal(err)
	}
	kept("4", "5")
	save(6)
	kept("5", "6")
	save(7)
	save(8)
	kept("5", "7", "8")

	if err := os.WriteFile(filepath.Join(dir, checkpoints.BestFile), []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoints.Find(name); err == nil || !strings.Contains(err.Error(), checkpoints.BestFile) {
		t.Errorf("a broken %s: %v", checkpoints.BestFile, err)
	}
	if err := s.SetBest(8); err != nil { // writes it again
		t.Error(err)
	}
	kept("7", "8")
}

// A tokenizer is looked for at the path that the user gives, before any checkpoint
// there.
func TestFindTokenizer(t *testing.T) {
	dir := t.TempDir()
	s, err := checkpoints.NewStore(dir, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := func(path, want string) {
		t.Helper()
		if got, err := checkpoints.FindTokenizer(path); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", path, got, err, want)
		}
	}
	want("", "")
	want(dir, dir) // loading reports what is missing
	c := &checkpoints.Checkpoint{Config: []byte("{}"), Weights: []safetensors.Tensor{safetensors.F32("x", []float32{1}, 1)}}
	c.Kind, c.Step, c.Hidden, c.Vocab = checkpoints.KindHead, 3, 1, 1
	if _, err := s.Save(c); err != nil {
		t.Fatal(err)
	}
	want(dir, s.Path(3))
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.model"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	want(dir, dir)
	if _, err := checkpoints.FindTokenizer(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing directory: %v", err)
	}
}
