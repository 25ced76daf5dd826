// Package gsm10m has the models that measurements are made with: gsm10m, a Llama of 9.9 million
// parameters that solves school problems badly and tells stories, and a small language model that
// drafts for it. README.md beside this file says what they were trained on. They are no part of
// the program talf: only the laboratory uses them.
package gsm10m

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"talf/internal/durable"
)

//go:embed model lm
var files embed.FS

// weights is the name of the file that is stored packed; zipped the suffix of those that gzip
// holds as they are.
const (
	weights = "model.safetensors"
	zipped  = ".gz"
	planes  = ".planes.gz"
)

// Unpack writes the target to the folder dir, which it creates: a Hugging Face model directory, to
// the byte the one that was trained.
func Unpack(dir string) error { return write(dir, "model") }

// UnpackDraft writes the small language model that drafts for the target, with the target's
// tokenizer.
func UnpackDraft(dir string) error {
	return write(dir, "lm", "model/tokenizer.json.gz", "model/tokenizer_config.json", "model/generation_config.json")
}

// Pack writes the weights of the model directory dir to the folder into, as they are stored here.
// They should be bfloat16: other values are restored as well, but hardly shrink.
func Pack(dir, into string) error {
	path := filepath.Join(dir, weights)
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("pack weights: %w", err)
	}
	packed, err := pack(b)
	if err != nil {
		return fmt.Errorf("pack weights: %s: %w", path, err)
	}
	if err := durable.WriteFile(filepath.Join(into, weights+planes), packed); err != nil {
		return fmt.Errorf("pack weights: %w", err)
	}
	return nil
}

// write writes what a stored folder holds, and more stored files, to dir.
func write(dir, folder string, more ...string) error {
	if err := durable.MakeDirs(dir); err != nil {
		return fmt.Errorf("unpack gsm10m: %w", err)
	}
	entries, err := fs.ReadDir(files, folder)
	if err != nil {
		return fmt.Errorf("unpack gsm10m: %w", err)
	}
	for _, e := range entries {
		more = append(more, path.Join(folder, e.Name()))
	}
	for _, stored := range more {
		name, b, err := file(stored)
		if err != nil {
			return fmt.Errorf("unpack gsm10m: %s: %w", stored, err)
		}
		if err := durable.WriteFile(filepath.Join(dir, name), b); err != nil {
			return fmt.Errorf("unpack gsm10m: %w", err)
		}
	}
	return nil
}

// file returns a stored file as it was before it was packed, and its name.
func file(stored string) (string, []byte, error) {
	b, err := files.ReadFile(stored)
	if err != nil {
		return "", nil, err
	}
	name := path.Base(stored)
	switch {
	case strings.HasSuffix(name, planes):
		b, err = unpack(b)
		return strings.TrimSuffix(name, planes), b, err
	case strings.HasSuffix(name, zipped):
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return "", nil, err
		}
		b, err = io.ReadAll(z)
		return strings.TrimSuffix(name, zipped), b, err
	}
	return name, b, nil
}
