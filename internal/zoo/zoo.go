// Package zoo finds the real models that tests compare with other programs: language models that
// people run, published by others, which this repository does not distribute.
//
// models.json pins them. `go run -C tools ./zoo` gets them into the cache directory, $TALF_ZOO or
// talf-models in the user's; a test that needs one skips without it.
package zoo

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// The names of the models.
const (
	SmolLM2 = "smollm2" // SmolLM2-135M-Instruct, Q4_1
	Gemma3  = "gemma3"  // Gemma 3 270M, a base model without a chat template, Q4_K_M
	Qwen05  = "qwen05"  // Qwen2.5-Coder-0.5B-Instruct, Q4_K_M
	Qwen15  = "qwen15"  // Qwen2.5-Coder-1.5B-Instruct, Q4_K_M, with the tokenizer of Qwen05
)

// A Model is a GGUF file that is published in packages of PyPI, whole or in parts.
type Model struct {
	Name     string   `json:"name"`
	File     string   `json:"file"` // in the cache directory
	Licence  string   `json:"licence"`
	Small    bool     `json:"small"` // among those that CI gets
	Bytes    int64    `json:"bytes"`
	SHA256   string   `json:"sha256"`   // in hexadecimal
	Part     string   `json:"part"`     // matches the names of the file's parts in the wheels of Packages
	Packages []string `json:"packages"` // name==version, in the order of their parts
}

//go:embed models.json
var table []byte

// Models returns the models, the smallest first.
func Models() []Model {
	var m []Model
	if err := json.Unmarshal(table, &m); err != nil {
		panic("zoo: models.json: " + err.Error())
	}
	return m
}

// Dir returns the cache directory, which need not exist.
func Dir() (string, error) {
	if dir := os.Getenv("TALF_ZOO"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "talf-models"), err
}

// Path returns the path of a model's file. A test without it skips, and one that finds a file of
// another size fails. Sums are not checked here: the files have been checked when they appeared.
func Path(t testing.TB, name string) string {
	t.Helper()
	for _, m := range Models() {
		if m.Name != name {
			continue
		}
		path, err := m.find()
		switch {
		case os.IsNotExist(err):
			t.Skipf("a real model is absent (go run -C tools ./zoo gets it): %s: %v", name, err)
		case err != nil:
			t.Fatalf("zoo: %s: %v", name, err)
		}
		return path
	}
	t.Fatalf("zoo: no model %q", name)
	return ""
}

// find returns the path of the model's file if it has the right size.
func (m Model) find() (string, error) {
	dir, err := Dir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, m.File)
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Size() != m.Bytes {
		return "", fmt.Errorf("%s has %d bytes, want %d", path, info.Size(), m.Bytes)
	}
	return path, nil
}
