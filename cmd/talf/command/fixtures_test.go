package command

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"talf/compute/cpu"
	"talf/internal/demo"
	"talf/model"
	"talf/model/head"
	"talf/model/modeltest"
)

// tinyConfig is a model that has the demo's vocabulary and little else: commands
// on it take milliseconds.
func tinyConfig() modeltest.Config {
	c := modeltest.Default()
	c.Vocab, c.MaxPos, c.EOS = demo.VocabSize, 256, 1
	return c
}

// tinyModel writes a random model directory with the demo's tokenizer.
func tinyModel(t testing.TB, c modeltest.Config, seed uint64) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		b, err := os.ReadFile(filepath.Join("..", "..", "..", "internal", "demo", "target", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := modeltest.Write(dir, c, seed); err != nil {
		t.Fatal(err)
	}
	return dir
}

// tinyHead writes an untrained head of the model in dir.
func tinyHead(t testing.TB, dir string, seed uint64) string {
	t.Helper()
	dev, err := cpu.New(cpu.Config{Class: cpu.Default().Class, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dev.Close() }()
	m, err := model.Load(dir, dev, model.Default())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	spec := m.Spec().DraftFor(false)
	out := t.TempDir()
	if err := head.Write(out, spec, map[string]string{head.MetaTarget: m.Hash()}, head.Random(spec, seed)...); err != nil {
		t.Fatal(err)
	}
	return out
}

// write writes a file of a test.
func write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// truncate cuts a file to n bytes.
func truncate(t testing.TB, path string, n int64) {
	t.Helper()
	if err := os.Truncate(path, n); err != nil {
		t.Fatal(err)
	}
}

// editJSON changes one field of a JSON file.
func editJSON(t testing.TB, path, field string, value any) {
	t.Helper()
	var v map[string]any
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	v[field] = value
	if err := writeJSON(path, v); err != nil {
		t.Fatal(err)
	}
}

// textFile writes n documents of the demo's text.
func textFile(t testing.TB, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "text.jsonl")
	if err := demo.WriteJSONL(path, demo.Corpus(9, n)); err != nil {
		t.Fatal(err)
	}
	return path
}

// promptFile writes n prompts of the demo.
func promptFile(t testing.TB, n int) string {
	t.Helper()
	text := ""
	for i, p := range demo.Prompts(9, n) {
		b, err := json.Marshal(map[string]any{"id": fmt.Sprint(i), "prompt": p})
		if err != nil {
			t.Fatal(err)
		}
		text += string(b) + "\n"
	}
	return write(t, filepath.Join(t.TempDir(), "prompts.jsonl"), text)
}
