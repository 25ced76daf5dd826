// Package gsm10m has the models that measurements are made with: gsm10m, a Llama of 9.9 million
// parameters that solves school problems badly and tells stories, and a small language model that
// drafts for it. README.md beside this file says what they were trained on. They are no part of
// the program talf: only the command mklarge and tests import this package.
package gsm10m

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"talf/internal/durable"
)

//go:embed model
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
func Unpack(dir string) error { return write("model", dir) }

func write(from, dir string) error {
	if err := durable.MakeDirs(dir); err != nil {
		return fmt.Errorf("unpack gsm10m: %w", err)
	}
	entries, err := fs.ReadDir(files, from)
	if err != nil {
		return fmt.Errorf("unpack gsm10m: %w", err)
	}
	for _, e := range entries {
		name, b, err := file(from + "/" + e.Name())
		if err != nil {
			return fmt.Errorf("unpack gsm10m: %s: %w", e.Name(), err)
		}
		if err := durable.WriteFile(filepath.Join(dir, name), b); err != nil {
			return fmt.Errorf("unpack gsm10m: %w", err)
		}
	}
	return nil
}

// file returns a stored file as it was before it was packed, and its name.
func file(path string) (string, []byte, error) {
	b, err := files.ReadFile(path)
	if err != nil {
		return "", nil, err
	}
	name := filepath.Base(path)
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
