package gguf

import (
	"fmt"
	"io/fs"
	"path/filepath"

	"talf/internal/limits"
	"talf/internal/mapped"
)

// ReadFile reads the file name of the model in dir, of at most most bytes, like limits.ReadFile. If
// dir is a GGUF file it returns what the directory would hold that the model was converted from:
// config.json, tokenizer_config.json, and tokenizer.json or tokenizer.model. The error wraps
// fs.ErrNotExist for every other name.
func ReadFile(dir, name string, most int64) ([]byte, error) {
	if !Is(dir) {
		return limits.ReadFile(filepath.Join(dir, name), most)
	}
	return translate(dir, name, most)
}

// Has reports whether the model in dir has a file with one of the names, as ReadFile finds it.
func Has(dir string, names ...string) bool {
	for _, name := range names {
		if _, err := ReadFile(dir, name, limits.TokenizerBytes); err == nil {
			return true
		}
	}
	return false
}

// Path names the file name of the model in dir, for errors.
func Path(dir, name string) string {
	if Is(dir) {
		return dir
	}
	return filepath.Join(dir, name)
}

func translate(path, name string, most int64) (b []byte, err error) {
	defer mapped.Guard(&err)()
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	make, err := f.file(name)
	if err != nil {
		return nil, err
	}
	if b, err = make(); err != nil {
		return nil, err
	}
	if int64(len(b)) > most {
		return nil, fmt.Errorf("%s: its %s would take %d bytes, want at most %d: %w", path, name, len(b), most, limits.ErrTooLarge)
	}
	return b, nil
}

// file returns what makes a file of the directory.
func (f *File) file(name string) (func() ([]byte, error), error) {
	missing := &fs.PathError{Op: "read", Path: filepath.Join(f.Path, name), Err: fs.ErrNotExist}
	k := f.reader()
	kind := k.string("tokenizer.ggml.model")
	if k.err != nil {
		return nil, k.err
	}
	switch name {
	case "config.json":
		return f.configJSON, nil
	case "tokenizer_config.json":
		return f.tokenizerConfig, nil
	case "tokenizer.json", "tokenizer.model":
		switch {
		case kind == spm && name == "tokenizer.model":
			return f.tokenizerModel, nil
		case kind == byteLevel && name == "tokenizer.json":
			return f.tokenizerJSON, nil
		case kind == spm || kind == byteLevel:
			return nil, missing
		case kind == "":
			return nil, fmt.Errorf("%s: no tokenizer: key \"tokenizer.ggml.model\" is not set", f.Path)
		}
		return nil, fmt.Errorf("%s: key \"tokenizer.ggml.model\" is %.40q, want %q or %q", f.Path, kind, spm, byteLevel)
	}
	return nil, missing
}
