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
	b, _, err := ReadAs(dir, name, "", most)
	return b, err
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

// ReadAs is ReadFile of a GGUF file whose byte-level tokenizer splits texts as pre says, a name as in
// tokenizer.ggml.pre, unless it is empty. It also returns what is odd about the file and was mended or guessed, each
// a sentence with the file's path.
func ReadAs(path, name, pre string, most int64) (b []byte, warnings []string, err error) {
	defer mapped.Guard(&err)()
	f, err := Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }() // read only
	k := f.reader()
	k.pre = pre
	translate, err := k.file(name)
	if err != nil {
		return nil, nil, err
	}
	if b, err = translate(); err != nil {
		return nil, nil, err
	}
	if int64(len(b)) > most {
		return nil, nil, fmt.Errorf("%s: its %s would take %d bytes, want at most %d: %w", path, name, len(b), most, limits.ErrTooLarge)
	}
	return b, k.warnings, nil
}

// file returns what makes a file of the directory.
func (k *reader) file(name string) (func() ([]byte, error), error) {
	missing := &fs.PathError{Op: "read", Path: filepath.Join(k.f.Path, name), Err: fs.ErrNotExist}
	kind := k.string("tokenizer.ggml.model")
	if k.err != nil {
		return nil, k.err
	}
	switch name {
	case "config.json":
		return k.configJSON, nil
	case "tokenizer_config.json":
		return k.tokenizerConfig, nil
	case "tokenizer.json", "tokenizer.model":
		switch {
		case kind == spm && name == "tokenizer.model":
			return k.tokenizerModel, nil
		case kind == byteLevel && name == "tokenizer.json":
			return k.tokenizerJSON, nil
		case kind == spm || kind == byteLevel:
			return nil, missing
		case kind == "":
			return nil, fmt.Errorf("%s: no tokenizer: key \"tokenizer.ggml.model\" is not set", k.f.Path)
		}
		return nil, fmt.Errorf("%s: key \"tokenizer.ggml.model\" is %.40q, want %q or %q", k.f.Path, kind, spm, byteLevel)
	}
	return nil, missing
}
