// Package demo writes the text of the embedded example, stories and sums, and has the small
// target model that this project trained on such text.
//
// The text is drawn from a seed: the same seed gives the same documents on every platform,
// another seed fresh ones. Documents are split into three streams by a hash of their prompt, so
// that whatever the seeds, no prompt of a test was in the model's training text.
package demo

import (
	"embed"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"

	"talf/internal/durable"
	"talf/internal/vfs"
)

// Document is one story or sum. Answer starts with the white space that
// separates it from Prompt.
type Document struct {
	Prompt string
	Answer string
}

// Text is the whole document.
func (d Document) Text() string { return d.Prompt + d.Answer }

// The streams, by the prompt's hash modulo 16.
const (
	ForTraining   = 0 // 0 to 12
	ForValidation = 13
	ForTesting    = 14 // 14 and 15
)

// Stream returns the stream of the documents with a prompt.
func Stream(prompt string) int {
	h := fnv.New32a()
	h.Write([]byte(prompt))
	// FNV's low bits alone are weak for texts with equal endings.
	s := h.Sum32()
	switch m := (s ^ s>>16) % 16; {
	case m < ForValidation:
		return ForTraining
	case m < ForTesting:
		return ForValidation
	}
	return ForTesting
}

// draw writes n documents of one stream and adds up the information of the
// choices in their answers' and prompts' templates, in bits.
func draw(seed uint64, n, from int) ([]Document, float64) {
	w := NewWriter(seed)
	out := make([]Document, 0, n)
	bits := 0.0
	for len(out) < n {
		w.bits = 0
		var d Document
		if w.Intn(3) == 0 {
			d = w.sum()
		} else {
			d = w.Story()
		}
		if Stream(d.Prompt) == from {
			out = append(out, d)
			bits += w.bits
		}
	}
	return out, bits
}

// Corpus writes n training documents, two stories to one sum.
func Corpus(seed uint64, n int) []Document {
	d, _ := draw(seed, n, ForTraining)
	return d
}

// Validation writes n documents that are in no Corpus.
func Validation(seed uint64, n int) []Document {
	d, _ := draw(seed, n, ForValidation)
	return d
}

// Prompts writes n prompts of documents that are in no Corpus and no
// Validation: beginnings of stories, and questions.
func Prompts(seed uint64, n int) []string {
	d, _ := draw(seed, n, ForTesting)
	out := make([]string, n)
	for i := range d {
		out[i] = d[i].Prompt
	}
	return out
}

//go:embed target
var target embed.FS

// Unpack writes the embedded target model to the folder dir, which it creates:
// a Hugging Face model directory.
func Unpack(dir string) error { return unpack(dir, func(string) bool { return true }) }

// UnpackTokenizer writes only the files of the target's tokenizer.
func UnpackTokenizer(dir string) error {
	return unpack(dir, func(name string) bool { return strings.HasPrefix(name, "tokenizer") })
}

func unpack(dir string, want func(name string) bool) error {
	if err := durable.MakeDirs(dir); err != nil {
		return fmt.Errorf("unpack the demo target: %w", err)
	}
	files, err := fs.ReadDir(target, "target")
	if err != nil {
		return fmt.Errorf("unpack the demo target: %w", err)
	}
	for _, f := range files {
		if !want(f.Name()) {
			continue
		}
		b, err := target.ReadFile("target/" + f.Name())
		if err != nil {
			return fmt.Errorf("unpack the demo target: %w", err)
		}
		if err := WriteFile(filepath.Join(dir, f.Name()), b); err != nil {
			return fmt.Errorf("unpack the demo target: %w", err)
		}
	}
	return nil
}

// WriteFile writes a whole file or none, and does nothing if it is already there.
func WriteFile(path string, b []byte) error {
	if old, err := vfs.ReadFile(path); err == nil && string(old) == string(b) {
		return nil
	}
	return durable.WriteFile(path, b)
}

// NewRand returns the source of the texts with a seed.
func NewRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0x74616c66)) }
