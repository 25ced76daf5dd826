package lint

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Bounds in lines. Tests and generated files do not count.
const (
	MaxFile        = 600
	MaxCommandFile = 300  // a command parses, checks and prints
	MaxCommand     = 4600 // all of cmd/talf: 148 for each of its 31 commands
	MaxPackage     = 3000
)

// A Source is a Go file written by hand that is not a test.
type Source struct {
	Path  string // slash-separated, from the repository's root
	Lines int
}

// Evaluator is the one package whose files may be longer than MaxFile: they
// follow the chapters of jinja2 and of Python.
const Evaluator = "model/chat/internal/jinja"

// LargePackages are the packages that may be larger than MaxPackage, with the reason.
var LargePackages = map[string]string{
	Evaluator:              "the Jinja language: docs/adr/0004-chat-templates.md",
	"compute/computetest":  "one suite for all operations, which share a device under test and the reference; levels of trees are a package of their own",
	"compute/cpu":          "the operations of one device share its buffers, weights, workers and their scratch memory; kernels and topology are packages of their own",
	"compute/cpu/kern":     "one table of functions for each class of processor, with plain Go beside each function as the oracle of the others",
	"compute/cuda":         "the operations of one queue share its arguments, scratch memory and passes; driver and kernels are packages of their own",
	"compute/cuda/ptxtest": "one interpreter: decoding chooses a warp's methods, and all of them keep the state of its registers, its memory and its order",
	"tools/avogen":         "the kernels of all classes share registers, masks, constants and prefetching, and a class is what some of them emit",
	"model/tokenizer":      "tokenizer.json as a whole: normalizer, splitter, model, post-processor and decoder work on one text and its offsets",
}

// Oversized returns one sentence for each file, package or command directory
// above its bound.
func Oversized(files []Source) []string {
	var bad []string
	check := func(what string, lines, bound int) {
		if lines > bound {
			bad = append(bad, fmt.Sprintf("%s has %d lines, more than %d", what, lines, bound))
		}
	}
	packages := map[string]int{}
	commands := 0
	for _, f := range files {
		dir := path.Dir(f.Path)
		packages[dir] += f.Lines
		switch {
		case strings.HasPrefix(f.Path, "cmd/talf/"):
			commands += f.Lines
			check(f.Path, f.Lines, MaxCommandFile)
		case dir != Evaluator:
			check(f.Path, f.Lines, MaxFile)
		}
	}
	for dir, lines := range packages {
		// cmd/talf has a bound of its own.
		if LargePackages[dir] == "" && !strings.HasPrefix(dir+"/", "cmd/talf/") {
			check(dir, lines, MaxPackage)
		}
	}
	check("cmd/talf", commands, MaxCommand)
	slices.Sort(bad)
	return bad
}
